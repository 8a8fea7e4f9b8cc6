//! Bounded file operations.
//!
//! A file system may stop answering: a dead network mount, a failing disk. No system call on it can be
//! cancelled then. So every operation runs on a detached thread, and its caller waits for at most a
//! named time. Detached, because threads of tokio's blocking pool keep a runtime from ending. A path
//! has one operation at a time; while one hangs, further ones on this path are refused at once, so
//! threads do not pile up.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A read that takes longer is given up.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(2);

/// A write that takes longer is given up. Flushing to a busy disk takes seconds, and another process
/// may hold the folder for a while.
pub(crate) const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Threads of one registry. Operations that hang keep theirs.
const MAX_THREADS: usize = 16;

/// Stack of a thread: it parses what it reads.
const STACK: usize = 1024 * 1024;

/// Pause between two attempts to get the turn for a path, where the caller blocks.
#[cfg(any(test, feature = "config-files", feature = "stdio"))]
const POLL: Duration = Duration::from_millis(2);

/// Called with the path on the thread of every operation. For tests: it may block, as a file system
/// that hangs does.
#[doc(hidden)]
pub type FileHook = Arc<dyn Fn(&Path) + Send + Sync>;

/// A registry of running file operations. Clones share it.
#[derive(Clone)]
pub(crate) struct FileOps(Arc<Registry>);

struct Registry {
    paths: Mutex<BTreeMap<PathBuf, Arc<PathTurn>>>,
    threads: Arc<Semaphore>,
    hook: Option<FileHook>,
}

/// Whose turn it is on one path.
struct PathTurn {
    turn: Arc<Semaphore>,
    /// When the running operation began, and after how long it hangs.
    running: Mutex<Option<(Instant, Duration)>>,
}

/// Why an operation has no result.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("{} did not answer within {} s; check its disk or network mount", .path.display(), .within.as_secs_f32())]
    InTime { path: PathBuf, within: Duration },
    /// An earlier operation hangs; this one was not begun.
    #[error("{} has not answered for {} s; check its disk or network mount", .path.display(), .after.as_secs())]
    Since { path: PathBuf, after: Duration },
    #[error("{MAX_THREADS} files do not answer, so {} was not tried; check their disk or network mount", .path.display())]
    TooMany { path: PathBuf },
}

impl NoAnswer {
    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<NoAnswer> for io::Error {
    fn from(problem: NoAnswer) -> Self {
        Self::new(io::ErrorKind::TimedOut, problem)
    }
}

/// Whether an operation has no result because a file system does not answer.
pub(crate) fn is_unanswered(error: &io::Error) -> bool {
    NoAnswer::of(error).is_some()
}

/// Whether an operation was refused because an earlier one on its path hangs. That one was reported.
pub(crate) fn hung_before(error: &io::Error) -> bool {
    let problem = NoAnswer::of(error);
    problem.is_some_and(|it| !matches!(it, NoAnswer::InTime { .. }))
}

fn too_late(path: &Path, within: Duration) -> io::Error {
    let path = path.to_owned();
    NoAnswer::InTime { path, within }.into()
}

fn not_begun(path: &Path, after: Duration) -> io::Error {
    let path = path.to_owned();
    NoAnswer::Since { path, after }.into()
}

impl PathTurn {
    fn running(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long the running operation has hung, if it has.
    fn hung_for(&self) -> Option<Duration> {
        let (since, within) = (*self.running())?;
        Some(since.elapsed()).filter(|it| *it > within)
    }
}

impl Default for FileOps {
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for FileOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileOps").finish_non_exhaustive()
    }
}

impl FileOps {
    pub(crate) fn new(hook: Option<FileHook>) -> Self {
        Self(Arc::new(Registry {
            paths: Mutex::default(),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
            hook,
        }))
    }

    /// Another registry: operations that hang here take no thread from it.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.0.hook.clone())
    }

    /// Runs an operation on a path. One that takes longer goes on by itself, and its result is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_or_late(path, within, operation, |_| {}).await
    }

    /// The same. A result that comes too late for the caller goes to `late`.
    pub(crate) async fn run_or_late<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
        late: impl FnOnce(io::Result<T>) + Send + 'static,
    ) -> io::Result<T> {
        let until = tokio::time::Instant::now() + within;
        let path_turn = self.path_turn(path)?;
        let permits = async {
            let turn = Arc::clone(&path_turn.turn).acquire_owned().await;
            let thread = Arc::clone(&self.0.threads).acquire_owned().await;
            turn.ok().zip(thread.ok())
        };
        let permits = tokio::time::timeout_at(until, permits).await;
        let Ok(Some(permits)) = permits else {
            return Err(not_begun(path, within));
        };
        let (done, mut result) = oneshot::channel();
        let run = self.launch(path, within, path_turn, permits, move || {
            if let Err(unheard) = done.send(operation()) {
                late(unheard);
            }
        });
        run?;
        if let Ok(result) = tokio::time::timeout_at(until, &mut result).await {
            return result.unwrap_or_else(|_| Err(panicked()));
        }
        // It may have come in this moment; if not, it goes to `late`.
        result.close();
        result
            .try_recv()
            .unwrap_or_else(|_| Err(too_late(path, within)))
    }

    /// Runs an operation on a path while this thread waits. For callers that are not async.
    #[cfg(any(test, feature = "config-files", feature = "stdio"))]
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let until = Instant::now() + within;
        let path_turn = self.path_turn(path)?;
        let permits = loop {
            if let Ok(turn) = Arc::clone(&path_turn.turn).try_acquire_owned()
                && let Ok(thread) = Arc::clone(&self.0.threads).try_acquire_owned()
            {
                break (turn, thread);
            }
            if Instant::now() >= until {
                return Err(not_begun(path, within));
            }
            std::thread::sleep(POLL);
        };
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.launch(path, within, path_turn, permits, move || {
            let _ = done.send(operation());
        })?;
        let left = until.saturating_duration_since(Instant::now());
        match result.recv_timeout(left) {
            Ok(result) => result,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(too_late(path, within)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(panicked()),
        }
    }

    /// The turns of a path, unless an operation on it hangs, or too many hang elsewhere.
    fn path_turn(&self, path: &Path) -> io::Result<Arc<PathTurn>> {
        let mut paths = self.paths();
        let hung = paths
            .values()
            .filter(|it| it.hung_for().is_some())
            .take(MAX_THREADS);
        if hung.count() == MAX_THREADS {
            let path = path.to_owned();
            return Err(NoAnswer::TooMany { path }.into());
        }
        let path_turn = paths.entry(path.to_owned()).or_insert_with(|| {
            Arc::new(PathTurn {
                turn: Arc::new(Semaphore::new(1)),
                running: Mutex::default(),
            })
        });
        match path_turn.hung_for() {
            Some(after) => Err(not_begun(path, after)),
            None => Ok(Arc::clone(path_turn)),
        }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<PathTurn>>> {
        self.0.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(
        &self,
        path: &Path,
        within: Duration,
        path_turn: Arc<PathTurn>,
        permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        *path_turn.running() = Some((Instant::now(), within));
        let running = Running {
            ops: self.clone(),
            path: path.to_owned(),
            path_turn,
            _permits: permits,
        };
        let thread = std::thread::Builder::new()
            .name("mcpvisor-file".to_owned())
            .stack_size(STACK);
        thread
            .spawn(move || {
                if let Some(hook) = &running.ops.0.hook {
                    hook(&running.path);
                }
                work();
                drop(running);
            })
            .map(drop)
    }
}

/// An operation that runs. Dropped when it ends, however it ends.
struct Running {
    ops: FileOps,
    path: PathBuf,
    path_turn: Arc<PathTurn>,
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.path_turn.running() = None;
        let mut paths = self.ops.paths();
        // The map and this one: nothing else waits for the path.
        if Arc::strong_count(&self.path_turn) == 2 {
            paths.remove(&self.path);
        }
    }
}

fn panicked() -> io::Error {
    io::Error::other("the file operation panicked")
}

/// Opens a file to read it. What is no regular file is refused, without waiting for a pipe's writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if !file.metadata()?.is_file() {
        let problem = "not a regular file; remove it, or move it away";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(file)
}

#[cfg(unix)]
fn open_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(path);
    match opened {
        // Another program has a lease on the file, and is asked to give it up.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && path.is_file() => {
            File::open(path)
        }
        opened => opened,
    }
}

#[cfg(not(unix))]
fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Reads a regular file. One that is larger than `most` is an error.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    let read = open_regular(path)?.take(most.saturating_add(1));
    { read }.read_to_end(&mut contents)?;
    if contents.len() as u64 > most {
        let problem = format!("larger than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests;
