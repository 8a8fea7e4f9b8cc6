//! Figure 21: twenty servers, one fault per second, continuous calls; no resource grows.
//!
//! `MCPVISOR_SOAK_SECONDS` sets the duration; the default is a few seconds as a smoke test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod callers;
mod faults;
#[path = "../fleet/mod.rs"]
mod fleet;
mod samples;
mod servers;

use std::time::Duration;

use callers::Callers;
use faults::Faults;
use fleet::{DEADLINE, secs, without_reports_of_panics};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::{Slack, Snapshot, assert_returns_to};
use samples::{Growth, Samples};
use servers::Servers;
use tokio::time::{Instant, interval};

/// The default duration, in seconds.
const BRIEF: u64 = 10;

/// The parameters of one soak.
struct Soak {
    lasts: Duration,
    /// The control: every fault leaks something.
    leaks: bool,
}

impl Soak {
    /// Injects a fault every second, and samples the resources of this process in between.
    async fn run(&self) -> Result<(), Growth> {
        let servers = Servers::start().await;
        let mut faults = Faults::default();
        faults.warm_up(&servers).await;
        let quiet = servers.renewed().await;
        let begin = Instant::now();
        let callers = Callers::start(&servers);
        let mut samples = Samples::default();
        let mut leaked = Vec::new();
        let mut seconds = interval(secs(1));
        while begin.elapsed() < self.lasts {
            seconds.tick().await;
            faults.strike(&servers);
            if self.leaks {
                leaked.push(leak());
            }
            samples.take(begin.elapsed());
        }
        faults.are_over().await;
        let calls = callers.end().await;
        let after = servers.renewed().await;
        println!("figure 21: {} faults, {calls}{samples}", faults.count());
        servers.end().await;
        samples.judge(&quiet, &after)
    }
}

/// What the control leaks per fault.
fn leak() -> Vec<(std::fs::File, Vec<u8>)> {
    let one = |_| {
        tokio::spawn(std::future::pending::<()>());
        let file = std::fs::File::open("/dev/null").unwrap();
        (file, vec![1; 512 * 1024])
    };
    (0..8).map(one).collect()
}

#[test]
fn figure_21_one_fault_a_second_makes_nothing_grow() {
    let seconds = std::env::var("MCPVISOR_SOAK_SECONDS");
    let seconds = seconds.map_or(BRIEF, |seconds| seconds.parse().unwrap());
    let name = "figure_21_one_fault_a_second_makes_nothing_grow";
    in_own_process(name, secs(seconds) + 6 * DEADLINE, async || {
        without_reports_of_panics();
        let before = Snapshot::take();
        let soak = Soak {
            lasts: secs(seconds),
            leaks: false,
        };
        soak.run().await.unwrap();
        let slack = Slack {
            // Tokio keeps some descriptors for signals after the first child.
            descriptors: 8,
            ..Slack::NONE
        };
        assert_returns_to(&before, slack, DEADLINE).await;
    });
}

#[test]
fn control_figure_21_a_leak_of_every_fault_is_seen() {
    let name = "control_figure_21_a_leak_of_every_fault_is_seen";
    in_own_process(name, 6 * DEADLINE, async || {
        without_reports_of_panics();
        let soak = Soak {
            lasts: secs(BRIEF),
            leaks: true,
        };
        let growth = soak.run().await.unwrap_err();
        for what in ["memory", "descriptors", "tasks"] {
            assert!(growth.names(what), "{what} in {growth:?}");
        }
    });
}
