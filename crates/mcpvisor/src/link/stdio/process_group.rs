//! A child process that leads its own process group.
//!
//! Until the child is reaped, even a dead one keeps its id, so a signal to the group cannot reach
//! an unrelated process. Therefore the group is always signalled before the child is reaped.

use rustix::io::{self, Errno};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    test_kill_process_group, waitid, waitpid,
};

use super::spawner_thread::SPAWNER;

/// A child and its group. Dropping this kills the group and reaps the child.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    leader: Pid,
    reaped: bool,
}

impl ProcessGroup {
    /// Takes ownership of a child that was just spawned.
    pub(super) fn new(leader: u32) -> Option<Self> {
        let leader = Pid::from_raw(i32::try_from(leader).ok()?)?;
        Some(Self {
            leader,
            reaped: false,
        })
    }

    /// The id of the child, which is also the id of the group.
    pub(super) fn pid(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to the group, unless the child was reaped.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.reaped {
            // Fails only if the group is empty, or its members may not be signalled.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Whether the child exited. Does not reap it.
    pub(super) fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.leader), options) {
            Ok(status) => status.is_some(),
            // Other code in this program has reaped it.
            Err(_) => true,
        }
    }

    /// Whether the group has members: the child until it is reaped, or its descendants. While it
    /// has members, the system does not reuse the id of the group.
    pub(super) fn has_members(&self) -> bool {
        !matches!(test_kill_process_group(self.leader), Err(Errno::SRCH))
    }

    /// Reaps the child if it exited. After that, signals are no longer sent.
    pub(super) fn reap(&mut self) -> io::Result<Option<WaitStatus>> {
        if self.reaped {
            return Err(Errno::CHILD);
        }
        let status = waitpid(Some(self.leader), WaitOptions::NOHANG);
        self.reaped = !matches!(status, Ok(None));
        status.map(|reaped| reaped.map(|(_, status)| status))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal(Signal::KILL);
        // The child may have moved to another group.
        let _ = kill_process(self.leader, Signal::KILL);
        if let Ok(None) = self.reap() {
            SPAWNER.reap_in_background(self.leader);
        }
    }
}
