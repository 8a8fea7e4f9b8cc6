//! A config file that is watched: when it changes, the fleet follows.
//!
//! The file is looked at, not subscribed to: its name may be a symlink that is swapped, the file may
//! be replaced by a rename or deleted and written anew, and it may be on a file system that reports
//! nothing. One look costs one `stat`.

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
use crate::state::file_ops::{FileOps, READ_WITHIN};

/// The file is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long [`Runtime::watch_config`] itself waits for the file. Later ones are not on the caller's
/// thread.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// It is read once it has been the same for this long, so that what is still being written is not.
const SETTLED: Duration = Duration::from_millis(150);

/// A file that changes all the time is read after this many looks all the same.
const MAX_LOOKS: usize = 20;

/// Outcomes that nobody has asked for yet; older ones are forgotten.
const OUTCOMES: usize = 16;

/// What came of a change of the file.
type Outcome = Result<ReloadReport, RejectedConfig>;

/// A watched config file. Dropping it ends the watch; the fleet stays as it is.
#[derive(Debug)]
pub struct ConfigWatch {
    task: JoinHandle<()>,
    outcomes: broadcast::Receiver<Outcome>,
}

/// Why a changed file was not taken. The fleet goes on with the config before it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RejectedConfig {
    /// It cannot be read.
    #[error("the changed config was not taken: {0}")]
    Unreadable(Arc<ConfigError>),
    /// It can be read, and not be used.
    #[error("the changed config was not taken: {0}")]
    Unusable(#[from] ReloadError),
}

impl ConfigWatch {
    /// What came of the next change of the file. Of those that nobody asked for the last 16 are
    /// kept. `None` when the runtime has ended.
    pub async fn changed(&mut self) -> Option<Result<ReloadReport, RejectedConfig>> {
        loop {
            match self.outcomes.recv().await {
                Ok(outcome) => return Some(outcome),
                // What the file is now is said by the newest, so the oldest may go.
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
    /// Reloads whenever this file changes from now on, however it is replaced. A file that cannot be
    /// read changes nothing, and [`EventKind::ConfigRejected`] says why.
    ///
    /// The watch does not keep the runtime: it ends with it.
    pub fn watch_config(&self, path: impl Into<PathBuf>) -> ConfigWatch {
        let path = path.into();
        let (sender, outcomes) = broadcast::channel(OUTCOMES);
        let ops = self.file_ops().sibling();
        let first = path.clone();
        let seen = ops.run_blocking(&path, FIRST_LOOK, move || look(&first));
        let watcher = Watcher {
            seen: seen.map_or(Seen::Unanswered, Seen::Looked),
            ops,
            silent: false,
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

/// What tells one file from the next of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    modified: Option<SystemTime>,
    length: u64,
    /// Device, number, and when anything about the file last changed.
    identity: (u64, u64, i64, i64),
}

impl From<Metadata> for Look {
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

/// The file behind the name now; none while there is none.
fn look(path: &Path) -> io::Result<Option<Look>> {
    Ok(std::fs::metadata(path).ok().map(Look::from))
}

/// What is known of the file.
#[derive(Debug, PartialEq)]
enum Seen {
    /// The file system did not answer: whatever it says first is taken as known.
    Unanswered,
    /// The file behind the name; none while there is none.
    Looked(Option<Look>),
}

struct Watcher {
    path: PathBuf,
    seen: Seen,
    ops: FileOps,
    /// The file does not answer, and that was reported.
    silent: bool,
    runtime: WeakRuntime,
    outcomes: broadcast::Sender<Outcome>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.runtime.is_gone() {
                return;
            }
            let now = match self.look().await {
                Ok(now) => {
                    self.silent = false;
                    now
                }
                Err(problem) => {
                    self.unanswered(problem);
                    continue;
                }
            };
            if self.seen == Seen::Unanswered {
                self.seen = Seen::Looked(now);
                continue;
            }
            // A file that is gone is on its way to being replaced.
            if now.is_none() || self.seen == Seen::Looked(now.clone()) {
                continue;
            }
            self.seen = Seen::Looked(self.settled(now).await);
            let outcome = self.reload().await;
            if matches!(
                outcome,
                Err(RejectedConfig::Unusable(ReloadError::RuntimeGone))
            ) {
                return;
            }
            self.tell(outcome);
        }
    }

    async fn look(&self) -> io::Result<Option<Look>> {
        let path = self.path.clone();
        let look = move || look(&path);
        self.ops.run(&self.path, READ_WITHIN, look).await
    }

    /// Reports a file that does not answer, once per time that it stops answering.
    fn unanswered(&mut self, source: io::Error) {
        if !std::mem::replace(&mut self.silent, true) {
            let path = self.path.clone();
            let problem = ConfigError::Read { path, source };
            self.tell(Err(RejectedConfig::Unreadable(Arc::new(problem))));
        }
    }

    /// Waits until the file stays the same.
    async fn settled(&self, first: Option<Look>) -> Option<Look> {
        let mut last = first;
        for _ in 0..MAX_LOOKS {
            tokio::time::sleep(SETTLED).await;
            let now = self.look().await.ok().flatten();
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
        let read = self.ops.run(&self.path, READ_WITHIN, read).await;
        let read = read.unwrap_or_else(|source| {
            let path = self.path.clone();
            Err(ConfigError::Read { path, source })
        });
        let config = read.map_err(|problem| RejectedConfig::Unreadable(Arc::new(problem)))?;
        let runtime = self.runtime.upgrade().ok_or(ReloadError::RuntimeGone)?;
        Ok(runtime.reload(config).await?)
    }

    fn tell(&self, outcome: Outcome) {
        match &outcome {
            Ok(report) => tracing::info!(unchanged = report.is_unchanged(), "config reloaded"),
            Err(problem) => {
                tracing::warn!(%problem, "config not reloaded");
                if let Some(runtime) = self.runtime.upgrade() {
                    let problem = problem.to_string();
                    runtime.emit(EventKind::ConfigRejected { problem });
                }
            }
        }
        // Nobody listens once the watch is dropped, and then this task ends too.
        let _ = self.outcomes.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProblem, Severity};

    /// A report that can be told from others by its number.
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
    async fn of_the_outcomes_that_nobody_asked_for_the_newest_are_kept() {
        let (sender, outcomes) = broadcast::channel(OUTCOMES);
        let watcher = Watcher {
            path: PathBuf::new(),
            seen: Seen::Unanswered,
            ops: FileOps::default(),
            silent: false,
            runtime: WeakRuntime::default(),
            outcomes: sender,
        };
        let mut watch = ConfigWatch {
            task: tokio::spawn(async {}),
            outcomes,
        };
        let last = OUTCOMES + 3;
        for number in 0..last {
            watcher.tell(Ok(report(number)));
        }
        drop(watcher);
        let mut told = Vec::new();
        while let Some(outcome) = watch.changed().await {
            told.push(outcome.unwrap().problems[0].message.clone());
        }
        let newest: Vec<_> = (last - OUTCOMES..last).map(|it| it.to_string()).collect();
        assert_eq!(told, newest);
    }
}
