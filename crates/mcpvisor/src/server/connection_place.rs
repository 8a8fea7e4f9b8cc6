//! The place that an actor needs for its connection, where each client of the server has its own:
//! [`super::places`]. It is requested before the connect permit.

use std::sync::Arc;

use mcpvisor_core::machine::Attempt;
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
        self.config().settings.connections.is_per_client()
    }

    /// Withdraws what an actor that crashed had requested.
    pub(super) fn withdraw_place(&self) {
        self.shared.places.withdraw(self.id.instance);
    }
}

impl ServerState {
    /// Takes a place for a connect. Returns false if it has to wait for one.
    pub(super) fn take_place(&mut self, reconnect: bool) -> bool {
        if self.place.held.is_some() || !self.slot.needs_place() {
            return true;
        }
        match self.slot.shared.places.request(&self.slot) {
            Some(place) => {
                self.hold(place);
                true
            }
            None => {
                self.place.wanted = Some(reconnect);
                false
            }
        }
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
        // None if the place was withdrawn meanwhile; dropped if it is not needed any more.
        let place = self.slot.shared.places.take(self.slot.id.instance);
        let (Some(place), Some(reconnect)) = (place, self.place.wanted.take()) else {
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
        if self.place.wanted.take().is_some() {
            self.slot.withdraw_place();
        }
    }

    /// Whether it has a connection, or opens one next. Between two attempts without calls it does not.
    fn uses_place(&self) -> bool {
        match self.machine.state() {
            State::Connected(_) => true,
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => {
                let pauses = matches!(attempt, Attempt::BackingOff { .. });
                !pauses || self.machine.waiting() > 0
            }
            State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed { .. } => false,
        }
    }

    pub(super) fn give_way(&mut self) {
        self.step(Input::GiveWay);
        // It is in use after all. If it went to sleep, the place is free once its connection ended.
        if self.place.held.is_some() && !self.machine.can_give_way() {
            self.place.idle = false;
            self.slot
                .shared
                .places
                .set_idle(self.slot.id.instance, false);
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
        let idle = self.machine.can_give_way();
        if std::mem::replace(&mut self.place.idle, idle) != idle {
            self.slot
                .shared
                .places
                .set_idle(self.slot.id.instance, idle);
        }
    }
}
