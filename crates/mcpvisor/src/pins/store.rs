//! Where the approvals of one server are, in memory and in the folder of what is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcpvisor_core::{ServerName, exposed_name};

use super::{Approval, Lock};
use crate::state_dir::StateDir;

/// The approvals of one server.
#[derive(Debug)]
pub(crate) struct PinStore {
    server: ServerName,
    folder: Option<StateDir>,
    approval: Mutex<Approval>,
    /// Held by whoever writes the file, so that the newest is written last.
    writing: Mutex<()>,
}

impl PinStore {
    /// Without a folder the approvals last as long as the runtime.
    pub(crate) fn new(server: ServerName, folder: Option<StateDir>) -> Self {
        Self {
            server,
            folder,
            approval: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    fn file(&self) -> String {
        format!("pins/{}.json", exposed_name(&self.server, "lock"))
    }

    pub(crate) fn approval(&self) -> MutexGuard<'_, Approval> {
        self.approval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lock file was looked at.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(*self.approval(), Approval::Unknown)
    }

    /// Reads the lock file, once. Blocks: not for an async worker.
    pub(crate) fn load(&self) {
        if self.is_known() {
            return;
        }
        let found = self.read();
        let mut approval = self.approval();
        if matches!(*approval, Approval::Unknown) {
            *approval = found;
        }
    }

    fn read(&self) -> Approval {
        let Some(folder) = &self.folder else {
            return Approval::FirstSight;
        };
        let file = self.file();
        let path = folder.path(&file);
        match folder.read(&file) {
            Ok(None) => Approval::FirstSight,
            Ok(Some(contents)) => match Lock::read(self.server.as_str(), &contents) {
                Some(lock) => Approval::Known(lock),
                None => {
                    tracing::warn!(server = %self.server, path = %path.display(),
                        "the file of approved tools cannot be read: all tools are held back until they are approved again");
                    Approval::Unreadable
                }
            },
            Err(problem) => {
                tracing::warn!(server = %self.server, path = %path.display(), %problem,
                    "the file of approved tools cannot be read: all tools are held back until they are approved again");
                Approval::Unreadable
            }
        }
    }

    /// Writes what is approved now. Blocks: not for an async worker.
    pub(crate) fn save(&self) -> std::io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let contents = match &*self.approval() {
            Approval::Known(lock) => lock.write()?,
            Approval::Unknown | Approval::FirstSight | Approval::Unreadable => return Ok(()),
        };
        folder.write(&self.file(), &contents)
    }

    /// Writes what is approved now, in a thread of its own kind, and says when it is done.
    pub(crate) fn save_later(
        self: &Arc<Self>,
        done: impl FnOnce(std::io::Result<()>) + Send + 'static,
    ) {
        let store = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let saved = store.save();
            if let Err(problem) = &saved {
                tracing::warn!(server = %store.server, %problem, "approved tools could not be saved");
            }
            done(saved);
        });
    }
}
