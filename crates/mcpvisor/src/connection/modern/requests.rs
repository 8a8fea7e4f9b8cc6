//! What is different about a session of the modern era.
//!
//! Every request says who we are and what we offer. What the era does not have is done by what it
//! has instead: a ping is a discovery, a subscription a part of the one request that listens, the
//! log level a part of every request.

use std::time::Instant;

use mcpvisor_core::CallId;
use rmcp::model::{
    ClientRequest, DiscoverRequest, DiscoverRequestParams, GetMeta, LoggingLevel, NumberOrString,
    PingRequest, ProgressToken, RequestMetaObject, ResultType, ServerPeerInfo, ServerResult, Tool,
};

use super::era_change::Doubt;
use super::param_headers::ParamHeaders;
use super::subscriptions::Listen;
use crate::connection::era;
use crate::server::call::Call;
use crate::server::restart_state::SessionSettings;
use crate::server::slot::ServerSlot;

/// The state of a modern session.
pub(in crate::connection) struct Modern {
    meta: RequestMetaObject,
    pub(in crate::connection) listen: Listen,
    /// Over HTTP, the arguments that are headers too.
    pub(in crate::connection) headers: Option<ParamHeaders>,
    /// Subscriptions that wait for the server's word.
    pub(in crate::connection) subscribing: Vec<(String, Box<Call>)>,
    /// Calls that wait for a new list of tools, because their headers were wrong, and what the
    /// server said of them.
    pub(in crate::connection) mismatched: Vec<(Box<Call>, rmcp::ErrorData)>,
    /// The tools of the runtime's own listing that is under way, as far as it has come.
    pub(in crate::connection) listing: Vec<Tool>,
    /// Whether it still is a modern server was asked.
    pub(in crate::connection) doubt: Option<Doubt>,
    /// The log says that the server could ask its questions only in an older era.
    pub(in crate::connection) advised: bool,
}

/// What a request means in this era.
pub(in crate::connection) enum Meaning {
    /// It is sent.
    Send,
    /// There is nothing to send.
    Done,
    /// It changes what is listened for.
    Subscribe(String),
    /// Likewise.
    Unsubscribe(String),
}

impl Modern {
    pub(in crate::connection) fn new(
        slot: &ServerSlot,
        info: &ServerPeerInfo,
        now: Instant,
    ) -> Self {
        let SessionSettings {
            subscriptions: uris,
            log_level: level,
        } = slot.restart_state().session.clone();
        let mut modern = Self {
            meta: era::request_meta(&slot.host.client),
            listen: Listen::new(&info.capabilities, uris, now),
            headers: slot
                .config()
                .transport
                .is_http()
                .then(ParamHeaders::default),
            subscribing: Vec::new(),
            mismatched: Vec::new(),
            listing: Vec::new(),
            doubt: None,
            advised: false,
        };
        if let Some(level) = level {
            modern.set_log_level(level);
        }
        modern
    }

    fn set_log_level(&mut self, level: LoggingLevel) {
        self.meta.set_log_level(level);
    }

    /// Makes a request one of this era.
    pub(in crate::connection) fn translate(&mut self, request: &mut ClientRequest) -> Meaning {
        match request {
            ClientRequest::PingRequest(_) => {
                *request =
                    ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
            }
            ClientRequest::SetLevelRequest(set) => {
                let level = set.params.level;
                self.set_log_level(level);
                return Meaning::Done;
            }
            ClientRequest::SubscribeRequest(subscribe) => {
                return Meaning::Subscribe(subscribe.params.uri.clone());
            }
            ClientRequest::UnsubscribeRequest(unsubscribe) => {
                return Meaning::Unsubscribe(unsubscribe.params.uri.clone());
            }
            ClientRequest::CallToolRequest(call) => {
                if let Some(headers) = &self.headers {
                    headers.mark(call);
                }
            }
            _ => {}
        }
        self.sign(request);
        Meaning::Send
    }

    /// Says in a request who we are and what we offer.
    pub(in crate::connection) fn sign(&self, request: &mut ClientRequest) {
        let meta = request.get_meta_mut();
        for (name, value) in self.meta.iter() {
            meta.insert(name.clone(), value.clone());
        }
    }
}

/// The other way round: a request that was meant for the modern era and goes to another.
pub(in crate::connection) fn translate_back(request: &mut ClientRequest) {
    if matches!(request, ClientRequest::DiscoverRequest(_)) {
        *request = ClientRequest::PingRequest(PingRequest {
            method: Default::default(),
            extensions: Default::default(),
        });
    }
}

/// A request that goes out again has another id, and so has its progress.
pub(in crate::connection) fn renew_progress(request: &mut ClientRequest, id: CallId) {
    let meta = request.get_meta_mut();
    if meta.get_progress_token().is_some() {
        meta.set_progress_token(ProgressToken(NumberOrString::Number(id.0 as i64)));
    }
}

/// Whether the kind of a result is one that nobody knows.
pub(in crate::connection) fn is_of_unknown_type(result: &ServerResult) -> Option<&ResultType> {
    let result_type = match result {
        ServerResult::CompleteResult(result) => &result.result_type,
        ServerResult::GetPromptResult(result) => &result.result_type,
        ServerResult::ListPromptsResult(result) => &result.result_type,
        ServerResult::ListResourcesResult(result) => &result.result_type,
        ServerResult::ListResourceTemplatesResult(result) => &result.result_type,
        ServerResult::ReadResourceResult(result) => &result.result_type,
        ServerResult::ListToolsResult(result) => &result.result_type,
        ServerResult::CallToolResult(result) => &result.result_type,
        _ => return None,
    };
    result_type
        .as_ref()
        .filter(|result_type| **result_type != ResultType::COMPLETE)
}
