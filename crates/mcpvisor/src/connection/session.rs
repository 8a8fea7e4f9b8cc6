//! The session: requests out, answers in, until the link breaks or the actor wants it closed.
//!
//! Messages are taken in batches, so that a busy connection costs the actor one message per batch.
//! The actor hears of an answer before its caller does: a caller that asks again at once never
//! finds its old place still taken.

use std::time::Instant;

use mcpvisor_core::machine::{
    CallEnd, Fault, FaultClass, MAX_FAULT_MESSAGE, Outcome, truncate_text,
};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, CallMap, Era, ListKind, SessionEvidence};
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, GetExtensions, NumberOrString,
    ProgressNotificationParam, ProtocolVersion, RequestId, ServerNotification, ServerPeerInfo,
    ServerRequest, ServerResult,
};

use super::era;
use super::modern::input_rounds::{Resumed, Rounds};
use super::modern::requests::Modern;
use super::modern::session::may_be_asked_back;
use super::pending::{Holder, InternalFailure, InternalRequest, Pending};
use super::server_requests::{Asked, refuse, unread};
use super::session_check::SessionCheck;
use super::{Command, Task, sleep_until};
use crate::api::callbacks::not_offered;
use crate::api::events::EventKind;
use crate::api::reply::{Answer, Failure, Reply};
use crate::link::{Inbound, Link, LinkDown, RejectReason, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::call::Call;
use crate::server::message::{ConfirmedSetting, ConnectionEvent, FailedCall, InboundSummary};

/// Messages that are taken in one go before commands are looked at again.
const BATCH: usize = 64;

pub(super) struct Session<'a, L> {
    pub(super) link: &'a mut L,
    pub(super) task: &'a mut Task,
    pub(super) pending: Pending,
    pub(super) observed: InboundSummary,
    pub(super) answers: Vec<(Reply, Answer)>,
    /// What the server asks of us.
    pub(super) asked: Asked,
    /// When the calls in flight were last told alive because the server waits for us.
    pub(super) rested_at: Option<Instant>,
    /// What was agreed on.
    pub(super) version: ProtocolVersion,
    /// Errors that may mean that the session is lost, and the ping that decides.
    pub(super) session_check: SessionCheck,
    /// What is different in the modern era.
    pub(super) modern: Option<Modern>,
    /// Calls that the server answered with a question.
    pub(super) rounds: Rounds,
    /// The ids on the wire of calls that were sent again.
    pub(super) aliases: CallMap<CallId>,
    /// Lists of whose changes the server tells.
    #[cfg(feature = "http")]
    announced: Vec<ListKind>,
}

/// The actor wants the connection closed, or is gone.
struct CloseWanted;

/// What one wait brought.
#[allow(
    clippy::large_enum_variant,
    reason = "it is looked at where it was made, and never kept"
)]
enum Turn {
    Command(Option<Command>),
    Inbound(Result<Inbound, LinkDown>),
    Answer(ClientJsonRpcMessage),
    Resumed(Resumed),
    Listen,
    Rest,
    SessionCheckTimedOut,
}

impl<'a, L: Link> Session<'a, L> {
    pub(super) fn new(
        link: &'a mut L,
        task: &'a mut Task,
        era: Era,
        info: &ServerPeerInfo,
    ) -> Self {
        let generation = task.report.generation;
        let asked = Asked::new(&task.slot, generation);
        let rounds = Rounds::new(&task.slot, &task.report.actor, generation);
        let modern = match era {
            Era::Modern => Some(Modern::new(&task.slot, info, now())),
            Era::Legacy => None,
        };
        Self {
            link,
            task,
            pending: Pending::default(),
            observed: InboundSummary::default(),
            answers: Vec::new(),
            asked,
            rested_at: None,
            version: info.protocol_version.clone(),
            session_check: SessionCheck::default(),
            modern,
            rounds,
            aliases: CallMap::default(),
            #[cfg(feature = "http")]
            announced: announced(&info.capabilities),
        }
    }

    /// Runs to the end of the connection and hands back what was not answered.
    pub(super) async fn run(mut self) {
        self.listen_if_due();
        let fault = loop {
            let due = self.modern.as_ref().and_then(|modern| modern.listen.due());
            let rest = self.rest_due();
            let check = self.session_check.due();
            let turn = tokio::select! {
                biased;
                command = self.task.commands.recv() => Turn::Command(command),
                inbound = self.link.next(&self.pending) => Turn::Inbound(inbound),
                answer = self.asked.next(), if self.asked.is_busy() => Turn::Answer(answer),
                resumed = self.rounds.next(), if self.rounds.is_busy() => Turn::Resumed(resumed),
                () = sleep_until(due), if due.is_some() => Turn::Listen,
                () = sleep_until(rest), if rest.is_some() => Turn::Rest,
                () = sleep_until(check), if check.is_some() => Turn::SessionCheckTimedOut,
            };
            match turn {
                Turn::Command(command) => {
                    if self.obey(command).is_err() {
                        break closed_by_us();
                    }
                }
                Turn::Inbound(Ok(inbound)) => self.take_batch(inbound),
                Turn::Inbound(Err(down)) => break self.task.fault_of(&down),
                Turn::Answer(answer) => {
                    // A link that takes no more says so itself.
                    let _ = self.link.push(answer);
                    self.rest();
                    self.flush();
                }
                Turn::Resumed(resumed) => self.resume(resumed),
                Turn::Listen => self.listen_if_due(),
                Turn::Rest => {
                    self.rest();
                    self.flush();
                }
                Turn::SessionCheckTimedOut => {
                    self.session_check_timed_out();
                    self.flush();
                }
            }
        };
        self.hand_back(fault);
    }

    /// Obeys what the actor has said so far, up to the wish to close.
    fn obey(&mut self, first: Option<Command>) -> Result<(), CloseWanted> {
        let mut next = first;
        loop {
            match next {
                Some(Command::Close) | None => return Err(CloseWanted),
                Some(Command::Start(call)) => self.start(call),
                Some(Command::Abandon { call, outcome }) => self.abandon(call, outcome),
                Some(Command::Internal(own)) => self.start_own(*own),
                #[cfg(feature = "http")]
                Some(Command::UpdateHeaders(endpoint)) => self.link.update_endpoint(&endpoint),
            }
            match self.task.commands.try_recv() {
                Ok(command) => next = Some(command),
                // Whether the actor is gone shows on the next turn.
                Err(_) => return Ok(()),
            }
        }
    }

    fn start(&mut self, call: Box<Call>) {
        match self.prepare(call) {
            Some(call) => self.send(call.id, call),
            None => self.flush(),
        }
    }

    /// Sends a call under an id, its own or another.
    pub(super) fn send(&mut self, id: CallId, mut call: Box<Call>) {
        let reply_kind = call.request.as_ref().map_or(ReplyKind::Any, ReplyKind::of);
        if !self.link.has_capacity() {
            self.finish_here(call, Err(Failure::SendBufferFull));
            return self.flush();
        }
        let asked_back = self.modern.is_some() && may_be_asked_back(call.request.as_ref());
        let keep = call.keep_request || asked_back;
        match self.link.push_request(id, &mut call.request, keep) {
            Ok(position) => {
                call.reply.set_sent();
                self.pending
                    .insert(id, reply_kind, position, Holder::Caller(call));
            }
            Err(problem) => {
                self.finish_here(call, Err(Failure::InvalidRequest(problem)));
                self.flush();
            }
        }
    }

    pub(super) fn start_own(&mut self, own: InternalRequest) {
        let Some(own) = self.prepare_own(own) else {
            return;
        };
        let InternalRequest {
            id,
            request,
            answer,
        } = own;
        let reply_kind = ReplyKind::of(&request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => {
                self.pending
                    .insert(id, reply_kind, position, Holder::Internal(answer));
            }
            Err(problem) => {
                let trouble = RequestFailure::NotWritten;
                let fault = Fault::new(class_of(trouble, None), self.task.slot.redact(problem));
                let _ = answer.send(Err(InternalFailure::Failed { trouble, fault }));
            }
        }
    }

    fn abandon(&mut self, id: CallId, outcome: Outcome) {
        if let Some(call) = self.take_held(id) {
            call.reply.send(Err(Failure::Outcome(outcome)));
            return;
        }
        if self.abandon_parked(id) {
            return;
        }
        let id = self.aliases.remove(&id).unwrap_or(id);
        // It may have been answered meanwhile.
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        let reached = self.link.cancel(id, reason(&outcome));
        match entry.holder {
            Holder::Caller(mut call) => {
                call.reply.set_written(reached);
                let outcome = if reached { outcome } else { unsent(outcome) };
                call.reply.send(Err(Failure::Outcome(outcome)));
            }
            Holder::Internal(_) => {
                self.not_listed(entry.reply_kind);
                self.flush();
            }
            Holder::Listen | Holder::SessionCheck => {}
        }
    }

    fn take_batch(&mut self, first: Inbound) {
        self.take(first);
        for _ in 1..BATCH {
            match self.link.try_next(&self.pending) {
                Some(inbound) => self.take(inbound),
                None => break,
            }
        }
        self.flush();
    }

    fn take(&mut self, inbound: Inbound) {
        self.observed.received = true;
        match inbound {
            Inbound::Response { id, result } => self.answered(id, result),
            Inbound::PossibleSessionLoss { id, error } => self.doubtful(id, error),
            Inbound::Unreadable { id, problem } => self.unreadable(id, problem),
            Inbound::Failed {
                id,
                trouble,
                status,
                error,
                message,
            } => self.failed(id, trouble, status, error, &message),
            Inbound::SessionGone { message } => {
                self.session_lost(&message);
                self.session_is_lost();
            }
            // In the modern era nobody asks us anything this way, and nothing is answered.
            Inbound::Request { .. } if self.modern.is_some() => self.observed.strays += 1,
            Inbound::Request { id, request } => match self.asked.ask(id, request) {
                Some(answer) => drop(self.link.push(answer)),
                None => self.rest(),
            },
            Inbound::Notification(notification) => self.notified(notification),
            Inbound::Stray { problem } => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), problem = %slot.redact(problem), "passed over a message");
                self.observed.strays += 1;
            }
            Inbound::Dropped {
                messages: dropped,
                strays,
                changed_lists: changed,
                requests,
            } => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), dropped, strays, "refused a flood");
                self.observed.dropped_flood += dropped;
                self.observed.strays += strays;
                self.changed(&changed);
                if self.modern.is_none() {
                    refuse_unread(self.link, requests);
                }
            }
            #[cfg(feature = "http")]
            Inbound::NotificationsMissed => {
                let lists = std::mem::take(&mut self.announced);
                self.changed(&lists);
                self.announced = lists;
            }
        }
    }

    fn answered(&mut self, id: CallId, result: Result<ServerResult, ErrorData>) {
        let Some(entry) = self.pending.remove(id) else {
            // The answer to a call that was given up.
            return;
        };
        let result = match result {
            Err(error) if self.is_swapped(&entry, &error) => {
                return self.swapped(id, entry, error);
            }
            result => result,
        };
        match entry.holder {
            Holder::Caller(call) if self.modern.is_some() => self.answered_modern(call, result),
            Holder::Caller(call) => self.finish(call, result.map_err(Failure::Error)),
            Holder::Internal(answer) => {
                let mut result = result;
                match &mut result {
                    Ok(page) => self.listed(page),
                    Err(_) => self.not_listed(entry.reply_kind),
                }
                let _ = answer.send(result.map_err(InternalFailure::Error));
            }
            Holder::Listen => self.listen_ended(id, &result),
            Holder::SessionCheck => self.session_checked(SessionEvidence::None),
        }
    }

    fn unreadable(&mut self, id: CallId, problem: String) {
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        let mut problem = self.task.slot.redact(problem).into_owned();
        // It may repeat what cannot be read.
        truncate_text(&mut problem, MAX_FAULT_MESSAGE);
        match entry.holder {
            Holder::Caller(call) => {
                self.aliases.remove(&call.id);
                self.observed.ended.push((call.id, CallEnd::Unreadable));
                self.answers
                    .push((call.reply, Err(Failure::Unreadable(problem))));
            }
            Holder::Internal(answer) => {
                self.not_listed(entry.reply_kind);
                let _ = answer.send(Err(InternalFailure::Unreadable(problem)));
            }
            Holder::Listen => {
                self.listen_ended(id, &Err(ErrorData::internal_error(problem, None)));
            }
            Holder::SessionCheck => self.session_checked(SessionEvidence::None),
        }
    }

    /// A request met trouble of its own. What becomes of a caller's, the machine decides.
    fn failed(
        &mut self,
        id: CallId,
        trouble: RequestFailure,
        status: Option<u16>,
        error: Option<ErrorData>,
        message: &str,
    ) {
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        let message = self.task.slot.redact(message).into_owned();
        if trouble == RequestFailure::Denied && self.is_swapped_by(&entry, status) {
            return self.swapped(id, entry, ErrorData::invalid_request(message, None));
        }
        let lost = trouble == RequestFailure::SessionLost;
        match entry.holder {
            Holder::Caller(mut call) => {
                if lost {
                    call.note_refusal(error.map(|error| self.task.slot.redact_error(error)));
                }
                if trouble == RequestFailure::Denied && era::may_be_another(status) {
                    self.doubt();
                }
                if matches!(
                    trouble,
                    RequestFailure::NotWritten | RequestFailure::ConnectTimedOut
                ) {
                    call.reply.set_written(false);
                }
                self.aliases.remove(&call.id);
                self.observed.failed.push(FailedCall {
                    call,
                    trouble,
                    fault: Fault::new(class_of(trouble, status), message),
                });
            }
            Holder::Listen => {
                self.listen_ended(id, &Err(ErrorData::internal_error(message, None)));
            }
            Holder::SessionCheck if lost => return self.session_checked(SessionEvidence::Certain),
            Holder::SessionCheck => self.session_checked(SessionEvidence::None),
            Holder::Internal(answer) => {
                if lost {
                    self.session_lost(&message);
                }
                self.not_listed(entry.reply_kind);
                let fault = Fault::new(class_of(trouble, status), message);
                let _ = answer.send(Err(InternalFailure::Failed { trouble, fault }));
            }
        }
        if lost {
            self.session_is_lost();
        }
    }

    /// Reports the loss of the session apart from any call.
    pub(super) fn session_lost(&mut self, message: &str) {
        let message = self.task.slot.redact(message);
        let fault = Fault::new(FaultClass::SessionExpired, message);
        self.observed.session_lost.get_or_insert(fault);
    }

    fn notified(&mut self, notification: ServerNotification) {
        if let Some(modern) = &self.modern {
            let meta = notification.extensions().get();
            if !modern.listen.hears(meta) {
                self.observed.strays += 1;
                return;
            }
        }
        let event = match notification {
            ServerNotification::ProgressNotification(progress) => {
                self.progressed(progress.params);
                return;
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.changed(&[ListKind::Tools]);
                return;
            }
            ServerNotification::PromptListChangedNotification(_) => {
                self.changed(&[ListKind::Prompts]);
                return;
            }
            ServerNotification::ResourceListChangedNotification(_) => {
                self.changed(&[ListKind::Resources, ListKind::Templates]);
                return;
            }
            ServerNotification::LoggingMessageNotification(log) => EventKind::Log(log.params),
            ServerNotification::ResourceUpdatedNotification(updated) => {
                EventKind::ResourceUpdated {
                    uri: updated.params.uri,
                }
            }
            ServerNotification::CustomNotification(custom) => EventKind::Custom(custom),
            ServerNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.cancelled(id);
                }
                return;
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(told) => {
                self.acknowledged(told);
                return;
            }
            // The rest belongs to newer eras.
            _ => return,
        };
        self.task.slot.emit(self.task.report.generation, event);
    }

    /// The server gives something up: a question of its own, or the request that listens.
    fn cancelled(&mut self, id: &RequestId) {
        self.asked.cancel(id);
        let listens = self.modern.as_ref().and_then(|it| it.listen.is(id));
        if let Some(id) = listens
            && self.pending.remove(id).is_some()
        {
            self.listen_ended(id, &Ok(ServerResult::empty(())));
        }
    }

    pub(super) fn changed(&mut self, lists: &[ListKind]) {
        for list in lists {
            if !self.observed.changed.contains(list) {
                self.observed.changed.push(*list);
            }
        }
    }

    fn progressed(&mut self, progress: ProgressNotificationParam) {
        let NumberOrString::Number(number) = progress.progress_token.0 else {
            return;
        };
        let Ok(id) = u64::try_from(number).map(CallId) else {
            return;
        };
        let Some(call) = self.pending.caller(id) else {
            return;
        };
        if let Some(sink) = &call.progress {
            // A sink that is full misses this one; the next says as much.
            let _ = sink.try_send(progress.clone());
        }
        let id = call.id;
        if self.observed.progressed.last() != Some(&id) {
            self.observed.progressed.push(id);
        }
        self.task
            .slot
            .emit(self.task.report.generation, EventKind::Progress(progress));
    }

    /// Tells the actor what the batch meant, then the callers what they got.
    pub(super) fn flush(&mut self) {
        let observed = std::mem::take(&mut self.observed);
        self.task.report.say(ConnectionEvent::Inbound(observed));
        for (reply, answer) in self.answers.drain(..) {
            reply.send(answer);
        }
    }

    /// Gives every unanswered request back to the actor, with what is known of its way out.
    fn hand_back(&mut self, fault: Fault) {
        self.end_session_check();
        self.flush();
        let mut returned = Vec::new();
        let mut unwritten = None;
        for (id, entry) in self.pending.drain() {
            if !self.link.is_written(id, entry.position) {
                let first = unwritten.unwrap_or(entry.position);
                unwritten = Some(entry.position.min(first));
            }
            // The runtime's own requests end by dropping their sender.
            if let Holder::Caller(mut call) = entry.holder {
                let written = self.link.is_written(id, entry.position);
                call.reply.set_written(written);
                returned.push((call, written));
            }
        }
        for (mut call, written) in self.drain_held() {
            call.reply.set_written(written);
            returned.push((call, written));
        }
        // What is said not to be sent must not be sent by the close.
        if let Some(first) = unwritten {
            self.link.withdraw(first);
        }
        self.task.commands.close();
        while let Ok(command) = self.task.commands.try_recv() {
            if let Command::Start(call) = command {
                returned.push((call, false));
            }
        }
        self.task
            .report
            .say(ConnectionEvent::Lost { fault, returned });
    }
}

#[cfg(feature = "http")]
fn announced(capabilities: &rmcp::model::ServerCapabilities) -> Vec<ListKind> {
    let tools = capabilities.tools.as_ref().and_then(|it| it.list_changed);
    let prompts = capabilities.prompts.as_ref().and_then(|it| it.list_changed);
    let resources = capabilities.resources.as_ref();
    let resources = resources.and_then(|it| it.list_changed);
    let all = [
        (tools, ListKind::Tools),
        (prompts, ListKind::Prompts),
        (resources, ListKind::Resources),
        (resources, ListKind::Templates),
    ];
    let told = all.into_iter().filter(|(told, _)| *told == Some(true));
    told.map(|(_, list)| list).collect()
}

fn closed_by_us() -> Fault {
    Fault::new(
        FaultClass::ConnectionLost,
        "the connection was closed before the answer came",
    )
}

/// The word for a trouble in the status.
fn class_of(trouble: RequestFailure, status: Option<u16>) -> FaultClass {
    match trouble {
        // It knows who asks, and does not let them: that is for a person too.
        RequestFailure::Denied if status == Some(403) => FaultClass::Unauthorized,
        RequestFailure::NotWritten | RequestFailure::ConnectTimedOut => FaultClass::ConnectFailed,
        RequestFailure::ConnectionLost => FaultClass::ConnectionLost,
        RequestFailure::SessionLost => FaultClass::SessionExpired,
        RequestFailure::Unauthorized => FaultClass::Unauthorized,
        RequestFailure::Busy { .. } | RequestFailure::ServerFault => FaultClass::ServerFault,
        RequestFailure::Denied => FaultClass::Refused,
    }
}

fn reason(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Deadline { idle: true, .. } => "no progress in time",
        Outcome::Deadline { idle: false, .. } => "deadline passed",
        Outcome::Cancelled => "cancelled by the caller",
        Outcome::NotSent(_)
        | Outcome::Busy
        | Outcome::Unknown(_)
        | Outcome::Refused(_)
        | Outcome::Answered(_) => "given up",
    }
}

/// The outcome of a call that turns out not to have left.
fn unsent(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Deadline { idle, .. } => Outcome::Deadline { sent: false, idle },
        Outcome::Cancelled
        | Outcome::NotSent(_)
        | Outcome::Busy
        | Outcome::Unknown(_)
        | Outcome::Refused(_)
        | Outcome::Answered(_) => outcome,
    }
}

/// What a confirmed request means for the next connection.
pub(super) fn confirmed(call: &Call) -> Option<ConfirmedSetting> {
    match call.request.as_ref()? {
        ClientRequest::SubscribeRequest(request) => {
            Some(ConfirmedSetting::Subscribed(request.params.uri.clone()))
        }
        ClientRequest::UnsubscribeRequest(request) => {
            Some(ConfirmedSetting::Unsubscribed(request.params.uri.clone()))
        }
        ClientRequest::SetLevelRequest(request) => {
            Some(ConfirmedSetting::LogLevel(request.params.level))
        }
        _ => None,
    }
}

/// Answers a request that comes before the handshake is done, when nothing but a ping is allowed.
pub(super) fn answer_server<L: Link>(link: &mut L, id: RequestId, request: &ServerRequest) {
    let answer = match request {
        ServerRequest::PingRequest(_) => {
            ClientJsonRpcMessage::response(ClientResult::empty(()), id)
        }
        _ => ClientJsonRpcMessage::error(not_offered(), Some(id)),
    };
    let _ = link.push(answer);
}

/// Answers requests that were not read.
pub(super) fn refuse_unread<L: Link>(link: &mut L, requests: Vec<(RequestId, RejectReason)>) {
    for (id, refusal) in requests {
        let _ = link.push(refuse(id, unread(refusal)));
    }
}
