//! The state folder: what a runtime learned, saved for the next run.
//!
//! Files are small, replaced atomically, and readable by their owner alone. A reader ignores a file
//! that it cannot parse: everything here can be learned again, or approved again by a person.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::mutex::lock;
use crate::state::file_ops::{FileOps, read_regular};

/// Size limit of a state file; a larger one is rejected.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Age after which a temporary file counts as left behind by a process that died.
const STALE_TEMP_AGE: Duration = Duration::from_secs(300);

/// How long to wait for another process that holds the lock of a folder.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to lock a folder.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The state folder. [`read`](Self::read), [`write`](Self::write) and [`lock`](Self::lock) may
/// block forever: they are called within an operation of [`ops`](Self::ops).
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
    ops: FileOps,
    /// Subfolders whose stale temporary files were removed.
    swept: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl StateDir {
    /// The folder is created by the first write.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self::with(root, FileOps::default())
    }

    /// Like [`new`](Self::new), with a given registry for its operations.
    pub(crate) fn with(root: impl Into<PathBuf>, ops: FileOps) -> Self {
        Self {
            root: root.into(),
            ops,
            swept: Arc::default(),
        }
    }

    /// Runs the operations on its files.
    pub(crate) fn ops(&self) -> &FileOps {
        &self.ops
    }

    /// The path of a file.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The contents of a file; `None` if it does not exist.
    pub(crate) fn read(&self, file: &str) -> io::Result<Option<Vec<u8>>> {
        match read_regular(&self.path(file), MAX_BYTES) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file atomically. A process that dies meanwhile leaves the old file, and a
    /// temporary one that the next run removes. File and folder are flushed, so that a power cut
    /// loses neither.
    pub(crate) fn write(&self, file: &str, contents: &[u8]) -> io::Result<()> {
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

    /// Locks a folder against writers of other processes. Readers need no lock, because files are
    /// replaced atomically.
    pub(crate) fn lock(&self, folder: &str) -> io::Result<FolderLock> {
        let path = self.path(folder);
        self.make_folder(&path)?;
        lock_folder(&path).map(FolderLock)
    }

    /// Creates a folder and flushes the parents that got a new entry.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
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
        let mut swept = lock(&self.swept);
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
pub(crate) struct FolderLock(
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

/// A unique name. The process id alone is not enough: in containers it is often the same.
fn temp_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!(".{}.{now:x}.{number}.tmp", std::process::id())
}

fn is_stale_temp(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let age = || {
        let written = entry.metadata().and_then(|it| it.modified()).ok()?;
        SystemTime::now().duration_since(written).ok()
    };
    name.starts_with('.') && name.ends_with(".tmp") && age().is_some_and(|age| age > STALE_TEMP_AGE)
}

fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(contents)?;
    // The contents must be on disk before the rename is.
    file.sync_all()
}

/// Flushes a folder's entries to disk.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
    // The parent of a relative path is empty.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let folder = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match rustix::fs::fsync(folder) {
        // Some file systems cannot flush a folder.
        Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::BADF | Errno::ROFS) => Ok(()),
        Err(problem) => Err(problem.into()),
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// The flushed folders, in order.
        pub(super) static SYNCED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// A power cut loses a rename or a new folder unless the parent folder is flushed.
    #[cfg(unix)]
    #[test]
    fn a_replaced_file_is_flushed_with_its_folder() {
        let root = folder("flushed");
        let state = StateDir::new(&root);
        let synced = || SYNCED.with_borrow_mut(std::mem::take);
        state.write("pins/a.json", b"one").unwrap();
        let above = root.parent().unwrap().to_owned();
        assert_eq!(synced(), [root.clone(), above, root.join("pins")]);
        state.write("pins/a.json", b"two").unwrap();
        assert_eq!(synced(), [root.join("pins")]);
        fs::remove_dir_all(root).unwrap();
    }

    fn folder(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("mcpvisor-state-{}-{test}", std::process::id()))
    }

    #[test]
    fn a_written_file_is_read_back_and_a_missing_file_is_none() {
        let root = folder("round-trip");
        let state = StateDir::new(&root);
        assert_eq!(state.read("eras/a.json").unwrap(), None);
        state.write("eras/a.json", b"one").unwrap();
        state.write("eras/a.json", b"two").unwrap();
        assert_eq!(state.read("eras/a.json").unwrap().unwrap(), b"two");
        assert_eq!(fs::read_dir(root.join("eras")).unwrap().count(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_temporary_file_of_a_dead_process_is_removed_by_the_next_run() {
        let root = folder("temp-files");
        let (old, new) = (root.join(".7.0.tmp"), root.join(".7.1.tmp"));
        fs::create_dir_all(&root).unwrap();
        for temp in [&old, &new] {
            fs::write(temp, b"half").unwrap();
        }
        let long_ago = SystemTime::now() - 2 * STALE_TEMP_AGE;
        let temp = File::options().write(true).open(&old).unwrap();
        temp.set_modified(long_ago).unwrap();
        StateDir::new(&root).write("a.json", b"{}").unwrap();
        assert!(!old.exists());
        assert!(new.exists(), "another process may be writing it");
        fs::remove_dir_all(root).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_state() {
        use std::os::unix::fs::PermissionsExt;
        let root = folder("private");
        let state = StateDir::new(&root);
        state.write("pins.json", b"{}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state.path("pins.json")), 0o600);
        assert_eq!(mode(&root), 0o700);
        fs::remove_dir_all(root).unwrap();
    }
}
