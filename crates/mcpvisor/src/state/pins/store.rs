//! Where the approvals of one server are, in memory and in the folder of what is kept.
//!
//! Other processes may have the same folder. So the file is read again before it is written, under a
//! lock, and whenever it matters whether somebody else approved something.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcpvisor_core::{ServerName, exposed_name};
use rmcp::model::Tool;
use sha2::{Digest, Sha256};

use super::{Approval, HeldTool, Lock};
use crate::state::file_ops::is_unanswered;
use crate::state::state_dir::{FolderLock, StateDir};

/// The folder of all locks, in that of what is kept.
const FOLDER: &str = "pins";

/// The folder of the markers: an empty file per server that has, or had, a lock. A lock that is gone
/// while its marker is there was lost; where both are gone the server was never seen.
const MARKERS: &str = "pinned";

/// The approvals of one server. All that looks at the file blocks, perhaps for ever: it is
/// called through [`within`](Self::within).
#[derive(Debug)]
pub(crate) struct PinStore {
    server: ServerName,
    folder: Option<StateDir>,
    approval: Mutex<Approval>,
    /// Held by whoever looks at the file, so that what is known changes in the order in which the file
    /// did.
    look: Mutex<Look>,
    /// The marker was written, or seen, or cannot be written.
    marked: AtomicBool,
    /// Why nothing is approved, or why approvals could not be saved, with the file and what to do.
    problem: Mutex<Option<String>>,
}

/// What the file was like when it was last looked at.
#[derive(Debug, Default, PartialEq)]
enum Look {
    #[default]
    Never,
    Absent,
    /// The hash of what it held.
    Held([u8; 32]),
    Failed(io::ErrorKind),
}

impl Look {
    fn of(contents: &io::Result<Option<Vec<u8>>>) -> Self {
        match contents {
            Ok(None) => Self::Absent,
            Ok(Some(contents)) => Self::at(contents),
            Err(problem) => Self::Failed(problem.kind()),
        }
    }

    fn at(contents: &[u8]) -> Self {
        Self::Held(Sha256::digest(contents).into())
    }
}

impl PinStore {
    /// Without a folder the approvals last as long as the runtime.
    pub(crate) fn new(server: ServerName, folder: Option<StateDir>) -> Self {
        Self {
            server,
            folder,
            approval: Mutex::default(),
            look: Mutex::default(),
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

    /// Why nothing is approved, where that is not for a person to decide, or why approvals could not be
    /// saved: the file, what is wrong with it, and what to do.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem_now().clone()
    }

    fn problem_now(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something about the file, for no longer than this. What comes later goes to `late`.
    pub(crate) async fn within<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
        late: impl FnOnce(io::Result<T>) + Send + 'static,
    ) -> io::Result<T> {
        let store = Arc::clone(self);
        let Some(folder) = &self.folder else {
            // There is no file; large lists are hashed all the same.
            let work = tokio::task::spawn_blocking(move || work(&store));
            return work.await.unwrap_or_else(|it| Err(io::Error::other(it)));
        };
        let path = folder.path(&self.file());
        let work = move || work(&store);
        let done = folder.ops().run_or_late(&path, within, work, late).await;
        if let Err(problem) = &done
            && is_unanswered(problem)
        {
            self.unanswered(problem);
        }
        done
    }

    /// The file did not answer. What is known to be approved stays so; nothing else is, not even what is
    /// seen for the first time, since it could not be kept.
    fn unanswered(&self, problem: &io::Error) {
        let mut approval = self.approval();
        match *approval {
            Approval::Known(_) => return,
            Approval::FirstSight => *approval = Approval::Unknown,
            Approval::Unknown | Approval::Unreadable | Approval::Missing => {}
        }
        *self.problem_now() = Some(problem.to_string());
    }

    pub(crate) fn approval(&self) -> MutexGuard<'_, Approval> {
        self.approval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a lock file, as far as this process knows: nothing is approved unseen any
    /// more.
    pub(crate) fn is_settled(&self) -> bool {
        match *self.approval() {
            Approval::Unknown | Approval::FirstSight => false,
            Approval::Known(_) | Approval::Unreadable | Approval::Missing => true,
        }
    }

    /// Reads the lock file, unless it is known already.
    pub(crate) fn load(&self) {
        if !self.is_settled() {
            self.refresh(|| {});
        }
    }

    /// Looks whether another process changed the lock file, and if so says it before anybody else
    /// looks.
    pub(crate) fn refresh(&self, changed: impl FnOnce()) {
        let mut look = self.look();
        if self.look_again(&mut look) {
            changed();
        }
    }

    /// The tools of a server that was just listed: they are approved if there is no lock by now.
    pub(crate) fn see(&self, offered: &[Tool], transport: &str) {
        let mut look = self.look();
        self.look_again(&mut look);
        if self.is_settled() {
            return;
        }
        // Another process may see the server for the first time too, and have looked at other tools.
        let locked = self.lock();
        self.look_again(&mut look);
        if self.is_settled() {
            return;
        }
        let lock = Lock::of(self.server.as_str(), offered, transport);
        // One that cannot be saved is good for this run, and `problem` says so.
        let _ = self.keep(lock, locked, &mut look);
    }

    /// Approves these definitions, beside what is approved by now.
    pub(crate) fn approve(&self, tools: &[HeldTool], transport: &str) -> io::Result<()> {
        let mut look = self.look();
        let locked = self.lock();
        self.look_again(&mut look);
        let mut lock = match &*self.approval() {
            Approval::Known(lock) => lock.clone(),
            Approval::Unknown | Approval::FirstSight | Approval::Unreadable | Approval::Missing => {
                Lock::new(self.server.as_str())
            }
        };
        for held in tools {
            lock.approve(&held.tool, held.offered.clone(), transport);
        }
        self.keep(lock, locked, &mut look)
    }

    /// Takes up what is in the file, if it is another one than at the last look. True if that changes
    /// what is approved.
    fn look_again(&self, look: &mut Look) -> bool {
        let contents = match &self.folder {
            Some(folder) => folder.read(&self.file()),
            None => Ok(None),
        };
        let now = Look::of(&contents);
        // Unknown: it did not answer meanwhile.
        if *look == now && !matches!(*self.approval(), Approval::Unknown) {
            return false;
        }
        *look = now;
        let (found, problem) = self.understand(contents);
        if let Some(problem) = &problem {
            tracing::warn!(server = %self.server, problem, "no tool is approved");
        }
        let mut approval = self.approval();
        match (&*approval, &found) {
            // What a person approved stays so when the file is hurt or gone; and who had looked once
            // does not begin anew.
            (Approval::Known(_), Approval::Unreadable | Approval::Missing)
            | (
                Approval::Known(_) | Approval::Unreadable | Approval::Missing,
                Approval::FirstSight,
            ) => false,
            _ => {
                *self.problem_now() = problem;
                *approval = found;
                true
            }
        }
    }

    /// What the file says, and what is wrong with it.
    fn understand(&self, contents: io::Result<Option<Vec<u8>>>) -> (Approval, Option<String>) {
        let problem = match contents {
            Ok(None) => return self.without_lock(),
            Ok(Some(contents)) => match Lock::read(self.server.as_str(), &contents) {
                Some(lock) => {
                    self.mark();
                    return (Approval::Known(lock), None);
                }
                None => "it is not a lock of this server, or was edited".to_owned(),
            },
            Err(problem) => problem.to_string(),
        };
        let problem = format!(
            "{} cannot be used: {problem}; repair it, or approve the tools again",
            self.shown(&self.file())
        );
        (Approval::Unreadable, Some(problem))
    }

    /// There is no lock: the server was never seen, unless its marker says otherwise.
    fn without_lock(&self) -> (Approval, Option<String>) {
        let marker = match &self.folder {
            Some(folder) => folder.read(&self.marker()),
            None => Ok(None),
        };
        let marker_file = self.shown(&self.marker());
        match marker {
            Ok(None) => (Approval::FirstSight, None),
            Ok(Some(_)) => {
                let problem = format!(
                    "{} is gone; approve the tools again, or restore it",
                    self.shown(&self.file())
                );
                (Approval::Missing, Some(problem))
            }
            Err(problem) => {
                let problem = format!("{marker_file} cannot be read: {problem}");
                (Approval::Unreadable, Some(problem))
            }
        }
    }

    /// Leaves the marker beside a lock, once.
    fn mark(&self) {
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
            tracing::warn!(server = %self.server, path = self.shown(&file), %problem,
                "a lost file of approved tools would not be noticed");
        }
    }

    fn shown(&self, file: &str) -> String {
        let path = self.folder.as_ref().map(|folder| folder.path(file));
        path.unwrap_or_default().display().to_string()
    }

    /// Keeps other processes from the file.
    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let folder = self.folder.as_ref();
        folder.map(|folder| folder.lock(FOLDER)).transpose()
    }

    /// This is approved from now on. It is written while the file is locked, and not without: what
    /// another process writes would be lost.
    fn keep(
        &self,
        lock: Lock,
        locked: io::Result<Option<FolderLock>>,
        look: &mut Look,
    ) -> io::Result<()> {
        let saved = locked.and_then(|_locked| self.write(&lock, look));
        if let Err(problem) = &saved {
            tracing::warn!(server = %self.server, %problem, "approved tools could not be saved");
        }
        *self.approval() = Approval::Known(lock);
        let unsaved = |problem: &io::Error| {
            let file = self.shown(&self.file());
            format!(
                "{file} cannot be saved: {problem}; approvals last for this run only: make its folder writable and restart"
            )
        };
        *self.problem_now() = saved.as_ref().err().map(unsaved);
        saved
    }

    fn write(&self, lock: &Lock, look: &mut Look) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let contents = lock.write()?;
        folder.write(&self.file(), &contents)?;
        *look = Look::at(&contents);
        self.mark();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
