//! The state folder: what a runtime learned, saved for the next run.
//!
//! Files are small, replaced atomically, and readable by their owner alone. A reader ignores a file
//! that it cannot parse: everything here can be learned again, or approved again by a person.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::file_mark::FileMark;
use crate::file_ops::{FileOps, read_regular};
use crate::private_file::{
    is_stale_temp, make_private_folder, restrict_file, restrict_folder, sync_folder, temp_name,
    write_private,
};

/// Size limit of a state file; a larger one is rejected.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Limit of the entries that are read from a folder; a larger folder is rejected.
const MAX_ENTRIES: usize = 100_000;

/// How long to wait for another process that holds the lock of a folder.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to lock a folder.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The state folder. Its methods that are not async may block forever: they are called within an
/// operation of [`ops`](Self::ops).
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
    ops: FileOps,
    /// Subfolders whose stale temporary files were removed.
    swept: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl StateDir {
    /// The folder is created by the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with(root, FileOps::default())
    }

    /// Like [`new`](Self::new), with a given registry for its operations.
    pub fn with(root: impl Into<PathBuf>, ops: FileOps) -> Self {
        Self {
            root: root.into(),
            ops,
            swept: Arc::default(),
        }
    }

    /// Runs the operations on its files.
    pub fn ops(&self) -> &FileOps {
        &self.ops
    }

    /// The path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The contents of a file; `None` if it does not exist.
    pub fn read(&self, file: &str) -> io::Result<Option<Vec<u8>>> {
        match read_regular(&self.path(file), MAX_BYTES) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file atomically. A process that dies meanwhile leaves the old file, and a
    /// temporary one that the next run removes. File and folder are flushed, so that a power cut
    /// loses neither.
    pub fn write(&self, file: &str, contents: &[u8]) -> io::Result<()> {
        let path = self.path(file);
        let folder = path.parent().unwrap_or(&self.root);
        self.make_folder(folder)?;
        self.remove_stale_temps(folder);
        let temp = folder.join(temp_name());
        let written = write_private(&temp, contents).and_then(|()| fs::rename(&temp, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temp);
        }
        written.and_then(|()| sync_folder(folder))
    }

    /// Checks that a file of this size can be written in a folder, with one that is removed
    /// afterwards. A folder that does not exist is not created, and counts as writable.
    pub fn check_writable(&self, folder: &str, bytes: usize) -> io::Result<()> {
        let folder = self.path(folder);
        match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map(drop)?,
        }
        let probe = folder.join(temp_name());
        let written = write_private(&probe, &vec![b' '; bytes]);
        match fs::remove_file(&probe) {
            // The folder, or a disk without space, did not even take the name.
            Err(_) if written.is_err() => written,
            removed => written.and(removed),
        }
    }

    /// Removes a file durably. Returns whether it existed.
    pub fn remove(&self, file: &str) -> io::Result<bool> {
        let path = self.path(file);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(path.parent().unwrap_or(&self.root)).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names in a folder that begin with a prefix, in order; none if it does not exist.
    pub fn list(&self, folder: &str, prefix: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for (number, entry) in entries.enumerate() {
            if number == MAX_ENTRIES {
                let problem = format!("more than {MAX_ENTRIES} entries");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
            let name = entry?.file_name().into_string();
            names.extend(name.ok().filter(|it| it.starts_with(prefix)));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The change mark of a file; `None` if it does not exist.
    pub fn mark(&self, file: &str) -> io::Result<Option<FileMark>> {
        match fs::metadata(self.path(file)) {
            Ok(metadata) => Ok(Some(FileMark::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Restricts a folder and the files in it to their owner. Returns the names that others had
    /// access to; that of the folder is its own. No effect on systems without modes.
    pub fn restrict(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut exposed = Vec::new();
        if restrict_folder(&self.path(folder))? {
            exposed.push(folder.to_owned());
        }
        for name in self.list(folder, "")? {
            if restrict_file(&self.path(folder).join(&name))? {
                exposed.push(name);
            }
        }
        Ok(exposed)
    }

    /// Locks a folder against writers of other processes. Readers need no lock, because files are
    /// replaced atomically.
    pub fn lock(&self, folder: &str) -> io::Result<FolderLock> {
        let path = self.path(folder);
        self.make_folder(&path)?;
        lock_folder(&path).map(FolderLock)
    }

    /// Creates a folder and flushes the parents that got a new entry.
    pub(crate) fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        make_private_folder(folder)?;
        let above = folder.ancestors().skip(1);
        let new = above.take_while(|it| it.starts_with(&self.root));
        for folder in new.chain(self.root.parent()) {
            sync_folder(folder)?;
        }
        Ok(())
    }

    /// Removes stale temporary files from a folder, once.
    fn remove_stale_temps(&self, folder: &Path) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if !swept.insert(folder.to_owned()) {
            return;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for old in entries.filter(is_stale_temp) {
            let _ = fs::remove_file(old.path());
        }
    }
}

/// The lock of a folder until it is dropped; it has no effect on file systems without folder locks.
#[derive(Debug)]
pub struct FolderLock(
    #[expect(dead_code, reason = "closing the file releases the lock")] Option<File>,
);

/// Locks the folder itself, because its files are replaced.
#[cfg(unix)]
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    let folder = File::open(path)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let problem = format!("another process has locked its folder for {LOCK_TIMEOUT:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            // Network file systems may not support folder locks; writing still works.
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(not(unix))]
fn lock_folder(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests;
