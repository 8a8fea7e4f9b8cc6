//! Callers and users of the simulation: calls, cancellations, and actions such as disabling.

use std::time::Duration;

use mcpvisor_core::machine::NewCall;
use mcpvisor_core::{
    CallId, ClientId, CredentialRevision, Generation, Input, Priority, RetryPolicy, Safety,
};

use super::simulation::{Event, Simulation};
use super::task::Behaviour;

impl Simulation {
    /// Makes new calls, and schedules the next ones.
    pub fn new_calls(&mut self) {
        if self.ends_by.is_none() {
            let pause = self.rng.millis(self.pace);
            self.later(pause, Event::NewCalls);
        }
        // One call or a burst.
        let calls = if self.rng.percent(10) {
            self.rng.number(2..12)
        } else {
            1
        };
        for _ in 0..calls {
            let call = self.random_call();
            if self.rng.percent(10) {
                let after = self.rng.millis(5_000);
                self.later(after, Event::CancelCall(call.call));
            }
            self.step(Input::Call(call));
        }
    }

    fn random_call(&mut self) -> NewCall {
        let call = CallId(self.next_call);
        self.next_call += 1;
        let safety = self.rng.choose(&[
            Safety::Repeatable,
            Safety::Effectful,
            Safety::Effectful,
            Safety::TrustedTool,
        ]);
        let retry_policy = self.rng.choose(&[
            RetryPolicy::Default,
            RetryPolicy::Default,
            RetryPolicy::Default,
            RetryPolicy::Never,
            RetryPolicy::Always,
        ]);
        let priority = self
            .rng
            .choose(&[Priority::Low, Priority::Normal, Priority::High]);
        let client = u32::try_from(self.rng.number(0..4)).expect("small");
        let limit = if self.rng.percent(5) {
            Duration::ZERO
        } else {
            self.rng.millis(40_000)
        };
        NewCall {
            call,
            client: ClientId(client),
            safety,
            retry_policy,
            priority,
            is_tool: safety != Safety::Repeatable,
            deadline: self.now + limit,
            idle: self.rng.millis(10_000) + Duration::from_millis(1),
        }
    }

    /// A user acts, and the next action is scheduled.
    pub fn user_action(&mut self) {
        let pause = self.rng.millis(60_000);
        self.later(pause, Event::UserAction);
        let newest = self.model.newest.get();
        let input = match self.rng.number(0..18) {
            14..=16 => {
                // A login, or a renewal before the token expires.
                self.token += 1;
                let credential = CredentialRevision(self.token);
                Input::CredentialChanged { credential }
            }
            17 => {
                let credential = CredentialRevision(self.rng.number(0..self.token + 1));
                Input::CredentialChanged { credential }
            }
            0 | 1 => Input::Reconnect,
            2 => Input::TransportChanged,
            3..=5 => Input::Enable,
            6 | 7 => {
                if self.rng.percent(20) {
                    // Enabled, and perhaps crashed, before it is closed.
                    self.later(Duration::from_millis(1), Event::Deliver(Input::Enable));
                    if self.rng.percent(20) {
                        self.later(Duration::from_millis(2), Event::Crash);
                    }
                }
                Input::Disable
            }
            8 | 9 => self.other_settings(),
            10 | 11 => {
                let active = self.rng.percent(50);
                Input::SubscriptionsChanged { active }
            }
            _ => {
                let generation = Generation::from(self.rng.number(0..newest + 1));
                Input::ReportBroken { generation }
            }
        };
        self.step(input);
    }

    /// Other settings, with higher limits and a larger budget, so that the current calls stay within them.
    fn other_settings(&mut self) -> Input {
        let mut settings = self.settings.clone();
        let other = self.rng.settings();
        settings.backoff = other.backoff;
        settings.health = other.health;
        settings.close = other.close;
        settings.rest = other.rest;
        settings.admission.in_flight += self.rng.number(0..2) as usize;
        settings.admission.waiting += self.rng.number(0..3) as usize;
        settings.budget.attempts += u32::from(self.rng.percent(30));
        self.settings = settings.clone();
        Input::Reconfigure {
            settings: Box::new(self.mutation.settings(settings)),
        }
    }

    /// Changes the behaviour of the server, and schedules the next change.
    pub fn change_behaviour(&mut self) {
        self.behaviour = self.rng.choose(&[
            Behaviour::Healthy,
            Behaviour::Healthy,
            Behaviour::Flapping,
            Behaviour::Unreachable,
            Behaviour::Silent,
            Behaviour::Unauthorized,
        ]);
        let pause = self.rng.between(1_000, 90_000);
        self.later(pause, Event::ChangeBehaviour);
    }
}
