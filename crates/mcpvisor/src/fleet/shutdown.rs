//! Shuts a runtime down and reports how each server ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::{ServerInstance, ServerName};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::SupervisorMessage;
use super::supervisor::SupervisorState;
use crate::message_timer::MessageTimer;
use crate::server::actor::now;
use crate::server::message::ServerMessage;
use crate::server::slot::ServerSlot;

/// Cap of every shutdown limit, so that clock arithmetic cannot overflow.
pub(crate) const MAX_SHUTDOWN: Duration = Duration::from_secs(24 * 60 * 60);

/// Added to the limit of a shutdown, for the killing and reaping that cannot be shortened.
pub(crate) const SHUTDOWN_MARGIN: Duration = Duration::from_millis(500);

/// The limit of the shutdown that follows the drop of the last handle.
pub(crate) const DROP_SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// How a runtime ended.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Each server, in the order of their names, with one entry for each of its instances.
    pub servers: Vec<ServerClosed>,
    /// How long it took.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether every server closed without a problem.
    pub fn is_clean(&self) -> bool {
        self.servers
            .iter()
            .all(|closed| closed.how == CloseOutcome::Clean)
    }

    /// Adds the servers that are missing because the supervisor ended first.
    pub(crate) fn complete(&mut self, slots: &[Arc<ServerSlot>]) {
        let known: BTreeSet<ServerInstance> = self.servers.iter().map(ServerClosed::id).collect();
        for slot in slots.iter().filter(|slot| !known.contains(&slot.id)) {
            let unknown = || CloseOutcome::Problem("its supervisor had ended before".to_owned());
            let how = slot.restart_state().closed.clone();
            self.servers.push(ServerClosed {
                server: slot.name().clone(),
                instance: slot.id.instance,
                how: how.unwrap_or_else(unknown),
            });
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.servers.sort_by_key(ServerClosed::id);
    }
}

/// How one server, or one of its instances, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerClosed {
    /// Which server.
    pub server: ServerName,
    /// Which instance: [`ServerStatus::instance`](crate::ServerStatus::instance).
    pub instance: u32,
    /// How it was closed.
    pub how: CloseOutcome,
}

impl ServerClosed {
    pub(crate) fn id(&self) -> ServerInstance {
        ServerInstance {
            server: self.server.clone(),
            instance: self.instance,
        }
    }
}

/// How a server was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseOutcome {
    /// In the regular way.
    Clean,
    /// Closed, but not in the regular way.
    Problem(String),
    /// Killed because it did not close in time.
    Forced,
}

/// A shutdown that is under way.
pub(super) struct Shutdown {
    began: Instant,
    /// The earliest deadline of all requests to shut down.
    due: Instant,
    replies: Vec<oneshot::Sender<ShutdownReport>>,
    pub(super) closed: Vec<ServerClosed>,
    timer: MessageTimer,
}

impl SupervisorState {
    pub(super) fn shut_down(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        limit: Duration,
        reply: Option<oneshot::Sender<ShutdownReport>>,
    ) {
        for child in self.children.values() {
            child.send(ServerMessage::Shutdown(limit));
        }
        let due = now() + limit.min(MAX_SHUTDOWN) + SHUTDOWN_MARGIN;
        let message = || SupervisorMessage::ShutdownTimedOut;
        let shutdown = self.shutdown.get_or_insert_with(|| Shutdown {
            began: now(),
            due,
            replies: Vec::new(),
            closed: Vec::new(),
            timer: MessageTimer::start(myself, due, message),
        });
        shutdown.replies.extend(reply);
        if due < shutdown.due {
            shutdown.due = due;
            shutdown.timer = MessageTimer::start(myself, due, message);
        }
        let without_actor = self.children.iter();
        let without_actor = without_actor.filter(|(_, child)| child.actor.is_none());
        let without_actor: Vec<_> = without_actor.map(|(slot, _)| slot.clone()).collect();
        for slot in without_actor {
            self.remove_child(&slot);
        }
    }

    /// The limit has passed: kills the remaining actors and their connections.
    pub(super) fn kill_children(&mut self) {
        for child in self.children.values() {
            child.slot.connection_lock.force_close();
            if let Some(actor) = &child.actor {
                actor.kill();
            }
        }
    }

    /// Reports the shutdown and stops, once no child is left.
    pub(super) fn finish_shutdown(&mut self, myself: &ActorRef<SupervisorMessage>) {
        if !self.children.is_empty() {
            return;
        }
        let Some(shutdown) = self.shutdown.take() else {
            return;
        };
        let mut report = ShutdownReport {
            servers: shutdown.closed,
            took: now().saturating_duration_since(shutdown.began),
        };
        report.sort();
        self.events.close();
        self.catalogs.close();
        for reply in shutdown.replies {
            let _ = reply.send(report.clone());
        }
        myself.stop(None);
    }
}
