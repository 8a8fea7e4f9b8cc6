//! The state of a session in the modern era, and the calls that it holds off the wire.

use std::sync::Arc;
use std::time::Instant;

use mcpvisor_core::CallId;
use rmcp::ErrorData;
use rmcp::model::{
    ClientRequest, CustomResult, ErrorCode, ExtensionCapabilities, RequestMetaObject, ResultType,
    ServerPeerInfo, ServerResult,
};

use super::era_change::{EraCheck, may_mean_era_change};
use super::header_mismatch::ParamHeaderState;
use super::subscriptions::Subscriptions;
use crate::api::reply::Failure;
use crate::api::request::{INPUT_REQUIRED, result_type};
use crate::connection::era;
use crate::connection::session::{RequiredInput, Session};
use crate::link::Link;
use crate::server::call::Call;
use crate::server::slot::ServerSlot;

/// What a session has only in the modern era.
pub(crate) struct ModernSession {
    /// The metadata of every request.
    pub(super) meta: RequestMetaObject,
    /// The extensions that every request declares.
    pub(super) extensions: Option<ExtensionCapabilities>,
    pub(crate) subscriptions: Subscriptions,
    /// Subscribe calls that wait for the server's acknowledgement, with their URIs.
    pub(super) subscribing: Vec<(String, Box<Call>)>,
    /// Only over HTTP.
    pub(super) param_headers: Option<ParamHeaderState>,
    pub(super) era_check: Option<EraCheck>,
    /// The warning about missing server requests was logged.
    warned: bool,
}

impl ModernSession {
    pub(crate) fn new(slot: &Arc<ServerSlot>, info: &ServerPeerInfo, now: Instant) -> Self {
        let uris = slot
            .restart_state()
            .session
            .uris()
            .map(str::to_owned)
            .collect();
        let meta = era::request_meta(&slot.host.client);
        let is_http = slot.config().transport.is_http();
        Self {
            meta,
            extensions: slot.host.extensions().cloned(),
            subscriptions: Subscriptions::new(&info.capabilities, uris, now),
            subscribing: Vec::new(),
            param_headers: is_http.then(ParamHeaderState::default),
            era_check: None,
            warned: false,
        }
    }
}

impl<L: Link> Session<'_, L> {
    /// Handles the answer to a call, which may require input first.
    pub(crate) fn on_modern_response(
        &mut self,
        call: Box<Call>,
        mut result: Result<ServerResult, ErrorData>,
    ) {
        self.warn_of_missing_server_requests(&result);
        match &mut result {
            // Its caller collects the input.
            Ok(ServerResult::CustomResult(raw)) if call.capabilities.is_some() => {
                if let Some(unknown) = unknown_round(&call, raw) {
                    let problem = format!("unknown result type {unknown:?}");
                    return self.batch.finish_unreadable(call, problem);
                }
            }
            Ok(ServerResult::InputRequiredResult(required)) => {
                let required = RequiredInput::from(required.clone());
                return self.collect_input(call, required);
            }
            Ok(ServerResult::CustomResult(raw)) => {
                if let Some(required) = RequiredInput::of_raw(&call, raw) {
                    return self.collect_input(call, required);
                }
            }
            Ok(ServerResult::ListToolsResult(page)) => self.update_param_headers(page),
            Err(error) if error.code == ErrorCode::HEADER_MISMATCH => {
                return self.on_header_mismatch(call, error.clone());
            }
            Err(error) if may_mean_era_change(error) => self.check_era(),
            _ => {}
        }
        if let Some(unknown) = result.as_ref().ok().and_then(unknown_result_type) {
            let problem = format!("unknown result type {:?}", unknown.as_str());
            return self.batch.finish_unreadable(call, problem);
        }
        self.batch.finish(call, result.map_err(Failure::Error));
    }

    /// Logs once how to reach a server that can send its own requests only in an older era.
    fn warn_of_missing_server_requests(&mut self, answer: &Result<ServerResult, ErrorData>) {
        let slot = &self.task.slot;
        if let Some(modern) = &mut self.modern
            && !modern.warned
            && slot.host.answers_requests()
            && era::lacks_server_requests(answer)
        {
            modern.warned = true;
            tracing::warn!(server = %slot.name(), "the server cannot send requests in protocol 2026-07-28; set preferOlderProtocol in its entry, or ServerConfig::prefer_older_protocol");
        }
    }

    /// Takes a call that is not on the wire at the moment.
    pub(crate) fn take_held_call(&mut self, id: CallId) -> Option<Box<Call>> {
        let held = self.input_rounds.take(id);
        if let Some(call) = held.or_else(|| self.settings.take_waiting(id)) {
            return Some(call);
        }
        let modern = self.modern.as_mut()?;
        let subscribing = &mut modern.subscribing;
        if let Some(at) = subscribing.iter().position(|(_, call)| call.id == id) {
            return Some(subscribing.swap_remove(at).1);
        }
        modern.param_headers.as_mut()?.take_call(id)
    }

    /// Takes all calls that are not on the wire, and whether the server may have run each.
    pub(crate) fn drain_held_calls(&mut self) -> Vec<(Box<Call>, bool)> {
        let mut held: Vec<_> = self.input_rounds.drain().collect();
        let waiting = self.settings.drain_waiting();
        held.extend(waiting.map(|call| (call, false)));
        let Some(modern) = &mut self.modern else {
            return held;
        };
        let subscribing = modern.subscribing.drain(..);
        held.extend(subscribing.map(|(_, call)| (call, false)));
        if let Some(headers) = &mut modern.param_headers {
            // The server refused these calls before it ran them.
            held.extend(headers.drain_calls().map(|call| (call, false)));
        }
        held
    }
}

/// The type of the result of a round, if the protocol does not define it and a typed result is
/// expected.
fn unknown_round(call: &Call, raw: &CustomResult) -> Option<String> {
    if matches!(call.request, Some(ClientRequest::CustomRequest(_))) {
        return None;
    }
    let known = [ResultType::COMPLETE.as_str(), INPUT_REQUIRED, "task"];
    let result_type = result_type(raw.0.as_object()?)?;
    (!known.contains(&result_type)).then(|| result_type.to_owned())
}

/// The type of a result, if the protocol does not define it.
fn unknown_result_type(result: &ServerResult) -> Option<&ResultType> {
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
