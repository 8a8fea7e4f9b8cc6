//! Mutations: machines with one defect each, to test that the model detects it.

use std::time::Duration;

use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{Effect, Generation, Input, Safety, ServerSettings};

/// The defect of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// No defect.
    None,
    /// Facts of ended connections count for the newest one.
    AcceptsLateFacts,
    /// Every call may be repeated.
    RepeatsEverything,
    /// A call ends without an outcome.
    LosesOutcomes,
    /// A call is started twice.
    StartsTwice,
    /// More calls in flight than the limit.
    ExceedsLimit,
    /// More connects than the budget.
    ExceedsBudget,
    /// Every failure counts as a refusal before the call ran.
    TreatsFailuresAsRefusals,
    /// Failed calls of a live connection are ignored.
    IgnoresFailedCalls,
    /// A connection continues without its session.
    KeepsLostSessions,
    /// Timers never fire.
    NeverTicks,
    /// A replaced connection is not closed.
    NeverCloses,
    /// The actor is not stopped.
    NeverStops,
    /// The server sleeps too soon.
    SleepsTooSoon,
    /// The server sleeps although it has subscriptions.
    IgnoresSubscriptions,
    /// Calls are sent before the tools are listed.
    SkipsToolListing,
    /// A credential is not renewed.
    NeverRenews,
    /// A credential is renewed twice at once.
    RenewsTwice,
    /// A refused call is sent again before the renewal.
    RetriesBeforeRenewal,
    /// A renewed credential is not used.
    IgnoresRenewals,
    /// A renewal that failed is not noticed.
    IgnoresFailedRenewals,
    /// A login does not heal.
    IgnoresLogins,
}

impl Mutation {
    /// All defects.
    pub const ALL: [Self; 21] = [
        Self::AcceptsLateFacts,
        Self::RepeatsEverything,
        Self::LosesOutcomes,
        Self::StartsTwice,
        Self::ExceedsLimit,
        Self::ExceedsBudget,
        Self::TreatsFailuresAsRefusals,
        Self::IgnoresFailedCalls,
        Self::KeepsLostSessions,
        Self::NeverTicks,
        Self::NeverCloses,
        Self::NeverStops,
        Self::SleepsTooSoon,
        Self::IgnoresSubscriptions,
        Self::SkipsToolListing,
        Self::NeverRenews,
        Self::RenewsTwice,
        Self::RetriesBeforeRenewal,
        Self::IgnoresRenewals,
        Self::IgnoresFailedRenewals,
        Self::IgnoresLogins,
    ];

    /// The settings that the machine gets.
    pub fn settings(self, mut settings: ServerSettings) -> ServerSettings {
        match self {
            Self::ExceedsLimit => settings.admission.in_flight += 1,
            Self::ExceedsBudget => settings.budget.attempts *= 10,
            Self::SleepsTooSoon => {
                let half = settings.rest.sleep_after.map(|after| after / 2);
                settings.rest.sleep_after = half;
            }
            Self::SkipsToolListing => settings.listing.before_calls = false,
            _ => {}
        }
        settings
    }

    /// The input that the machine gets, if any.
    pub fn input(self, input: &Input, newest: Generation) -> Option<Input> {
        match (self, input.clone()) {
            (Self::AcceptsLateFacts, input) => Some(attributed_to_newest(input, newest)),
            (Self::RepeatsEverything, Input::Call(mut call)) => {
                call.safety = Safety::Repeatable;
                call.is_tool = false;
                Some(Input::Call(call))
            }
            (
                Self::TreatsFailuresAsRefusals,
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
            (Self::IgnoresFailedCalls, Input::CallFailed { .. }) => None,
            (Self::KeepsLostSessions, Input::SessionLost { .. }) => None,
            (
                Self::RetriesBeforeRenewal,
                Input::CallFailed {
                    generation,
                    call,
                    failure: RequestFailure::Unauthorized { .. },
                    fault,
                },
            ) => Some(Input::CallFailed {
                generation,
                call,
                failure: RequestFailure::Busy {
                    retry_after: Some(Duration::ZERO),
                },
                fault,
            }),
            (Self::IgnoresRenewals, Input::CredentialRenewed { .. }) => None,
            (Self::IgnoresFailedRenewals, Input::RenewalFailed { .. }) => None,
            (Self::IgnoresLogins, Input::CredentialChanged { .. }) => None,
            (Self::NeverTicks, Input::Tick) => None,
            (Self::IgnoresSubscriptions, Input::SubscriptionsChanged { .. }) => None,
            (_, input) => Some(input),
        }
    }

    /// Changes the effects of the machine.
    pub fn effects(self, effects: &mut Vec<Effect>) {
        match self {
            Self::LosesOutcomes => {
                effects.retain(|effect| !matches!(effect, Effect::Resolve { .. }))
            }
            Self::NeverCloses => effects.retain(|effect| !matches!(effect, Effect::Close { .. })),
            Self::NeverRenews => {
                effects.retain(|effect| !matches!(effect, Effect::RenewCredential { .. }))
            }
            Self::RenewsTwice => {
                let renewal = |effect: &&Effect| matches!(effect, Effect::RenewCredential { .. });
                let again: Vec<_> = effects.iter().filter(renewal).cloned().collect();
                effects.extend(again);
            }
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

/// A fact, attributed to the newest connection.
fn attributed_to_newest(input: Input, newest: Generation) -> Input {
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
