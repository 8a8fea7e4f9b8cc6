//! The supervisor actor: starts, adds and removes the actors of servers.
//!
//! [`super::child_exit`] restarts actors that crash, [`super::shutdown`] ends them all, and
//! [`super::connect_permits`] decides when they may connect.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::{ConnectKind, Generation, GovernorSettings, ServerName};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
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

/// The servers of a runtime. Only the supervisor writes it; a read costs one pointer load.
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
    pub(super) children: BTreeMap<ServerName, Child>,
    /// The connection locks of removed servers whose connections are still closing.
    pub(super) closing: BTreeMap<ServerName, Vec<Arc<Semaphore>>>,
    pub(super) permits: ConnectPermits,
    pub(super) shutdown: Option<Shutdown>,
}

/// One child spec and its present actor.
pub(super) struct Child {
    pub(super) slot: Arc<ServerSlot>,
    pub(super) actor: Option<ActorRef<ServerMessage>>,
    /// Answered when it is removed. It is being removed unless this is empty.
    pub(super) removals: Vec<ControlReply>,
}

impl Drop for SupervisorState {
    /// Every handle reports at once that the runtime has ended.
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
        let mut permits = ConnectPermits::new(arguments.governor);
        let children: BTreeMap<ServerName, Child> = arguments
            .registry
            .load()
            .iter()
            .map(|(name, slot)| (name.clone(), Child::new(Arc::clone(slot))))
            .collect();
        permits.governor.set_fleet(children.len());
        Ok(SupervisorState {
            registry: arguments.registry,
            events: arguments.events,
            catalogs: arguments.catalogs,
            children,
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
        let names: Vec<ServerName> = state.children.keys().cloned().collect();
        for batch in names.chunks(START_BATCH) {
            for name in batch {
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
                state.request_permit(&server, reconnect);
                state.grant_permits(&myself);
            }
            SupervisorMessage::ReleasePermit(server) => {
                state.permits.governor.release(&server);
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
            SupervisorMessage::Remove { server, reply } => state.remove(&server, reply),
            SupervisorMessage::RestartActor(server) => state.start(&myself, &server).await,
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
            removals: Vec::new(),
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
    /// Starts the actor of a server, unless it runs. A failed start is retried after a pause.
    pub(super) async fn start(&mut self, myself: &ActorRef<SupervisorMessage>, name: &ServerName) {
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
                restart_after_pause(myself, name.clone());
            }
        }
    }

    fn request_permit(&mut self, server: &ServerName, reconnect: bool) {
        let Some(child) = self.children.get(server) else {
            return;
        };
        let kind = if reconnect {
            ConnectKind::Reconnect
        } else {
            ConnectKind::First
        };
        let stdio = child.slot.config().transport.is_stdio();
        self.permits.governor.request(server.clone(), kind, stdio);
    }

    fn grant_permits(&mut self, myself: &ActorRef<SupervisorMessage>) {
        for server in self.permits.grant(myself) {
            if let Some(child) = self.children.get(&server) {
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
        slot.emit(Generation::NONE, EventKind::Added);
        self.children.insert(name.clone(), Child::new(slot));
        self.update_registry();
        self.start(myself, &name).await;
        let _ = reply.send(Ok(()));
    }

    fn remove(&mut self, name: &ServerName, reply: ControlReply) {
        if self.shutdown.is_some() {
            let _ = reply.send(Err(ControlError::RuntimeGone));
            return;
        }
        let Some(child) = self.children.get_mut(name) else {
            let _ = reply.send(Ok(()));
            return;
        };
        child.removals.push(reply);
        if child.removals.len() > 1 {
            // It is being removed already.
            return;
        }
        let limit = child.slot.config().settings.close.total();
        child.send(ServerMessage::Shutdown(limit));
        if child.actor.is_none() {
            self.remove_child(name);
        }
    }

    /// Updates the registry that handles read.
    pub(super) fn update_registry(&mut self) {
        let servers = self
            .children
            .iter()
            .map(|(name, child)| (name.clone(), Arc::clone(&child.slot)))
            .collect();
        self.registry.store(Arc::new(servers));
        self.permits.governor.set_fleet(self.children.len());
    }
}

#[expect(clippy::panic, reason = "requested by a test")]
fn crash() {
    panic!("a test requested a crash");
}
