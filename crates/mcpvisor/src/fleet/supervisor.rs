//! The supervisor actor: starts the actors of servers, restarts those that crash, ends them all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::StateName;
use mcpvisor_core::{ConnectKind, Governor, GovernorSettings, ServerName};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::{CloseOutcome, Registry, ServerClosed, ShutdownReport, SupervisorMessage};
use crate::api::error::ControlError;
use crate::api::events::{EventBus, EventKind};
use crate::catalog::CatalogMerger;
use crate::server::actor::{ServerActor, ServerArguments, now};
use crate::server::connection_lock::is_taken;
use crate::server::message::ServerMessage;
use crate::server::slot::{Mailbox, ServerSlot};

/// The actor of a server whose budget is spent is restarted after this pause, so that one that
/// crashes whatever it is told does not spin.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// So many actors are started before those that were get on with it. A large fleet that starts all at
/// once takes one step of each server after the other, and finds none of them in the processor's cache.
const STARTS_IN_A_TURN: usize = 4;

/// A shutdown never takes longer, whatever its limit says; the clock holds only so much.
pub(crate) const LONGEST_SHUTDOWN: Duration = Duration::from_secs(24 * 60 * 60);

/// Beyond the limit of a shutdown, for what cannot be shortened: killing and reaping.
const SHUTDOWN_MARGIN: Duration = Duration::from_millis(500);

/// The limit of a shutdown that nobody waits for.
pub(crate) const QUIET_SHUTDOWN: Duration = Duration::from_secs(10);

/// The supervisor of one runtime.
pub(crate) struct SupervisorActor;

/// What the supervisor starts with.
pub(crate) struct SupervisorArguments {
    pub(crate) registry: Arc<Registry>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) catalogs: Arc<CatalogMerger>,
    pub(crate) governor: GovernorSettings,
}

pub(crate) struct SupervisorState {
    registry: Arc<Registry>,
    events: Arc<EventBus>,
    catalogs: Arc<CatalogMerger>,
    children: BTreeMap<ServerName, Child>,
    /// Connections of removed servers that are still closing.
    closing: BTreeMap<ServerName, Vec<Arc<Semaphore>>>,
    governor: Governor<ServerName>,
    governor_timer: Option<GovernorTimer>,
    ending: Option<Ending>,
}

/// One child spec, and the actor of the moment.
struct Child {
    slot: Arc<ServerSlot>,
    actor: Option<ActorRef<ServerMessage>>,
    /// Who waits for its removal; it is being removed unless this is empty.
    removals: Vec<oneshot::Sender<Result<(), ControlError>>>,
}

/// Wakes the supervisor when the governor has room again.
struct GovernorTimer {
    due: Instant,
    task: JoinHandle<()>,
}

impl Drop for GovernorTimer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Ending {
    began: Instant,
    /// The earliest that any wish for the shutdown allows.
    due: Instant,
    replies: Vec<oneshot::Sender<ShutdownReport>>,
    report: Vec<ServerClosed>,
    deadline: JoinHandle<()>,
}

impl Drop for SupervisorState {
    /// Without a supervisor nobody answers any more, and every handle says so at once.
    fn drop(&mut self) {
        let registry = self.registry.load();
        let children = self.children.values().map(|child| &child.slot);
        for slot in children.chain(registry.values()) {
            let before = slot.mailbox.send_replace(Mailbox::Gone);
            if !matches!(before, Mailbox::Gone) {
                slot.published.publish_end();
            }
        }
        self.events.close();
        self.catalogs.close();
    }
}

#[ractor::actor(message = SupervisorMessage, state = SupervisorState, arguments = SupervisorArguments)]
impl SupervisorActor {
    async fn pre_start(
        &self,
        _myself: ActorRef<SupervisorMessage>,
        arguments: SupervisorArguments,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let mut governor = Governor::new(arguments.governor);
        let children: BTreeMap<ServerName, Child> = arguments
            .registry
            .load()
            .iter()
            .map(|(name, slot)| (name.clone(), Child::new(Arc::clone(slot))))
            .collect();
        governor.set_fleet(children.len());
        Ok(SupervisorState {
            registry: arguments.registry,
            events: arguments.events,
            catalogs: arguments.catalogs,
            children,
            closing: BTreeMap::new(),
            governor,
            governor_timer: None,
            ending: None,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let names: Vec<ServerName> = state.children.keys().cloned().collect();
        for few in names.chunks(STARTS_IN_A_TURN) {
            for name in few {
                state.start(&myself, name).await;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::RequestPermit { server, reconnect } => {
                state.permit_wanted(&server, reconnect);
                state.grant(&myself);
            }
            SupervisorMessage::ReleasePermit { server } => {
                state.governor.release(&server);
                state.grant(&myself);
            }
            SupervisorMessage::GovernorDue => {
                state.governor_timer = None;
                state.grant(&myself);
            }
            SupervisorMessage::Govern(settings) => {
                state.governor.reconfigure(settings);
                state.grant(&myself);
            }
            SupervisorMessage::Add { slot, reply } => state.add(&myself, slot, reply).await,
            SupervisorMessage::Remove { server, reply } => state.remove(&server, reply),
            SupervisorMessage::RestartDue { server } => state.start(&myself, &server).await,
            SupervisorMessage::Shutdown { limit, reply } => state.shut_down(&myself, limit, reply),
            SupervisorMessage::ShutdownDue => state.force(),
            SupervisorMessage::Crash => crash(),
        }
        state.end_if_done(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, problem) => {
                state.crashed(&myself, cell.get_id(), &problem).await;
                state.grant(&myself);
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                state.terminated(cell.get_id());
                state.grant(&myself);
            }
            // Starting is no news, and process groups are not used.
            _ => {}
        }
        state.end_if_done(&myself);
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<SupervisorMessage>,
        _state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        // A supervisor that is stopped from outside takes its children along in good order: a
        // parent's end would otherwise kill them.
        myself
            .stop_children_and_wait(None, Some(SHUTDOWN_MARGIN))
            .await;
        Ok(())
    }
}

impl Child {
    fn new(slot: Arc<ServerSlot>) -> Self {
        Self {
            slot,
            actor: None,
            removals: Vec::new(),
        }
    }

    fn tell(&self, message: ServerMessage) {
        if let Some(actor) = &self.actor {
            // A message that comes too late is for an actor whose end is on its way to us.
            let _ = actor.send_message(message);
        }
    }
}

impl SupervisorState {
    /// Starts the actor of a server. A failure to start is a crash like any other.
    async fn start(&mut self, myself: &ActorRef<SupervisorMessage>, name: &ServerName) {
        let Some(child) = self.children.get_mut(name) else {
            return;
        };
        if child.actor.is_some() {
            return;
        }
        let arguments = ServerArguments {
            slot: Arc::clone(&child.slot),
            supervisor: myself.clone(),
        };
        match Actor::spawn_linked(None, ServerActor, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                child.actor = Some(actor.clone());
                child.slot.mailbox.send_replace(Mailbox::Live(actor));
            }
            Err(problem) => {
                tracing::error!(server = %name, %problem, "the server's actor did not start");
                restart_later(myself, name.clone());
            }
        }
    }

    fn permit_wanted(&mut self, server: &ServerName, reconnect: bool) {
        let Some(child) = self.children.get(server) else {
            return;
        };
        let kind = if reconnect {
            ConnectKind::Reconnect
        } else {
            ConnectKind::First
        };
        let stdio = child.slot.config().transport.is_stdio();
        self.governor.ask(server.clone(), kind, stdio);
    }

    /// Hands out the permits that there is room for, and comes back when there will be more.
    fn grant(&mut self, myself: &ActorRef<SupervisorMessage>) {
        for server in self.governor.poll(now()) {
            if let Some(child) = self.children.get(&server) {
                child.tell(ServerMessage::PermitGranted);
            }
        }
        self.arm(myself);
    }

    /// A timer that fires early only asks again, so it is left alone unless the governor has room
    /// sooner: what it was armed for may long be over.
    fn arm(&mut self, myself: &ActorRef<SupervisorMessage>) {
        let Some(due) = self.governor.next_deadline() else {
            return;
        };
        if self
            .governor_timer
            .as_ref()
            .is_some_and(|timer| timer.due <= due)
        {
            return;
        }
        let myself = myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            let _ = myself.send_message(SupervisorMessage::GovernorDue);
        });
        self.governor_timer = Some(GovernorTimer { due, task });
    }

    async fn add(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        slot: Arc<ServerSlot>,
        reply: oneshot::Sender<Result<(), ControlError>>,
    ) {
        let name = slot.name().clone();
        let refusal = if self.ending.is_some() {
            Some(ControlError::RuntimeGone)
        } else if self.children.contains_key(&name) {
            Some(ControlError::Exists(name.clone()))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let _ = reply.send(Err(refusal));
            return;
        }
        let predecessors = self.closing.remove(&name).unwrap_or_default();
        slot.connection_lock.set_predecessors(predecessors);
        slot.emit(mcpvisor_core::Generation::NONE, EventKind::Added);
        self.children.insert(name.clone(), Child::new(slot));
        self.publish();
        self.start(myself, &name).await;
        let _ = reply.send(Ok(()));
    }

    fn remove(&mut self, name: &ServerName, reply: oneshot::Sender<Result<(), ControlError>>) {
        if self.ending.is_some() {
            let _ = reply.send(Err(ControlError::RuntimeGone));
            return;
        }
        let Some(child) = self.children.get_mut(name) else {
            let _ = reply.send(Ok(()));
            return;
        };
        child.removals.push(reply);
        if child.removals.len() > 1 {
            // It is closing already.
            return;
        }
        let limit = child.slot.config().settings.close.total();
        child.tell(ServerMessage::Shutdown { limit });
        if child.actor.is_none() {
            self.forget(name);
        }
    }

    /// Writes the registry that handles read.
    fn publish(&mut self) {
        let servers = self
            .children
            .iter()
            .map(|(name, child)| (name.clone(), Arc::clone(&child.slot)))
            .collect();
        self.registry.store(Arc::new(servers));
        self.governor.set_fleet(self.children.len());
    }

    fn name_of(&self, actor: ActorId) -> Option<ServerName> {
        self.children
            .iter()
            .find(|(_, child)| child.actor.as_ref().is_some_and(|a| a.get_id() == actor))
            .map(|(name, _)| name.clone())
    }

    /// An actor panicked: it is started again, on the budget of its server.
    async fn crashed(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        actor: ActorId,
        problem: &ActorProcessingErr,
    ) {
        let Some(name) = self.name_of(actor) else {
            return;
        };
        self.governor.release(&name);
        let Some(child) = self.children.get_mut(&name) else {
            return;
        };
        tracing::error!(server = %name, %problem, "the server's actor crashed");
        child.actor = None;
        child.slot.mailbox.send_replace(Mailbox::Starting);
        let (generation, parked) = {
            let mut state = child.slot.restart_state();
            state.restarts += 1;
            // The machine of the new actor counts the restart against the budget.
            (state.durable.generation, state.durable.budget.is_parked())
        };
        child.slot.emit(
            generation,
            EventKind::ActorRestarted {
                problem: problem.to_string(),
            },
        );
        if self.ending.is_some() || !child.removals.is_empty() {
            self.forget_crashed(&name);
        } else if parked {
            restart_later(myself, name);
        } else {
            self.start(myself, &name).await;
        }
    }

    /// An actor that crashed while it was being closed is not started again; its connection
    /// closes by itself.
    fn forget_crashed(&mut self, name: &ServerName) {
        if let Some(child) = self.children.get(name) {
            child.slot.connection_lock.force_close();
        }
        self.forget(name);
    }

    fn terminated(&mut self, actor: ActorId) {
        let Some(name) = self.name_of(actor) else {
            return;
        };
        self.governor.release(&name);
        self.forget(&name);
    }

    /// The connection of an actor that crashed closes by itself, and may outlive its server. A server
    /// of the same name waits for it.
    fn note_closing(&mut self, name: &ServerName, slot: &ServerSlot) {
        self.closing.retain(|_, permits| {
            permits.retain(is_taken);
            !permits.is_empty()
        });
        let held = slot.connection_lock.taken();
        if !held.is_empty() {
            self.closing.insert(name.clone(), held);
        }
    }

    /// A child is gone for good.
    fn forget(&mut self, name: &ServerName) {
        let Some(child) = self.children.remove(name) else {
            return;
        };
        let how = {
            // It stays, for whoever asks once the supervisor is gone too.
            let mut state = child.slot.restart_state();
            state.closed.get_or_insert(CloseOutcome::Forced).clone()
        };
        self.note_closing(name, &child.slot);
        // An actor that crashed or was killed did not say so itself.
        let from = child.slot.published.status().state;
        child.slot.published.publish_end();
        if from != StateName::Disabled {
            let generation = child.slot.generation();
            let changed = EventKind::StateChanged {
                from,
                to: StateName::Disabled,
                fault: None,
            };
            child.slot.emit(generation, changed);
        }
        match &mut self.ending {
            Some(ending) => {
                child.slot.mailbox.send_replace(Mailbox::Gone);
                ending.report.push(ServerClosed {
                    server: name.clone(),
                    how,
                });
            }
            None => {
                child.slot.mailbox.send_replace(Mailbox::Removed);
                let generation = child.slot.generation();
                child.slot.emit(generation, EventKind::Removed);
                self.publish();
            }
        }
        for reply in child.removals {
            let _ = reply.send(Ok(()));
        }
    }

    fn shut_down(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        limit: Duration,
        reply: Option<oneshot::Sender<ShutdownReport>>,
    ) {
        for child in self.children.values() {
            child.tell(ServerMessage::Shutdown { limit });
        }
        let actorless: Vec<ServerName> = self
            .children
            .iter()
            .filter(|(_, child)| child.actor.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        let due = now() + limit.min(LONGEST_SHUTDOWN) + SHUTDOWN_MARGIN;
        let ending = self.ending.get_or_insert_with(|| Ending {
            began: now(),
            due,
            replies: Vec::new(),
            report: Vec::new(),
            deadline: shutdown_timer(myself, due),
        });
        ending.replies.extend(reply);
        if due < ending.due {
            ending.due = due;
            ending.deadline.abort();
            ending.deadline = shutdown_timer(myself, due);
        }
        for name in actorless {
            self.forget(&name);
        }
    }

    /// The time is up: whoever is still there is ended without asking.
    fn force(&mut self) {
        for child in self.children.values() {
            child.slot.connection_lock.force_close();
            if let Some(actor) = &child.actor {
                actor.kill();
            }
        }
    }

    /// The last child is gone: say so, and stop.
    fn end_if_done(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if !self.children.is_empty() {
            return;
        }
        let Some(mut ending) = self.ending.take() else {
            return;
        };
        ending.deadline.abort();
        ending.report.sort_by(|a, b| a.server.cmp(&b.server));
        let report = ShutdownReport {
            servers: ending.report,
            took: now().saturating_duration_since(ending.began),
        };
        self.events.close();
        self.catalogs.close();
        for reply in ending.replies {
            let _ = reply.send(report.clone());
        }
        myself.stop(None);
    }
}

fn shutdown_timer(myself: &ActorRef<SupervisorMessage>, due: Instant) -> JoinHandle<()> {
    let myself = myself.clone();
    tokio::spawn(async move {
        tokio::time::sleep_until(due.into()).await;
        let _ = myself.send_message(SupervisorMessage::ShutdownDue);
    })
}

fn restart_later(myself: &ActorRef<SupervisorMessage>, server: ServerName) {
    let myself = myself.clone();
    tokio::spawn(async move {
        tokio::time::sleep(RESTART_PAUSE).await;
        let _ = myself.send_message(SupervisorMessage::RestartDue { server });
    });
}

#[expect(clippy::panic, reason = "a test asked for it")]
fn crash() {
    panic!("a test requested a crash");
}
