//! File operations with a timeout.
//!
//! A file system may stop responding: a dead network mount, a failing disk. Its system calls cannot
//! be cancelled then. So every operation runs on a detached thread, and its caller waits with a
//! timeout. Threads of tokio's blocking pool would keep a runtime from ending. A path has one
//! operation at a time; while one hangs, further ones on this path fail at once, so threads do not
//! pile up.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Timeout of a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a write. Flushing to a busy disk takes seconds, and another process may hold the lock
/// of the folder.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Threads per registry. Hung operations keep theirs.
const MAX_THREADS: usize = 16;

/// Stack size of a thread, which parses what it reads.
const STACK_BYTES: usize = 1024 * 1024;

/// Pause between two attempts of a blocking caller to lock a path.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Called with the path on the thread of every operation. For tests: it may block like a hung file
/// system.
#[doc(hidden)]
pub type FileHook = Arc<dyn Fn(&Path) + Send + Sync>;

/// A registry of running file operations. Clones share it.
#[derive(Clone)]
pub struct FileOps(Arc<Registry>);

struct Registry {
    paths: Mutex<BTreeMap<PathBuf, Arc<PathLock>>>,
    threads: Arc<Semaphore>,
    hook: Option<FileHook>,
}

/// Serializes the operations on one path.
struct PathLock {
    permit: Arc<Semaphore>,
    /// The start and the timeout of the running operation.
    running: Mutex<Option<(Instant, Duration)>>,
}

/// A file system did not respond.
#[derive(Debug, thiserror::Error)]
enum Unresponsive {
    #[error("{} did not respond within {} s; check its disk or network mount", .path.display(), .within.as_secs_f32())]
    TimedOut { path: PathBuf, within: Duration },
    /// An earlier operation hangs; this one was not started.
    #[error("{} has not responded for {} s; check its disk or network mount", .path.display(), .after.as_secs())]
    StillHung { path: PathBuf, after: Duration },
    #[error("{MAX_THREADS} files do not respond, so {} was not tried; check their disk or network mount", .path.display())]
    TooMany { path: PathBuf },
}

impl Unresponsive {
    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Unresponsive> for io::Error {
    fn from(problem: Unresponsive) -> Self {
        Self::new(io::ErrorKind::TimedOut, problem)
    }
}

/// Whether an operation failed because a file system does not respond.
pub fn is_unresponsive(error: &io::Error) -> bool {
    Unresponsive::of(error).is_some()
}

/// Whether an operation was not started because earlier ones hang. Those were already reported.
pub fn was_already_hung(error: &io::Error) -> bool {
    let problem = Unresponsive::of(error);
    problem.is_some_and(|it| !matches!(it, Unresponsive::TimedOut { .. }))
}

fn timed_out(path: &Path, within: Duration) -> io::Error {
    let path = path.to_owned();
    Unresponsive::TimedOut { path, within }.into()
}

fn still_hung(path: &Path, after: Duration) -> io::Error {
    let path = path.to_owned();
    Unresponsive::StillHung { path, after }.into()
}

impl PathLock {
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
    /// An empty registry. `hook`, for tests, runs before every operation.
    pub fn new(hook: Option<FileHook>) -> Self {
        Self(Arc::new(Registry {
            paths: Mutex::default(),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
            hook,
        }))
    }

    /// A separate registry with the same hook: operations that hang here take no thread from it.
    pub fn sibling(&self) -> Self {
        Self::new(self.0.hook.clone())
    }

    /// Runs an operation on a path. After the timeout it continues in the background, and its
    /// result is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_or_late(path, within, operation, |_| {}).await
    }

    /// Like [`run`](Self::run), but a result after the timeout goes to `late`.
    pub async fn run_or_late<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
        late: impl FnOnce(io::Result<T>) + Send + 'static,
    ) -> io::Result<T> {
        let until = tokio::time::Instant::now() + within;
        let path_lock = self.path_lock(path)?;
        let permits = async {
            let path = Arc::clone(&path_lock.permit).acquire_owned().await;
            let thread = Arc::clone(&self.0.threads).acquire_owned().await;
            path.ok().zip(thread.ok())
        };
        let permits = tokio::time::timeout_at(until, permits).await;
        let Ok(Some(permits)) = permits else {
            return Err(still_hung(path, within));
        };
        let (done, mut result) = oneshot::channel();
        let run = self.spawn(path, within, path_lock, permits, move || {
            if let Err(result) = done.send(operation()) {
                late(result);
            }
        });
        run?;
        if let Ok(result) = tokio::time::timeout_at(until, &mut result).await {
            return result.unwrap_or_else(|_| Err(panicked()));
        }
        // The result may have arrived just now; if not, it goes to `late`.
        result.close();
        result
            .try_recv()
            .unwrap_or_else(|_| Err(timed_out(path, within)))
    }

    /// Runs an operation on a path and blocks this thread meanwhile. For callers that are not
    /// async.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let until = Instant::now() + within;
        let path_lock = self.path_lock(path)?;
        let permits = loop {
            if let Ok(path) = Arc::clone(&path_lock.permit).try_acquire_owned()
                && let Ok(thread) = Arc::clone(&self.0.threads).try_acquire_owned()
            {
                break (path, thread);
            }
            if Instant::now() >= until {
                return Err(still_hung(path, within));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.spawn(path, within, path_lock, permits, move || {
            let _ = done.send(operation());
        })?;
        let left = until.saturating_duration_since(Instant::now());
        match result.recv_timeout(left) {
            Ok(result) => result,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(timed_out(path, within)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(panicked()),
        }
    }

    /// The lock of a path; an error if an operation on it hangs, or too many hang on other paths.
    fn path_lock(&self, path: &Path) -> io::Result<Arc<PathLock>> {
        let mut paths = self.paths();
        let hung = paths
            .values()
            .filter(|it| it.hung_for().is_some())
            .take(MAX_THREADS);
        if hung.count() == MAX_THREADS {
            let path = path.to_owned();
            return Err(Unresponsive::TooMany { path }.into());
        }
        let path_lock = paths.entry(path.to_owned()).or_insert_with(|| {
            Arc::new(PathLock {
                permit: Arc::new(Semaphore::new(1)),
                running: Mutex::default(),
            })
        });
        match path_lock.hung_for() {
            Some(after) => Err(still_hung(path, after)),
            None => Ok(Arc::clone(path_lock)),
        }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<PathLock>>> {
        self.0.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(
        &self,
        path: &Path,
        within: Duration,
        path_lock: Arc<PathLock>,
        permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        *path_lock.running() = Some((Instant::now(), within));
        let running = RunningOperation {
            ops: self.clone(),
            path: path.to_owned(),
            path_lock,
            _permits: permits,
        };
        let thread = std::thread::Builder::new()
            .name("mcpvisor-file".to_owned())
            .stack_size(STACK_BYTES);
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

/// A running operation. Dropped when it ends, even by a panic.
struct RunningOperation {
    ops: FileOps,
    path: PathBuf,
    path_lock: Arc<PathLock>,
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Drop for RunningOperation {
    fn drop(&mut self) {
        *self.path_lock.running() = None;
        let mut paths = self.ops.paths();
        // The map's reference and this one: no other operation waits for the path.
        if Arc::strong_count(&self.path_lock) == 2 {
            paths.remove(&self.path);
        }
    }
}

fn panicked() -> io::Error {
    io::Error::other("the file operation panicked")
}

/// Opens a file to read it. Anything but a regular file is rejected, without waiting for a pipe's
/// writer.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if !file.metadata()?.is_file() {
        let problem = "not a regular file; remove or move it";
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
        // Another program holds a lease on the file; a blocking open makes it release the lease.
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

/// Reads a regular file of at most `most` bytes.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
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
