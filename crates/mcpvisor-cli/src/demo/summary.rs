//! The summary of the demo: counts, and whether every promise held.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::Demo;
use super::agents::Counts;
use super::sandbox::{NOTES, ORDERS, WEATHER};
use crate::failure::Failure;
use crate::output::{ColorMode, paint};

/// A promise of the demo, and whether it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Promise {
    pub(super) promise: String,
    pub(super) held: bool,
}

/// The counts and promises.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    ok: bool,
    elapsed_ms: u64,
    /// Reproduces the random faults.
    seed: u64,
    agents: usize,
    #[serde(flatten)]
    counts: Counts,
    ran_twice: usize,
    recoveries: usize,
    slowest_recovery_ms: f64,
    processes_started: usize,
    processes_left: usize,
    promises: Vec<Promise>,
}

impl Summary {
    pub(super) fn of(mut demo: Demo, elapsed: Duration) -> Self {
        let counts = demo.agents.tally.counts();
        let notes = read_lines(&demo.sandbox.notes());
        let orders = read_lines(&demo.sandbox.placed());
        let ran_twice = doubled(&notes) + doubled(&orders);
        let tally = &demo.agents.tally;
        let lost = missing(&notes, &tally.written()) + missing(&orders, &tally.placed());
        let left = demo.sandbox.left();
        demo.check("every call had exactly one outcome", counts.complete());
        demo.check("no write ran twice", ran_twice == 0);
        demo.check("every answered write took effect", lost == 0);
        demo.check("no process is left over", left == 0);
        let promises = demo.promises;
        let slowest = demo.recoveries.iter().max().copied().unwrap_or_default();
        Self {
            ok: promises.iter().all(|promise| promise.held),
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            seed: demo.options.seed,
            agents: demo.agents.all.len(),
            counts,
            ran_twice,
            recoveries: demo.recoveries.len(),
            slowest_recovery_ms: (slowest.as_secs_f64() * 10_000.0).round() / 10.0,
            processes_started: [NOTES, WEATHER, ORDERS]
                .map(|name| demo.sandbox.started(name).len())
                .iter()
                .sum(),
            processes_left: left,
            promises,
        }
    }

    /// Fails if a promise was broken.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let broken = self.promises.iter().filter(|promise| !promise.held);
        let broken: Vec<&str> = broken.map(|promise| promise.promise.as_str()).collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err(Failure::unexpected(format!(
            "broken promises: {}",
            broken.join("; ")
        )))
    }

    pub(super) fn render(&self, color: ColorMode) -> String {
        let mut text = format!("\n{}\n", paint(color, "1", "Summary"));
        for (name, value, tone) in self.rows() {
            let line = format!("  {name:<18} {value:>8}   {tone}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.push_str(&format!("\n{}\n", paint(color, "1", "Promises")));
        for Promise { promise, held } in &self.promises {
            let mark = if *held {
                paint(color, "32", "held  ")
            } else {
                paint(color, "1;31", "BROKEN")
            };
            text.push_str(&format!("  {mark}  {promise}\n"));
        }
        text
    }

    /// Name, value and explanation of each count.
    fn rows(&self) -> [(&'static str, String, String); 9] {
        let agents = format!("by {} agents; each had exactly one outcome", self.agents);
        let slowest = format!("{:.0} ms", self.slowest_recovery_ms);
        let started = format!("of {} started", self.processes_started);
        let row = |name, value: String, tone: &str| (name, value, tone.to_owned());
        [
            row("calls", self.counts.begun.to_string(), &agents),
            row("answered", self.counts.answered.to_string(), ""),
            row(
                "outcome unknown",
                self.counts.unknown.to_string(),
                "sent, then the server died: reported, never retried blindly",
            ),
            row(
                "not sent",
                self.counts.not_sent.to_string(),
                "refused at once, with the reason",
            ),
            row(
                "retried",
                self.counts.retried.to_string(),
                "reads only, which are safe to repeat",
            ),
            row("ran twice", self.ran_twice.to_string(), ""),
            row(
                "recoveries",
                self.recoveries.to_string(),
                "a server was lost and reconnected",
            ),
            row(
                "slowest recovery",
                slowest,
                "from the fault to the next answer",
            ),
            row("processes left", self.processes_left.to_string(), &started),
        ]
    }
}

fn read_lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Notes and orders are unique, so a duplicate was written twice.
fn doubled(notes: &[String]) -> usize {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for note in notes {
        *times.entry(note).or_default() += 1;
    }
    times.values().filter(|times| **times > 1).count()
}

/// Notes whose append was answered, but that are missing.
fn missing(notes: &[String], written: &[String]) -> usize {
    written.iter().filter(|note| !notes.contains(note)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_and_missing_notes_are_counted() {
        let notes = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(doubled(&notes), 1);
        assert_eq!(doubled(&notes[..2]), 0);
        assert_eq!(missing(&notes, &["b".to_owned(), "c".to_owned()]), 1);
    }
}
