//! The places of a server's connections, where each client has its own: [`connection_places`] decides,
//! this sends its decisions to the actors.
//!
//! An actor holds a [`Place`] while it needs a connection, and the connection task holds it until the
//! connection has ended. The place is free when both have dropped it, also after a crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use mcpvisor_core::connection_places::{self, ConnectionPlaces, PlaceChange};

use super::message::ServerMessage;
use super::slot::ServerSlot;
use crate::mutex::lock;

/// The places of one server.
#[derive(Debug)]
pub(crate) struct Places(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    policy: ConnectionPlaces<u32>,
    /// The slots that hold a place or wait for one.
    slots: BTreeMap<u32, Weak<ServerSlot>>,
    /// The places in use, by slot. An old connection of a slot may still hold one beside its actor.
    in_use: BTreeMap<u32, usize>,
}

/// A place of one slot. Dropping the last one frees it.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    instance: u32,
}

impl Default for Places {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            policy: ConnectionPlaces::new(connection_places::DEFAULT_MAX_CONNECTIONS),
            slots: BTreeMap::new(),
            in_use: BTreeMap::new(),
        }))
    }
}

impl Places {
    /// Requests a place. Without one the slot waits, and gets [`ServerMessage::PlaceGranted`].
    pub(super) fn request(self: &Arc<Self>, slot: &Arc<ServerSlot>) -> Option<Place> {
        let instance = slot.id.instance;
        self.change(|inner| {
            inner.slots.insert(instance, Arc::downgrade(slot));
            inner.policy.request(instance);
        });
        self.take(instance)
    }

    /// Counts a connection that was opened without a place. Its actor takes it.
    pub(super) fn adopt(&self, slot: &Arc<ServerSlot>) {
        let instance = slot.id.instance;
        self.change(|inner| {
            inner.slots.insert(instance, Arc::downgrade(slot));
            inner.policy.adopt(instance);
        });
    }

    /// Whether a slot holds a place that it need not give up.
    pub(super) fn is_held(&self, instance: u32) -> bool {
        lock(&self.0).policy.is_held(&instance)
    }

    /// The place of a slot, if it was granted one.
    pub(super) fn take(self: &Arc<Self>, instance: u32) -> Option<Place> {
        let mut inner = lock(&self.0);
        if !inner.policy.is_held(&instance) {
            return None;
        }
        *inner.in_use.entry(instance).or_default() += 1;
        Some(Place {
            places: Arc::clone(self),
            instance,
        })
    }

    /// Withdraws what a slot requested and does not use: its actor has ended, or no longer needs it.
    pub(crate) fn withdraw(&self, instance: u32) {
        self.change(|inner| {
            inner.policy.withdraw(&instance);
            if !inner.in_use.contains_key(&instance) {
                inner.policy.release(&instance);
                inner.slots.remove(&instance);
            }
        });
    }

    /// Reports whether a slot could give way.
    pub(super) fn set_idle(&self, instance: u32, idle: bool) {
        self.change(|inner| inner.policy.set_idle(&instance, idle));
    }

    /// Changes the number of places.
    pub(super) fn set_limit(&self, limit: usize) {
        self.change(|inner| inner.policy.set_limit(limit));
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = lock(&self.0);
        change(&mut inner);
        for change in inner.policy.poll() {
            let (instance, message) = match change {
                PlaceChange::Granted(instance) => (instance, ServerMessage::PlaceGranted),
                PlaceChange::GiveWay(instance) => (instance, ServerMessage::GiveWay),
            };
            // Without an actor, the next one withdraws what this one left.
            if let Some(slot) = inner.slots.get(&instance).and_then(Weak::upgrade) {
                slot.send(message);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let instance = self.instance;
        self.places.change(|inner| {
            let Some(count) = inner.in_use.get_mut(&instance) else {
                return;
            };
            *count -= 1;
            if *count == 0 {
                inner.in_use.remove(&instance);
                inner.policy.release(&instance);
                if !inner.policy.is_waiting(&instance) {
                    inner.slots.remove(&instance);
                }
            }
        });
    }
}
