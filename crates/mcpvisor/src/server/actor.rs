//! The actor of one server: translates messages into inputs of the machine and performs its
//! effects.
//!
//! No handler waits. Slow work runs in a task that reports back with a message: the connection
//! task, a fetch of a list, a check, a timer. All decisions are the machine's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mcpvisor_core::{
    CallMap, ClientId, Effect, Generation, Input, Machine, Random, State, StateName,
};
use ractor::{ActorProcessingErr, ActorRef};

use super::call::Call;
use super::catalog_update::ListProgress;
use super::connection_place::PlaceState;
#[cfg(feature = "http")]
use super::credential::WatchTask;
use super::list_processing::ReplyWhenPublished;
use super::message::{
    ConnectionUpdate, ControlReply, NotifyFailure, OutgoingNotification, ServerMessage,
};
use super::slot::ServerSlot;
use super::status::StatusDraft;
use crate::api::error::ControlError;
use crate::api::reply::Failure;
#[cfg(feature = "http")]
use crate::api::transport::TransportKind;
use crate::connection::{Command, ConnectionHandle};
use crate::fleet::SupervisorMessage;
use crate::message_timer::MessageTimer;

/// The actor of one server.
pub(crate) struct ServerActor;

/// What an actor starts with.
pub(crate) struct ServerArguments {
    pub(crate) slot: Arc<ServerSlot>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

/// The state of the actor: the machine, and what its effects need.
pub(crate) struct ServerState {
    pub(super) slot: Arc<ServerSlot>,
    pub(super) supervisor: ActorRef<SupervisorMessage>,
    pub(super) myself: ActorRef<ServerMessage>,
    pub(super) machine: Machine,
    rng: fastrand::Rng,
    /// Buffer that every step reuses.
    effects: Vec<Effect>,
    pub(super) timer: Option<MessageTimer>,
    /// The requests of waiting calls; those of calls in flight are with the connection.
    pub(super) waiting_calls: CallMap<Box<Call>>,
    /// Dropping it closes the connection.
    pub(super) connection: Option<ConnectionHandle>,
    /// A connect permit was requested from the supervisor and not released.
    pub(super) permit_requested: bool,
    pub(super) place: PlaceState,
    /// The connection on which the settings of clients have yet to be restored.
    pub(super) restore_on: Option<Generation>,
    pub(super) lists: ListProgress,
    pub(super) draft: StatusDraft,
    /// Answered when the server is disabled.
    disable_replies: Vec<ControlReply>,
    /// Waits for another credential.
    #[cfg(feature = "http")]
    pub(super) credential_watch: Option<WatchTask>,
    /// Waits until a login that exists only in memory is saved.
    #[cfg(feature = "http")]
    pub(super) unsaved_login_watch: Option<WatchTask>,
}

#[ractor::actor(message = ServerMessage, state = ServerState, arguments = ServerArguments)]
impl ServerActor {
    async fn pre_start(
        &self,
        myself: ActorRef<ServerMessage>,
        arguments: ServerArguments,
    ) -> Result<ServerState, ActorProcessingErr> {
        Ok(ServerState::new(myself, arguments))
    }

    async fn post_start(
        &self,
        _myself: ActorRef<ServerMessage>,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        state.step(Input::Start);
        state.report_subscriptions();
        state.publish_changes();
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<ServerMessage>,
        message: ServerMessage,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        state.receive(message);
        state.publish_changes();
        Ok(())
    }
}

/// The runtime's clock, which a test may pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl ServerState {
    fn new(myself: ActorRef<ServerMessage>, arguments: ServerArguments) -> Self {
        let slot = arguments.slot;
        let durable = slot.restart_state().durable.clone();
        let (state, since) = slot.published.state();
        let settings = slot.machine_settings();
        slot.withdraw_place();
        let machine = Machine::new(settings, durable, now()).resuming_from(state);
        Self {
            slot,
            supervisor: arguments.supervisor,
            myself,
            machine,
            rng: fastrand::Rng::new(),
            effects: Vec::new(),
            timer: None,
            waiting_calls: CallMap::default(),
            connection: None,
            permit_requested: false,
            place: PlaceState::default(),
            restore_on: None,
            lists: ListProgress::default(),
            draft: StatusDraft::new(since),
            disable_replies: Vec::new(),
            #[cfg(feature = "http")]
            credential_watch: None,
            #[cfg(feature = "http")]
            unsaved_login_watch: None,
        }
    }

    /// Publishes what the last message changed: first the status, then the events, so that a
    /// subscriber finds in the status what an event announces, then the replies that wait for it.
    pub(super) fn publish_changes(&mut self) {
        self.publish_status();
        self.emit_events();
        self.answer_disable_requests();
    }

    fn receive(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Call(call) => self.call(call),
            ServerMessage::Notify(notification) => self.notify(notification),
            ServerMessage::CallerGone(call) => self.step(Input::CallCancelled { call }),
            ServerMessage::CancelClient(client) => self.cancel_client(client),
            ServerMessage::ReleaseClient(client) => self.release_client(client),
            ServerMessage::Enable(reply) => {
                self.step(Input::Enable);
                self.publish_changes();
                let _ = reply.send(Ok(()));
            }
            ServerMessage::Disable(reply) => {
                self.disable_replies.push(reply);
                self.step(Input::Disable);
            }
            ServerMessage::Reconnect(reply) => self.reconnect(reply),
            ServerMessage::Approve { tool, hash, reply } => self.approve(tool, hash, reply),
            ServerMessage::ApprovalsChanged(reply) => self.approvals_changed(reply),
            ServerMessage::Reconfigure { update, reply } => self.reconfigure(update, reply),
            ServerMessage::AdoptLogLevels(levels) => self.adopt_log_levels(levels),
            ServerMessage::ReportBroken(generation) => {
                self.step(Input::ReportBroken { generation });
            }
            ServerMessage::Shutdown(limit) => self.step(Input::Shutdown { limit }),
            ServerMessage::PermitGranted => self.step(Input::PermitGranted),
            ServerMessage::PlaceGranted => self.place_granted(),
            ServerMessage::GiveWay => self.give_way(),
            ServerMessage::Connection { generation, event } => {
                self.connection_event(generation, event);
            }
            ServerMessage::ListFetched {
                generation,
                list,
                owner,
                result,
            } => self.list_fetched(generation, list, owner, result),
            ServerMessage::ListProcessed(processed) => self.list_processed(*processed),
            ServerMessage::ToolsRefiltered(refiltered) => self.tools_refiltered(*refiltered),
            ServerMessage::RefreshExpiredLists => self.step(Input::ListsUsed),
            ServerMessage::CheckEnded {
                generation,
                failure,
            } => self.step(Input::CheckEnded {
                generation,
                failure,
            }),
            #[cfg(feature = "http")]
            ServerMessage::CredentialChanged => self.credential_changed(),
            #[cfg(feature = "http")]
            ServerMessage::CredentialExpired => self.credential_expired(),
            #[cfg(feature = "http")]
            ServerMessage::UnsavedLoginChanged => self.watch_unsaved_login(),
            #[cfg(feature = "http")]
            ServerMessage::RenewalEnded(result) => self.renewal_ended(result),
            ServerMessage::Tick => {
                self.timer = None;
                self.step(Input::Tick);
            }
            ServerMessage::Crash => crash(),
        }
    }

    fn call(&mut self, mut call: Box<Call>) {
        let catalog = self.slot.published.catalog();
        let new = call.admit(&self.machine.settings().retry, &catalog);
        self.waiting_calls.insert(call.id, call);
        self.step(Input::Call(new));
    }

    /// Passes a notification to the present connection.
    fn notify(&self, notification: Box<OutgoingNotification>) {
        let state = self.machine.state();
        let connection = match state {
            State::Connected(live) => self.connection_of(live.generation),
            _ => None,
        };
        let Some(connection) = connection else {
            let failure = NotifyFailure::NotConnected(state.name());
            let _ = notification.reply.send(Err(failure));
            return;
        };
        // A connection that takes no more commands drops it, and with it the reply.
        let _ = connection.send(Command::Notify(notification));
    }

    fn reconnect(&mut self, reply: ControlReply) {
        match self.machine.state().name() {
            state @ (StateName::Disabled | StateName::Disabling) => {
                let server = self.slot.name().clone();
                let _ = reply.send(Err(ControlError::Disabled { server, state }));
            }
            StateName::Connecting
            | StateName::Connected
            | StateName::Reconnecting
            | StateName::Disconnected
            | StateName::Sleeping
            | StateName::PermanentlyFailed => {
                self.step(Input::Reconnect);
                self.publish_changes();
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn cancel_client(&mut self, client: ClientId) {
        for id in self.machine.calls_of(client) {
            if let Some(call) = self.waiting_calls.remove(&id) {
                call.reply.send(Err(Failure::ClientClosed));
            }
            self.step(Input::CallCancelled { call: id });
        }
    }

    fn release_client(&mut self, client: ClientId) {
        self.slot.restart_state().session.release(client);
        if let Some(connection) = &self.connection {
            let _ = connection.send(Command::ReleaseClient(client));
        }
        self.report_subscriptions();
    }

    /// Applies the config that is in the slot now.
    fn reconfigure(&mut self, update: ConnectionUpdate, reply: ControlReply) {
        let settings = Box::new(self.slot.machine_settings());
        self.draft.mark_changed();
        self.adopt_place();
        self.step(Input::Reconfigure { settings });
        if self.lists.tools_fetched_on != Generation::NONE {
            self.approve_first_tools();
        }
        match update {
            ConnectionUpdate::None => {}
            ConnectionUpdate::Headers => self.update_headers(),
            ConnectionUpdate::ForgetEra => self.slot.forget_era(),
            // The machine leaves a disabled server disabled.
            ConnectionUpdate::Reconnect => {
                self.slot.forget_era();
                self.drop_lists_of_other_account();
                self.step(Input::TransportChanged);
            }
        }
        self.refilter_tools(Some(ReplyWhenPublished::Reconfigured(reply)));
    }

    /// An open connection sends the new headers from now on. A connect with the old headers may be
    /// refused for good, or was, so the server connects again.
    fn update_headers(&mut self) {
        match self.machine.state().name() {
            StateName::Connected => {
                #[cfg(feature = "http")]
                if let Some(connection) = &self.connection
                    && let TransportKind::Http(endpoint) = &self.slot.config().transport.0
                {
                    // A connection that no longer takes commands is replaced by one that reads the
                    // config itself.
                    let _ = connection.send(Command::UpdateHeaders(Box::new(endpoint.clone())));
                    self.credential_changed();
                }
            }
            StateName::Connecting
            | StateName::Reconnecting
            | StateName::Disconnected
            | StateName::PermanentlyFailed => self.step(Input::TransportChanged),
            // The next connection reads the config.
            StateName::Disabling | StateName::Disabled | StateName::Sleeping => {}
        }
    }

    /// Whether this is the generation of the present connection.
    pub(super) fn is_current(&self, generation: Generation) -> bool {
        matches!(self.machine.state(), State::Connected(live) if live.generation == generation)
    }

    /// Steps the machine and performs its effects, with the inputs that follow from them.
    pub(super) fn step(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        // Rare: a call that its connection no longer accepts, or whose tool changed. Each may admit
        // the next of many waiting calls, so they are queued here instead of recursing.
        let mut follow_ups = VecDeque::new();
        let mut next = Some(input);
        while let Some(input) = next {
            let random = Random::new(self.rng.f64());
            self.machine.handle(now(), random, input, &mut effects);
            for effect in effects.drain(..) {
                follow_ups.extend(self.perform(effect));
            }
            next = follow_ups.pop_front();
        }
        self.effects = effects;
        self.start_restore();
        let (in_flight, waiting) = (self.machine.in_flight(), self.machine.waiting());
        self.slot.published.set_call_counts(in_flight, waiting);
        self.slot.list_expiry.set(self.machine.lists_expire_at());
        self.update_place();
        let deadline = self.machine.next_deadline();
        MessageTimer::arm(&mut self.timer, &self.myself, deadline, || {
            ServerMessage::Tick
        });
    }

    /// Answers requests to disable once the teardown is over, however it ended.
    fn answer_disable_requests(&mut self) {
        if !self.disable_replies.is_empty() && self.machine.state().name() != StateName::Disabling {
            for reply in self.disable_replies.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }
}

#[expect(clippy::panic, reason = "requested by a test")]
fn crash() {
    panic!("a test requested a crash");
}
