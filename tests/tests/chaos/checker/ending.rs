//! Checks the end of a run: recovery, agreement of status and events, leftovers.

use mcpvisor::StateName;

use super::{Kind, Report};
use crate::history::{History, Recovered, Seen, What};

pub(super) fn check(history: &History, report: &mut Report) {
    for server in &history.recovered {
        let up = matches!(server.state, StateName::Connected | StateName::Sleeping);
        let well = if server.wanted {
            up && server.answers
        } else {
            server.state == StateName::Disabled && !server.answers
        };
        report.add_if(!well, Kind::NotRecovered, || format!("{server:?}"));
        check_recovered(history, server, report);
    }
    for ended in &history.ended {
        let last = last_change(&history.events, &ended.server);
        let Some((state, generation)) = last else {
            continue;
        };
        let agrees = ended.state == state && ended.generation >= generation;
        report.add_if(!agrees, Kind::StatusDiffers, || {
            format!("{ended:?}, but the last event says {state} in generation {generation}")
        });
    }
    for left in &history.leftovers {
        report.add(Kind::Leftover, left.clone());
    }
}

fn check_recovered(history: &History, server: &Recovered, report: &mut Report) {
    let events = &history.events;
    let known = events.partition_point(|event| event.version <= server.version);
    let Some((state, generation)) = last_change(&events[..known], &server.server) else {
        return;
    };
    let agrees = state == server.state && server.generation >= generation;
    report.add_if(!agrees, Kind::StatusDiffers, || {
        format!("{server:?}, but the last event says {state} in generation {generation}")
    });
}

/// The last state change of a server since it was added, and its generation.
pub(crate) fn last_change(events: &[Seen], server: &str) -> Option<(StateName, u64)> {
    let of_server = events.iter().rev().filter(|event| event.server == server);
    let mut life = of_server.take_while(|event| event.what != What::Added);
    life.find_map(|event| match event.what {
        What::State { to, .. } => Some((to, event.generation)),
        _ => None,
    })
}
