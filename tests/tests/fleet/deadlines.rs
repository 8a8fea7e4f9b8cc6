//! Deadlines and tolerances for tests of misbehaving servers.

use std::time::Duration;

use mcpvisor::settings::CloseSettings;
use mcpvisor::{CallError, ServerSettings};
use rmcp::model::CallToolResult;
use tokio::time::Instant;

use crate::fleet::{eager, in_full, size};

/// How late an outcome may arrive.
pub(crate) const TOLERANCE: Duration = Duration::from_millis(100);

/// The allowance for a busy machine. Full-size figures have none: they run on an idle machine.
const BUSY: Duration = Duration::from_secs(3);

/// The deadline of a call that is never answered.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

/// How a misbehaving server is closed.
pub(crate) const GRACE: CloseSettings = CloseSettings::new(
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(300),
);

/// How late something may be in this run.
pub(crate) fn tolerance() -> Duration {
    if in_full() {
        TOLERANCE
    } else {
        TOLERANCE + BUSY
    }
}

/// Settings with which a server is reconnected immediately and without a limit, and closed quickly.
pub(crate) fn quick() -> ServerSettings {
    let mut settings = eager();
    settings.close = GRACE;
    settings
}

/// Checks for an outcome at the deadline of [`SHORT`], of a call that may have been sent. Returns
/// how late it was.
#[track_caller]
pub(crate) fn assert_sent_and_late(
    outcome: Result<CallToolResult, CallError>,
    took: Duration,
    what: &str,
) -> Duration {
    assert_late(outcome, took, what, true)
}

/// Checks for an outcome at the deadline of [`SHORT`], of a call that was not sent. Returns how
/// late it was.
#[track_caller]
pub(crate) fn assert_unsent_and_late(
    outcome: Result<CallToolResult, CallError>,
    took: Duration,
    what: &str,
) -> Duration {
    assert_late(outcome, took, what, false)
}

#[track_caller]
fn assert_late(
    outcome: Result<CallToolResult, CallError>,
    took: Duration,
    what: &str,
    was_sent: bool,
) -> Duration {
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent, .. } if sent == was_sent),
        "{what}: {error:?}"
    );
    assert!(
        took >= SHORT && took < SHORT + tolerance(),
        "{what}: {took:?}"
    );
    took - SHORT
}

/// The best lateness of up to five attempts, which must be within the guarantee: a busy machine may
/// delay some attempts, but not all. At full size the first one counts.
pub(crate) async fn at_best(
    promised: Duration,
    mut measure: impl AsyncFnMut() -> Duration,
) -> Duration {
    let mut best = measure().await;
    for _ in 1..size(5, 1) {
        if best <= promised {
            break;
        }
        best = best.min(measure().await);
    }
    assert!(best <= promised, "{best:?} instead of {promised:?}");
    best
}

/// Measures how long something takes.
pub(crate) async fn timed<T>(what: impl IntoFuture<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let output = what.into_future().await;
    (output, begin.elapsed())
}

/// Checks that the error contains all of these.
#[track_caller]
pub(crate) fn says(error: &impl ToString, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}
