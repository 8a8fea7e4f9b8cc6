//! Judges a recorded run by the documented promises. Knows nothing of how the runtime works.

mod connections;
mod ending;
mod events;
mod outcomes;

use std::fmt;
use std::time::Duration;

pub(crate) use connections::lives;
pub(crate) use ending::last_change;

use crate::history::History;

/// How much later than its deadline an outcome may come on a machine that is busy.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// The longest that a control request may take: the slowest close, and a busy machine.
pub(crate) const CONTROL: Duration = Duration::from_secs(20);

/// The kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Event versions do not rise by one.
    VersionGap,
    /// A state change does not start from the state where the one before ended.
    ChainGap,
    /// A state change that the table in docs/semantics.md does not have.
    IllegalTransition,
    /// A failed attempt in a state without attempts, or one that the states do not show.
    MisplacedAttempt,
    /// An event of a server that does not exist, or one that is added twice.
    OutsideOfLife,
    /// A generation that is lower than one seen before in the same life of a server.
    GenerationBackwards,
    /// Two connections with one generation, or a connection that no server saw.
    GenerationReused,
    /// Two connections of one server at the same time.
    Overlap,
    /// A call without an outcome.
    NoOutcome,
    /// A call with more than one outcome.
    SecondOutcome,
    /// An outcome after the deadline.
    LateOutcome,
    /// A call that was not sent, but ran.
    NotSentRan,
    /// A call that the server refused, but ran.
    RefusedRan,
    /// A call with a result that never ran.
    ResultNotRun,
    /// A call that ran more often than its caller allowed.
    RanTwice,
    /// A call that ran on another server, or was never issued.
    RanElsewhere,
    /// A control request without an answer in time.
    RequestHung,
    /// The runtime ended before it was shut down.
    RuntimeGone,
    /// An enabled, healthy server that did not come back, or a disabled one that did.
    NotRecovered,
    /// A status that disagrees with the last event.
    StatusDiffers,
    /// Something was left after the shutdown.
    Leftover,
}

/// One broken promise.
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

/// Everything that is wrong with a run.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut report = Report::default();
    events::check(history, &mut report);
    connections::check(history, &mut report);
    outcomes::check(history, &mut report);
    ending::check(history, &mut report);
    report.0
}
