//! The session's part in the modern era: what is listened for, asked back and asked again.

use mcpvisor_core::machine::CallEnd;
use mcpvisor_core::{CallId, ListKind};
use rmcp::ErrorData;
use rmcp::model::{
    ClientRequest, ErrorCode, ListToolsResult, NotificationMetaObject, ServerResult,
    SubscriptionsAcknowledgedNotification, Tool,
};

use super::era_change::is_doubtful;
use super::input_rounds::Resumed;
use super::param_headers;
use super::requests::{Meaning, is_of_unknown_type, renew_progress, translate_back};
use super::subscriptions::Wish;
use crate::api::reply::{Answer, Failure};
use crate::connection::era;
use crate::connection::pending::{Holder, InternalFailure, InternalRequest};
use crate::connection::session::Session;
use crate::link::{Link, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::call::Call;

/// Why a request that listens is cancelled when another took its place.
const REPLACED: &str = "replaced by a newer one";

impl<L: Link> Session<'_, L> {
    /// Makes a call one of the session's era. What is not sent at all does not come back.
    pub(in crate::connection) fn prepare(&mut self, mut call: Box<Call>) -> Option<Box<Call>> {
        let Some(request) = &mut call.request else {
            return Some(call);
        };
        let Some(modern) = &mut self.modern else {
            translate_back(request);
            return Some(call);
        };
        match modern.translate(request) {
            Meaning::Send => return Some(call),
            Meaning::Done => self.finish_here(call, Ok(ServerResult::empty(()))),
            Meaning::Subscribe(uri) => match modern.listen.subscribe(now(), &uri) {
                Wish::Granted => self.finish_here(call, Ok(ServerResult::empty(()))),
                Wish::Pending => {
                    modern.subscribing.push((uri, call));
                    self.listen_if_due();
                }
                Wish::Impossible => {
                    self.finish_here(call, Err(Failure::InvalidRequest(no_subscriptions())));
                }
            },
            Meaning::Unsubscribe(uri) => {
                self.unsubscribe(&uri);
                self.finish_here(call, Ok(ServerResult::empty(())));
                self.listen_if_due();
            }
        }
        None
    }

    /// A resource is no longer listened for. Who still waits to hear of it waits for nothing.
    fn unsubscribe(&mut self, uri: &str) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let over = modern.listen.unsubscribe(now(), uri);
        let waiting = modern.subscribing.extract_if(.., |(it, _)| it == uri);
        let waiting: Vec<_> = waiting.map(|(_, call)| call).collect();
        for id in over {
            self.stop_listening(id, "nothing is listened for any more");
        }
        for call in waiting {
            let problem = format!("{uri} was unsubscribed before the server acknowledged it");
            self.finish_here(call, Err(Failure::InvalidRequest(problem)));
        }
    }

    fn stop_listening(&mut self, id: CallId, why: &str) {
        self.pending.remove(id);
        self.link.cancel(id, why);
    }

    /// Likewise for a request of the runtime's own.
    pub(in crate::connection) fn prepare_own(
        &mut self,
        mut own: InternalRequest,
    ) -> Option<InternalRequest> {
        let Some(modern) = &mut self.modern else {
            return Some(own);
        };
        if is_first_page(&own.request) {
            modern.listing.clear();
        }
        match modern.translate(&mut own.request) {
            Meaning::Send => return Some(own),
            Meaning::Subscribe(uri) => {
                let wish = modern.listen.subscribe(now(), &uri);
                let answer = match wish {
                    Wish::Granted | Wish::Pending => Ok(ServerResult::empty(())),
                    Wish::Impossible => Err(InternalFailure::Unreadable(no_subscriptions())),
                };
                let _ = own.answer.send(answer);
            }
            Meaning::Done | Meaning::Unsubscribe(_) => {
                let _ = own.answer.send(Ok(ServerResult::empty(())));
            }
        }
        None
    }

    /// Issues the request that listens, if it is time.
    pub(in crate::connection) fn listen_if_due(&mut self) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let at = now();
        if modern.listen.due().is_none_or(|due| due > at) {
            return;
        }
        let id = self.task.slot.calls.next_id();
        let (mut request, over) = modern.listen.issue(at, id);
        modern.sign(&mut request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => self
                .pending
                .insert(id, ReplyKind::Any, position, Holder::Listen),
            Err(problem) => self.listen_ended(id, &Err(ErrorData::internal_error(problem, None))),
        }
        if let Some(over) = over {
            self.stop_listening(over, REPLACED);
        }
    }

    /// The server says what it will tell of.
    pub(in crate::connection) fn acknowledged(
        &mut self,
        told: SubscriptionsAcknowledgedNotification,
    ) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let meta = told.extensions.get::<NotificationMetaObject>();
        let meta = meta.or(told.params.meta.as_ref());
        let named = meta.and_then(NotificationMetaObject::subscription_id);
        let accepted = &told.params.notifications;
        let Some(acknowledged) = modern.listen.acknowledged(now(), named.as_ref(), accepted) else {
            return;
        };
        if !acknowledged.missing.is_empty() {
            let missing = acknowledged.missing.join(", ");
            let slot = &self.task.slot;
            log_limited!(slot.log_limit, WARN, server = %slot.name(), missing, "the server does not tell of these");
        }
        let waiting = std::mem::take(&mut modern.subscribing);
        let mut answers = Vec::new();
        for (uri, call) in waiting {
            if modern.listen.accepts(&uri) {
                answers.push((call, Ok(ServerResult::empty(()))));
            } else if modern.listen.due().is_some() {
                // It is in the next request.
                modern.subscribing.push((uri, call));
            } else {
                modern.listen.forget(&uri);
                let problem = format!("the server does not tell of changes of {uri}");
                answers.push((call, Err(Failure::InvalidRequest(problem))));
            }
        }
        if let Some(over) = acknowledged.over {
            self.stop_listening(over, REPLACED);
        }
        self.changed(&acknowledged.unheard);
        for (call, answer) in answers {
            self.finish(call, answer);
        }
    }

    /// The request that listens is over.
    pub(in crate::connection) fn listen_ended(
        &mut self,
        id: CallId,
        result: &Result<ServerResult, ErrorData>,
    ) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let unknown = matches!(result, Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND);
        modern.listen.ended(now(), id, unknown);
        if unknown {
            for (_, call) in std::mem::take(&mut modern.subscribing) {
                self.finish(call, Err(Failure::InvalidRequest(no_subscriptions())));
            }
        }
    }

    /// Says once how a server can ask what it could not ask.
    fn advise(&mut self, answer: &Result<ServerResult, ErrorData>) {
        let slot = &self.task.slot;
        if let Some(modern) = &mut self.modern
            && !modern.advised
            && slot.host.callbacks.answers()
            && era::cannot_ask(answer)
        {
            modern.advised = true;
            tracing::warn!(server = %slot.name(), "the server cannot ask questions in protocol 2026-07-28; set preferOlderProtocol in its entry, or ServerConfig::prefer_older_protocol");
        }
    }

    /// An answer to a caller in the modern era, which may be a question.
    pub(in crate::connection) fn answered_modern(
        &mut self,
        call: Box<Call>,
        mut result: Result<ServerResult, ErrorData>,
    ) {
        self.aliases.remove(&call.id);
        self.advise(&result);
        match &mut result {
            Ok(ServerResult::InputRequiredResult(required)) => {
                let required = required.clone();
                if let Err((call, problem)) = self.rounds.gather(call, required) {
                    self.finish(call, Err(Failure::InputUnavailable(problem)));
                }
                return;
            }
            Ok(ServerResult::ListToolsResult(page)) => self.learn_headers(page),
            Err(error) if error.code == ErrorCode::HEADER_MISMATCH => {
                if let Some(modern) = &mut self.modern
                    && modern.headers.is_some()
                    && call.tool_name().is_some()
                    && !call.relisted
                {
                    modern.mismatched.push((call, error.clone()));
                    self.changed(&[ListKind::Tools]);
                    return;
                }
            }
            Err(error) if is_doubtful(error) => self.doubt(),
            _ => {}
        }
        let unknown = result.as_ref().ok().and_then(is_of_unknown_type);
        if let Some(unknown) = unknown {
            let problem = format!("a result of the unknown type {:?}", unknown.as_str());
            self.observed.ended.push((call.id, CallEnd::Unreadable));
            let answer = Err(Failure::Unreadable(problem));
            self.answers.push((call.reply, answer));
            return;
        }
        self.finish(call, result.map_err(Failure::Error));
    }

    /// Learns which arguments are headers, and takes out the tools that cannot be used.
    pub(in crate::connection) fn learn_headers(&mut self, page: &mut ListToolsResult) {
        let Some(headers) = self.modern.as_mut().and_then(|it| it.headers.as_mut()) else {
            return;
        };
        for (tool, problem) in headers.learn(&mut page.tools) {
            let slot = &self.task.slot;
            log_limited!(slot.log_limit, WARN, server = %slot.name(), tool, problem, "a tool cannot be used and is left out");
        }
    }

    /// A listing of the runtime's own: after its last page, calls whose headers were wrong go out
    /// again, if the tool is still the one that was meant.
    pub(in crate::connection) fn listed(&mut self, result: &mut ServerResult) {
        let ServerResult::ListToolsResult(page) = result else {
            return;
        };
        self.learn_headers(page);
        let Some(modern) = self.modern.as_mut().filter(|it| it.headers.is_some()) else {
            return;
        };
        modern.listing.extend(page.tools.iter().cloned());
        if page.next_cursor.is_some() {
            return;
        }
        let tools = std::mem::take(&mut modern.listing);
        let pinned = self.task.slot.config().pin;
        for (mut call, error) in std::mem::take(&mut modern.mismatched) {
            if is_still_meant(&call, &tools, pinned) {
                call.relisted = true;
                self.send_again(call);
            } else {
                self.finish(call, Err(Failure::Error(error)));
            }
        }
    }

    /// A request of the runtime's own failed. If it was for tools, calls whose headers were wrong
    /// have waited for nothing, and what the server said of them is their answer.
    pub(in crate::connection) fn not_listed(&mut self, reply_kind: ReplyKind) {
        let Some(modern) = self.modern.as_mut() else {
            return;
        };
        if reply_kind != ReplyKind::ListTools {
            return;
        }
        modern.listing.clear();
        for (call, error) in std::mem::take(&mut modern.mismatched) {
            self.finish(call, Err(Failure::Error(error)));
        }
    }

    /// A call goes on with its inputs, or does not.
    pub(in crate::connection) fn resume(&mut self, resumed: Resumed) {
        match resumed {
            Resumed::Again(call) => self.send_again(call),
            Resumed::Failed(call, problem) => {
                self.finish(call, Err(Failure::InputUnavailable(problem)));
            }
        }
        self.flush();
    }

    /// Sends a call once more, under a new id.
    fn send_again(&mut self, mut call: Box<Call>) {
        let id = self.task.slot.calls.next_id();
        if let Some(request) = &mut call.request {
            renew_progress(request, id);
        }
        self.aliases.insert(call.id, id);
        if let Some(call) = self.prepare(call) {
            self.send(id, call);
        }
    }

    /// Answers a caller with the next flush, with what the server said.
    pub(in crate::connection) fn finish(&mut self, call: Box<Call>, answer: Answer) {
        self.end(call, answer, CallEnd::Answered);
    }

    /// Answers a caller with the next flush; the server was not asked.
    pub(in crate::connection) fn finish_here(&mut self, call: Box<Call>, answer: Answer) {
        self.end(call, answer, CallEnd::Local);
    }

    fn end(&mut self, call: Box<Call>, answer: Answer, end: CallEnd) {
        if answer.is_ok() {
            self.observed
                .confirmed
                .extend(crate::connection::session::confirmed(&call));
        }
        self.observed.ended.push((call.id, end));
        self.answers.push((call.reply, answer));
    }

    /// Takes a call that is not on the wire at the moment.
    pub(in crate::connection) fn take_held(&mut self, id: CallId) -> Option<Box<Call>> {
        if let Some(call) = self.rounds.take(id) {
            return Some(call);
        }
        let modern = self.modern.as_mut()?;
        let waits = modern
            .subscribing
            .iter()
            .position(|(_, call)| call.id == id);
        if let Some(at) = waits {
            return Some(modern.subscribing.swap_remove(at).1);
        }
        let waits = modern
            .mismatched
            .iter()
            .position(|(call, _)| call.id == id)?;
        Some(modern.mismatched.swap_remove(waits).0)
    }

    /// The calls that are not on the wire at the moment, and whether any of each was.
    pub(in crate::connection) fn drain_held(&mut self) -> Vec<(Box<Call>, bool)> {
        let mut held: Vec<_> = self.rounds.drain().map(|call| (call, true)).collect();
        if let Some(modern) = &mut self.modern {
            held.extend(modern.subscribing.drain(..).map(|(_, call)| (call, false)));
            // They were refused before they ran.
            held.extend(modern.mismatched.drain(..).map(|(call, _)| (call, false)));
        }
        held
    }
}

/// Whether the tool of a call is still the one that was meant, among the tools of now.
fn is_still_meant(call: &Call, tools: &[Tool], pinned: bool) -> bool {
    let Some(name) = call.tool_name() else {
        return false;
    };
    let was = call
        .catalog_at_send
        .as_ref()
        .and_then(|seen| seen.tool(name));
    let now = tools.iter().find(|tool| tool.name == name);
    param_headers::is_meant(was, now, pinned)
}

/// Whether a listing of tools begins with it.
fn is_first_page(request: &ClientRequest) -> bool {
    let ClientRequest::ListToolsRequest(list) = request else {
        return false;
    };
    let params = list.params.as_ref();
    params.is_none_or(|params| params.cursor.is_none())
}

fn no_subscriptions() -> String {
    "the server offers no subscriptions to resources".to_owned()
}

/// Whether a request may be answered with a question, so that it has to be kept.
pub(in crate::connection) fn may_be_asked_back(request: Option<&ClientRequest>) -> bool {
    matches!(
        request,
        Some(
            ClientRequest::CallToolRequest(_)
                | ClientRequest::GetPromptRequest(_)
                | ClientRequest::ReadResourceRequest(_)
        )
    )
}
