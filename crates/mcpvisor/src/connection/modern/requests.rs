//! Translates requests to the modern era and back.
//!
//! Every modern request carries our name and capabilities. Methods that the era lacks are replaced:
//! a ping becomes `server/discover`, a subscription part of the listen request, and the log level
//! part of every request.

use mcpvisor_core::CallId;
use rmcp::model::{
    ClientCapabilities, ClientRequest, DiscoverRequest, DiscoverRequestParams, GetMeta,
    LoggingLevel, NumberOrString, PingRequest, ProgressToken, ServerResult,
};

use super::session::ModernSession;
use super::subscriptions::SubscribeOutcome;
use crate::api::reply::Failure;
use crate::connection::era;
use crate::connection::session::Session;
use crate::connection::session::pending::{InternalFailure, InternalRequest};
use crate::link::{Link, TaskParam, tool_name};
use crate::server::actor::now;
use crate::server::call::Call;

/// What to do with a request in the modern era.
enum Translated {
    /// Send it.
    Send,
    /// Nothing to send: requests of the client carry this level from now on.
    SetLevel(LoggingLevel),
    /// Add this URI to the listen request.
    Subscribe(String),
    /// Remove this URI from the listen request.
    Unsubscribe(String),
}

impl ModernSession {
    fn translate(
        &mut self,
        request: &mut ClientRequest,
        capabilities: Option<ClientCapabilities>,
    ) -> Translated {
        match request {
            ClientRequest::PingRequest(_) => {
                *request =
                    ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
            }
            ClientRequest::SetLevelRequest(set) => {
                return Translated::SetLevel(set.params.level);
            }
            ClientRequest::SubscribeRequest(subscribe) => {
                return Translated::Subscribe(subscribe.params.uri.clone());
            }
            ClientRequest::UnsubscribeRequest(unsubscribe) => {
                return Translated::Unsubscribe(unsubscribe.params.uri.clone());
            }
            _ => {}
        }
        if let Some(state) = &self.param_headers
            && tool_name(request).is_some()
        {
            state.headers.set_headers(request);
        }
        self.add_meta(request);
        if let Some(mut capabilities) = capabilities {
            let extensions = &mut capabilities.extensions;
            *extensions = extensions.take().or_else(|| self.extensions.clone());
            let capabilities = era::modern_capabilities(capabilities);
            request.get_meta_mut().set_client_capabilities(capabilities);
        }
        Translated::Send
    }

    /// Adds our version, name and capabilities to a request.
    pub(super) fn add_meta(&self, request: &mut ClientRequest) {
        let meta = request.get_meta_mut();
        for (name, value) in self.meta.iter() {
            meta.insert(name.clone(), value.clone());
        }
    }
}

impl<L: Link> Session<'_, L> {
    /// Translates a call to the session's era. `None`: the call is not sent by itself.
    pub(crate) fn prepare_call(&mut self, mut call: Box<Call>) -> Option<Box<Call>> {
        let Some(request) = &mut call.request else {
            return Some(call);
        };
        let task = call.task.filter(|_| self.calls_as_tasks);
        set_task(request, task);
        let Some(modern) = &mut self.modern else {
            translate_to_legacy(request);
            return self.prepare_setting(call);
        };
        let client = call.client;
        let own = call.capabilities.as_deref().cloned();
        let callbacks = call.callbacks.as_ref();
        let capabilities = own.or_else(|| Some(callbacks?.callbacks().capabilities()));
        let answer = match modern.translate(request, capabilities) {
            Translated::Send => {
                if let Some(level) = self.settings.own_levels.get(&client) {
                    set_log_level(request, *level);
                }
                return Some(call);
            }
            Translated::SetLevel(level) => {
                self.set_own_level(client, level);
                Ok(ServerResult::empty(()))
            }
            Translated::Subscribe(uri) => match modern.subscriptions.subscribe(now(), &uri) {
                SubscribeOutcome::Active => {
                    self.record_subscription(client, &uri);
                    Ok(ServerResult::empty(()))
                }
                SubscribeOutcome::Pending => {
                    modern.subscribing.push((uri, call));
                    self.send_listen_request_if_due();
                    return None;
                }
                SubscribeOutcome::Unsupported => Err(Failure::InvalidRequest(no_subscriptions())),
            },
            Translated::Unsubscribe(uri) => {
                self.unsubscribe(client, &uri);
                self.send_listen_request_if_due();
                Ok(ServerResult::empty(()))
            }
        };
        self.batch.finish_locally(call, answer);
        None
    }

    /// Translates an internal request likewise.
    pub(crate) fn prepare_internal(
        &mut self,
        mut internal: InternalRequest,
    ) -> Option<InternalRequest> {
        let Some(modern) = &mut self.modern else {
            if self.prepare_restored_setting(&mut internal) {
                return Some(internal);
            }
            let _ = internal.reply.send(Ok(ServerResult::empty(())));
            return None;
        };
        if let Some(headers) = &mut modern.param_headers {
            headers.on_internal_request(&internal.request);
        }
        let reply = match modern.translate(&mut internal.request, None) {
            Translated::Send => return Some(internal),
            // It was unsubscribed meanwhile.
            Translated::Subscribe(uri) if !modern.subscriptions.contains(&uri) => {
                Ok(ServerResult::empty(()))
            }
            Translated::Subscribe(uri) => match modern.subscriptions.subscribe(now(), &uri) {
                SubscribeOutcome::Active | SubscribeOutcome::Pending => Ok(ServerResult::empty(())),
                SubscribeOutcome::Unsupported => {
                    Err(InternalFailure::Unreadable(no_subscriptions()))
                }
            },
            Translated::SetLevel(_) | Translated::Unsubscribe(_) => Ok(ServerResult::empty(())),
        };
        let _ = internal.reply.send(reply);
        None
    }

    /// Sends a call once more on this connection, under a new id.
    pub(crate) fn resend_call(&mut self, mut call: Box<Call>) {
        let id = self.task.slot.calls.next_id();
        if let Some(request) = &mut call.request {
            renew_progress_token(request, id);
        }
        if let Some(call) = self.prepare_call(call) {
            self.send_call(id, call);
        }
    }
}

/// Requests log messages from a level on, unless the caller did so for this request.
fn set_log_level(request: &mut ClientRequest, level: LoggingLevel) {
    let meta = request.get_meta_mut();
    if meta.log_level().is_none() {
        meta.set_log_level(level);
    }
}

/// Sets whether a tool call is sent as a task. A retried call may come from another era.
fn set_task(request: &mut ClientRequest, task: Option<TaskParam>) {
    if let ClientRequest::CallToolRequest(call) = request {
        match task {
            Some(task) => drop(call.extensions.insert(task)),
            None => drop(call.extensions.remove::<TaskParam>()),
        }
    }
}

/// Translates a retried call back if its new connection is of the legacy era.
fn translate_to_legacy(request: &mut ClientRequest) {
    if matches!(request, ClientRequest::DiscoverRequest(_)) {
        *request = ClientRequest::PingRequest(PingRequest::default());
    }
}

/// The progress token is the request id, so it changes with the id.
fn renew_progress_token(request: &mut ClientRequest, id: CallId) {
    let meta = request.get_meta_mut();
    if meta.get_progress_token().is_some() {
        meta.set_progress_token(ProgressToken(NumberOrString::Number(id.0 as i64)));
    }
}

pub(super) fn no_subscriptions() -> String {
    "the server does not support resource subscriptions".to_owned()
}
