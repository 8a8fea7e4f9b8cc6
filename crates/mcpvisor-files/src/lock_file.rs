//! Lock files: one holder among all processes.
//!
//! The lock is `flock` on a file that is never deleted: the kernel releases it when the holder closes
//! the file or dies. A waiting caller polls, so it occupies no thread between two attempts.
//!
//! Limit: on systems other than Unix, and on file systems without `flock`, a lock has no effect.
//! `File::try_lock` of the standard library needs Rust 1.89.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::file_ops::WRITE_TIMEOUT;
use crate::private_file::private_options;
use crate::state_dir::StateDir;

/// Pause after the first attempt to lock a file. It doubles with every attempt.
const FIRST_POLL: Duration = Duration::from_millis(1);

/// Longest pause between two attempts. A waiter must meet the gap between two holders, so it is
/// short.
const MAX_POLL: Duration = Duration::from_millis(10);

/// Holds a lock file until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    #[expect(dead_code, reason = "closing the file releases the lock")]
    file: File,
}

/// Another process held a lock for too long.
#[derive(Debug, thiserror::Error)]
#[error("another process has held {} for {} s; end that process or try again", .path.display(), .within.as_secs())]
struct StillLocked {
    path: PathBuf,
    within: Duration,
}

impl StateDir {
    /// Waits for the lock of a file, which is created if it does not exist. Dropping the future
    /// stops waiting.
    pub async fn lock_file(&self, file: &str, within: Duration) -> io::Result<FileLock> {
        let until = Instant::now() + within;
        let path = self.path(file);
        let mut pause = FIRST_POLL;
        loop {
            let (state, file) = (self.clone(), file.to_owned());
            let attempt = move || state.try_lock_file(&file);
            // A lock that is taken after the timeout is dropped, and so released.
            if let Some(lock) = self.ops().run(&path, WRITE_TIMEOUT, attempt).await? {
                return Ok(lock);
            }
            if Instant::now() + pause > until {
                let problem = StillLocked { path, within };
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL);
        }
    }

    /// Takes the lock of a file; `None` if it is held.
    pub fn try_lock_file(&self, file: &str) -> io::Result<Option<FileLock>> {
        let path = self.path(file);
        let opened = match open_lock_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folder(path.parent().unwrap_or(&path))?;
                open_lock_file(&path)
            }
            opened => opened,
        };
        let file = opened?;
        if !file.metadata()?.is_file() {
            let problem = "not a regular file; remove or move it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let locked = try_lock(&file)? && is_same_file(&file, &path)?;
        Ok(locked.then_some(FileLock { file }))
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = private_options();
    options.create(true).truncate(false);
    #[cfg(unix)]
    {
        // Opening a pipe to write must not wait for a reader.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    options.open(path)
}

#[cfg(unix)]
fn try_lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        // Some file systems have no locks; work continues without.
        Err(Errno::NOSYS | Errno::NOTSUP | Errno::INVAL) => Ok(true),
        Err(problem) => Err(problem.into()),
    }
}

#[cfg(not(unix))]
fn try_lock(_: &File) -> io::Result<bool> {
    Ok(true)
}

/// Whether the path still names the locked file. If a person deleted it, other processes lock
/// another file.
#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let locked = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (locked.dev(), locked.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn is_same_file(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests;
