//! The actor of one server: message in, input to the machine, effects out.
//!
//! Nothing here waits. What takes time is a task that comes back with a message: the connection
//! task, a fetch of a list, a check, a timer. What it decides, the machine decided.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mcpvisor_core::machine::{Fault, FaultClass, Outcome, Returned};
use mcpvisor_core::{
    CallMap, Chance, Effect, Generation, Input, ListKind, Machine, State, StateName,
};
use ractor::{ActorProcessingErr, ActorRef};
use rmcp::model::ServerPeerInfo;
use tokio::task::JoinHandle;

use super::call::Call;
use super::message::{Confirmed, ControlReply, FailedCall, Observed, Renew, Report, ServerMessage};
use super::slot::ServerSlot;
use crate::connection::{self, Command, Connection};
use crate::discovery;
use crate::error::ControlError;
use crate::events::EventKind;
use crate::reply::Failure;
use crate::supervisor::{CloseOutcome, SupervisorMessage};
#[cfg(feature = "http")]
use crate::transport::TransportKind;

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
    supervisor: ActorRef<SupervisorMessage>,
    pub(super) myself: ActorRef<ServerMessage>,
    pub(super) machine: Machine,
    /// Requests that wait here; those in flight are with the connection.
    calls: CallMap<Box<Call>>,
    /// The guard: dropped with this state, the connection closes by itself.
    connection: Option<Connection>,
    pub(super) info: Option<Arc<ServerPeerInfo>>,
    timer: Option<Timer>,
    /// The governor was asked, and has not got its permit back.
    asked_for_permit: bool,
    disabling: Vec<ControlReply>,
    dice: fastrand::Rng,
    effects: Vec<Effect>,
    pub(super) since: SystemTime,
    /// The connection on which the tools were last listed.
    pub(super) listed_on: Generation,
    /// Why a list could not be fetched, on which connection.
    pub(super) unlisted: BTreeMap<ListKind, (Generation, Fault)>,
    pub(super) strays: u64,
    pub(super) dropped_flood: u64,
    /// Something that the status shows has changed.
    pub(super) dirty: bool,
    /// What happened, for whoever subscribed; told once the status shows it.
    news: Vec<(Generation, EventKind)>,
}

struct Timer {
    at: Instant,
    task: JoinHandle<()>,
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
        let machine = Machine::new(slot.config().machine_settings(), durable, now());
        Self {
            slot,
            supervisor: arguments.supervisor,
            myself,
            machine,
            calls: CallMap::default(),
            connection: None,
            info: None,
            timer: None,
            asked_for_permit: false,
            disabling: Vec::new(),
            dice: fastrand::Rng::new(),
            effects: Vec::new(),
            since: SystemTime::now(),
            listed_on: Generation::NONE,
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
            ServerMessage::CallLeft { call } => self.step(Input::CallLeft { call }),
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
            ServerMessage::Approve { tool, reply } => self.approve(tool, reply),
            ServerMessage::PinsLoaded => self.pins_loaded(),
            ServerMessage::Reconfigure { renew, reply } => {
                self.reconfigure(renew);
                self.settle();
                let _ = reply.send(Ok(()));
            }
            ServerMessage::ReportBroken { generation } => {
                self.step(Input::ReportBroken { generation });
            }
            ServerMessage::Shutdown { limit } => self.step(Input::Shutdown { limit }),
            ServerMessage::PermitGranted => self.step(Input::PermitGranted),
            ServerMessage::Connection { generation, report } => self.heard(generation, report),
            ServerMessage::ListFetched {
                generation,
                list,
                result,
                good_for,
            } => {
                self.list_fetched(generation, list, result);
                if let Some(after) = good_for {
                    self.step(Input::ListExpires {
                        generation,
                        list,
                        after,
                    });
                }
            }
            ServerMessage::ListsUsed => self.step(Input::ListsUsed),
            ServerMessage::CheckEnded {
                generation,
                answered,
            } => self.step(Input::CheckEnded {
                generation,
                answered,
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
    fn reconfigure(&mut self, renew: Renew) {
        let config = self.slot.config();
        let settings = Box::new(config.machine_settings());
        self.dirty = true;
        self.step(Input::Reconfigure { settings });
        if !config.pin {
            self.look_again(ListKind::Tools);
        } else if self.slot.pins.is_known() {
            self.pins_loaded();
        } else {
            self.load_pins();
        }
        match renew {
            Renew::Nothing => {}
            Renew::Headers => self.renew_headers(),
            // One that is switched off stays so; the machine sees to that.
            Renew::Connection => self.step(Input::Reconnect),
        }
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
                    let _ = connection.tell(Command::Renew(Box::new(endpoint.clone())));
                }
            }
            StateName::Connecting
            | StateName::Reconnecting
            | StateName::Disconnected
            | StateName::PermanentlyFailed => self.step(Input::Reconnect),
            // The next connection reads the config.
            StateName::Disabling | StateName::Disabled | StateName::Sleeping => {}
        }
    }

    fn heard(&mut self, generation: Generation, report: Report) {
        match report {
            Report::FirstByte => self.step(Input::FirstByte { generation }),
            Report::Up { info, lists } => {
                self.step(Input::ConnectionUp { generation, lists });
                // A connection that came up too late has nothing to say about the server.
                if self.is_live(generation) {
                    self.info = Some(info);
                    self.dirty = true;
                }
            }
            Report::Observed(observed) => self.observed(generation, observed),
            Report::Lost { fault, returned } => self.lost(generation, fault, returned),
            Report::Ended(end) => {
                if self.connection.as_ref().map(|held| held.generation) == Some(generation) {
                    self.connection = None;
                }
                self.step(Input::ConnectionEnded { generation, end });
            }
        }
    }

    fn observed(&mut self, generation: Generation, observed: Observed) {
        let current = self.is_live(generation);
        if observed.strays > 0 || observed.dropped_flood > 0 {
            self.strays += observed.strays;
            self.dropped_flood += observed.dropped_flood;
            self.dirty = true;
        }
        for call in observed.progressed {
            self.step(Input::Progressed { generation, call });
        }
        for list in observed.changed {
            self.step(Input::ListChanged { generation, list });
        }
        if current {
            self.confirm(observed.confirmed);
        }
        let silent = observed.ended.is_empty() && observed.failed.is_empty();
        if silent && observed.heard {
            self.step(Input::Heard { generation });
        }
        for failed in observed.failed {
            self.call_failed(generation, failed);
        }
        if let Some(fault) = observed.session_gone {
            self.step(Input::SessionGone { generation, fault });
        }
        for (call, end) in observed.ended {
            self.step(Input::CallEnded {
                generation,
                call,
                end,
            });
        }
    }

    /// A call comes back from a connection that goes on.
    fn call_failed(&mut self, generation: Generation, failed: FailedCall) {
        let FailedCall {
            call,
            trouble,
            fault,
        } = failed;
        let id = call.id;
        self.calls.insert(id, call);
        self.step(Input::CallFailed {
            generation,
            call: id,
            trouble,
            fault,
        });
    }

    /// Remembers what has to be restored on the next connection.
    fn confirm(&mut self, confirmed: Vec<Confirmed>) {
        if confirmed.is_empty() {
            return;
        }
        let mut memory = self.slot.memory();
        for fact in confirmed {
            match fact {
                Confirmed::Subscribed(uri) => drop(memory.subscriptions.insert(uri)),
                Confirmed::Unsubscribed(uri) => drop(memory.subscriptions.remove(&uri)),
                Confirmed::LogLevel(level) => memory.log_level = Some(level),
            }
        }
        drop(memory);
        self.tell_of_listeners();
    }

    /// A server that somebody listens to does not sleep.
    fn tell_of_listeners(&mut self) {
        let active = !self.slot.memory().subscriptions.is_empty();
        self.step(Input::Watched { active });
    }

    fn lost(&mut self, generation: Generation, fault: Fault, calls: Vec<(Box<Call>, bool)>) {
        tracing::info!(server = %self.slot.name(), %generation, %fault, "connection lost");
        let returned = calls
            .iter()
            .map(|(call, written)| Returned {
                call: call.id,
                written: *written,
            })
            .collect();
        for (call, _) in calls {
            self.calls.insert(call.id, call);
        }
        self.step(Input::ConnectionLost {
            generation,
            fault,
            returned,
        });
    }

    /// Whether a fact of this generation may still change something.
    pub(super) fn is_live(&self, generation: Generation) -> bool {
        matches!(self.machine.state(), State::Connected(live) if live.generation == generation)
    }

    /// One step of the machine, and all that follows from it.
    pub(super) fn step(&mut self, input: Input) {
        let chance = Chance::new(self.dice.f64());
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.handle(now(), chance, input, &mut effects);
        let mut follow_ups = Vec::new();
        for effect in effects.drain(..) {
            follow_ups.extend(self.perform(effect));
        }
        self.effects = effects;
        // Rare: a call that its connection no longer takes, or whose tool has changed.
        for input in follow_ups {
            self.step(input);
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

    /// Performs one effect; what the machine must hear of it comes back.
    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::StartCall {
                call,
                generation,
                retried,
            } => return self.start_call(call, generation, retried),
            Effect::Resolve { call, outcome } => self.resolve(call, outcome),
            Effect::Abandon { call, outcome, .. } => self.abandon(call, outcome),
            Effect::Forget { call } => drop(self.calls.remove(&call)),
            Effect::AskPermit { reconnect } => {
                // A server in this process starts no program and opens no socket: there is nothing
                // to spread when it connects for the first time.
                if !reconnect && self.slot.config().transport.is_in_process() {
                    return Some(Input::PermitGranted);
                }
                self.asked_for_permit = true;
                self.tell_supervisor(SupervisorMessage::PermitWanted {
                    server: self.slot.name().clone(),
                    reconnect,
                });
            }
            Effect::ReturnPermit => {
                if std::mem::take(&mut self.asked_for_permit) {
                    self.tell_supervisor(SupervisorMessage::PermitReturned {
                        server: self.slot.name().clone(),
                    });
                }
            }
            Effect::Open { generation } => {
                tracing::debug!(server = %self.slot.name(), %generation, "connecting");
                self.slot.stderr.begin();
                self.connection = Some(connection::spawn(&self.slot, &self.myself, generation));
                self.dirty = true;
            }
            Effect::Close { generation, grace } => {
                if let Some(held) = self.held(generation) {
                    held.close(grace);
                }
            }
            Effect::Check { generation } => self.check(generation),
            Effect::Fetch { generation, list } => self.fetch(generation, list),
            Effect::Restore { generation } => self.restore(generation),
            Effect::StateChanged { from, to } => self.state_changed(from, to),
            Effect::Remember => {
                self.slot.memory().durable = self.machine.durable().clone();
                self.dirty = true;
            }
            Effect::Stop => {
                let closed = self
                    .close_problem()
                    .map_or(CloseOutcome::Clean, CloseOutcome::Problem);
                self.slot.memory().closed = Some(closed);
                self.myself.stop(None);
            }
        }
        None
    }

    fn tell_supervisor(&self, message: SupervisorMessage) {
        // A supervisor that is gone takes this actor with it.
        let _ = self.supervisor.send_message(message);
    }

    pub(super) fn held(&self, generation: Generation) -> Option<&Connection> {
        self.connection
            .as_ref()
            .filter(|held| held.generation == generation)
    }

    fn start_call(
        &mut self,
        id: mcpvisor_core::CallId,
        generation: Generation,
        retried: bool,
    ) -> Option<Input> {
        let mut call = self.calls.remove(&id)?;
        if !retried && let Some(failure) = self.held_back(&call, generation) {
            call.reply.send(Err(failure));
            return Some(Input::CallLeft { call: id });
        }
        if let Some(name) = call.tool_name() {
            let catalog = self.slot.published();
            let Some(seen) = call.seen.as_ref().filter(|_| retried) else {
                call.seen = Some(catalog);
                return self.hand_over(call, generation);
            };
            let (was, is) = (seen.tool(name), catalog.tool(name));
            if was != is {
                let failure = match is {
                    Some(_) => Failure::ToolChanged,
                    // It is there, and waits for the approval of a person.
                    None if catalog.held(name).is_some() => Failure::ToolChanged,
                    None => Failure::ToolGone,
                };
                call.reply.send(Err(failure));
                return Some(Input::CallLeft { call: id });
            }
        }
        self.hand_over(call, generation)
    }

    /// Hands a call to its connection, or takes it back if that takes no more.
    fn hand_over(&mut self, call: Box<Call>, generation: Generation) -> Option<Input> {
        let id = call.id;
        let undelivered = match self.held(generation) {
            Some(held) => held.tell(Command::Start(call)).err(),
            None => Some(Command::Start(call)),
        };
        match undelivered {
            Some(Command::Start(call)) => {
                self.calls.insert(id, call);
                Some(Input::CallUndelivered {
                    generation,
                    call: id,
                })
            }
            Some(_) | None => None,
        }
    }

    fn resolve(&mut self, id: mcpvisor_core::CallId, outcome: Outcome) {
        if let Some(call) = self.calls.remove(&id) {
            call.reply.send(Err(Failure::Outcome(outcome)));
        }
    }

    fn abandon(&mut self, call: mcpvisor_core::CallId, outcome: Outcome) {
        if let Some(held) = &self.connection {
            // A connection that takes no more hands its calls back by itself.
            let _ = held.tell(Command::Abandon { call, outcome });
        }
    }

    fn check(&mut self, generation: Generation) {
        let Some(held) = self.held(generation) else {
            return;
        };
        tokio::spawn(discovery::check(
            held.own_requests(),
            self.myself.clone(),
            generation,
        ));
    }

    fn fetch(&mut self, generation: Generation, list: mcpvisor_core::ListKind) {
        let Some(held) = self.held(generation) else {
            return;
        };
        let fetch = discovery::fetch(
            held.own_requests(),
            self.myself.clone(),
            generation,
            list,
            self.machine.settings().clone(),
        );
        let pins = Arc::clone(&self.slot.pins);
        let pinned = list == ListKind::Tools && self.slot.config().pin;
        tokio::spawn(async move {
            if pinned {
                // What is approved has to be known before the tools are.
                let _ = tokio::task::spawn_blocking(move || pins.load()).await;
            }
            fetch.await;
        });
    }

    fn restore(&mut self, generation: Generation) {
        let (subscriptions, log_level) = {
            let memory = self.slot.memory();
            (memory.subscriptions.clone(), memory.log_level)
        };
        let Some(held) = self.held(generation) else {
            return;
        };
        if !subscriptions.is_empty() || log_level.is_some() {
            tokio::spawn(discovery::restore(
                held.own_requests(),
                Arc::clone(&self.slot),
                subscriptions,
                log_level,
            ));
        }
    }

    fn state_changed(&mut self, from: StateName, to: StateName) {
        self.since = SystemTime::now();
        self.dirty = true;
        let generation = self.machine.durable().generation;
        let fault = self.machine.last_fault().cloned();
        let problem = fault.as_ref().map(|fault| fault.message.as_str());
        tracing::info!(server = %self.slot.name(), %generation, %from, %to, problem, "state changed");
        self.emit(generation, EventKind::StateChanged { from, to, fault });
        self.publish_catalog_for(to);
    }

    fn close_problem(&self) -> Option<String> {
        self.machine
            .last_fault()
            .filter(|fault| fault.class == FaultClass::Close)
            .map(|fault| fault.message.clone())
    }

    /// Arms the one timer for the machine's next deadline. A timer that fires early only asks
    /// again, so it is left alone unless the deadline came closer.
    fn arm(&mut self) {
        let Some(deadline) = self.machine.next_deadline() else {
            return;
        };
        if self
            .timer
            .as_ref()
            .is_some_and(|timer| timer.at <= deadline)
        {
            return;
        }
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(deadline.into()).await;
            let _ = myself.send_message(ServerMessage::Tick);
        });
        self.timer = Some(Timer { at: deadline, task });
    }
}

#[expect(clippy::panic, reason = "a test asked for it")]
fn crash() {
    panic!("a crash was asked for");
}
