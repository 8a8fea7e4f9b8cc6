//! What is measured, how often, and the gates that the figures must pass.

use crate::Outcome;
use crate::caller::{Callers, Load};
use crate::report::Row;

/// The maximum for each measure; ratios are ours ÷ bare.
pub(crate) mod gates {
    /// Client instructions of a call over stdio. Measured 0.48; the rest is a
    /// reserve for the spread of builds, here and below.
    pub(crate) const STDIO_INSTRUCTIONS: f64 = 0.52;
    /// Wall time of a call over stdio, one caller.
    pub(crate) const STDIO_ONE: f64 = 1.05;
    /// Wall time of a call over stdio, many callers.
    pub(crate) const STDIO_MANY: f64 = 0.95;
    /// Instructions of both ends of a call to an in-process server. Measured 0.35.
    pub(crate) const IN_PROCESS_INSTRUCTIONS: f64 = 0.38;
    /// Wall time of a call to an in-process server.
    pub(crate) const IN_PROCESS: f64 = 0.7;
    /// Client instructions of a call over HTTP, compared with bare rmcp with the same pooled
    /// client. Measured 0.40.
    pub(crate) const HTTP_INSTRUCTIONS: f64 = 0.43;
    /// Client instructions of a call over HTTP with a stored OAuth token, compared with the same
    /// token in a header of the config.
    /// The promise is 1.02; single runs of one binary range from 0.99 to 1.02.
    pub(crate) const OAUTH_INSTRUCTIONS: f64 = 1.04;
    /// Wall time of a call over HTTP, one caller, compared with rmcp's default client.
    pub(crate) const HTTP_ONE: f64 = 0.75;
    /// Wall time of a call over HTTP, many callers, compared with rmcp's default client.
    pub(crate) const HTTP_MANY: f64 = 0.6;
    /// Milliseconds of a call to a server without TCP_NODELAY. Without a workaround it stalls for
    /// 40.
    pub(crate) const HTTP_STALL_MS: f64 = 10.0;
    /// 99th percentile of calls to a Node server, many callers, compared with rmcp's default
    /// client.
    pub(crate) const NODE_P99: f64 = 2.0;
    /// A large fleet over HTTP becomes ready, compared with rmcp's default client.
    pub(crate) const HTTP_READY: f64 = 0.4;
    /// Many callers on a slow tool.
    pub(crate) const SLOW_TOOL: f64 = 1.05;
    /// A large fleet becomes ready.
    pub(crate) const READY: f64 = 1.2;
    /// Milliseconds from the change of one server in a large fleet to the first read that shows it.
    pub(crate) const CATALOG_CHANGE_MS: f64 = 2.0;
    /// Nanoseconds per read of a large fleet's catalog.
    pub(crate) const CATALOG_READ_NS: f64 = 100.0;
    /// Search over a large fleet.
    pub(crate) const SEARCH: crate::search::Gates = crate::search::Gates {
        query_ms: 1.0,
        update_ms: 5.0,
        memory_kib: 2.0,
    };
    /// KiB that the runtime adds per idle server.
    pub(crate) const ADDED_KIB: f64 = 15.0;
    /// From a kill to the next reply, compared with spawn, handshake and call.
    pub(crate) const RECOVERY: f64 = 1.25;
    /// Milliseconds from a kill to the outcome of the calls in flight.
    pub(crate) const IN_FLIGHT_MS: f64 = 5.0;
}

/// One calling task.
pub(crate) const ONE: Callers = Callers::Tasks(1);

/// Many concurrent tasks.
pub(crate) const MANY: Callers = Callers::Tasks(64);

/// Attempts to measure a wall time before its gate counts as failed: machines are noisy.
const TRIES: usize = 3;

/// The factor by which a quick wall time may exceed its gate: it only detects gross regressions.
const SANITY: f64 = 1.5;

/// The parts that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Part {
    /// Instructions of a call and of a start.
    Instructions,
    /// Wall time of a call.
    Calls,
    /// A large fleet becomes ready.
    Ready,
    /// The catalog of a large fleet.
    Catalog,
    /// Search over the tools of a large fleet.
    Search,
    /// Memory per idle server.
    Memory,
    /// A server dies and recovers.
    Recovery,
}

impl Part {
    /// All parts with their names on the command line.
    const ALL: [(&str, Self); 7] = [
        ("instructions", Self::Instructions),
        ("calls", Self::Calls),
        ("ready", Self::Ready),
        ("catalog", Self::Catalog),
        ("search", Self::Search),
        ("memory", Self::Memory),
        ("recovery", Self::Recovery),
    ];
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Rounds, of which the median counts.
    pub(crate) rounds: usize,
    /// Kills for timing the next reply.
    pub(crate) kills: usize,
    /// Calls in one burst, over all callers.
    pub(crate) calls: usize,
    /// Whether only the short measures run.
    quick: bool,
    /// The only part to measure; `None` measures all.
    only: Option<Part>,
    /// Whether a failed gate fails the program.
    pub(crate) gate: bool,
}

impl Plan {
    /// Parses the command line.
    pub(crate) fn from_args(args: &[&str]) -> Outcome<Self> {
        let mut plan = Self {
            rounds: 21,
            kills: 40,
            calls: 6_400,
            quick: false,
            only: None,
            gate: false,
        };
        for arg in args {
            match *arg {
                "--quick" => (plan.quick, plan.rounds, plan.calls) = (true, 15, 1_280),
                "--gate" => plan.gate = true,
                other => {
                    let part = Part::ALL.iter().find(|(name, _)| *name == other);
                    let names = Part::ALL.map(|(name, _)| name).join(", ");
                    let (_, part) = part.ok_or_else(|| {
                        format!(
                            "{other} is no option; there are --quick, --gate, or one of {names}"
                        )
                    })?;
                    plan.only = Some(*part);
                }
            }
        }
        Ok(plan)
    }

    /// Whether a part is measured.
    pub(crate) fn has(&self, part: Part) -> bool {
        let short = matches!(part, Part::Instructions | Part::Calls);
        (short || !self.quick) && self.only.is_none_or(|only| only == part)
    }

    /// Whether the slow measures are skipped.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// A burst of `echo` calls, shared among this many callers.
    pub(crate) fn burst(&self, callers: Callers) -> Load {
        Load::echo(callers, self.calls / callers.count())
    }

    /// The gate of a wall time.
    pub(crate) fn wall(&self, gate: f64) -> Option<f64> {
        Some(if self.quick { gate * SANITY } else { gate })
    }

    /// Measures, and repeats while a gate of its rows fails and attempts are left. Returns the
    /// attempt with the best last row; each row lists the values of all attempts.
    pub(crate) async fn best<const N: usize>(
        &self,
        measure: impl AsyncFn() -> Outcome<[Row; N]>,
    ) -> Outcome<[Row; N]> {
        let tries = if self.gate { TRIES } else { 1 };
        let last = |rows: &[Row; N]| rows.last().map(Row::value);
        let mut best = measure().await?;
        for _ in 1..tries {
            if best.iter().all(Row::passes) {
                break;
            }
            let mut next = measure().await?;
            for (before, now) in best.iter_mut().zip(&mut next) {
                if before.tries.is_empty() {
                    before.tries.push(before.value());
                }
                before.tries.push(now.value());
                now.tries.clone_from(&before.tries);
            }
            if last(&next) < last(&best) {
                best = next;
            }
        }
        Ok(best)
    }
}
