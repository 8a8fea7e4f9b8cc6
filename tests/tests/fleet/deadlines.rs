//! Deadlines and tolerances for tests of servers that misbehave.

use std::time::Duration;

use mcpvisor::settings::CloseSettings;
use mcpvisor::{CallError, ServerSettings};
use rmcp::model::CallToolResult;
use tokio::time::Instant;

use crate::fleet::{eager, in_full, size};

/// How much later than promised an outcome may come.
pub(crate) const TOLERANCE: Duration = Duration::from_millis(100);

/// What a machine that is busy with other things may add to it. At full size nothing: figures are
/// taken on a machine that is not.
const BUSY: Duration = Duration::from_secs(3);

/// The deadline of a call that is never answered.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

/// How a server that misbehaves is closed.
pub(crate) const GRACE: CloseSettings = CloseSettings::new(
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(300),
);

/// How much later than promised something may be here.
pub(crate) fn tolerance() -> Duration {
    if in_full() {
        TOLERANCE
    } else {
        TOLERANCE + BUSY
    }
}

/// Settings under which a server is connected again at once, as often as it takes, and closed
/// quickly.
pub(crate) fn quick() -> ServerSettings {
    let mut settings = eager();
    settings.close = GRACE;
    settings
}

/// An outcome at the deadline of [`SHORT`], of a call that the server may have; how much later.
#[track_caller]
pub(crate) fn assert_sent_and_late(
    outcome: Result<CallToolResult, CallError>,
    took: Duration,
    what: &str,
) -> Duration {
    assert_late(outcome, took, what, true)
}

/// An outcome at the deadline of [`SHORT`], of a call that was not sent; how much later.
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

/// How late something is when the machine lets it: within what is promised. Each try may be as
/// late as a busy machine makes it, five of them not. At full size the first one counts.
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

/// How long something takes.
pub(crate) async fn timed<T>(what: impl IntoFuture<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let output = what.into_future().await;
    (output, begin.elapsed())
}

/// The error says all of this.
#[track_caller]
pub(crate) fn says(error: &impl ToString, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}
