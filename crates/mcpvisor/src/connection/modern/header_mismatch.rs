//! Calls that were refused for wrong parameter headers, and sent again after a new tool listing.

use mcpvisor_core::{CallId, ListKind};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ListToolsResult, ServerResult, Tool};

use super::param_headers::{ParamHeaders, is_same_tool};
use crate::api::reply::Failure;
use crate::connection::session::Session;
use crate::link::{Link, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::call::Call;

/// The parameter headers of a session, and the calls that wait for an update.
#[derive(Default)]
pub(super) struct ParamHeaderState {
    pub(super) headers: ParamHeaders,
    /// Calls that were refused for wrong headers and wait for a new tool listing, with the refusal.
    mismatched: Vec<(Box<Call>, ErrorData)>,
    /// The tools of the internal listing in progress.
    listing: Vec<Tool>,
}

impl ParamHeaderState {
    /// Starts a new listing with its first page.
    pub(super) fn on_internal_request(&mut self, request: &ClientRequest) {
        if let ClientRequest::ListToolsRequest(list) = request
            && list.params.as_ref().is_none_or(|it| it.cursor.is_none())
        {
            self.listing.clear();
        }
    }

    pub(super) fn take_call(&mut self, id: CallId) -> Option<Box<Call>> {
        let at = self.mismatched.iter().position(|(call, _)| call.id == id)?;
        Some(self.mismatched.swap_remove(at).0)
    }

    pub(super) fn drain_calls(&mut self) -> impl Iterator<Item = Box<Call>> {
        self.mismatched.drain(..).map(|(call, _)| call)
    }
}

impl<L: Link> Session<'_, L> {
    fn param_headers(&mut self) -> Option<&mut ParamHeaderState> {
        self.modern.as_mut()?.param_headers.as_mut()
    }

    /// A call was refused for wrong headers: once, it waits for a new tool listing.
    pub(super) fn on_header_mismatch(&mut self, call: Box<Call>, error: ErrorData) {
        let may_retry = call.tool_name().is_some() && !call.relisted;
        match self.param_headers() {
            Some(headers) if may_retry => {
                headers.mismatched.push((call, error));
                self.batch.add_changed_lists(&[ListKind::Tools]);
            }
            _ => self.batch.finish(call, Err(Failure::Error(error))),
        }
    }

    /// Learns the parameter headers of listed tools, and removes tools whose headers are invalid.
    pub(super) fn update_param_headers(&mut self, page: &mut ListToolsResult) {
        let Some(state) = self.param_headers() else {
            return;
        };
        for (tool, problem) in state.headers.update(&mut page.tools) {
            let slot = &self.task.slot;
            log_limited!(slot.log_limit, WARN, server = %slot.name(), tool, problem, "removed a tool with invalid headers");
        }
    }

    /// A page of an internal listing arrived. After the last page of tools, calls with wrong
    /// headers are sent again if their tool has not changed.
    pub(crate) fn on_page_listed(&mut self, result: &mut ServerResult) {
        let ServerResult::ListToolsResult(page) = result else {
            return;
        };
        self.update_param_headers(page);
        let Some(state) = self.param_headers() else {
            return;
        };
        state.listing.extend(page.tools.iter().cloned());
        if page.next_cursor.is_some() {
            return;
        }
        let tools = std::mem::take(&mut state.listing);
        let mismatched = std::mem::take(&mut state.mismatched);
        let pinned = self.task.slot.config().pin;
        for (mut call, error) in mismatched {
            if is_tool_unchanged(&call, &tools, pinned) {
                call.relisted = true;
                self.resend_call(call);
            } else {
                self.batch.finish(call, Err(Failure::Error(error)));
            }
        }
    }

    /// An internal request failed. If it listed tools, calls with wrong headers end with their
    /// refusal.
    pub(crate) fn on_listing_failed(&mut self, reply_kind: ReplyKind) {
        if reply_kind != ReplyKind::ListTools {
            return;
        }
        let Some(state) = self.param_headers() else {
            return;
        };
        state.listing.clear();
        for (call, error) in std::mem::take(&mut state.mismatched) {
            self.batch.finish(call, Err(Failure::Error(error)));
        }
    }
}

/// Whether the tool that a call was sent for is listed unchanged.
fn is_tool_unchanged(call: &Call, tools: &[Tool], pinned: bool) -> bool {
    let Some(name) = call.tool_name() else {
        return false;
    };
    let before = call
        .catalog_at_send
        .as_ref()
        .and_then(|seen| seen.tool(name));
    let now = tools.iter().find(|tool| tool.name == name);
    is_same_tool(before, now, pinned)
}
