//! The event stream: versions, the life and the chain of states of each server, generations.

use std::collections::BTreeMap;

use mcpvisor::StateName::{self, *};

use super::{Kind, Report};
use crate::history::{History, Seen, What};

/// The transitions of the table in docs/semantics.md.
pub(super) fn is_legal(from: StateName, to: StateName) -> bool {
    match from {
        Connecting => matches!(
            to,
            Connected | Reconnecting | Disabling | Disabled | Disconnected | PermanentlyFailed
        ),
        Connected => matches!(to, Reconnecting | Disabling | Disconnected | Sleeping),
        Reconnecting => matches!(
            to,
            Connected | Disabling | Disabled | Disconnected | PermanentlyFailed
        ),
        Disabling => matches!(to, Disabled | Connecting),
        Disabled => to == Connecting,
        Disconnected => matches!(
            to,
            Connecting | Connected | Reconnecting | Disabling | Disabled | PermanentlyFailed
        ),
        PermanentlyFailed => matches!(to, Connecting | Disabled),
        Sleeping => matches!(to, Connecting | Reconnecting | Disabling | Disabled),
    }
}

/// What is known of a server while the stream is read.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    removed: bool,
    /// Nothing before its first state change.
    state: Option<StateName>,
    generation: u64,
    connected: u64,
}

pub(super) fn check(history: &History, report: &mut Report) {
    let mut version = None;
    let mut lives = BTreeMap::<&str, Life>::new();
    for event in &history.events {
        if let Some(before) = version {
            report.add_if(event.version != before + 1, Kind::VersionGap, || {
                format!("{event:?} after version {before}")
            });
        }
        version = Some(event.version);
        if !event.server.is_empty() {
            follow(lives.entry(&event.server).or_default(), event, report);
        }
    }
    check_reads(history, report);
}

fn follow(life: &mut Life, event: &Seen, report: &mut Report) {
    match event.what {
        What::Added => {
            let first = life.state.is_none() && life.generation == 0;
            report.add_if(!life.removed && !first, Kind::OutsideOfLife, || {
                format!("added though it exists: {event:?}")
            });
            life.removed = false;
            life.state = None;
        }
        _ if life.removed => report.add(Kind::OutsideOfLife, format!("after Removed: {event:?}")),
        What::Removed => {
            let open = life.state.is_some_and(|state| state != Disabled);
            report.add_if(open, Kind::ChainGap, || {
                format!("removed while {:?}: {event:?}", life.state)
            });
            life.removed = true;
        }
        What::State { from, to } => change(life, event, from, to, report),
        What::ActorRestarted | What::Other => {}
    }
}

fn change(life: &mut Life, event: &Seen, from: StateName, to: StateName, report: &mut Report) {
    if let Some(state) = life.state {
        report.add_if(state != from, Kind::ChainGap, || {
            format!("{event:?}, but its state was {state}")
        });
    }
    report.add_if(!is_legal(from, to), Kind::IllegalTransition, || {
        format!("{event:?}")
    });
    report.add_if(
        event.generation < life.generation,
        Kind::GenerationBackwards,
        || format!("{event:?} after generation {}", life.generation),
    );
    if to == Connected {
        report.add_if(
            event.generation == life.connected,
            Kind::GenerationReused,
            || format!("connected twice: {event:?}"),
        );
        life.connected = event.generation;
    }
    life.state = Some(to);
    life.generation = event.generation;
}

fn check_reads(history: &History, report: &mut Report) {
    let mut newest = BTreeMap::new();
    for read in &history.reads {
        let newest = newest.entry((read.reader, &read.server)).or_insert(0);
        report.add_if(read.generation < *newest, Kind::GenerationBackwards, || {
            format!("status read {read:?} after generation {newest}")
        });
        *newest = read.generation;
    }
}
