//! Compares the resources of this process before and after.
//!
//! Two [`Snapshot`]s show whether descriptors, children, zombies, memory or tasks have grown.
//! Reparented children are not counted here; see [`crate::processes`]. Everything is read from
//! `/proc`; on a system without it the lists are empty and the checks always pass.
//!
//! Descriptors, children and memory belong to the whole process, so a test that compares them needs
//! its own process: [`crate::isolated`].

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::eventually::eventually;
use crate::processes::{Process, descendants};

/// The resources of this process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Open descriptors and their targets.
    pub descriptors: BTreeMap<u32, PathBuf>,
    /// Live descendants.
    pub children: Vec<Process>,
    /// Descendants that have exited and were not reaped.
    pub zombies: Vec<Process>,
    /// Resident memory in bytes.
    pub memory: u64,
    /// Live tasks of the current tokio runtime, 0 outside of one.
    pub tasks: usize,
}

impl Snapshot {
    /// Takes a snapshot now.
    pub fn take() -> Self {
        let (zombies, children) = descendants().into_iter().partition(Process::is_zombie);
        Self {
            descriptors: descriptors(),
            children,
            zombies,
            memory: resident_memory(),
            tasks: Handle::try_current().map_or(0, |handle| handle.metrics().num_alive_tasks()),
        }
    }

    /// What has grown by more than `slack` from this snapshot to `after`.
    pub fn growth(&self, after: &Self, slack: Slack) -> Result<(), Growth> {
        let mut found = Vec::new();
        if after.descriptors.len() > self.descriptors.len() + slack.descriptors {
            let new = after.descriptors.iter().filter(|(number, target)| {
                self.descriptors
                    .get(number)
                    .is_none_or(|old| old != *target)
            });
            found.push(format!(
                "descriptors {} -> {}, new: {:?}",
                self.descriptors.len(),
                after.descriptors.len(),
                new.collect::<Vec<_>>()
            ));
        }
        for (what, before, now, allowed) in [
            ("children", &self.children, &after.children, slack.children),
            ("zombies", &self.zombies, &after.zombies, 0),
        ] {
            if now.len() > before.len() + allowed {
                found.push(format!("{what} {} -> {now:?}", before.len()));
            }
        }
        if after.memory > self.memory + slack.memory {
            found.push(format!("memory {} -> {} bytes", self.memory, after.memory));
        }
        if after.tasks > self.tasks + slack.tasks {
            found.push(format!("tasks {} -> {}", self.tasks, after.tasks));
        }
        if found.is_empty() {
            Ok(())
        } else {
            Err(Growth(found))
        }
    }
}

/// How much each resource may grow. Zombies may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Open descriptors.
    pub descriptors: usize,
    /// Live children.
    pub children: usize,
    /// Bytes of resident memory.
    pub memory: u64,
    /// Tasks.
    pub tasks: usize,
}

impl Slack {
    /// No growth, except for memory, because the allocator may retain some.
    pub const NONE: Self = Self {
        descriptors: 0,
        children: 0,
        memory: u64::MAX / 2,
        tasks: 0,
    };

    /// The same with a limit for memory.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
}

/// What has grown, in readable form.
#[derive(Clone, PartialEq, Eq)]
pub struct Growth(Vec<String>);

impl fmt::Debug for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Compares two snapshots.
///
/// # Panics
///
/// When something has grown by more than `slack`, with a description.
#[track_caller]
pub fn assert_no_growth(before: &Snapshot, after: &Snapshot, slack: Slack) {
    if let Err(growth) = before.growth(after, slack) {
        panic!("left behind: {growth:?}");
    }
}

/// Waits until the process holds no more than before, because tasks and children need a moment to
/// end.
///
/// # Panics
///
/// When something is still there after `deadline`, with a description.
pub async fn assert_returns_to(before: &Snapshot, slack: Slack, deadline: Duration) {
    eventually(deadline, "nothing left behind", || {
        before.growth(&Snapshot::take(), slack)
    })
    .await;
}

fn descriptors() -> BTreeMap<u32, PathBuf> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            // The descriptor of this directory listing is already closed when its link is read.
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .filter(|(_, target)| !target.starts_with("/proc"))
        .collect()
}

/// Peak resident memory of this process, in bytes.
pub fn peak_memory() -> u64 {
    memory("VmHWM:")
}

fn resident_memory() -> u64 {
    memory("VmRSS:")
}

fn memory(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(which)?.trim().strip_suffix(" kB"))
        .and_then(|kibibytes| kibibytes.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::isolated::in_own_process;
    use crate::processes::{MARKER, Marker};
    use std::future::Future;
    use std::process::{Command, Stdio};

    const DEADLINE: Duration = Duration::from_secs(10);

    #[test]
    fn an_open_file_is_growth() {
        isolated("an_open_file_is_growth", async || {
            let before = Snapshot::take();
            let file = fs::File::open("/dev/null").unwrap();
            let growth = before.growth(&Snapshot::take(), Slack::NONE).unwrap_err();
            assert!(format!("{growth:?}").contains("/dev/null"), "{growth:?}");
            drop(file);
            assert_no_growth(&before, &Snapshot::take(), Slack::NONE);
        });
    }

    #[test]
    fn a_child_is_growth_then_a_zombie_until_it_is_reaped() {
        let name = "a_child_is_growth_then_a_zombie_until_it_is_reaped";
        isolated(name, async || {
            let before = Snapshot::take();
            let marker = Marker::new("leaks");
            let mut child = Command::new("cat")
                .env(MARKER, marker.value())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let pid = child.id();
            let pids = |of: Vec<Process>| of.iter().map(|it| it.pid).collect::<Vec<_>>();
            // Until the child calls exec, it has the environment of this process.
            eventually(DEADLINE, "the marked child", || {
                pids(marker.processes()) == [pid]
            })
            .await;
            assert_eq!(pids(Snapshot::take().children), [pid]);

            drop(child.stdin.take());
            eventually(DEADLINE, "the zombie", || {
                pids(Snapshot::take().zombies) == [pid]
            })
            .await;
            marker.assert_none_left(DEADLINE).await;
            assert!(before.growth(&Snapshot::take(), Slack::NONE).is_err());

            child.wait().unwrap();
            assert_returns_to(&before, Slack::NONE, DEADLINE).await;
        });
    }

    #[test]
    fn a_task_is_growth_until_it_ends() {
        isolated("a_task_is_growth_until_it_ends", async || {
            let before = Snapshot::take();
            let task = tokio::spawn(std::future::pending::<()>());
            assert!(before.growth(&Snapshot::take(), Slack::NONE).is_err());
            task.abort();
            assert_returns_to(&before, Slack::NONE, DEADLINE).await;
        });
    }

    #[test]
    fn memory_that_is_used_is_growth_beyond_its_slack() {
        isolated(
            "memory_that_is_used_is_growth_beyond_its_slack",
            async || {
                let before = Snapshot::take();
                let used = vec![1_u8; 64 * 1024 * 1024];
                let slack = Slack::NONE.memory(32 * 1024 * 1024);
                let growth = before.growth(&Snapshot::take(), slack).unwrap_err();
                assert!(format!("{growth:?}").contains("memory"), "{growth:?}");
                drop(used);
            },
        );
    }

    fn isolated<F: Future>(name: &str, test: impl FnOnce() -> F) {
        in_own_process(&format!("leaks::tests::{name}"), 3 * DEADLINE, test);
    }
}
