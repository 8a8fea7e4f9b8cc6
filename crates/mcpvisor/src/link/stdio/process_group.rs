//! A child process that leads a group of its own.
//!
//! As long as the child was not reaped, its id is taken, even if it is dead: a signal to the group
//! cannot meet a stranger. So whoever wants the child gone signals first and reaps then.

use rustix::io::{self, Errno};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    test_kill_process_group, waitid, waitpid,
};

use super::spawner_thread::PARENT;

/// A child and its group. The group is killed and the child reaped when this is dropped.
#[derive(Debug)]
pub(super) struct Leader {
    pid: Pid,
    reaped: bool,
}

impl Leader {
    /// Takes charge of a child that was started a moment ago.
    pub(super) fn new(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self { pid, reaped: false })
    }

    /// The process id, which is also that of the group.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the group, as long as the child's id is its own.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.reaped {
            // It fails only if there is nobody left, or nobody whom we may signal.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Whether the child ended; it is not reaped.
    pub(super) fn has_exited(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), look) {
            Ok(status) => status.is_some(),
            // It is no child of ours any more: someone else in this program has reaped it.
            Err(_) => true,
        }
    }

    /// Whether somebody is still in the group: the child, until it is reaped, or what it started and
    /// left there. As long as somebody is, the number of the group is nobody else's.
    pub(super) fn has_group(&self) -> bool {
        !matches!(test_kill_process_group(self.pid), Err(Errno::SRCH))
    }

    /// Reaps the child if it ended. From then on nothing is signalled.
    pub(super) fn reap(&mut self) -> io::Result<Option<WaitStatus>> {
        if self.reaped {
            return Err(Errno::CHILD);
        }
        let status = waitpid(Some(self.pid), WaitOptions::NOHANG);
        self.reaped = !matches!(status, Ok(None));
        status.map(|reaped| reaped.map(|(_, status)| status))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal(Signal::KILL);
        // It may have moved to another group.
        let _ = kill_process(self.pid, Signal::KILL);
        if let Ok(None) = self.reap() {
            PARENT.bury(self.pid);
        }
    }
}
