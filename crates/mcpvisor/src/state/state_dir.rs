//! The folder in which a runtime keeps what it learned, from one run to the next.
//!
//! Files are small, replaced as a whole, and readable by their owner alone. A reader that finds
//! nonsense goes on without it: what is here can always be learned again, or asked of a person.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::state::file_ops::{FileOps, read_regular};

/// A file that is larger is not one of ours.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// A draft that is older was left by a process that died while it wrote.
const DRAFT: Duration = Duration::from_secs(300);

/// Another process that holds a folder for longer is stuck, and is not waited for.
const LOCKED: Duration = Duration::from_secs(5);

/// Looks at a folder that another process holds are so far apart.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A folder for what outlives a run. [`read`](Self::read), [`write`](Self::write) and
/// [`lock`](Self::lock) block, perhaps for ever: they are called within an operation of
/// [`ops`](Self::ops).
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
    ops: FileOps,
    /// The folders in it that were cleared of old drafts.
    swept: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl StateDir {
    /// Nothing is made before something is written.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self::with(root, FileOps::default())
    }

    /// The same, with a registry of its own for its operations.
    pub(crate) fn with(root: impl Into<PathBuf>, ops: FileOps) -> Self {
        Self {
            root: root.into(),
            ops,
            swept: Arc::default(),
        }
    }

    /// Bounds the operations on its files.
    pub(crate) fn ops(&self) -> &FileOps {
        &self.ops
    }

    /// Where a file is.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The contents of a file; nothing if there is none.
    pub(crate) fn read(&self, file: &str) -> io::Result<Option<Vec<u8>>> {
        match read_regular(&self.path(file), MAX_BYTES) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file as a whole: whoever dies in between leaves the old one, and a draft that the
    /// next run removes. File and folder are flushed, so that a power cut loses neither.
    pub(crate) fn write(&self, file: &str, contents: &[u8]) -> io::Result<()> {
        let path = self.path(file);
        let folder = path.parent().unwrap_or(&self.root);
        self.make_folder(folder)?;
        self.sweep(folder);
        let draft = folder.join(draft_name());
        let written = write_private(&draft, contents).and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written.and_then(|()| sync_folder(folder))
    }

    /// Waits until no other process changes what is in a folder, and keeps them from it. Readers need
    /// no lock: files are replaced as a whole.
    pub(crate) fn lock(&self, folder: &str) -> io::Result<FolderLock> {
        let path = self.path(folder);
        self.make_folder(&path)?;
        lock_folder(&path).map(FolderLock)
    }

    /// Makes a folder, and flushes those above it that have a new entry.
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

    /// Removes old drafts from a folder, once.
    fn sweep(&self, folder: &Path) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if !swept.insert(folder.to_owned()) {
            return;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for old in entries.filter(is_old_draft) {
            let _ = fs::remove_file(old.path());
        }
    }
}

/// A folder that no other process changes until this is dropped, as far as its file system has locks.
#[derive(Debug)]
pub(crate) struct FolderLock(
    #[expect(dead_code, reason = "the lock goes when it is closed")] Option<File>,
);

/// The folder itself is locked, because its files come and go.
#[cfg(unix)]
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    let folder = File::open(path)?;
    let until = Instant::now() + LOCKED;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let problem = format!("another process has held its folder for {LOCKED:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            // Network file systems may lock no folders; what is kept there is kept all the same.
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(not(unix))]
fn lock_folder(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// A name that no other draft has, of whatever process: in containers all have the same number.
fn draft_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!(".{}.{now:x}.{number}.tmp", std::process::id())
}

fn is_old_draft(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let age = || {
        let written = entry.metadata().and_then(|it| it.modified()).ok()?;
        SystemTime::now().duration_since(written).ok()
    };
    name.starts_with('.') && name.ends_with(".tmp") && age().is_some_and(|age| age > DRAFT)
}

fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(contents)?;
    // The name must not be there before its contents are.
    file.sync_all()
}

/// Flushes the entries of a folder.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
    // The root of a relative path has no name.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let folder = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match rustix::fs::fsync(folder) {
        // Some file systems flush no folders.
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
        /// The folders that were flushed, in order.
        pub(super) static SYNCED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// A rename is lost with the power unless its folder is flushed, and so is a folder that is new.
    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_is_flushed_with_its_folder() {
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
    fn what_was_written_is_read_and_an_absent_file_is_nothing() {
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
    fn a_draft_of_a_process_that_died_is_removed_by_the_next_run() {
        let root = folder("drafts");
        let (old, new) = (root.join(".7.0.tmp"), root.join(".7.1.tmp"));
        fs::create_dir_all(&root).unwrap();
        for draft in [&old, &new] {
            fs::write(draft, b"half").unwrap();
        }
        let long_ago = SystemTime::now() - 2 * DRAFT;
        let draft = File::options().write(true).open(&old).unwrap();
        draft.set_modified(long_ago).unwrap();
        StateDir::new(&root).write("a.json", b"{}").unwrap();
        assert!(!old.exists());
        assert!(new.exists(), "it may be being written");
        fs::remove_dir_all(root).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
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
