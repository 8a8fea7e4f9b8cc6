//! The session: requests out, answers in, until the link breaks or the actor wants it closed.
//!
//! Messages are taken in batches, so that a busy connection costs the actor one message per batch.
//! The actor hears of an answer before its caller does: a caller that asks again at once never
//! finds its old place still taken.

use mcpvisor_core::CallId;
use mcpvisor_core::ListKind;
use mcpvisor_core::machine::{CallEnd, Fault, FaultClass, Outcome};
use mcpvisor_core::retry::Trouble;
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, NumberOrString, ProgressNotificationParam,
    RequestId, ServerNotification, ServerRequest, ServerResult,
};

use super::asked::Asked;
use super::pending::{Holder, OwnFailure, OwnRequest, Pending};
use super::{Command, Task};
use crate::callbacks::not_offered;
use crate::events::EventKind;
use crate::link::{Expect, Inbound, Link, LinkDown};
use crate::reply::{Answer, Failure, Reply};
use crate::server::call::Call;
use crate::server::message::{Confirmed, FailedCall, Observed, Report};

/// Messages that are taken in one go before commands are looked at again.
const BATCH: usize = 64;

pub(super) struct Session<'a, L> {
    link: &'a mut L,
    task: &'a mut Task,
    pending: Pending,
    observed: Observed,
    answers: Vec<(Reply, Answer)>,
    /// What the server asks of us.
    asked: Asked,
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
}

impl<'a, L: Link> Session<'a, L> {
    pub(super) fn new(link: &'a mut L, task: &'a mut Task) -> Self {
        let asked = Asked::new(&task.slot, task.report.generation);
        Self {
            link,
            task,
            pending: Pending::default(),
            observed: Observed::default(),
            answers: Vec::new(),
            asked,
        }
    }

    /// Runs to the end of the connection and hands back what was not answered.
    pub(super) async fn run(mut self) {
        let fault = loop {
            let turn = tokio::select! {
                biased;
                command = self.task.commands.recv() => Turn::Command(command),
                inbound = self.link.next(&self.pending) => Turn::Inbound(inbound),
                answer = self.asked.next(), if self.asked.is_busy() => Turn::Answer(answer),
            };
            match turn {
                Turn::Command(command) => {
                    if self.obey(command).is_err() {
                        break closed_by_us();
                    }
                }
                Turn::Inbound(Ok(inbound)) => self.take_batch(inbound),
                Turn::Inbound(Err(down)) => break self.task.fault_of(&down),
                // A link that takes no more says so itself.
                Turn::Answer(answer) => drop(self.link.push(answer)),
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
                Some(Command::Own(own)) => self.start_own(*own),
            }
            match self.task.commands.try_recv() {
                Ok(command) => next = Some(command),
                // Whether the actor is gone shows on the next turn.
                Err(_) => return Ok(()),
            }
        }
    }

    fn start(&mut self, mut call: Box<Call>) {
        let expect = call.request.as_ref().map_or(Expect::Any, Expect::of);
        match self
            .link
            .push_request(call.id, &mut call.request, call.keep)
        {
            Ok(position) => {
                call.reply.set_written(true);
                let id = call.id;
                self.pending
                    .insert(id, expect, position, Holder::Caller(call));
            }
            Err(problem) => {
                self.observed.ended.push((call.id, CallEnd::Unreadable));
                self.answers
                    .push((call.reply, Err(Failure::Invalid(problem))));
                self.flush();
            }
        }
    }

    fn start_own(&mut self, own: OwnRequest) {
        let id = self.task.slot.next_call();
        let expect = Expect::of(&own.request);
        // A request that cannot be written is answered by dropping the sender.
        if let Ok(position) = self.link.push_request(id, &mut Some(own.request), false) {
            self.pending
                .insert(id, expect, position, Holder::Own(own.answer));
        }
    }

    fn abandon(&mut self, id: CallId, outcome: Outcome) {
        // It may have been answered meanwhile.
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        self.link.cancel(id, reason(&outcome));
        if let Holder::Caller(call) = entry.holder {
            call.reply.send(Err(Failure::Outcome(outcome)));
        }
    }

    fn take_batch(&mut self, first: Inbound) {
        self.take(first);
        for _ in 1..BATCH {
            match self.link.ready(&self.pending) {
                Some(inbound) => self.take(inbound),
                None => break,
            }
        }
        self.flush();
    }

    fn take(&mut self, inbound: Inbound) {
        self.observed.heard = true;
        match inbound {
            Inbound::Response { id, result } => self.answered(id, result),
            Inbound::Unreadable { id, problem } => self.unreadable(id, problem),
            Inbound::Failed {
                id,
                trouble,
                message,
                ..
            } => self.failed(id, trouble, &message),
            Inbound::SessionGone { message } => self.session_gone(&message),
            Inbound::Request { id, request } => {
                if let Some(answer) = self.asked.ask(id, request) {
                    let _ = self.link.push(answer);
                }
            }
            Inbound::Notification(notification) => self.notified(notification),
            Inbound::Stray { problem } => {
                let slot = &self.task.slot;
                tracing::debug!(server = %slot.name(), problem = %slot.hide(problem), "passed over a message");
                self.observed.strays += 1;
            }
            Inbound::Refused {
                dropped,
                strays,
                changed,
            } => {
                tracing::debug!(server = %self.task.slot.name(), dropped, strays, "refused a flood");
                self.observed.dropped_flood += dropped;
                self.observed.strays += strays;
                self.changed(&changed);
            }
        }
    }

    fn answered(&mut self, id: CallId, result: Result<ServerResult, ErrorData>) {
        let Some(entry) = self.pending.remove(id) else {
            // The answer to a call that was given up.
            return;
        };
        match entry.holder {
            Holder::Caller(call) => {
                if result.is_ok() {
                    self.observed.confirmed.extend(confirmed(&call));
                }
                self.observed.ended.push((id, CallEnd::Answered));
                self.answers
                    .push((call.reply, result.map_err(Failure::Error)));
            }
            Holder::Own(answer) => {
                let _ = answer.send(result.map_err(OwnFailure::Error));
            }
        }
    }

    fn unreadable(&mut self, id: CallId, problem: String) {
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        let problem = self.task.slot.hide(problem).into_owned();
        match entry.holder {
            Holder::Caller(call) => {
                self.observed.ended.push((id, CallEnd::Unreadable));
                self.answers
                    .push((call.reply, Err(Failure::Unreadable(problem))));
            }
            Holder::Own(answer) => {
                let _ = answer.send(Err(OwnFailure::Unreadable(problem)));
            }
        }
    }

    /// A request met trouble of its own. What becomes of a caller's, the machine decides.
    fn failed(&mut self, id: CallId, trouble: Trouble, message: &str) {
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        let message = self.task.slot.hide(message).into_owned();
        match entry.holder {
            Holder::Caller(call) => self.observed.failed.push(FailedCall {
                call,
                trouble,
                fault: Fault::new(class_of(trouble), message),
            }),
            Holder::Own(answer) => {
                if trouble == Trouble::SessionGone {
                    self.session_gone(&message);
                }
                let _ = answer.send(Err(OwnFailure::Failed { trouble, message }));
            }
        }
    }

    fn session_gone(&mut self, message: &str) {
        let message = self.task.slot.hide(message);
        let fault = Fault::new(FaultClass::SessionExpired, message);
        self.observed.session_gone.get_or_insert(fault);
    }

    fn notified(&mut self, notification: ServerNotification) {
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
                    self.asked.cancel(id);
                }
                return;
            }
            // The rest belongs to newer eras.
            _ => return,
        };
        self.task.slot.emit(self.task.report.generation, event);
    }

    fn changed(&mut self, lists: &[ListKind]) {
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
        if self.observed.progressed.last() != Some(&id) {
            self.observed.progressed.push(id);
        }
        self.task
            .slot
            .emit(self.task.report.generation, EventKind::Progress(progress));
    }

    /// Tells the actor what the batch meant, then the callers what they got.
    fn flush(&mut self) {
        let observed = std::mem::take(&mut self.observed);
        self.task.report.say(Report::Observed(observed));
        for (reply, answer) in self.answers.drain(..) {
            reply.send(answer);
        }
    }

    /// Gives every unanswered request back to the actor, with what is known of its way out.
    fn hand_back(&mut self, fault: Fault) {
        let mut returned = Vec::new();
        for (id, entry) in self.pending.drain() {
            // The runtime's own requests end by dropping their sender.
            if let Holder::Caller(mut call) = entry.holder {
                let written = self.link.is_written(id, entry.position);
                call.reply.set_written(written);
                returned.push((call, written));
            }
        }
        self.task.commands.close();
        while let Ok(command) = self.task.commands.try_recv() {
            if let Command::Start(call) = command {
                returned.push((call, false));
            }
        }
        self.task.report.say(Report::Lost { fault, returned });
    }
}

fn closed_by_us() -> Fault {
    Fault::new(
        FaultClass::ConnectionLost,
        "the connection was closed before the answer came",
    )
}

/// The word for a trouble in the status.
fn class_of(trouble: Trouble) -> FaultClass {
    match trouble {
        Trouble::NotWritten => FaultClass::ConnectFailed,
        Trouble::WriteFailed | Trouble::ConnectionLost => FaultClass::ConnectionLost,
        Trouble::SessionGone => FaultClass::SessionExpired,
        Trouble::Unauthorized => FaultClass::Unauthorized,
        Trouble::Busy { .. } | Trouble::ServerFault => FaultClass::ServerFault,
        Trouble::DeadlinePassed => FaultClass::Timeout,
        Trouble::Denied | Trouble::MethodGone | Trouble::Answered | Trouble::Cancelled => {
            FaultClass::Refused
        }
        Trouble::Unreadable => FaultClass::Protocol,
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

/// What a confirmed request means for the next connection.
fn confirmed(call: &Call) -> Option<Confirmed> {
    match call.request.as_ref()? {
        ClientRequest::SubscribeRequest(request) => {
            Some(Confirmed::Subscribed(request.params.uri.clone()))
        }
        ClientRequest::UnsubscribeRequest(request) => {
            Some(Confirmed::Unsubscribed(request.params.uri.clone()))
        }
        ClientRequest::SetLevelRequest(request) => Some(Confirmed::LogLevel(request.params.level)),
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
