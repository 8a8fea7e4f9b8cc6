//! Watches a config file and reloads the fleet when it changes.
//!
//! The file is polled, at the cost of one `stat`. File notifications would miss a swapped symlink,
//! a file that is replaced by a rename or deleted and written again, and file systems without them.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;

use crate::api::events::EventKind;
use crate::api::runtime::{Runtime, WeakRuntime};
use crate::config::{Config, ConfigError, ConfigSource};
use crate::fleet::reload::{ReloadError, ReloadReport};
use crate::state::file_ops::{FileOps, READ_TIMEOUT};

/// The interval of the polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Limit of the first poll, which blocks the caller of [`Runtime::watch_config`].
const FIRST_POLL_LIMIT: Duration = Duration::from_millis(100);

/// The file is read once it has not changed for this long, so that no half-written file is read.
const QUIET_PERIOD: Duration = Duration::from_millis(150);

/// Polls of a changing file before it is read anyway.
const MAX_QUIET_POLLS: usize = 20;

/// Buffered outcomes; older ones are dropped.
const OUTCOMES: usize = 16;

/// The outcome of a change of the file.
type Outcome = Result<ReloadReport, RejectedConfig>;

/// A watched config file. Dropping it ends the watch; the fleet stays as it is.
#[derive(Debug)]
pub struct ConfigWatch {
    task: JoinHandle<()>,
    outcomes: broadcast::Receiver<Outcome>,
}

/// Why a changed config was rejected. The fleet keeps the config before it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RejectedConfig {
    /// It cannot be read.
    #[error("config change rejected: {0}")]
    Unreadable(Arc<ConfigError>),
    /// It can be read, but is invalid.
    #[error("config change rejected: {0}")]
    Unusable(#[from] ReloadError),
}

impl ConfigWatch {
    /// Waits for the outcome of the next change of the file. Up to 16 outcomes are buffered; older
    /// ones are dropped. `None` when the runtime has ended.
    pub async fn changed(&mut self) -> Option<Result<ReloadReport, RejectedConfig>> {
        loop {
            match self.outcomes.recv().await {
                Ok(outcome) => return Some(outcome),
                // The newest outcome describes the present file, so the oldest may be dropped.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Runtime {
    /// Reloads the config whenever this file changes, however it is replaced. A file that cannot be
    /// read changes nothing; [`EventKind::ConfigRejected`] reports why.
    ///
    /// The watch does not keep the runtime alive: it ends with it.
    pub fn watch_config(&self, path: impl Into<PathBuf>) -> ConfigWatch {
        let path = path.into();
        let (sender, outcomes) = broadcast::channel(OUTCOMES);
        let ops = self.lifeline.host.ops.sibling();
        let first = path.clone();
        let known = ops.run_blocking(&path, FIRST_POLL_LIMIT, move || stat(&first));
        let watcher = Watcher {
            known: known.map_or(Known::Unanswered, Known::File),
            ops,
            unanswered_reported: false,
            path,
            runtime: self.downgrade(),
            outcomes: sender,
        };
        ConfigWatch {
            task: tokio::spawn(watcher.run()),
            outcomes,
        }
    }
}

/// Identifies one version of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    /// Device, inode and time of the last change of content or metadata.
    identity: (u64, u64, i64, i64),
}

impl From<Metadata> for FileStamp {
    fn from(metadata: Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            identity: identity(&metadata),
        }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (
        metadata.dev(),
        metadata.ino(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}

/// The present version of the file; none if it does not exist.
fn stat(path: &Path) -> io::Result<Option<FileStamp>> {
    Ok(std::fs::metadata(path).ok().map(FileStamp::from))
}

/// The last known version of the file.
#[derive(Debug, PartialEq)]
enum Known {
    /// The file system did not answer: its first answer counts as known.
    Unanswered,
    /// None if the file does not exist.
    File(Option<FileStamp>),
}

struct Watcher {
    path: PathBuf,
    known: Known,
    ops: FileOps,
    /// It was reported that the file system does not answer.
    unanswered_reported: bool,
    runtime: WeakRuntime,
    outcomes: broadcast::Sender<Outcome>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.runtime.is_gone() {
                return;
            }
            let now = match self.stat().await {
                Ok(now) => {
                    self.unanswered_reported = false;
                    now
                }
                Err(problem) => {
                    self.report_unanswered(problem);
                    continue;
                }
            };
            if self.known == Known::Unanswered {
                self.known = Known::File(now);
                continue;
            }
            // A missing file is probably being replaced.
            if now.is_none() || self.known == Known::File(now.clone()) {
                continue;
            }
            self.known = Known::File(self.wait_until_quiet(now).await);
            let outcome = self.reload().await;
            if matches!(
                outcome,
                Err(RejectedConfig::Unusable(ReloadError::RuntimeGone))
            ) {
                return;
            }
            self.report(outcome);
        }
    }

    async fn stat(&self) -> io::Result<Option<FileStamp>> {
        let path = self.path.clone();
        let stat = move || stat(&path);
        self.ops.run(&self.path, READ_TIMEOUT, stat).await
    }

    /// Reports that the file system does not answer, once per time that it stops answering.
    fn report_unanswered(&mut self, source: io::Error) {
        if !std::mem::replace(&mut self.unanswered_reported, true) {
            let problem = ConfigError::reading(&self.path)(source);
            self.report(Err(RejectedConfig::Unreadable(Arc::new(problem))));
        }
    }

    /// Waits until the file no longer changes.
    async fn wait_until_quiet(&self, first: Option<FileStamp>) -> Option<FileStamp> {
        let mut last = first;
        for _ in 0..MAX_QUIET_POLLS {
            tokio::time::sleep(QUIET_PERIOD).await;
            let now = self.stat().await.ok().flatten();
            if now.is_some() && now == last {
                break;
            }
            last = now;
        }
        last
    }

    async fn reload(&self) -> Outcome {
        let path = self.path.clone();
        let read = move || {
            let source = ConfigSource::read_regular(path);
            Ok(source.and_then(|source| Config::from_source(&source)))
        };
        let read = self.ops.run(&self.path, READ_TIMEOUT, read).await;
        let read = read
            .map_err(ConfigError::reading(&self.path))
            .and_then(|it| it);
        let config = read.map_err(|problem| RejectedConfig::Unreadable(Arc::new(problem)))?;
        let runtime = self.runtime.upgrade().ok_or(ReloadError::RuntimeGone)?;
        Ok(runtime.reload(config).await?)
    }

    fn report(&self, outcome: Outcome) {
        match &outcome {
            Ok(report) => tracing::info!(unchanged = report.is_unchanged(), "config reloaded"),
            Err(problem) => {
                tracing::warn!(%problem, "config not reloaded");
                if let Some(runtime) = self.runtime.upgrade() {
                    let problem = problem.to_string();
                    let rejected = EventKind::ConfigRejected { problem };
                    runtime.lifeline.events.emit_of_fleet(rejected);
                }
            }
        }
        // Fails only when the watch was dropped, which ends this task too.
        let _ = self.outcomes.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProblem, Severity};

    /// A report with a number to recognize it.
    fn report(number: usize) -> ReloadReport {
        let problem = ConfigProblem {
            server: None,
            message: number.to_string(),
            severity: Severity::Warning,
            location: None,
        };
        ReloadReport {
            servers: Vec::new(),
            fleet: Vec::new(),
            problems: vec![problem],
        }
    }

    #[tokio::test]
    async fn the_newest_unread_outcomes_are_buffered() {
        let (sender, outcomes) = broadcast::channel(OUTCOMES);
        let watcher = Watcher {
            path: PathBuf::new(),
            known: Known::Unanswered,
            ops: FileOps::default(),
            unanswered_reported: false,
            runtime: WeakRuntime::default(),
            outcomes: sender,
        };
        let mut watch = ConfigWatch {
            task: tokio::spawn(async {}),
            outcomes,
        };
        let last = OUTCOMES + 3;
        for number in 0..last {
            watcher.report(Ok(report(number)));
        }
        drop(watcher);
        let mut received = Vec::new();
        while let Some(outcome) = watch.changed().await {
            received.push(outcome.unwrap().problems[0].message.clone());
        }
        let newest: Vec<_> = (last - OUTCOMES..last).map(|it| it.to_string()).collect();
        assert_eq!(received, newest);
    }
}
