//! Checks a recorded run against the documented guarantees. Independent of the runtime's internals.

mod connections;
mod ending;
mod events;
mod outcomes;

use std::fmt;
use std::time::Duration;

pub(crate) use connections::lives;
pub(crate) use ending::last_change;

use crate::history::History;

/// How late an outcome may arrive after its deadline on a busy machine.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// Upper bound for a control request: the slowest close, plus time for a busy machine.
pub(crate) const CONTROL: Duration = Duration::from_secs(20);

/// The kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Event versions do not increase by one.
    VersionGap,
    /// A state change does not start from the state in which the previous one ended.
    ChainGap,
    /// A state change that is not in the table in docs/semantics.md.
    IllegalTransition,
    /// A failed attempt in a state without attempts, or one that the states do not show.
    MisplacedAttempt,
    /// An event of a server that does not exist, or a server that is added twice.
    OutsideOfLife,
    /// A generation lower than an earlier one in the same life of a server.
    GenerationBackwards,
    /// Two connections with the same generation, or a connection that no server saw.
    GenerationReused,
    /// Two connections of one server at the same time.
    Overlap,
    /// A call without an outcome.
    NoOutcome,
    /// A call with more than one outcome.
    SecondOutcome,
    /// An outcome after the deadline.
    LateOutcome,
    /// A call that was reported as not sent, but ran.
    NotSentRan,
    /// A call that the server refused, but ran.
    RefusedRan,
    /// A call that returned a result, but never ran.
    ResultNotRun,
    /// A call that ran more often than its caller allowed.
    RanTwice,
    /// A call that ran on the wrong server, or was never issued.
    RanElsewhere,
    /// A control request without a reply in time.
    RequestHung,
    /// The runtime ended before it was shut down.
    RuntimeGone,
    /// An enabled, healthy server that did not recover, or a disabled one that came up.
    NotRecovered,
    /// A status that disagrees with the last event.
    StatusDiffers,
    /// A process, task or descriptor left over after the shutdown.
    Leftover,
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}

/// The violations found so far.
#[derive(Debug, Default)]
struct Report(Vec<Violation>);

impl Report {
    fn add(&mut self, kind: Kind, detail: impl Into<String>) {
        let detail = detail.into();
        self.0.push(Violation { kind, detail });
    }

    fn add_if(&mut self, broken: bool, kind: Kind, detail: impl FnOnce() -> String) {
        if broken {
            self.add(kind, detail());
        }
    }
}

/// Returns all violations of a run.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    events::check(history, &mut report);
    connections::check(history, &mut report);
    outcomes::check(history, &mut report);
    ending::check(history, &mut report);
    report.0
}
