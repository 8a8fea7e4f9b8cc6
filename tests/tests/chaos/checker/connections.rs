//! Checks the connections that the servers recorded: one at a time, each with its own generation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mcpvisor::StateName;

use super::{Kind, Report};
use crate::history::{Connection, History, Link, What};

/// How long a request of the old session may be in flight after the next session starts.
const ON_ITS_WAY: Duration = Duration::from_secs(3);

pub(super) fn check(history: &History, report: &mut Report) {
    let mut servers = BTreeMap::<&str, Vec<&Link>>::new();
    for Connection { server, what } in &history.connections {
        servers.entry(server).or_default().push(what);
    }
    for (server, links) in servers {
        one_at_a_time(history, server, &links, report);
        sessions_in_turn(server, &links, report);
        generations_match(history, server, &links, report);
    }
}

fn one_at_a_time(history: &History, server: &str, links: &[&Link], report: &mut Report) {
    let (mut open, mut newest) = (BTreeSet::new(), 0);
    // Generations restart with each life of the server, and the server does not see its lives. So
    // this check finds reuse only beyond the number of lives; within a life, the events show it
    // exactly.
    let mut lives = lives(history, server).len();
    for link in links {
        match link {
            Link::Opened { generation } => {
                report.add_if(!open.is_empty(), Kind::Overlap, || {
                    format!("{server}: generation {generation} opened beside {open:?}")
                });
                if *generation <= newest {
                    lives -= 1;
                    report.add_if(lives == 0, Kind::GenerationReused, || {
                        format!("{server}: generation {generation} opened after {newest}")
                    });
                    lives = lives.max(1);
                }
                newest = *generation;
                open.insert(*generation);
            }
            Link::Closed { generation } => {
                open.remove(generation);
            }
            Link::StartedBeside { pid } => report.add(
                Kind::Overlap,
                format!("{server}: process {pid} started beside another"),
            ),
            Link::Started { .. } | Link::Handshake | Link::Session { .. } => {}
        }
    }
    report.add_if(!open.is_empty(), Kind::Leftover, || {
        format!("{server}: generations {open:?} were never closed")
    });
}

fn sessions_in_turn(server: &str, links: &[&Link], report: &mut Report) {
    let mut sessions: Vec<(Duration, Duration, &str)> = links
        .iter()
        .filter_map(|link| match link {
            Link::Session { id, first, last } => Some((*first, *last, id.as_str())),
            _ => None,
        })
        .collect();
    sessions.sort();
    for pair in sessions.windows(2) {
        let ((_, last, old), (first, _, new)) = (pair[0], pair[1]);
        report.add_if(last > first + ON_ITS_WAY, Kind::Overlap, || {
            format!("{server}: session {old} was used at {last:?}, {new} since {first:?}")
        });
    }
}

/// The newest generation of each life of a server. A life lasts from start or addition to removal.
pub(crate) fn lives(history: &History, server: &str) -> Vec<u64> {
    let mut lives = vec![0];
    for event in history.events.iter().filter(|event| event.server == server) {
        if event.what == What::Added {
            lives.push(0);
        }
        let life = lives.last_mut().unwrap();
        *life = event.generation.max(*life);
    }
    let ended = history.ended.iter().find(|ended| ended.server == server);
    if let (Some(ended), Some(last)) = (ended, lives.last_mut()) {
        *last = ended.generation.max(*last);
    }
    lives
}

/// Checks that the runtime reported no more connections than the server saw, and that the server
/// saw no more than there were generations. This is only a bound: children and HTTP servers do not
/// learn their generation, and never see one that fails early.
fn generations_match(history: &History, server: &str, links: &[&Link], report: &mut Report) {
    let opened = links.iter().filter(|link| match link {
        Link::Opened { .. } | Link::Started { .. } => true,
        Link::StartedBeside { .. } | Link::Handshake => true,
        Link::Closed { .. } | Link::Session { .. } => false,
    });
    let opened = opened.count() as u64;
    let events = history.events.iter().filter(|event| event.server == server);
    let connected = events.filter(|event| match event.what {
        What::State { to, .. } => to == StateName::Connected,
        _ => false,
    });
    let connected = connected.count() as u64;
    let generations: u64 = lives(history, server).iter().sum();
    report.add_if(opened > generations, Kind::GenerationReused, || {
        format!("{server} saw {opened} connections in {generations} generations")
    });
    report.add_if(connected > opened, Kind::GenerationReused, || {
        format!("{server} was connected {connected} times, but saw {opened} connections")
    });
}
