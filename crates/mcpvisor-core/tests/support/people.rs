//! Callers and people in the simulated world: who calls, who leaves, who presses which button.

use std::time::Duration;

use mcpvisor_core::machine::NewCall;
use mcpvisor_core::{CallId, ClientId, Generation, Input, Priority, RetryPolicy, Safety};

use super::task::Weather;
use super::world::{Event, World};

impl World {
    /// Somebody calls, and somebody will again.
    pub fn arrive(&mut self) {
        if self.ends_by.is_none() {
            let pause = self.dice.millis(self.pace);
            self.later(pause, Event::Arrive);
        }
        // Callers come alone or in a burst.
        let calls = if self.dice.percent(10) {
            self.dice.number(2..12)
        } else {
            1
        };
        for _ in 0..calls {
            let call = self.some_call();
            if self.dice.percent(10) {
                let patience = self.dice.millis(5_000);
                self.later(patience, Event::Leave(call.call));
            }
            self.step(Input::Call(call));
        }
    }

    fn some_call(&mut self) -> NewCall {
        let call = CallId(self.next_call);
        self.next_call += 1;
        let safety = self.dice.choose(&[
            Safety::Repeatable,
            Safety::Effectful,
            Safety::Effectful,
            Safety::TrustedTool,
        ]);
        let retry_policy = self.dice.choose(&[
            RetryPolicy::Default,
            RetryPolicy::Default,
            RetryPolicy::Default,
            RetryPolicy::Never,
            RetryPolicy::Always,
        ]);
        let priority = self
            .dice
            .choose(&[Priority::Low, Priority::Normal, Priority::High]);
        let client = u32::try_from(self.dice.number(0..4)).expect("small");
        let limit = if self.dice.percent(5) {
            Duration::ZERO
        } else {
            self.dice.millis(40_000)
        };
        NewCall {
            call,
            client: ClientId(client),
            safety,
            retry_policy,
            priority,
            is_tool: safety != Safety::Repeatable,
            deadline: self.now + limit,
            idle: self.dice.millis(10_000) + Duration::from_millis(1),
        }
    }

    /// Somebody presses a button, and somebody will again.
    pub fn press(&mut self) {
        let pause = self.dice.millis(60_000);
        self.later(pause, Event::Press);
        let newest = self.model.newest.get();
        let input = match self.dice.number(0..14) {
            0 | 1 => Input::Reconnect,
            2 => Input::TransportChanged,
            3..=5 => Input::Enable,
            6 | 7 => Input::Disable,
            8 | 9 => self.other_settings(),
            10 | 11 => {
                let active = self.dice.percent(50);
                Input::SubscriptionsChanged { active }
            }
            _ => {
                let generation = Generation::from(self.dice.number(0..newest + 1));
                Input::ReportBroken { generation }
            }
        };
        self.step(input);
    }

    /// Another config: more places and a larger budget, so that what is under way stays within them.
    fn other_settings(&mut self) -> Input {
        let mut settings = self.settings.clone();
        let rolled = self.dice.settings();
        settings.backoff = rolled.backoff;
        settings.health = rolled.health;
        settings.close = rolled.close;
        settings.rest = rolled.rest;
        settings.admission.in_flight += self.dice.number(0..2) as usize;
        settings.admission.waiting += self.dice.number(0..3) as usize;
        settings.budget.attempts += u32::from(self.dice.percent(30));
        self.settings = settings.clone();
        Input::Reconfigure {
            settings: Box::new(self.sabotage.settings(settings)),
        }
    }

    /// The weather changes, and will again.
    pub fn change_weather(&mut self) {
        self.weather = self.dice.choose(&[
            Weather::Fair,
            Weather::Fair,
            Weather::Flapping,
            Weather::Dead,
            Weather::Silent,
        ]);
        let pause = self.dice.between(1_000, 90_000);
        self.later(pause, Event::Weather);
    }
}
