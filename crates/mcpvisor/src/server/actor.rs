//! The actor of one server: message in, input to the machine, effects out.
//!
//! Nothing here waits. What takes time is a task that comes back with a message: the connection
//! task, a fetch of a list, a check, a timer. What it decides, the machine decided.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mcpvisor_core::machine::Fault;
use mcpvisor_core::{
    CallMap, Effect, Generation, Input, ListKind, Machine, Random, State, StateName,
};
use ractor::{ActorProcessingErr, ActorRef};
use rmcp::model::ServerPeerInfo;
use tokio::task::JoinHandle;

use super::call::Call;
use super::list_processing::Waiting;
use super::message::{ConnectionUpdate, ControlReply, ServerMessage};
use super::restore::Restoring;
use super::slot::ServerSlot;
use crate::api::error::ControlError;
use crate::api::events::EventKind;
#[cfg(feature = "http")]
use crate::api::transport::TransportKind;
#[cfg(feature = "http")]
use crate::connection::Command;
use crate::connection::ConnectionHandle;
use crate::fleet::SupervisorMessage;

/// The actor of one server.
pub(crate) struct ServerActor;

/// What an actor starts with.
pub(crate) struct ServerArguments {
    pub(crate) slot: Arc<ServerSlot>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

/// The shell around the machine.
pub(crate) struct ServerState {
    pub(super) slot: Arc<ServerSlot>,
    pub(super) supervisor: ActorRef<SupervisorMessage>,
    pub(super) myself: ActorRef<ServerMessage>,
    pub(super) machine: Machine,
    /// Requests that wait here; those in flight are with the connection.
    pub(super) calls: CallMap<Box<Call>>,
    /// The guard: dropped with this state, the connection closes by itself.
    pub(super) connection: Option<ConnectionHandle>,
    /// What the last connection that came up has to be asked for again.
    pub(super) restoring: Option<Arc<Restoring>>,
    /// The connection on which that is yet to begin.
    pub(super) to_restore: Option<Generation>,
    pub(super) info: Option<Arc<ServerPeerInfo>>,
    pub(super) timer: Option<Timer>,
    /// The governor was asked, and has not got its permit back.
    pub(super) asked_for_permit: bool,
    disabling: Vec<ControlReply>,
    dice: fastrand::Rng,
    pub(super) effects: Vec<Effect>,
    pub(super) since: SystemTime,
    /// The connection on which the tools were last listed.
    pub(super) listed_on: Generation,
    /// How often it changed which tools are approved.
    pub(super) approvals: u64,
    /// Why a list could not be fetched, on which connection.
    pub(super) unlisted: BTreeMap<ListKind, (Generation, Fault)>,
    pub(super) strays: u64,
    pub(super) dropped_flood: u64,
    /// Something that the status shows has changed.
    pub(super) dirty: bool,
    /// What happened, for whoever subscribed; told once the status shows it.
    news: Vec<(Generation, EventKind)>,
}

pub(super) struct Timer {
    pub(super) at: Instant,
    pub(super) task: JoinHandle<()>,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
    }
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
        state.tell_of_listeners();
        state.settle();
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<ServerMessage>,
        message: ServerMessage,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        state.receive(message);
        state.settle();
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
        let durable = slot.memory().durable.clone();
        let (shown, since) = {
            let status = slot.status.borrow();
            (status.state, status.since)
        };
        let settings = slot.config().machine_settings();
        let machine = Machine::new(settings, durable, now()).resuming_from(shown);
        Self {
            slot,
            supervisor: arguments.supervisor,
            myself,
            machine,
            calls: CallMap::default(),
            connection: None,
            restoring: None,
            to_restore: None,
            info: None,
            timer: None,
            asked_for_permit: false,
            disabling: Vec::new(),
            dice: fastrand::Rng::new(),
            effects: Vec::new(),
            since,
            listed_on: Generation::NONE,
            approvals: 0,
            unlisted: BTreeMap::new(),
            strays: 0,
            dropped_flood: 0,
            dirty: true,
            news: Vec::new(),
        }
    }

    /// Shows what the last message changed, all of it at once: the status first, then the events,
    /// so that whoever hears of something finds it in the status, then those who wait for it.
    pub(super) fn settle(&mut self) {
        if self.dirty {
            self.publish();
        }
        for (generation, kind) in self.news.drain(..) {
            self.slot.emit(generation, kind);
        }
        self.answer_disabled();
    }

    /// Tells of something with the next [`settle`](Self::settle).
    pub(super) fn emit(&mut self, generation: Generation, kind: EventKind) {
        self.news.push((generation, kind));
    }

    fn receive(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Call(call) => self.call(call),
            ServerMessage::CallerGone { call } => self.step(Input::CallCancelled { call }),
            ServerMessage::Enable { reply } => {
                self.step(Input::Enable);
                self.settle();
                let _ = reply.send(Ok(()));
            }
            ServerMessage::Disable { reply } => {
                self.disabling.push(reply);
                self.step(Input::Disable);
            }
            ServerMessage::Reconnect { reply } => self.reconnect(reply),
            ServerMessage::Approve { tool, hash, reply } => self.approve(tool, hash, reply),
            ServerMessage::PinsChanged { approved } => self.pins_changed(approved),
            ServerMessage::Reconfigure { renew, reply } => self.reconfigure(renew, reply),
            ServerMessage::ReportBroken { generation } => {
                self.step(Input::ReportBroken { generation });
            }
            ServerMessage::Shutdown { limit } => self.step(Input::Shutdown { limit }),
            ServerMessage::PermitGranted => self.step(Input::PermitGranted),
            ServerMessage::Connection { generation, event } => {
                self.connection_event(generation, event)
            }
            ServerMessage::ListFetched {
                generation,
                list,
                result,
                good_for,
            } => self.list_fetched(generation, list, result, good_for),
            ServerMessage::ListLooked(looked) => self.list_looked(*looked),
            ServerMessage::ToolsJudged(judging) => self.tools_judged(*judging),
            ServerMessage::ListsUsed => self.step(Input::ListsUsed),
            ServerMessage::CheckEnded {
                generation,
                failure,
            } => self.step(Input::CheckEnded {
                generation,
                failure,
            }),
            ServerMessage::Tick => {
                self.timer = None;
                self.step(Input::Tick);
            }
            ServerMessage::Crash => crash(),
        }
    }

    fn call(&mut self, mut call: Box<Call>) {
        let catalog = self.slot.published();
        let new = call.admit(&self.machine.settings().retry, &catalog);
        self.calls.insert(call.id, call);
        self.step(Input::Call(new));
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
                self.settle();
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Takes up the config that is in the slot now.
    fn reconfigure(&mut self, renew: ConnectionUpdate, reply: ControlReply) {
        let config = self.slot.config();
        let settings = Box::new(config.machine_settings());
        self.dirty = true;
        self.step(Input::Reconfigure { settings });
        if self.listed_on != Generation::NONE {
            self.approve_first_sight();
        }
        match renew {
            ConnectionUpdate::None => {}
            ConnectionUpdate::Headers => self.renew_headers(),
            ConnectionUpdate::ForgetEra => self.slot.forget_era(),
            // One that is switched off stays so; the machine sees to that.
            ConnectionUpdate::Reconnect => {
                self.slot.forget_era();
                self.step(Input::TransportChanged);
            }
        }
        self.look_again(Waiting::Reconfigured(reply));
    }

    /// A connection that is up goes on with the headers of the config. An attempt with the old ones
    /// may be refused for good, or was, so there is another.
    fn renew_headers(&mut self) {
        match self.machine.state().name() {
            StateName::Connected => {
                #[cfg(feature = "http")]
                if let Some(connection) = &self.connection
                    && let TransportKind::Http(endpoint) = &self.slot.config().transport.0
                {
                    // One that takes no more is replaced by one that reads the config itself.
                    let _ = connection.send(Command::UpdateHeaders(Box::new(endpoint.clone())));
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

    /// Whether a fact of this generation may still change something.
    pub(super) fn is_live(&self, generation: Generation) -> bool {
        matches!(self.machine.state(), State::Connected(live) if live.generation == generation)
    }

    /// One step of the machine, and all that follows from it.
    pub(super) fn step(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        // Rare: a call that its connection no longer takes, or whose tool has changed. Each may let
        // in the next of a long line, so they stand in a line here, not on the stack.
        let mut follow_ups = VecDeque::new();
        let mut next = Some(input);
        while let Some(input) = next {
            let random = Random::new(self.dice.f64());
            self.machine.handle(now(), random, input, &mut effects);
            for effect in effects.drain(..) {
                follow_ups.extend(self.perform(effect));
            }
            next = follow_ups.pop_front();
        }
        self.effects = effects;
        if let Some(generation) = self.to_restore.take() {
            self.restore(generation);
        }
        self.slot
            .set_gauges(self.machine.in_flight(), self.machine.waiting());
        self.slot.set_expiry(self.machine.lists_expire_at());
        self.arm();
    }

    /// Whoever asked to disable it hears when the teardown is over, however it ended.
    fn answer_disabled(&mut self) {
        if !self.disabling.is_empty() && self.machine.state().name() != StateName::Disabling {
            for reply in self.disabling.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }
}

#[expect(clippy::panic, reason = "a test asked for it")]
fn crash() {
    panic!("a crash was asked for");
}
