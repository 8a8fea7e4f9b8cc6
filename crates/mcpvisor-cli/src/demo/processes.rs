//! Kills and awaits processes of the demo's servers, and checks whether they still exist.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::failure::Failure;

/// How often the state of another process is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Sends SIGKILL.
pub(super) fn kill(pid: u32) -> Result<(), Failure> {
    let pid = known(pid).ok_or(Errno::INVAL);
    let killed = pid.and_then(|pid| kill_process(pid, Signal::KILL));
    killed.map_err(|error| Failure::unexpected(format!("kill: {error}")))
}

/// Polls a condition that another process fulfils. Returns whether it did in time.
pub(super) async fn wait_until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let fulfilled = async {
        while !condition() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(limit, fulfilled).await.is_ok()
}

/// Whether a process still exists, running or not yet reaped. Its id may have been reused, so on
/// Linux it must also be our child or have the mark in its command line.
pub(super) fn is_left(pid: u32, mark: &str) -> bool {
    let there = known(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    there && is_ours(pid, mark)
}

fn known(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(target_os = "linux")]
fn is_ours(pid: u32, mark: &str) -> bool {
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let our_child = format!("PPid:\t{}", std::process::id());
    String::from_utf8_lossy(&command_line).contains(mark)
        || status.lines().any(|line| line == our_child)
}

#[cfg(not(target_os = "linux"))]
fn is_ours(_: u32, _: &str) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_exists_until_it_is_reaped() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        assert!(is_left(child.id(), "no such mark"), "our child");
        kill(child.id()).unwrap();
        child.wait().unwrap();
        assert!(!is_left(child.id(), "no such mark"));
    }

    #[test]
    fn a_reused_process_id_is_not_ours() {
        assert!(cfg!(not(target_os = "linux")) || !is_left(1, "no such mark"));
    }
}
