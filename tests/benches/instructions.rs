//! Instructions per call, counted by callgrind: the only measure that is reproducible on a busy
//! machine.
//!
//! The program runs itself under valgrind as a client that makes many calls, then as one that makes
//! few; the difference excludes start-up. A server in a child process is not counted.

use std::process::Command;

use crate::Outcome;
use crate::caller::Callers;
use crate::report::{Both, Row};
use crate::side::{Side, Way};

/// Calls of the longer and the shorter run.
const MANY: usize = 3_000;
const FEW: usize = 1_000;

/// Whether valgrind is available.
pub(crate) fn available() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Counts both sides for this many concurrent callers.
pub(crate) fn compare(way: Way, callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let count = |side: Side| per_call(&["client", side.word(), way.word()], callers);
    let (ours, bare) = (count(Side::Ours)?, count(Side::Bare)?);
    let both = Both::of_figures(ours, bare);
    let counted = match way {
        Way::Stdio | Way::Http => "the client",
        Way::InProcess => "both ends",
    };
    let measure = format!(
        "{}, {callers}: instructions of {counted} per call",
        way.word()
    );
    Ok(Row::ratio(measure, "Ir", both, gate))
}

/// Instructions per call of a client process with these first arguments; the number of callers and
/// that of calls follow.
pub(crate) fn per_call(client: &[&str], callers: Callers) -> Outcome<f64> {
    let count = |calls: usize| {
        let (callers, calls) = (callers.count().to_string(), calls.to_string());
        of_run(&[client, &[&callers, &calls]].concat())
    };
    // Whole calls per caller in both runs, so that the difference is exact.
    let (many, few) = (MANY / callers.count(), FEW / callers.count());
    let difference = count(many)?.saturating_sub(count(few)?);
    Ok(difference as f64 / ((many - few) * callers.count()) as f64)
}

/// The instruction count of one run of this program with these arguments.
pub(crate) fn of_run(args: &[&str]) -> Outcome<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--trace-children=no"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(std::env::current_exe()?)
        .args(args)
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{args:?} failed under valgrind: {text}").into());
    }
    collected(&text).ok_or_else(|| format!("callgrind gave no total: {text}").into())
}

/// The total in callgrind's summary: `Collected : 123456`.
fn collected(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_closing_lines() {
        let text = "==7== Events    : Ir\n==7== Collected : 123456\n==7==\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("==7== nothing"), None);
    }
}
