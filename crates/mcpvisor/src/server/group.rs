//! The slots of one server beside its main one: the further instances of a pool, and those of clients
//! ([`super::client_slots`]).
//!
//! The main slot is the one in the registry, under the server's name. Every slot has an actor, a budget
//! and a status of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use futures_util::future::select_all;
use mcpvisor_core::ClientId;
use mcpvisor_core::instance_choice::{self, Candidate};

use super::call_admission::OpenCall;
use super::client_slots::ClientSlots;
use super::published::Availability;
use super::slot::ServerSlot;
use crate::api::agent::Agent;
use crate::mutex::lock;

/// The further slots of a server.
#[derive(Debug)]
pub(crate) struct SlotGroup {
    /// The further instances of a pool, in the order of their numbers. A reload replaces it.
    pool: ArcSwap<Vec<Arc<ServerSlot>>>,
    /// The slots of clients that have connections of their own.
    pub(super) clients: Mutex<ClientSlots>,
    /// Locked while an instance is chosen and its call opened, so that concurrent callers see each
    /// other's calls.
    choice: Mutex<Choice>,
    /// Whether the server was last enabled or disabled. New slots start so.
    enabled: AtomicBool,
}

#[derive(Debug, Default)]
struct Choice {
    /// Rotates equally good instances.
    turn: usize,
    /// The instance that calls without a client prefer.
    default: Option<u32>,
}

impl SlotGroup {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            pool: ArcSwap::default(),
            clients: Mutex::default(),
            choice: Mutex::default(),
            enabled: AtomicBool::new(enabled),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(super) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Replaces the further instances. Called by one reload at a time, and before the server starts.
    pub(crate) fn set_pool(&self, pool: Vec<Arc<ServerSlot>>) {
        self.pool.store(Arc::new(pool));
    }

    /// The further instances.
    pub(crate) fn pool(&self) -> Arc<Vec<Arc<ServerSlot>>> {
        self.pool.load_full()
    }
}

impl ServerSlot {
    /// The instances of the server: itself, and the others of its pool.
    pub(crate) fn instances(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let mut instances = vec![Arc::clone(self)];
        if let Some(group) = self.group() {
            instances.extend(group.pool.load().iter().cloned());
        }
        instances
    }

    /// Opens a call on the least loaded instance, or on that which the client used before if the pool
    /// has an affinity. `None` if all have too many calls.
    pub(crate) fn open_call(
        self: &Arc<Self>,
        agent: Option<&Arc<Agent>>,
    ) -> Option<(Arc<Self>, OpenCall)> {
        let client = agent.map_or(ClientId::DEFAULT, |agent| agent.id);
        let pool = self.group().map(|group| (group, group.pool.load()));
        let Some((group, pool)) = pool.filter(|(_, pool)| !pool.is_empty()) else {
            let open = self.calls.open(client)?;
            return Some((Arc::clone(self), open));
        };
        let affinity = self.config().settings.connections.affinity;
        let mut choice = lock(&group.choice);
        let instances: Vec<&Arc<Self>> = std::iter::once(self).chain(pool.iter()).collect();
        let preferred = match agent {
            _ if !affinity => None,
            Some(agent) => agent.instance_of(&self.id),
            None => choice.default,
        };
        let at = |number| instances.iter().position(|it| it.id.instance == number);
        let candidates: Vec<Candidate> = instances.iter().map(|it| it.candidate()).collect();
        let order = instance_choice::order(&candidates, preferred.and_then(at), choice.turn);
        choice.turn = choice.turn.wrapping_add(1);
        let mut opened = order.into_iter().map(|index| instances[index]);
        let opened = opened.find_map(|it| Some((it, it.calls.open(client)?)));
        let (chosen, open) = opened?;
        if affinity {
            match agent {
                Some(agent) => agent.prefer_instance(&self.id, chosen.id.instance),
                None => choice.default = Some(chosen.id.instance),
            }
        }
        Some((Arc::clone(chosen), open))
    }

    fn candidate(&self) -> Candidate {
        Candidate {
            state: self.published.state().0,
            load: self.calls.open_count(),
        }
    }
}

/// Waits until a condition on the availability of these instances holds.
pub(crate) async fn until_available(
    instances: &[Arc<ServerSlot>],
    holds: impl Fn(&[Availability]) -> bool,
) {
    let mut watches: Vec<_> = instances
        .iter()
        .map(|slot| slot.published.availability.subscribe())
        .collect();
    loop {
        let now: Vec<_> = watches
            .iter_mut()
            .map(|it| *it.borrow_and_update())
            .collect();
        if holds(&now) {
            return;
        }
        // The senders live in the slots, so these end only with a change.
        drop(select_all(watches.iter_mut().map(|it| Box::pin(it.changed()))).await);
    }
}
