//! The approvals of one server, in memory and in its lock file.
//!
//! Other processes may share the state folder. So the file is read again, under a lock, before it
//! is written, and whenever an approval by another process matters.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mcpvisor_core::{ServerName, exposed_name};
use rmcp::model::Tool;

use super::{Approval, HeldTool, LockFile};
use crate::mutex::lock;
use crate::state::file_ops::is_unresponsive;
use crate::state::fingerprint::sha256;
use crate::state::state_dir::{FolderLock, StateDir};

/// The folder of the lock files, within the state folder.
const FOLDER: &str = "pins";

/// The folder of the markers: an empty file per server that has, or had, a lock file. A missing
/// lock file with a marker was lost; without one the server was never listed.
const MARKERS: &str = "pinned";

/// The approvals of one server. Methods that access the file may block forever: they are called
/// through [`run_within`](Self::run_within).
#[derive(Debug)]
pub(crate) struct PinStore {
    server: ServerName,
    folder: Option<StateDir>,
    approval: Mutex<Approval>,
    /// Locked during every file access, so that approvals change in the order in which the file
    /// did.
    version: Mutex<FileVersion>,
    /// The marker exists, or cannot be written.
    marked: AtomicBool,
    /// Why nothing is approved or saved, with the file and what to do.
    problem: Mutex<Option<String>>,
}

/// The state of the file when it was last read.
#[derive(Debug, Default, PartialEq)]
enum FileVersion {
    #[default]
    Unread,
    Absent,
    /// The hash of its contents.
    Contents([u8; 32]),
    Failed(io::ErrorKind),
}

impl FileVersion {
    fn of(contents: &io::Result<Option<Vec<u8>>>) -> Self {
        match contents {
            Ok(None) => Self::Absent,
            Ok(Some(contents)) => Self::of_contents(contents),
            Err(problem) => Self::Failed(problem.kind()),
        }
    }

    fn of_contents(contents: &[u8]) -> Self {
        Self::Contents(sha256(contents))
    }
}

impl PinStore {
    /// Without a folder, approvals last as long as the runtime.
    pub(crate) fn new(server: ServerName, folder: Option<StateDir>) -> Self {
        Self {
            server,
            folder,
            approval: Mutex::default(),
            version: Mutex::default(),
            marked: AtomicBool::new(false),
            problem: Mutex::default(),
        }
    }

    fn file(&self) -> String {
        format!("{FOLDER}/{}.json", exposed_name(&self.server, "lock"))
    }

    fn marker(&self) -> String {
        format!("{MARKERS}/{}", exposed_name(&self.server, "pinned"))
    }

    /// A file problem that keeps tools from being approved or approvals from being saved: the file,
    /// what is wrong, and what to do.
    pub(crate) fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }

    /// Runs an operation on the file with a timeout. A result after the timeout goes to `late`.
    pub(crate) async fn run_within<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
        late: impl FnOnce(io::Result<T>) + Send + 'static,
    ) -> io::Result<T> {
        let store = Arc::clone(self);
        let Some(folder) = &self.folder else {
            // Without a file, large lists still have to be hashed off the async workers.
            let work = tokio::task::spawn_blocking(move || work(&store));
            return work.await.unwrap_or_else(|it| Err(io::Error::other(it)));
        };
        let path = folder.path(&self.file());
        let work = move || work(&store);
        let done = folder.ops().run_or_late(&path, within, work, late).await;
        if let Err(problem) = &done
            && is_unresponsive(problem)
        {
            self.mark_unresponsive(problem);
        }
        done
    }

    /// Handles a file system that does not respond. Known approvals stay. Nothing else is approved,
    /// not even a first listing, since it could not be saved.
    fn mark_unresponsive(&self, problem: &io::Error) {
        let mut approval = self.approval();
        match *approval {
            Approval::Locked(_) => return,
            Approval::NeverListed => *approval = Approval::NotLoaded,
            Approval::NotLoaded | Approval::Unreadable | Approval::Missing => {}
        }
        *lock(&self.problem) = Some(problem.to_string());
    }

    pub(crate) fn approval(&self) -> MutexGuard<'_, Approval> {
        lock(&self.approval)
    }

    /// Whether the server has, or had, a lock file, so that no listing is approved automatically.
    pub(crate) fn is_established(&self) -> bool {
        match *self.approval() {
            Approval::NotLoaded | Approval::NeverListed => false,
            Approval::Locked(_) | Approval::Unreadable | Approval::Missing => true,
        }
    }

    /// Reads the lock file, unless it was read before.
    pub(crate) fn load(&self) {
        if !self.is_established() {
            self.refresh(|| {});
        }
    }

    /// Checks whether another process changed the lock file. Calls `changed` if so, before another
    /// access.
    pub(crate) fn refresh(&self, changed: impl FnOnce()) {
        let mut version = lock(&self.version);
        if self.reload_if_changed(&mut version) {
            changed();
        }
    }

    /// Approves the tools of a server's first listing, if there is no lock file yet.
    pub(crate) fn approve_first_listing(&self, offered: &[Tool], transport: &str) {
        let mut version = lock(&self.version);
        self.reload_if_changed(&mut version);
        if self.is_established() {
            return;
        }
        // Another process may have approved its own first listing meanwhile.
        let locked = self.lock();
        self.reload_if_changed(&mut version);
        if self.is_established() {
            return;
        }
        let lock = LockFile::of(self.server.as_str(), offered, transport);
        // If saving fails, the approval holds for this run, and `problem` reports it.
        let _ = self.save(lock, locked, &mut version);
    }

    /// Approves these definitions in addition to the current ones.
    pub(crate) fn approve(&self, tools: &[HeldTool], transport: &str) -> io::Result<()> {
        let mut version = lock(&self.version);
        let locked = self.lock();
        self.reload_if_changed(&mut version);
        let mut lock = match &*self.approval() {
            Approval::Locked(lock) => lock.clone(),
            Approval::NotLoaded
            | Approval::NeverListed
            | Approval::Unreadable
            | Approval::Missing => LockFile::new(self.server.as_str()),
        };
        for held in tools {
            lock.approve(&held.tool, held.offered.clone(), transport);
        }
        self.save(lock, locked, &mut version)
    }

    /// Reads the file and applies it if it changed. Returns whether that changes the approvals.
    fn reload_if_changed(&self, version: &mut FileVersion) -> bool {
        let contents = match &self.folder {
            Some(folder) => folder.read(&self.file()),
            None => Ok(None),
        };
        let now = FileVersion::of(&contents);
        // `NotLoaded` means that the file system did not respond before.
        if *version == now && !matches!(*self.approval(), Approval::NotLoaded) {
            return false;
        }
        *version = now;
        let (found, problem) = self.parse(contents);
        if let Some(problem) = &problem {
            tracing::warn!(server = %self.server, problem, "no tool is approved");
        }
        let mut approval = self.approval();
        match (&*approval, &found) {
            // Approvals survive a damaged or missing file, and a server that was listed once never
            // counts as new.
            (Approval::Locked(_), Approval::Unreadable | Approval::Missing)
            | (
                Approval::Locked(_) | Approval::Unreadable | Approval::Missing,
                Approval::NeverListed,
            ) => false,
            _ => {
                *lock(&self.problem) = problem;
                *approval = found;
                true
            }
        }
    }

    /// The approvals in the file, or the problem with it.
    fn parse(&self, contents: io::Result<Option<Vec<u8>>>) -> (Approval, Option<String>) {
        let problem = match contents {
            Ok(None) => return self.approval_without_lock(),
            Ok(Some(contents)) => match LockFile::read(self.server.as_str(), &contents) {
                Some(lock) => {
                    self.write_marker();
                    return (Approval::Locked(lock), None);
                }
                None => "it is not a lock file of this server, or was edited".to_owned(),
            },
            Err(problem) => problem.to_string(),
        };
        let problem = format!(
            "{} cannot be used: {problem}; repair it, or approve the tools again",
            self.display_path(&self.file())
        );
        (Approval::Unreadable, Some(problem))
    }

    /// The approvals when there is no lock file: its marker tells a lost file from a new server.
    fn approval_without_lock(&self) -> (Approval, Option<String>) {
        let marker = match &self.folder {
            Some(folder) => folder.read(&self.marker()),
            None => Ok(None),
        };
        let marker_file = self.display_path(&self.marker());
        match marker {
            Ok(None) => (Approval::NeverListed, None),
            Ok(Some(_)) => {
                let problem = format!(
                    "{} is gone; approve the tools again, or restore it",
                    self.display_path(&self.file())
                );
                (Approval::Missing, Some(problem))
            }
            Err(problem) => {
                let problem = format!("{marker_file} cannot be read: {problem}");
                (Approval::Unreadable, Some(problem))
            }
        }
    }

    /// Writes the marker of a lock file, once.
    fn write_marker(&self) {
        let Some(folder) = &self.folder else {
            return;
        };
        if self.marked.swap(true, Ordering::Relaxed) {
            return;
        }
        let file = self.marker();
        let marked = match folder.read(&file) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => folder.write(&file, b""),
        };
        if let Err(problem) = marked {
            tracing::warn!(server = %self.server, path = self.display_path(&file), %problem,
                "cannot write the marker; a lost lock file would go unnoticed");
        }
    }

    fn display_path(&self, file: &str) -> String {
        let path = self.folder.as_ref().map(|folder| folder.path(file));
        path.unwrap_or_default().display().to_string()
    }

    /// Locks the folder against other processes.
    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let folder = self.folder.as_ref();
        folder.map(|folder| folder.lock(FOLDER)).transpose()
    }

    /// Applies and writes a lock file. It is written only under the folder lock, so that no write
    /// of another process is lost.
    fn save(
        &self,
        file: LockFile,
        locked: io::Result<Option<FolderLock>>,
        version: &mut FileVersion,
    ) -> io::Result<()> {
        let saved = locked.and_then(|_locked| self.write(&file, version));
        if let Err(problem) = &saved {
            tracing::warn!(server = %self.server, %problem, "failed to save the approved tools");
        }
        *self.approval() = Approval::Locked(file);
        let unsaved = |problem: &io::Error| {
            let path = self.display_path(&self.file());
            format!(
                "{path} cannot be saved: {problem}; approvals last for this run only. Make its folder writable and restart"
            )
        };
        *lock(&self.problem) = saved.as_ref().err().map(unsaved);
        saved
    }

    fn write(&self, lock: &LockFile, version: &mut FileVersion) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let contents = lock.write()?;
        folder.write(&self.file(), &contents)?;
        *version = FileVersion::of_contents(&contents);
        self.write_marker();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
