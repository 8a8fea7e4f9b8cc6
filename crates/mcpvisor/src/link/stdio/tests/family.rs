//! A child's end is noticed before it is reaped, and nothing of its family is left.

use std::os::fd::AsRawFd;

use super::*;
use crate::link::stdio::exit::ExitWatch;
use crate::link::stdio::process_group::Leader;
use crate::link::stdio::spawn::{Image, Newborn};
use crate::link::stdio::spawner_thread::PARENT;

/// The state of a process, as `/proc` spells it.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

async fn start(script: &str) -> Newborn {
    let image = Image {
        file: "/bin/sh".into(),
        name: "sh".into(),
        args: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        cwd: None,
    };
    PARENT.run(move || image.start()).await.unwrap().unwrap()
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
    let watches: [fn(&Leader) -> std::io::Result<ExitWatch>; 2] =
        [ExitWatch::new, |_| ExitWatch::by_signal()];
    for watch in watches {
        let mut newborn = start(script).await;
        let pid = newborn.leader.pid();
        let mut watch = watch(&newborn.leader).unwrap();
        let exit = poll_fn(|cx| watch.poll(cx, &newborn.leader));
        timeout(DEADLINE, exit).await.unwrap();
        assert_eq!(state(pid), Some('Z'), "it must not be reaped yet");
        assert!(has_members(pid));
        newborn.leader.signal(Signal::KILL);
        eventually("the rest of the group lives", || !lives_in(pid)).await;
        let status = newborn.leader.reap().unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(3));
        assert_eq!(state(pid), None);
        // From now on the number may be another's.
        assert!(newborn.leader.reap().is_err());
    }
}

/// Whether anyone in the group is alive.
fn lives_in(group: Pid) -> bool {
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
async fn a_child_is_watched_by_a_descriptor_where_the_system_has_them() {
    let newborn = start("sleep 100").await;
    let watch = ExitWatch::new(&newborn.leader).unwrap();
    assert!(matches!(watch, ExitWatch::Descriptor(_)));
}

#[tokio::test]
async fn a_child_is_reaped_once_its_leader_is_dropped_without_any_help_of_tokio() {
    let newborn = start("trap '' TERM; sleep 100 & sleep 100").await;
    let pid = newborn.leader.pid();
    drop(newborn);
    // Nothing is awaited here, so no task of tokio's runs.
    let deadline = Instant::now() + DEADLINE;
    while state(pid).is_some() {
        assert!(Instant::now() < deadline, "{:?}", state(pid));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn an_open_that_is_given_up_leaves_no_process() {
    let marker = format!("given-up-{}", std::process::id());
    let command = StdioCommand::new("sh").args(["-c", "sleep 100", &marker]);
    // Given up before, while and after the process is started.
    for pause in [0, 100, 1_000, 10_000] {
        let mut opening = Box::pin(open(&command));
        let _ = poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await;
        std::thread::sleep(Duration::from_micros(pause));
        drop(opening);
    }
    // The jobs of the parent are done in order, so those above are done by now.
    sh("exit 0").await.down().await;
    eventually("a process is left", || !runs(&marker)).await;
}

/// Whether a process with such an argument lives or was not reaped.
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
async fn a_stopped_child_is_silent_and_can_still_be_closed() {
    let mut child = sh("kill -STOP $$").await;
    let pid = child.group;
    eventually("it does not stop", || state(pid) == Some('T')).await;
    child.link.push(ping(1)).unwrap();
    let waited = timeout(Duration::from_millis(50), child.link.next(&Nothing)).await;
    assert!(waited.is_err(), "{waited:?}");
    let closing = Instant::now();
    let closed = child.link.close(GRACE).await;
    assert_eq!(closed.unwrap_err(), "the process had to be killed");
    assert!(closing.elapsed() < GRACE.stdin + GRACE.terminate + BUSY);
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_grandchild_in_the_group_that_holds_stdout_hides_no_exit() {
    let mut child = sh("sleep 100 & exit 6").await;
    let started = Instant::now();
    assert_eq!(child.down().await.message, "the process exited with code 6");
    assert!(started.elapsed() < BUSY);
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_child_starts_with_clean_signals_and_only_its_own_pipes() {
    // A signal with a handler, one that Rust programs ignore, and an open descriptor.
    let _handler = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1());
    let file = std::fs::File::open("/dev/null").unwrap();
    let file = rustix::io::fcntl_dupfd_cloexec(&file, 200).unwrap();
    let mut child = sh("cat /proc/self/status >&2; ls /proc/self/fd >&2").await;
    child.down().await;
    let said = child.stderr.tail();
    let here = std::fs::read_to_string("/proc/self/status").unwrap();
    let broken_pipe = 1 << 12;
    assert_eq!(signals(&here, "SigIgn") & broken_pipe, broken_pipe);
    assert_ne!(signals(&here, "SigCgt"), 0);
    assert_eq!(
        signals(&said, "SigIgn"),
        signals(&here, "SigIgn") & !broken_pipe
    );
    assert_eq!(signals(&said, "SigCgt"), 0);
    assert_eq!(signals(&said, "SigBlk"), 0);
    let number = file.as_raw_fd().to_string();
    assert!(!said.lines().any(|line| line == number), "{number}: {said}");
}

/// A set of signals in what the system says of a process.
fn signals(status: &str, set: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(set));
    u64::from_str_radix(line.unwrap().trim_start_matches(':').trim(), 16).unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_child_has_the_same_parent_thread_which_is_none_of_tokios() {
    let mut threads = Vec::new();
    for _ in 0..2 {
        let newborn = tokio::spawn(start("sleep 100")).await.unwrap();
        threads.extend(tasks().filter(|task| {
            let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
            let pid = newborn.leader.pid().to_string();
            children.split(' ').any(|child| child == pid)
        }));
    }
    assert_eq!(threads.len(), 2);
    assert_eq!(threads[0], threads[1]);
    let name = std::fs::read_to_string(threads[0].join("comm")).unwrap();
    assert_eq!(name.trim_end(), "mcpvisor-parent");
}

/// The threads of this process.
fn tasks() -> impl Iterator<Item = std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().map(|task| task.path())
}
