//! Machines that are wrong in one way each, to see that the model catches them.

use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{Effect, Generation, Input, Safety, ServerSettings};

/// What is wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    None,
    /// It takes facts of ended connections for those of the newest.
    HearsTheDead,
    /// It takes every call for one that may be repeated.
    RepeatsEverything,
    /// It lets a call go without an outcome.
    LosesOutcomes,
    /// It starts a call twice.
    StartsTwice,
    /// It lets more calls run than it may.
    CrowdsIn,
    /// It connects more often than it may.
    SpendsFreely,
    /// It takes every trouble for a refusal before anything ran.
    TrustsEveryFault,
    /// It does not hear of calls that come back alone.
    MissesTrouble,
    /// It goes on without its session.
    KeepsDeadSessions,
    /// It does not look at the clock.
    NeverTicks,
    /// It forgets to close what it replaces.
    NeverCloses,
    /// It does not stop when it should.
    NeverStops,
    /// It sleeps sooner than it may.
    DozesOff,
    /// It does not care who listens.
    SleepsOnListeners,
    /// It takes calls before its tools were looked at.
    LooksAway,
}

impl Sabotage {
    /// Everything that can be wrong.
    pub const ALL: [Self; 15] = [
        Self::HearsTheDead,
        Self::RepeatsEverything,
        Self::LosesOutcomes,
        Self::StartsTwice,
        Self::CrowdsIn,
        Self::SpendsFreely,
        Self::TrustsEveryFault,
        Self::MissesTrouble,
        Self::KeepsDeadSessions,
        Self::NeverTicks,
        Self::NeverCloses,
        Self::NeverStops,
        Self::DozesOff,
        Self::SleepsOnListeners,
        Self::LooksAway,
    ];

    /// The settings that the machine believes.
    pub fn settings(self, mut settings: ServerSettings) -> ServerSettings {
        match self {
            Self::CrowdsIn => settings.admission.in_flight += 1,
            Self::SpendsFreely => settings.budget.attempts *= 10,
            Self::DozesOff => {
                let half = settings.rest.sleep_after.map(|after| after / 2);
                settings.rest.sleep_after = half;
            }
            Self::LooksAway => settings.listing.before_calls = false,
            _ => {}
        }
        settings
    }

    /// The input that the machine hears; none if it does not listen.
    pub fn input(self, input: &Input, newest: Generation) -> Option<Input> {
        match (self, input.clone()) {
            (Self::HearsTheDead, input) => Some(disguised(input, newest)),
            (Self::RepeatsEverything, Input::Call(mut call)) => {
                call.safety = Safety::Repeatable;
                call.is_tool = false;
                Some(Input::Call(call))
            }
            (
                Self::TrustsEveryFault,
                Input::CallFailed {
                    generation,
                    call,
                    fault,
                    ..
                },
            ) => Some(Input::CallFailed {
                generation,
                call,
                failure: RequestFailure::SessionLost,
                fault,
            }),
            (Self::MissesTrouble, Input::CallFailed { .. }) => None,
            (Self::KeepsDeadSessions, Input::SessionLost { .. }) => None,
            (Self::NeverTicks, Input::Tick) => None,
            (Self::SleepsOnListeners, Input::SubscriptionsChanged { .. }) => None,
            (_, input) => Some(input),
        }
    }

    /// The effects that leave the machine.
    pub fn effects(self, effects: &mut Vec<Effect>) {
        match self {
            Self::LosesOutcomes => {
                effects.retain(|effect| !matches!(effect, Effect::Resolve { .. }))
            }
            Self::NeverCloses => effects.retain(|effect| !matches!(effect, Effect::Close { .. })),
            Self::NeverStops => effects.retain(|effect| *effect != Effect::Stop),
            Self::StartsTwice => {
                let start = |effect: &&Effect| matches!(effect, Effect::StartCall { .. });
                let again: Vec<_> = effects.iter().filter(start).cloned().collect();
                effects.extend(again);
            }
            _ => {}
        }
    }
}

/// A fact as if the newest connection had reported it.
fn disguised(input: Input, newest: Generation) -> Input {
    match input {
        Input::ConnectionLost {
            fault, returned, ..
        } => Input::ConnectionLost {
            generation: newest,
            fault,
            returned,
        },
        Input::ConnectionEnded { end, .. } => Input::ConnectionEnded {
            generation: newest,
            end,
        },
        Input::CheckEnded { failure, .. } => Input::CheckEnded {
            generation: newest,
            failure,
        },
        Input::MessageReceived { .. } => Input::MessageReceived { generation: newest },
        other => other,
    }
}
