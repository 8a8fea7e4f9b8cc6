//! Requests of the user: enable, reconnect, use another transport. Disabling is in `teardown`.

use super::io::Effect;
use super::state::{Attempt, ReconnectTiming, SleepPhase, State};
use super::{DesiredState, Machine, Now};

impl Machine {
    /// The user asked for a new connection.
    pub(super) fn reconnect(&mut self, now: Now) {
        match self.state.clone() {
            State::Connected(live) => {
                // The reconnect is requested, so an earlier fault is not its cause.
                self.last_fault = None;
                self.reset_budget();
                self.replace_connection(now, live.generation, true, ReconnectTiming::Now);
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt) => self.connect_soon(now, attempt),
            State::PermanentlyFailed { .. } => self.start_over(now),
            State::Sleeping(_) => self.wake_for_user(now),
            // The actor refuses it with the reason.
            State::Disabling(_) | State::Disabled => {}
        }
    }

    /// The server is reached in another way. What was learned about the old way does not apply, and a
    /// connection that is being opened the old way is closed.
    pub(super) fn transport_changed(&mut self, now: Now) {
        self.other_era_tried = false;
        self.next_connect_is_free = false;
        self.authorization.forget_credentials();
        match self.opening() {
            Some(generation) => {
                self.reset_budget();
                self.emit(Effect::ReleasePermit);
                self.close_then_connect(generation, now.at);
            }
            None => self.reconnect(now),
        }
    }

    /// The user enabled the server.
    pub(super) fn enable(&mut self, now: Now) {
        match self.state.clone() {
            State::Disabled | State::PermanentlyFailed { .. } => self.start_over(now),
            State::Disabling(_) => self.enable_after_teardown(),
            State::Disconnected(attempt) => self.connect_soon(now, attempt),
            State::Sleeping(_) => self.wake_for_user(now),
            State::Connecting(_) | State::Connected(_) | State::Reconnecting(_) => {}
        }
    }

    fn wake_for_user(&mut self, now: Now) {
        self.reset_budget();
        if !self.settings.rest.on_demand {
            self.wake(now);
        }
    }

    /// Connects at once, or as soon as the old connection is closed.
    fn connect_soon(&mut self, now: Now, attempt: Attempt) {
        self.reset_budget();
        match attempt {
            Attempt::BackingOff { .. } => self.request_permit(),
            Attempt::Closing { generation, .. } => self.enter_attempt(Attempt::Closing {
                generation,
                retry_at: now.at,
            }),
            Attempt::Draining {
                generation, until, ..
            } => self.enter_attempt(Attempt::Draining {
                generation,
                until,
                timing: ReconnectTiming::Now,
            }),
            // The connect in progress serves this request too.
            attempt @ (Attempt::AwaitingPermit | Attempt::Opening { .. }) => {
                self.enter_attempt(attempt);
            }
        }
    }

    /// A request of the user resets the budget.
    fn reset_budget(&mut self) {
        self.durable.budget.reset();
        self.attempts = 0;
        self.save_durable();
    }

    /// Connects as if the server had just been configured, once its old connection is closed; one that
    /// connects for calls alone sleeps until the next one.
    pub(super) fn start_over(&mut self, now: Now) {
        let closing = self.current_generation();
        self.durable.desired = DesiredState::Enabled;
        self.durable.asleep = false;
        self.durable.was_connected = false;
        self.durable.first_attempt_over = false;
        self.durable.proven = false;
        self.next_connect_is_free = false;
        self.other_era_tried = false;
        self.last_fault = None;
        self.reset_budget();
        if self.settings.rest.on_demand {
            self.durable.asleep = true;
            self.save_durable();
            self.state = State::Sleeping(match closing {
                Some(generation) => SleepPhase::Closing { generation },
                None => SleepPhase::Asleep,
            });
            return;
        }
        match closing {
            Some(generation) => self.enter_attempt(Attempt::Closing {
                generation,
                retry_at: now.at,
            }),
            None => self.request_permit(),
        }
    }
}
