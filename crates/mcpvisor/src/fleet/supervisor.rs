//! The supervisor actor: starts, adds and removes the actors of servers, one for each slot.
//!
//! [`super::child_exit`] restarts actors that crash, [`super::shutdown`] ends them all, and
//! [`super::connect_permits`] decides when they may connect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::{ConnectKind, Generation, GovernorSettings, ServerInstance, ServerName};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::Semaphore;

use super::SupervisorMessage;
use super::child_exit::restart_after_pause;
use super::connect_permits::ConnectPermits;
use super::shutdown::{SHUTDOWN_MARGIN, Shutdown};
use crate::api::error::ControlError;
use crate::api::events::{EventBus, EventKind};
use crate::catalog::CatalogMerger;
use crate::server::actor::{ServerActor, ServerArguments};
use crate::server::message::{ControlReply, ServerMessage};
use crate::server::slot::{Mailbox, ServerSlot};

/// Actors spawned per batch before yielding. Without batches, a large fleet runs one step of each
/// server after the other and finds none of them in the processor's cache.
const START_BATCH: usize = 4;

/// The supervisor of one runtime.
pub(crate) struct SupervisorActor;

/// The main slots of the servers of a runtime. Only the supervisor writes it; a read costs one pointer
/// load.
pub(crate) type ServerRegistry = ArcSwap<BTreeMap<ServerName, Arc<ServerSlot>>>;

/// What the supervisor starts with.
pub(crate) struct SupervisorArguments {
    pub(crate) registry: Arc<ServerRegistry>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) catalogs: Arc<CatalogMerger>,
    pub(crate) governor: GovernorSettings,
}

pub(crate) struct SupervisorState {
    registry: Arc<ServerRegistry>,
    pub(super) events: Arc<EventBus>,
    pub(super) catalogs: Arc<CatalogMerger>,
    pub(super) children: BTreeMap<ServerInstance, Child>,
    /// The slot of each actor that runs.
    pub(super) actors: HashMap<ActorId, ServerInstance>,
    /// Answered when all slots of a server are removed. A server here is being removed.
    pub(super) removals: BTreeMap<ServerName, Vec<ControlReply>>,
    /// The connection locks of removed servers whose connections are still closing.
    pub(super) closing: BTreeMap<ServerName, Vec<Arc<Semaphore>>>,
    pub(super) permits: ConnectPermits,
    pub(super) shutdown: Option<Shutdown>,
}

/// One child spec and its present actor.
pub(super) struct Child {
    pub(super) slot: Arc<ServerSlot>,
    pub(super) actor: Option<ActorRef<ServerMessage>>,
    /// It is being removed.
    pub(super) removed: bool,
}

impl Drop for SupervisorState {
    /// Every handle reports at once that the runtime has ended.
    fn drop(&mut self) {
        let registry = self.registry.load();
        let children = self.children.values().map(|child| &child.slot);
        for slot in children.chain(registry.values()) {
            slot.end_with_runtime();
        }
        // Those that are not children yet. Later ones find that their main slot has ended.
        let clients = registry.values().flat_map(|slot| slot.client_slots());
        for slot in clients.filter(|slot| !slot.is_gone()) {
            slot.end_with_runtime();
            slot.forget_client_slot();
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
        let mut permits = ConnectPermits::new(arguments.governor);
        let servers = arguments.registry.load();
        let slots = servers.values().flat_map(|slot| slot.instances());
        let children: BTreeMap<ServerInstance, Child> = slots
            .map(|slot| (slot.id.clone(), Child::new(slot)))
            .collect();
        permits.governor.set_fleet(children.len());
        Ok(SupervisorState {
            registry: arguments.registry,
            events: arguments.events,
            catalogs: arguments.catalogs,
            children,
            actors: HashMap::new(),
            removals: BTreeMap::new(),
            closing: BTreeMap::new(),
            permits,
            shutdown: None,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let slots: Vec<ServerInstance> = state.children.keys().cloned().collect();
        for batch in slots.chunks(START_BATCH) {
            for slot in batch {
                state.start(&myself, slot).await;
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
            SupervisorMessage::RequestPermit { slot, reconnect } => {
                state.request_permit(&slot, reconnect);
                state.grant_permits(&myself);
            }
            SupervisorMessage::ReleasePermit(slot) => {
                state.permits.governor.release(&slot);
                state.grant_permits(&myself);
            }
            SupervisorMessage::PermitTimerFired => {
                state.permits.timer = None;
                state.grant_permits(&myself);
            }
            SupervisorMessage::ReconfigureGovernor(settings) => {
                state.permits.governor.reconfigure(settings);
                state.grant_permits(&myself);
            }
            SupervisorMessage::Add { slot, reply } => state.add(&myself, slot, reply).await,
            SupervisorMessage::AddSlot(slot) => state.add_slot(&myself, slot).await,
            SupervisorMessage::Remove { server, reply } => state.remove(&server, reply),
            SupervisorMessage::RemoveSlot(slot) => state.begin_removal(&slot),
            SupervisorMessage::RestartActor(slot) => state.start(&myself, &slot).await,
            SupervisorMessage::Shutdown { limit, reply } => state.shut_down(&myself, limit, reply),
            SupervisorMessage::ShutdownTimedOut => state.kill_children(),
            SupervisorMessage::Crash => crash(),
        }
        state.finish_shutdown(&myself);
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
                state.actor_crashed(&myself, cell.get_id(), &problem).await;
                state.grant_permits(&myself);
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                state.actor_stopped(cell.get_id());
                state.grant_permits(&myself);
            }
            // Starts need no handling, and process groups are not used.
            _ => {}
        }
        state.finish_shutdown(&myself);
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<SupervisorMessage>,
        _state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        // A supervisor that is stopped from outside stops its children first: its end would kill
        // them.
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
            removed: false,
        }
    }

    pub(super) fn send(&self, message: ServerMessage) {
        if let Some(actor) = &self.actor {
            // Fails only for an actor whose end the supervisor is about to receive.
            let _ = actor.send_message(message);
        }
    }
}

impl SupervisorState {
    /// Starts the actor of a slot, unless it runs. A failed start is retried after a pause.
    pub(super) async fn start(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        slot: &ServerInstance,
    ) {
        let Some(child) = self.children.get_mut(slot) else {
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
                self.actors.insert(actor.get_id(), slot.clone());
                child.actor = Some(actor.clone());
                child.slot.mailbox.send_replace(Mailbox::Live(actor));
            }
            Err(problem) => {
                tracing::error!(server = %slot, %problem, "the server's actor did not start");
                restart_after_pause(myself, slot.clone());
            }
        }
    }

    fn request_permit(&mut self, slot: &ServerInstance, reconnect: bool) {
        let Some(child) = self.children.get(slot) else {
            return;
        };
        let kind = if reconnect {
            ConnectKind::Reconnect
        } else {
            ConnectKind::First
        };
        let stdio = child.slot.config().transport.is_stdio();
        self.permits.governor.request(slot.clone(), kind, stdio);
    }

    fn grant_permits(&mut self, myself: &ActorRef<SupervisorMessage>) {
        for slot in self.permits.grant(myself) {
            if let Some(child) = self.children.get(&slot) {
                child.send(ServerMessage::PermitGranted);
            }
        }
    }

    async fn add(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        slot: Arc<ServerSlot>,
        reply: ControlReply,
    ) {
        let name = slot.name().clone();
        let refusal = if self.shutdown.is_some() {
            Some(ControlError::RuntimeGone)
        } else if self.slots_of(&name).next().is_some() {
            Some(ControlError::Exists(name.clone()))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let _ = reply.send(Err(refusal));
            return;
        }
        let predecessors = self.closing.remove(&name).unwrap_or_default();
        let instances = slot.instances();
        for instance in &instances {
            let locks = predecessors.clone();
            instance.connection_lock.set_predecessors(locks);
            let kind = match instance.is_main() {
                true => EventKind::Added,
                false => EventKind::InstanceAdded,
            };
            instance.emit(Generation::NONE, kind);
            let child = Child::new(Arc::clone(instance));
            self.children.insert(instance.id.clone(), child);
        }
        self.update_registry();
        for instance in &instances {
            self.start(myself, &instance.id).await;
        }
        let _ = reply.send(Ok(()));
    }

    /// Adds a further slot of a server, unless the server is going.
    async fn add_slot(&mut self, myself: &ActorRef<SupervisorMessage>, slot: Arc<ServerSlot>) {
        let server = slot.name();
        let has_main = self.slots_of(server).any(|child| child.slot.is_main());
        if self.shutdown.is_some() || !has_main || self.removals.contains_key(server) {
            let gone = match self.shutdown {
                Some(_) => Mailbox::Gone,
                None => Mailbox::Removed,
            };
            slot.mailbox.send_replace(gone);
            slot.publish_end();
            slot.forget_client_slot();
            return;
        }
        slot.emit(Generation::NONE, EventKind::InstanceAdded);
        let id = slot.id.clone();
        self.children.insert(id.clone(), Child::new(slot));
        self.permits.governor.set_fleet(self.children.len());
        self.start(myself, &id).await;
    }

    fn remove(&mut self, server: &ServerName, reply: ControlReply) {
        if self.shutdown.is_some() {
            let _ = reply.send(Err(ControlError::RuntimeGone));
            return;
        }
        let slots = self.slots_of(server);
        let slots: Vec<_> = slots.map(|child| child.slot.id.clone()).collect();
        if slots.is_empty() {
            let _ = reply.send(Ok(()));
            return;
        }
        self.removals.entry(server.clone()).or_default().push(reply);
        for slot in slots {
            self.begin_removal(&slot);
        }
    }

    /// Closes a slot. It is removed when its actor has stopped.
    fn begin_removal(&mut self, slot: &ServerInstance) {
        let Some(child) = self.children.get_mut(slot) else {
            return;
        };
        if std::mem::replace(&mut child.removed, true) {
            return;
        }
        let limit = child.slot.config().settings.close.total();
        child.send(ServerMessage::Shutdown(limit));
        if child.actor.is_none() {
            self.remove_child(slot);
        }
    }

    /// The slots of a server.
    pub(super) fn slots_of(&self, server: &ServerName) -> impl Iterator<Item = &Child> {
        let of = |instance| ServerInstance {
            server: server.clone(),
            instance,
        };
        let children = self.children.range(of(0)..=of(u32::MAX));
        children.map(|(_, child)| child)
    }

    /// Updates the registry that handles read.
    pub(super) fn update_registry(&mut self) {
        let slots = self.children.values().map(|child| &child.slot);
        let main = slots.filter(|slot| slot.is_main());
        let servers = main.map(|slot| (slot.name().clone(), Arc::clone(slot)));
        self.registry.store(Arc::new(servers.collect()));
        self.permits.governor.set_fleet(self.children.len());
    }
}

#[expect(clippy::panic, reason = "requested by a test")]
fn crash() {
    panic!("a test requested a crash");
}
