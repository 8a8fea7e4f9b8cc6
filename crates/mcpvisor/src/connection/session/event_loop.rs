//! The event loop of a session: commands, messages, timers and finished tasks.

use mcpvisor_core::Era;
#[cfg(feature = "http")]
use mcpvisor_core::ListKind;
use mcpvisor_core::machine::{Fault, FaultClass};
use rmcp::model::{ClientJsonRpcMessage, ProtocolVersion, ServerPeerInfo};

use super::batch::Batch;
use super::client_settings::SessionSettings;
use super::input_rounds::{InputRounds, Resumed};
use super::pending::{PendingTable, Requester};
use super::server_requests::{ServerRequests, refuse_unread};
use super::session_check::SessionCheck;
use crate::catalog::task_support;
use crate::connection::faults;
use crate::connection::handle::Command;
use crate::connection::modern::session::ModernSession;
use crate::connection::task::{ConnectionTask, sleep_until};
use crate::link::{Inbound, Link, LinkDown};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::message::ConnectionEvent;

/// Messages handled in one batch before commands are read again.
const MAX_BATCH: usize = 64;

pub(crate) struct Session<'a, L> {
    pub(crate) link: &'a mut L,
    pub(crate) task: &'a mut ConnectionTask,
    pub(crate) pending: PendingTable,
    pub(crate) batch: Batch,
    pub(super) server_requests: ServerRequests,
    /// Subscriptions and the log level.
    pub(crate) settings: SessionSettings,
    /// Calls that wait for input that the server requires.
    pub(crate) input_rounds: InputRounds,
    /// The negotiated version.
    pub(crate) version: ProtocolVersion,
    pub(super) session_check: SessionCheck,
    /// The server accepts tool calls as tasks of 2025-11-25.
    pub(crate) calls_as_tasks: bool,
    /// Only in the modern era.
    pub(crate) modern: Option<ModernSession>,
    /// Lists for which the server sends change notifications.
    #[cfg(feature = "http")]
    announced_lists: Vec<ListKind>,
}

/// The actor closed the connection or has stopped.
struct CloseRequested;

/// What woke the event loop.
#[allow(
    clippy::large_enum_variant,
    reason = "it is matched where it is created, and never stored"
)]
enum Event {
    Command(Option<Command>),
    Inbound(Result<Inbound, LinkDown>),
    ServerRequestAnswered(ClientJsonRpcMessage),
    CallResumed(Resumed),
    ListenRequestDue,
    IdleRefreshDue,
    SessionCheckTimedOut,
}

impl<'a, L: Link> Session<'a, L> {
    pub(crate) fn new(
        link: &'a mut L,
        task: &'a mut ConnectionTask,
        era: Era,
        info: &ServerPeerInfo,
    ) -> Self {
        let server_requests = ServerRequests::new(&task.slot, task.reporter.generation);
        let reporter = &task.reporter;
        let input_rounds = InputRounds::new(&task.slot, &reporter.actor, reporter.generation);
        let modern = match era {
            Era::Modern => Some(ModernSession::new(&task.slot, info, now())),
            Era::Legacy => None,
        };
        let settings = SessionSettings::new(&task.slot.restart_state().session);
        Self {
            link,
            task,
            settings,
            pending: PendingTable::default(),
            batch: Batch::default(),
            server_requests,
            input_rounds,
            version: info.protocol_version.clone(),
            session_check: SessionCheck::default(),
            calls_as_tasks: era == Era::Legacy && task_support::calls_as_tasks(info),
            modern,
            #[cfg(feature = "http")]
            announced_lists: announced_lists(&info.capabilities),
        }
    }

    /// Runs until the connection ends, then returns the unanswered calls to the actor.
    pub(crate) async fn run(mut self) {
        self.send_listen_request_if_due();
        let fault = loop {
            let modern = self.modern.as_ref();
            let listen_due = modern.and_then(|modern| modern.subscriptions.due());
            let is_collecting = self.input_rounds.is_busy();
            let refresh_due = self.idle_refresh_due();
            let check_due = self.session_check.due();
            let event = tokio::select! {
                biased;
                command = self.task.commands.recv() => Event::Command(command),
                inbound = self.link.next(&self.pending) => Event::Inbound(inbound),
                answer = self.server_requests.next(), if self.server_requests.is_busy() => {
                    Event::ServerRequestAnswered(answer)
                }
                resumed = self.input_rounds.next(), if is_collecting => Event::CallResumed(resumed),
                () = sleep_until(listen_due), if listen_due.is_some() => Event::ListenRequestDue,
                () = sleep_until(refresh_due), if refresh_due.is_some() => Event::IdleRefreshDue,
                () = sleep_until(check_due), if check_due.is_some() => Event::SessionCheckTimedOut,
            };
            match event {
                Event::Command(command) => {
                    if self.handle_commands(command).is_err() {
                        let message = "the connection was closed before the answer came";
                        break Fault::new(FaultClass::ConnectionLost, message);
                    }
                }
                Event::Inbound(Ok(inbound)) => self.handle_batch(inbound),
                Event::Inbound(Err(down)) => break faults::link_down(&down, &self.task.slot),
                Event::ServerRequestAnswered(answer) => {
                    // A link that accepts no more messages reports its end by itself.
                    let _ = self.link.push(answer);
                    self.refresh_idle_timers();
                    self.flush();
                }
                Event::CallResumed(resumed) => self.resume_call(resumed),
                Event::ListenRequestDue => self.send_listen_request_if_due(),
                Event::IdleRefreshDue => {
                    self.refresh_idle_timers();
                    self.flush();
                }
                Event::SessionCheckTimedOut => {
                    self.session_check_timed_out();
                    self.flush();
                }
            }
        };
        self.hand_back(fault);
    }

    /// Handles this command and all queued ones, up to a close.
    fn handle_commands(&mut self, first: Option<Command>) -> Result<(), CloseRequested> {
        let mut next = first;
        loop {
            match next {
                Some(Command::Close) | None => return Err(CloseRequested),
                Some(Command::Start(call)) => self.start_call(call),
                Some(Command::Abandon { call, outcome }) => self.abandon(call, *outcome),
                Some(Command::ReleaseClient(client)) => self.release_client(client),
                Some(Command::AdoptLogLevels(levels)) => self.adopt_log_levels(&levels),
                Some(Command::Notify(notification)) => self.send_notification(*notification),
                Some(Command::Internal(request)) => self.start_internal(*request),
                #[cfg(feature = "http")]
                Some(Command::UpdateHeaders(endpoint)) => self.link.update_endpoint(&endpoint),
                #[cfg(feature = "http")]
                Some(Command::UpdateAuthorization(authorization)) => {
                    self.link.update_authorization(authorization);
                }
            }
            match self.task.commands.try_recv() {
                Ok(command) => next = Some(command),
                // A stopped actor is noticed by the next wait.
                Err(_) => return Ok(()),
            }
        }
    }

    fn handle_batch(&mut self, first: Inbound) {
        self.handle_inbound(first);
        for _ in 1..MAX_BATCH {
            match self.link.try_next(&self.pending) {
                Some(inbound) => self.handle_inbound(inbound),
                None => break,
            }
        }
        self.flush();
    }

    fn handle_inbound(&mut self, inbound: Inbound) {
        self.batch.summary.received = true;
        match inbound {
            Inbound::Response { id, result } => {
                let slot = &self.task.slot;
                let result = result.map_err(|error| slot.redact_credentials(error));
                self.on_response(id, result);
            }
            Inbound::PossibleSessionLoss { id, error } => {
                let error = self.task.slot.redact_credentials(error);
                self.on_possible_session_loss(id, error);
            }
            Inbound::Unreadable { id, problem } => self.on_unreadable(id, problem),
            Inbound::Failed { id, failed } => self.on_request_failure(id, failed),
            Inbound::SessionGone { message } => {
                self.report_session_lost(&message);
                self.session_lost();
            }
            #[cfg(feature = "http")]
            Inbound::Unauthorized {
                credential,
                message,
            } => self.report_unauthorized(credential, &message),
            // The modern era has no requests from the server, so this one is not answered.
            Inbound::Request { .. } if self.modern.is_some() => self.batch.summary.strays += 1,
            Inbound::Request { id, request, cause } => self.on_request(id, request, cause),
            Inbound::Notification {
                notification,
                cause,
            } => self.on_notification(notification, cause),
            Inbound::Stray { problem } => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), problem = %slot.redact(problem), "ignored a message");
                self.batch.summary.strays += 1;
            }
            Inbound::Dropped(report) => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), dropped = report.messages, strays = report.strays, "dropped messages of a flood");
                self.batch.summary.dropped_flood += report.messages;
                self.batch.summary.strays += report.strays;
                self.batch.add_changed_lists(&report.changed_lists);
                if self.modern.is_none() {
                    refuse_unread(self.link, report.requests);
                }
            }
            #[cfg(feature = "http")]
            Inbound::NotificationsMissed => self.batch.add_changed_lists(&self.announced_lists),
        }
    }

    pub(crate) fn flush(&mut self) {
        self.batch.flush(&self.task.reporter);
    }

    /// Returns every unanswered call to the actor, and whether it was written.
    fn hand_back(&mut self, fault: Fault) {
        self.end_session_check();
        self.withdraw_levels();
        self.flush();
        let mut returned = Vec::new();
        let mut first_unwritten: Option<u64> = None;
        for (id, request) in self.pending.drain() {
            let position = request.position;
            let written = self.link.is_written(id, position);
            if !written {
                let first = first_unwritten.unwrap_or(position);
                first_unwritten = Some(position.min(first));
            }
            // Internal requests end when their sender is dropped.
            if let Requester::Caller(mut call) = request.requester {
                call.reply.set_written(written);
                returned.push((call, written));
            }
        }
        for (mut call, written) in self.drain_held_calls() {
            call.reply.set_written(written);
            returned.push((call, written));
        }
        // The close must not write requests that are reported as not sent.
        if let Some(first) = first_unwritten {
            self.link.withdraw(first);
        }
        self.task.commands.close();
        while let Ok(command) = self.task.commands.try_recv() {
            if let Command::Start(call) = command {
                returned.push((call, false));
            }
        }
        let event = ConnectionEvent::Lost { fault, returned };
        self.task.reporter.send(event);
    }
}

#[cfg(feature = "http")]
fn announced_lists(capabilities: &rmcp::model::ServerCapabilities) -> Vec<ListKind> {
    let tools = capabilities.tools.as_ref().and_then(|it| it.list_changed);
    let prompts = capabilities.prompts.as_ref().and_then(|it| it.list_changed);
    let resources = capabilities.resources.as_ref();
    let resources = resources.and_then(|it| it.list_changed);
    let is_announced = |list: &ListKind| match list {
        ListKind::Tools => tools == Some(true),
        ListKind::Prompts => prompts == Some(true),
        ListKind::Resources | ListKind::Templates => resources == Some(true),
    };
    ListKind::ALL.into_iter().filter(is_announced).collect()
}
