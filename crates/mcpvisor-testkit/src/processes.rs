//! Finds the processes of a test.
//!
//! Descendants are found by their parent; reparented processes by their process group or by a
//! [`Marker`] in their environment. Everything is read from `/proc`; on a system without it the
//! lists are empty. [`crate::leaks`] compares before and after.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::eventually;

/// The environment variable that [`Marker`] puts on the processes of one test.
pub const MARKER: &str = "MCPVISOR_TEST_MARKER";

/// One process, as `/proc` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id: 1, or that of a subreaper, once the parent has exited.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// One letter: `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: char,
    /// The short name of its program.
    pub command: String,
}

impl Process {
    /// Whether it has exited but was not reaped by its parent.
    pub fn is_zombie(&self) -> bool {
        self.state == 'Z'
    }

    /// Reads one process; `None` if it does not exist (any more).
    pub fn read(pid: u32) -> Option<Self> {
        // `pid (command) state ppid pgrp …`, where the command may contain spaces and parentheses.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let mut fields = tail.split(' ');
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            command: head.split_once('(')?.1.to_owned(),
        })
    }
}

/// Kills a process with SIGKILL.
///
/// # Panics
///
/// When there is no such process, because the test would then prove nothing.
#[track_caller]
pub fn kill(pid: u32) {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match known.map(|pid| kill_process(pid, Signal::KILL)) {
        Some(Ok(())) => {}
        failed => panic!("process {pid} cannot be killed: {failed:?}"),
    }
}

/// Every process in `/proc`.
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

/// All descendants of this process, including zombies.
pub fn descendants() -> Vec<Process> {
    let mut rest = processes();
    let mut found = Vec::<Process>::new();
    let mut parents = vec![std::process::id()];
    while let Some(parent) = parents.pop() {
        for child in rest.extract_if(.., |process| process.parent == parent) {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// All members of a process group, whatever their parent.
pub fn group(id: u32) -> Vec<Process> {
    processes()
        .into_iter()
        .filter(|process| process.group == id)
        .collect()
}

/// A value in the environment of all processes of one test, which survives reparenting.
///
/// Pass it to a child with `.env(MARKER, marker.value())`; grandchildren inherit it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(String);

impl Marker {
    /// Creates a unique value.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{test}-{}-{number}", std::process::id()))
    }

    /// The value for the variable [`MARKER`].
    pub fn value(&self) -> &str {
        &self.0
    }

    /// The live processes with the marker. A zombie has no environment; use [`descendants`] for
    /// those.
    pub fn processes(&self) -> Vec<Process> {
        let wanted = format!("{MARKER}={}", self.0);
        processes()
            .into_iter()
            .filter(|process| {
                fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(|environment| {
                    environment
                        .split(|byte| *byte == 0)
                        .any(|variable| variable == wanted.as_bytes())
                })
            })
            .collect()
    }

    /// Kills all processes with the marker, for tests of clients that leak processes.
    pub fn kill_all(&self) {
        for process in self.processes() {
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
                // The process may have exited by now.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Waits until no live process has the marker.
    ///
    /// # Panics
    ///
    /// When some still do after `deadline`, with a list of them.
    pub async fn assert_none_left(&self, deadline: Duration) {
        eventually(
            deadline,
            format_args!("no process marked {}", self.0),
            || match self.processes() {
                left if left.is_empty() => Ok(()),
                left => Err(left),
            },
        )
        .await;
    }
}
