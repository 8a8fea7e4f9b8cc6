//! Checks calls, their outcomes and effects, and the replies to control requests.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CONTROL, Kind, LATE, Report};
use crate::history::{Call, Effect, History, Outcome, RequestEnd, Told};

pub(super) fn check(history: &History, report: &mut Report) {
    let mut outcomes = BTreeMap::<u64, Vec<&Outcome>>::new();
    for outcome in &history.outcomes {
        outcomes.entry(outcome.id).or_default().push(outcome);
    }
    let mut effects = BTreeMap::<u64, Vec<&Effect>>::new();
    for effect in &history.effects {
        effects.entry(effect.id).or_default().push(effect);
    }
    for call in &history.calls {
        let outcomes = outcomes.remove(&call.id).unwrap_or_default();
        let effects = effects.remove(&call.id).unwrap_or_default();
        check_call(call, &outcomes, &effects, report);
        let gone = outcomes
            .iter()
            .filter(|outcome| outcome.told == Told::RuntimeGone);
        for outcome in gone {
            check_gone(history, outcome.at, &outcome.detail, report);
        }
    }
    for effect in effects.into_values().flatten() {
        report.add(Kind::RanElsewhere, format!("never issued: {effect:?}"));
    }
    check_requests(history, report);
}

fn check_call(call: &Call, outcomes: &[&Outcome], effects: &[&Effect], report: &mut Report) {
    let Some(outcome) = outcomes.first() else {
        return report.add(Kind::NoOutcome, format!("{call:?}"));
    };
    let told = || format!("{call:?}: {outcomes:?}, {effects:?}");
    report.add_if(outcomes.len() > 1, Kind::SecondOutcome, told);
    report.add_if(outcome.took > call.deadline + LATE, Kind::LateOutcome, told);
    let elsewhere = effects.iter().any(|effect| effect.server != call.server);
    report.add_if(elsewhere, Kind::RanElsewhere, told);
    if !call.counted {
        return;
    }
    let allowed = if call.repeatable { 2 } else { 1 };
    let runs = effects.len();
    if runs > allowed {
        return report.add(Kind::RanTwice, told());
    }
    match outcome.told {
        Told::Result => report.add_if(runs == 0, Kind::ResultNotRun, told),
        Told::NotSent | Told::RuntimeGone => report.add_if(runs > 0, Kind::NotSentRan, told),
        Told::Refused => report.add_if(runs > 0, Kind::RefusedRan, told),
        Told::Unknown | Told::Answered | Told::Abandoned => {}
    }
}

fn check_requests(history: &History, report: &mut Report) {
    for request in &history.requests {
        let hung = request.end == RequestEnd::None || request.took > CONTROL;
        report.add_if(hung, Kind::RequestHung, || format!("{request:?}"));
        if request.end == RequestEnd::RuntimeGone {
            check_gone(history, request.at, request.what, report);
        }
    }
}

fn check_gone(history: &History, at: Duration, what: &str, report: &mut Report) {
    let early = history.shutdown_at.is_none_or(|shutdown| at < shutdown);
    report.add_if(early, Kind::RuntimeGone, || format!("{what} at {at:?}"));
}
