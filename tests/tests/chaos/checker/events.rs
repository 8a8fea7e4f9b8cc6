//! Checks the event stream and status reads. The test kit's `event_chain` checks versions and
//! chains; this module maps its violations to kinds and checks the generations in status reads.

use std::collections::BTreeMap;

use mcpvisor::{Generation, ServerName};
use mcpvisor_testkit::event_chain::{EventChains, Fact, ViolationKind};

use super::{Kind, Report};
use crate::history::{History, Seen, What};

pub(super) fn check(history: &History, report: &mut Report) {
    let name = |server: &str| ServerName::new(server).unwrap();
    let first = history.first.iter();
    let mut chains = EventChains::new(first.map(|(server, state)| (name(server), *state)));
    let begin = history.events.first().map_or(1, |event| event.version);
    report.add_if(begin != 1, Kind::VersionGap, || {
        format!("the first event has version {begin}")
    });
    for event in &history.events {
        let server = (!event.server.is_empty()).then(|| (name(&event.server), 0));
        let generation = Generation::from(event.generation);
        chains.take(event.version, server, generation, &fact(event));
    }
    for violation in chains.violations() {
        report.add(kind(&violation.what), violation.to_string());
    }
    check_reads(history, report);
}

fn fact(event: &Seen) -> Fact {
    match event.what {
        What::State { from, to } => Fact::Changed { from, to },
        What::AttemptFailed => Fact::AttemptFailed,
        What::ActorRestarted => Fact::Restarted,
        What::Added => Fact::Added,
        What::Removed => Fact::Removed,
        What::Other => Fact::Other,
    }
}

fn kind(wrong: &ViolationKind) -> Kind {
    match wrong {
        ViolationKind::Version { .. } => Kind::VersionGap,
        ViolationKind::Gap { .. } | ViolationKind::RemovedIn(_) => Kind::ChainGap,
        ViolationKind::Transition { .. } | ViolationKind::Beginning(_) => Kind::IllegalTransition,
        ViolationKind::Attempt(_) | ViolationKind::FailedFirst => Kind::MisplacedAttempt,
        ViolationKind::Generation { after, generation } if after == generation => {
            Kind::GenerationReused
        }
        ViolationKind::Generation { .. } => Kind::GenerationBackwards,
        ViolationKind::Membership => Kind::OutsideOfLife,
        ViolationKind::Status { .. } => Kind::StatusDiffers,
    }
}

/// Checks that each reader sees instances and their generations only increase.
fn check_reads(history: &History, report: &mut Report) {
    let mut newest = BTreeMap::new();
    for read in &history.reads {
        let now = (read.instance, read.generation);
        let newest = newest.entry((read.reader, &read.server)).or_insert(now);
        report.add_if(now < *newest, Kind::GenerationBackwards, || {
            format!("status read {read:?} after {newest:?}")
        });
        *newest = now;
    }
}
