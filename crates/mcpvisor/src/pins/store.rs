//! Where the approvals of one server are, in memory and in the folder of what is kept.
//!
//! Other processes may have the same folder. So the file is read again before it is written, under a
//! lock, and whenever it matters whether somebody else approved something.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcpvisor_core::{ServerName, exposed_name};
use rmcp::model::Tool;
use sha2::{Digest, Sha256};

use super::{Approval, HeldTool, Lock};
use crate::state_dir::{FolderLock, StateDir};

/// The folder of all locks, in that of what is kept.
const FOLDER: &str = "pins";

/// The approvals of one server. All that looks at the file blocks: not for an async worker.
#[derive(Debug)]
pub(crate) struct PinStore {
    server: ServerName,
    folder: Option<StateDir>,
    approval: Mutex<Approval>,
    /// Held by whoever looks at the file, so that what is known changes in the order in which the file
    /// did.
    look: Mutex<Look>,
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
        }
    }

    fn file(&self) -> String {
        format!("{FOLDER}/{}.json", exposed_name(&self.server, "lock"))
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
            Approval::Known(_) | Approval::Unreadable => true,
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
        // One that cannot be kept is good for this run, and warned of.
        let _ = self.keep(lock, locked, &mut look);
    }

    /// Approves these definitions, beside what is approved by now.
    pub(crate) fn approve(&self, tools: &[HeldTool], transport: &str) -> io::Result<()> {
        let mut look = self.look();
        let locked = self.lock();
        self.look_again(&mut look);
        let mut lock = match &*self.approval() {
            Approval::Known(lock) => lock.clone(),
            Approval::Unknown | Approval::FirstSight | Approval::Unreadable => {
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
        if *look == now {
            return false;
        }
        *look = now;
        let found = self.understand(contents);
        let mut approval = self.approval();
        match (&*approval, &found) {
            // What a person approved stays so when the file is hurt or gone; and who had looked once
            // does not begin anew.
            (Approval::Known(_), Approval::Unreadable)
            | (Approval::Known(_) | Approval::Unreadable, Approval::FirstSight) => false,
            _ => {
                *approval = found;
                true
            }
        }
    }

    fn understand(&self, contents: io::Result<Option<Vec<u8>>>) -> Approval {
        let problem = match contents {
            Ok(None) => return Approval::FirstSight,
            Ok(Some(contents)) => match Lock::read(self.server.as_str(), &contents) {
                Some(lock) => return Approval::Known(lock),
                None => "it is no lock of this server, or was edited".to_owned(),
            },
            Err(problem) => problem.to_string(),
        };
        let path = self.folder.as_ref().map(|it| it.path(&self.file()));
        tracing::warn!(server = %self.server, path = %path.unwrap_or_default().display(), %problem,
            "the file of approved tools cannot be read, so it approves nothing");
        Approval::Unreadable
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
        saved
    }

    fn write(&self, lock: &Lock, look: &mut Look) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let contents = lock.write()?;
        folder.write(&self.file(), &contents)?;
        *look = Look::at(&contents);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
