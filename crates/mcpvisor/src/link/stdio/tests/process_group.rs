//! An exit is noticed before the child is reaped, and no member of its group is left.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::task::Poll;

use super::*;
use crate::link::stdio::exit_watch::ExitWatch;
use crate::link::stdio::process_group::ProcessGroup;
use crate::link::stdio::spawn::{ProcessSpec, SpawnedProcess};
use crate::link::stdio::spawner_thread::SPAWNER;

/// The state letter of a process in `/proc`.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

async fn spawn(script: &str) -> SpawnedProcess {
    let spec = ProcessSpec {
        file: "/bin/sh".into(),
        name: "sh".into(),
        args: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        cwd: None,
    };
    SPAWNER.run(move || spec.spawn()).await.unwrap().unwrap()
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_exit_is_noticed_and_the_group_killed_while_the_child_still_holds_its_id() {
    let script = "sleep 100 & echo $!; exit 3";
    let watches: [fn(&ProcessGroup) -> std::io::Result<ExitWatch>; 2] =
        [ExitWatch::new, |_| ExitWatch::by_signal()];
    for watch in watches {
        let mut child = spawn(script).await;
        let pid = child.group.pid();
        let mut watch = watch(&child.group).unwrap();
        let exit = poll_fn(|cx| watch.poll(cx, &child.group));
        timeout(DEADLINE, exit).await.unwrap();
        assert_eq!(state(pid), Some('Z'), "it must not be reaped yet");
        assert!(has_members(pid));
        child.group.signal(Signal::KILL);
        eventually("the rest of the group lives", || !has_living_members(pid)).await;
        let status = child.group.reap().unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(3));
        assert_eq!(state(pid), None);
        // From now on the system may reuse the id.
        assert!(child.group.reap().is_err());
    }
}

/// Whether any member of the group is alive.
fn has_living_members(group: Pid) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|process| {
            let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            fields.next() != Some("Z") && fields.nth(1) == Some(&group.to_string())
        })
}

#[tokio::test]
async fn a_child_is_watched_by_a_pidfd_where_the_system_has_them() {
    let child = spawn("sleep 100").await;
    let watch = ExitWatch::new(&child.group).unwrap();
    assert!(matches!(watch, ExitWatch::Pidfd(_)));
}

#[tokio::test]
async fn a_dropped_child_is_reaped_without_tokio() {
    let child = spawn("trap '' TERM; sleep 100 & sleep 100").await;
    let pid = child.group.pid();
    drop(child);
    // Nothing is awaited here, so no tokio task runs.
    let deadline = Instant::now() + DEADLINE;
    while state(pid).is_some() {
        assert!(Instant::now() < deadline, "{:?}", state(pid));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_cancelled_open_leaves_no_process() {
    let marker = format!("cancelled-open-{}", std::process::id());
    let command = StdioCommand::new("sh").args(["-c", "sleep 100", &marker]);
    // Cancelled before, while and after the process is spawned.
    for pause in [0, 100, 1_000, 10_000] {
        let mut opening = Box::pin(open(&command));
        let _ = poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await;
        std::thread::sleep(Duration::from_micros(pause));
        drop(opening);
    }
    // The spawner runs its tasks in order, so those above are done by now.
    sh("exit 0").await.down().await;
    eventually("a process is left", || !runs(&marker)).await;
}

/// Whether a process with this argument exists.
fn runs(argument: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|process| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            command
                .split(|byte| *byte == 0)
                .any(|part| part == argument.as_bytes())
        })
}

#[tokio::test]
async fn a_stopped_child_can_still_be_closed() {
    let mut child = sh("kill -STOP $$").await;
    let pid = child.group;
    eventually("it does not stop", || state(pid) == Some('T')).await;
    child.link.push(ping(1)).unwrap();
    let waited = timeout(Duration::from_millis(50), child.link.next(&NothingPending)).await;
    assert!(waited.is_err(), "{waited:?}");
    let closing = Instant::now();
    let closed = child.link.close(GRACE).await;
    assert_eq!(closed.unwrap_err(), "the process had to be killed");
    assert!(closing.elapsed() < GRACE.stdin + GRACE.terminate + BUSY);
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_stdout_does_not_hide_the_exit() {
    let mut child = sh("sleep 100 & exit 6").await;
    let started = Instant::now();
    assert_eq!(child.down().await.message, "the process exited with code 6");
    assert!(started.elapsed() < BUSY);
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_child_starts_with_default_signals_and_only_its_own_pipes() {
    // A signal with a handler, and an open descriptor. Rust programs ignore SIGPIPE.
    let _handler = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1());
    let file = std::fs::File::open("/dev/null").unwrap();
    let file = rustix::io::fcntl_dupfd_cloexec(&file, 200).unwrap();
    let mut child = sh("cat /proc/self/status >&2; ls /proc/self/fd >&2").await;
    child.down().await;
    let output = child.stderr.tail();
    let here = std::fs::read_to_string("/proc/self/status").unwrap();
    let broken_pipe = 1 << 12;
    assert_eq!(signals(&here, "SigIgn") & broken_pipe, broken_pipe);
    assert_ne!(signals(&here, "SigCgt"), 0);
    assert_eq!(
        signals(&output, "SigIgn"),
        signals(&here, "SigIgn") & !broken_pipe
    );
    assert_eq!(signals(&output, "SigCgt"), 0);
    assert_eq!(signals(&output, "SigBlk"), 0);
    let number = file.as_raw_fd().to_string();
    assert!(
        !output.lines().any(|line| line == number),
        "{number}: {output}"
    );
}

/// A signal set in `/proc/PID/status`.
fn signals(status: &str, set: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(set));
    u64::from_str_radix(line.unwrap().trim_start_matches(':').trim(), 16).unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_child_has_the_same_parent_thread_outside_tokio() {
    let mut threads = Vec::new();
    for _ in 0..2 {
        let child = tokio::spawn(spawn("sleep 100")).await.unwrap();
        threads.extend(tasks().filter(|task| {
            let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
            let pid = child.group.pid().to_string();
            children.split(' ').any(|child| child == pid)
        }));
    }
    assert_eq!(threads.len(), 2);
    assert_eq!(threads[0], threads[1]);
    let name = std::fs::read_to_string(threads[0].join("comm")).unwrap();
    assert_eq!(name.trim_end(), "mcpvisor-spawn");
}

/// The threads of this process.
fn tasks() -> impl Iterator<Item = std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().map(|task| task.path())
}
