//! The place that an actor needs for its connection, where each client of the server has its own:
//! [`super::places`]. It is requested before the connect permit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mcpvisor_core::machine::{Attempt, SleepPhase};
use mcpvisor_core::{Input, State};

use super::actor::ServerState;
use super::places::Place;
use super::slot::ServerSlot;

/// The actor's place.
#[derive(Debug, Default)]
pub(super) struct PlaceState {
    /// Shared with the connection, which may end later than the actor or its need.
    held: Option<Arc<Place>>,
    /// It waits for one; whether the connect is a reconnect.
    wanted: Option<bool>,
    /// What was last reported: it could give way.
    idle: bool,
}

impl PlaceState {
    pub(super) fn held(&self) -> Option<Arc<Place>> {
        self.held.clone()
    }
}

impl ServerSlot {
    /// Whether its connections need a place.
    fn needs_place(&self) -> bool {
        self.owner().is_some() || self.config().settings.connections.is_per_client()
    }

    /// Withdraws what an actor that crashed had requested.
    pub(super) fn withdraw_place(&self) {
        let waits = &self.published.waits_for_place;
        waits.store(false, Ordering::Relaxed);
        self.shared.places.withdraw(self.id.instance);
    }
}

impl ServerState {
    /// Takes a place for a connect. Returns false if it has to wait for one.
    pub(super) fn take_place(&mut self, reconnect: bool) -> bool {
        if !self.slot.needs_place() {
            return true;
        }
        let places = &self.slot.shared.places;
        if self.place.held.is_some() && places.is_held(self.slot.id.instance) {
            return true;
        }
        // If it was asked to give way, it did: it waits behind the others.
        self.place.held = None;
        match self.slot.shared.places.request(&self.slot) {
            Some(place) => {
                self.hold(place);
                true
            }
            None => {
                self.want_place(Some(reconnect));
                false
            }
        }
    }

    /// Sets whether it waits for a place. Returns what it waited for.
    fn want_place(&mut self, wanted: Option<bool>) -> Option<bool> {
        let waits = &self.slot.published.waits_for_place;
        waits.store(wanted.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut self.place.wanted, wanted)
    }

    fn hold(&mut self, place: Place) {
        self.place.held = Some(Arc::new(place));
        self.place.idle = false;
    }

    /// The connect that waits for a place goes on.
    pub(super) fn place_granted(&mut self) {
        if self.place.held.is_some() {
            return;
        }
        // None if the place was withdrawn meanwhile: then another grant follows.
        let Some(place) = self.slot.shared.places.take(self.slot.id.instance) else {
            return;
        };
        // Dropped if it is not needed any more.
        let Some(reconnect) = self.want_place(None) else {
            return;
        };
        self.hold(place);
        match !reconnect && self.slot.config().transport.is_in_process() {
            true => self.step(Input::PermitGranted),
            false => self.request_permit(reconnect),
        }
    }

    /// The connect is no longer wanted.
    pub(super) fn withdraw_place_request(&mut self) {
        if self.want_place(None).is_some() {
            self.slot.withdraw_place();
        }
    }

    /// Whether it has a connection, or opens one next. A lost connection is replaced in its place if
    /// calls wait for it; after a failed attempt others come first.
    fn uses_place(&self) -> bool {
        match self.machine.state() {
            State::Connected(_)
            | State::Disabling(_)
            | State::Sleeping(SleepPhase::Closing { .. })
            | State::PermanentlyFailed {
                closing: Some(_), ..
            } => true,
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                let pauses = matches!(attempt, Attempt::BackingOff { .. });
                !pauses || (self.machine.waiting() > 0 && self.machine.attempts() <= 1)
            }
            State::Sleeping(SleepPhase::Asleep)
            | State::Disabled
            | State::PermanentlyFailed { closing: None, .. } => false,
        }
    }

    /// Takes the place of a connection that was opened before each client had its own.
    pub(super) fn adopt_place(&mut self) {
        if self.place.held.is_some() || !self.slot.needs_place() {
            return;
        }
        if let Some(place) = self.slot.shared.places.take(self.slot.id.instance) {
            self.hold(place);
        }
        self.update_place();
    }

    /// Gives the place up, unless the connection is in use after all. It is free once the connection
    /// has ended.
    pub(super) fn give_way(&mut self) {
        let is_idle = self.machine.can_give_way();
        self.step(Input::GiveWay);
        if !is_idle && self.place.held.is_some() {
            self.place.idle = false;
            let instance = self.slot.id.instance;
            self.slot.shared.places.set_idle(instance, false);
        }
    }

    /// Reports whether its connection is in use, and gives the place up if it needs none. Called after
    /// every step.
    pub(super) fn update_place(&mut self) {
        if self.place.held.is_none() {
            return;
        }
        if !self.uses_place() {
            self.place.held = None;
            return;
        }
        // One that gave way and still closes has reported that.
        if !matches!(self.machine.state(), State::Connected(_)) {
            return;
        }
        let idle = self.machine.can_give_way();
        if std::mem::replace(&mut self.place.idle, idle) != idle {
            self.slot
                .shared
                .places
                .set_idle(self.slot.id.instance, idle);
        }
    }
}
