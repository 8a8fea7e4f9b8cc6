//! Random histories of one server in virtual time, checked by a model.
//!
//! `MCPVISOR_HISTORIES` sets their number, `MCPVISOR_SEED` replays one and prints it.

#![expect(clippy::print_stderr, reason = "a failing test prints its seed")]

mod support;

use std::collections::BTreeSet;
use std::panic;

use support::from_env;
use support::mutation::Mutation;
use support::simulation::{Tally, run, run_mutated};
use support::trace::Detail;

/// The default number of histories: a few seconds in a debug build.
const HISTORIES: u64 = 3_000;

/// The number of possible state changes: all of them must occur.
const CHANGES: usize = 33;

/// Prints the seed of a failed history.
struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "\nthe history of seed {0} failed; replay it with:\n    \
                 MCPVISOR_SEED={0} cargo test -p mcpvisor-core --test histories -- --nocapture\n",
                self.0
            );
        }
    }
}

fn history(seed: u64, detail: Detail) -> Tally {
    let _failing = Failing(seed);
    run(seed, detail)
}

#[test]
fn no_history_breaks_an_invariant() {
    if let Some(seed) = from_env("MCPVISOR_SEED") {
        let tally = history(seed, Detail::Print);
        println!("{tally:?}");
        return;
    }
    let histories = from_env("MCPVISOR_HISTORIES").unwrap_or(HISTORIES);
    let mut tally = Tally::default();
    for seed in 0..histories {
        tally.add(history(seed, Detail::Off));
    }
    println!("{histories} histories: {tally:?}");
    if histories >= HISTORIES {
        assert_eq!(tally.changes.len(), CHANGES, "{:?}", tally.changes);
        assert!(tally.retries > 100 && tally.renewals > 1_000);
        assert!(tally.crashes > 100 && tally.late > 1_000);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces = |seeds: std::ops::Range<u64>| -> Vec<u64> {
        seeds
            .map(|seed| history(seed, Detail::Hash).trace)
            .collect()
    };
    let first = traces(0..20);
    assert_eq!(first, traces(0..20));
    let distinct: BTreeSet<_> = first.iter().collect();
    assert_eq!(
        distinct.len(),
        first.len(),
        "every seed gives another trace"
    );
}

#[test]
fn every_mutation_is_detected() {
    for mutation in Mutation::ALL {
        let is_caught = |seed| {
            let run = || run_mutated(seed, Detail::Off, mutation);
            panic::catch_unwind(run).is_err()
        };
        assert!((0..1_000).any(is_caught), "{mutation:?} is not detected");
    }
}
