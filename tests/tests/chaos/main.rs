//! Chaos: eight tasks issue random control requests, crash actors and kill servers under load. An
//! independent checker compares events, generations, outcomes and effects.
//!
//! `MCPVISOR_CHAOS_SECONDS` sets the length of the run, `MCPVISOR_CHAOS_SEED` its random choices,
//! and `MCPVISOR_CHAOS_PAUSE_MS` the longest pause of a task. A run prints its seed. Timing depends
//! on the scheduler, so a seed reproduces the choices of a run, not its order of events.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod checker;
mod control;
mod faults;
#[path = "../fleet/mod.rs"]
mod fleet;
mod history;
mod journal;
mod load;
mod record;
mod run;
mod sabotage;
mod servers;
mod watcher;

use checker::{Kind, Violation, check};
use fleet::{DEADLINE, secs, without_reports_of_panics};
use mcpvisor_testkit::in_own_process;
use run::Chaos;

/// The length of a run in the test suite, in seconds.
const BRIEF: u64 = 8;

/// The seed in the test suite. A run with a configured length uses a new one.
const SEED: u64 = 4711;

/// The longest pause of a task, in milliseconds.
const PAUSE: u64 = 200;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn listed(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn chaos_breaks_no_promise() {
    let seconds = from_environment("MCPVISOR_CHAOS_SECONDS");
    let lasts = secs(seconds.unwrap_or(BRIEF));
    let name = "chaos_breaks_no_promise";
    in_own_process(name, lasts + 8 * DEADLINE, async || {
        without_reports_of_panics();
        let seed = from_environment("MCPVISOR_CHAOS_SEED");
        let seed = seed.unwrap_or_else(|| seconds.map_or(SEED, |_| fastrand::u64(..)));
        println!("MCPVISOR_CHAOS_SEED={seed}");
        let chaos = Chaos {
            seed,
            lasts,
            pause: from_environment("MCPVISOR_CHAOS_PAUSE_MS").unwrap_or(PAUSE),
            sabotaged: false,
        };
        let history = chaos.run().await;
        let violations = check(&history);
        println!(
            "chaos: {} calls, {} events, {} effects, {} connections, {} violations",
            history.calls.len(),
            history.events.len(),
            history.effects.len(),
            history.connections.len(),
            violations.len()
        );
        assert!(
            violations.is_empty(),
            "seed {seed}:\n{}",
            listed(&violations)
        );
        sabotage::is_seen_in(&history);
    });
}

#[test]
fn control_chaos_of_servers_that_lie_is_seen() {
    let name = "control_chaos_of_servers_that_lie_is_seen";
    in_own_process(name, 8 * DEADLINE, async || {
        without_reports_of_panics();
        let chaos = Chaos {
            seed: 1,
            lasts: secs(1),
            pause: PAUSE,
            sabotaged: true,
        };
        let violations = check(&chaos.run().await);
        let expected = [
            Kind::RanTwice,
            Kind::ResultNotRun,
            Kind::Overlap,
            Kind::Leftover,
        ];
        for kind in expected {
            let seen = violations.iter().any(|violation| violation.kind == kind);
            assert!(seen, "{kind:?} in\n{}", listed(&violations));
        }
    });
}
