mod limits;
mod process_group;

use std::future::poll_fn;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, ServerName};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, NumberOrString, PingRequest, RequestId};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use tokio::time::timeout;

use super::*;
use crate::link::limits::MessageLimits;
use crate::link::{
    DownKind, Inbound, Link, LinkDown, OpenFailure, OpenFailureClass, PendingRequests,
    PendingSnapshot, ReplyKind, StderrRing,
};

/// A test that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// The longest that an immediate event takes on a busy machine.
const BUSY: Duration = Duration::from_secs(5);

/// Grace periods that are short enough to wait for all of them.
const GRACE: CloseSettings = CloseSettings::new(
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_millis(300),
);

/// No request is pending.
struct NothingPending;

impl PendingRequests for NothingPending {
    fn reply_kind(&self, _: CallId) -> Option<ReplyKind> {
        None
    }

    fn snapshot(&self) -> PendingSnapshot {
        PendingSnapshot(Vec::new())
    }
}

struct Running {
    link: StdioLink,
    stderr: Arc<StderrRing>,
    group: Pid,
}

async fn open(command: &StdioCommand) -> Result<Running, OpenFailure> {
    let stderr = Arc::new(StderrRing::new(64 * 1024));
    let server = ServerName::new("under-test").unwrap();
    let link = StdioLink::open(
        command,
        Arc::clone(&stderr),
        MessageLimits::default(),
        &server,
    )
    .await?;
    let group = link.process.group.pid();
    Ok(Running {
        link,
        stderr,
        group,
    })
}

async fn sh(script: &str) -> Running {
    open(&StdioCommand::new("sh").arg("-c").arg(script))
        .await
        .unwrap()
}

fn ping(id: i64) -> ClientJsonRpcMessage {
    JsonRpcMessage::request(PingRequest::default().into(), NumberOrString::Number(id))
}

impl Running {
    async fn next(&mut self) -> Result<Inbound, LinkDown> {
        timeout(DEADLINE, self.link.next(&NothingPending))
            .await
            .unwrap()
    }

    /// Ignores messages and waits for the end of the link.
    async fn down(&mut self) -> LinkDown {
        loop {
            if let Err(down) = self.next().await {
                return down;
            }
        }
    }

    /// Waits for a process id on the first line of stderr.
    async fn pid_on_stderr(&self) -> Pid {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some((line, _)) = self.stderr.tail().split_once('\n') {
                return Pid::from_raw(line.trim().parse().unwrap()).unwrap();
            }
            assert!(Instant::now() < deadline, "stderr is empty");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Waits until the child is reaped and its group has no living member.
async fn group_is_gone(group: Pid) {
    let deadline = Instant::now() + DEADLINE;
    while test_kill_process_group(group).is_ok() && has_members(group) {
        assert!(Instant::now() < deadline, "the group is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Whether a group has members other than zombie grandchildren, which init reaps later. Without
/// `/proc` those count too.
fn has_members(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let status = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // After the name in parentheses: state, parent, group.
        let mut fields = status.rsplit(") ").next().unwrap_or_default().split(' ');
        let dead = fields.next() == Some("Z");
        let in_group = fields.nth(1) == Some(&group.to_string());
        let is_child = process.file_name() == *group.to_string();
        in_group && (is_child || !dead)
    })
}

#[tokio::test]
async fn messages_travel_in_order_and_many_at_once() {
    // `cat` echoes each ping of ours as a ping of the server.
    let mut cat = open(&StdioCommand::new("cat")).await.unwrap();
    let positions: Vec<u64> = (0..1_500)
        .map(|id| cat.link.push(ping(id)).unwrap())
        .collect();
    assert!(positions.is_sorted_by(|a, b| a < b));
    assert_eq!(cat.link.sent(), 0);
    let mut expected = 0;
    while expected < 1_500 {
        let mut inbound = Some(cat.next().await.unwrap());
        while let Some(message) = inbound {
            let Inbound::Request { id, .. } = message else {
                panic!("{message:?}");
            };
            assert_eq!(id, RequestId::Number(expected));
            expected += 1;
            inbound = cat.link.try_next(&NothingPending);
        }
    }
    assert!(cat.link.sent() > positions[1_499]);
    cat.link.close(GRACE).await.unwrap();
    group_is_gone(cat.group).await;
}

#[tokio::test]
async fn a_cancelled_wait_loses_nothing() {
    let line = r#"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}"#;
    let mut slow = sh(&format!(
        "for part in 1 2 3; do printf '%s' \"{}\"; sleep 0.02; printf '%s\\r\\n\\n' \"{}\"; sleep 0.02; done",
        &line[..20],
        &line[20..],
    )).await;
    let mut notifications = 0;
    let down = loop {
        match timeout(Duration::from_millis(1), slow.link.next(&NothingPending)).await {
            Ok(Ok(Inbound::Notification { .. })) => notifications += 1,
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(down)) => break down,
            Err(_) => {}
        }
    };
    assert_eq!(notifications, 3);
    assert_eq!(down.message, "the process exited with code 0");
}

#[tokio::test]
async fn last_messages_arrive_before_the_exit() {
    let mut child = sh(concat!(
        r#"echo banner; echo '{"jsonrpc":"2.0","method":"notifications/x"}'; echo sorry >&2; "#,
        r#"printf '{"jsonrpc":"2.0","method":"notifications/y"}'; exit 3"#,
    ))
    .await;
    let first = child.next().await;
    assert!(matches!(first, Ok(Inbound::Stray { .. })), "{first:?}");
    for _ in 0..2 {
        let message = child.next().await;
        assert!(
            matches!(message, Ok(Inbound::Notification { .. })),
            "{message:?}"
        );
    }
    let expected = LinkDown::new(DownKind::Exited, "the process exited with code 3");
    assert_eq!(child.next().await.unwrap_err(), expected);
    assert_eq!(child.next().await.unwrap_err(), expected);
    assert_eq!(child.stderr.tail(), "sorry\n");
}

#[tokio::test]
async fn last_messages_arrive_even_if_exit_and_end_of_pipes_are_seen_at_once() {
    let mut child = sh(concat!(
        r#"echo '{"jsonrpc":"2.0","method":"notifications/x"}'; "#,
        r#"printf '{"jsonrpc":"2.0","method":"notifications/y"}'; exit 3"#,
    ))
    .await;
    let ended = poll_fn(|cx| child.link.stderr.poll_end(cx));
    timeout(DEADLINE, ended).await.unwrap();
    let exit = poll_fn(|cx| child.link.process.poll_exit(cx).map(drop));
    timeout(DEADLINE, exit).await.unwrap();
    for _ in 0..2 {
        let message = child.next().await;
        assert!(
            matches!(message, Ok(Inbound::Notification { .. })),
            "{message:?}"
        );
    }
    let down = child.next().await.unwrap_err();
    assert_eq!(down.message, "the process exited with code 3");
}

#[tokio::test]
async fn a_killed_child_is_noticed_at_once() {
    let mut cat = open(&StdioCommand::new("cat")).await.unwrap();
    cat.link.push(ping(1)).unwrap();
    cat.next().await.unwrap();
    kill_process(cat.group, Signal::KILL).unwrap();
    let killed = Instant::now();
    let down = cat.next().await.unwrap_err();
    let noticed = killed.elapsed();
    println!("noticed after {noticed:?}");
    assert_eq!(
        down,
        LinkDown::new(DownKind::Killed, "the process was killed by signal 9")
    );
    assert!(noticed < BUSY, "{noticed:?}");

    // A close that waited for its grace periods would take far longer.
    let patient = CloseSettings::new(Duration::ZERO, DEADLINE, DEADLINE);
    let closing = Instant::now();
    cat.link.close(patient).await.unwrap();
    println!("closed after {:?}", closing.elapsed());
    assert!(closing.elapsed() < BUSY);
}

#[tokio::test]
async fn an_exit_kills_the_rest_of_the_group() {
    let mut child = sh("sleep 100 & sleep 100 & echo $! >&2; exit 4").await;
    let started = Instant::now();
    assert_eq!(child.down().await.message, "the process exited with code 4");
    assert!(started.elapsed() < Duration::from_secs(10));
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_process_outside_the_group_that_holds_the_pipes_does_not_delay_the_end() {
    let mut child = sh("setsid sleep 100 & echo $! >&2; exit 5").await;
    let holder = child.pid_on_stderr().await;
    let started = Instant::now();
    assert_eq!(child.down().await.message, "the process exited with code 5");
    child.link.close(GRACE).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    // The background job may be a shell that has not yet replaced itself.
    let _ = kill_process(holder, Signal::KILL);
}

#[tokio::test]
async fn a_closed_stdout_ends_the_link_even_if_the_child_runs_on() {
    let mut child = sh("exec 1>&-; sleep 100").await;
    assert_eq!(
        child.next().await.unwrap_err(),
        LinkDown::new(DownKind::Closed, "the process closed its stdout")
    );
    child.link.close(GRACE).await.unwrap();
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_closed_stdin_ends_the_link_and_nothing_counts_as_sent() {
    let mut child = sh("exec 0<&-; echo $$ >&2; sleep 100").await;
    child.pid_on_stderr().await;
    let position = child.link.push(ping(1)).unwrap();
    let down = child.next().await.unwrap_err();
    assert_eq!(down.kind, DownKind::WriteFailed, "{down:?}");
    assert_eq!(child.link.sent(), position);
    child.link.close(GRACE).await.unwrap();
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_close_does_not_wait_for_messages_that_the_child_does_not_read() {
    let mut child = sh("sleep 100").await;
    let positions: Vec<u64> = (0..10_000)
        .map(|id| child.link.push(ping(id)).unwrap())
        .collect();
    let waited = timeout(Duration::from_millis(50), child.link.next(&NothingPending)).await;
    assert!(waited.is_err());
    assert!(positions[0] < child.link.sent());
    assert!(child.link.sent() <= positions[9_999]);
    let closing = Instant::now();
    child.link.close(GRACE).await.unwrap();
    assert!(closing.elapsed() < Duration::from_secs(10));
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn an_endless_line_breaks_the_link_and_uses_bounded_memory() {
    let mut child = sh("tr '\\0' x < /dev/zero").await;
    assert_eq!(
        child.next().await.unwrap_err(),
        LinkDown::new(DownKind::Broken, "a line is longer than 16 MiB")
    );
    let buffered = child.link.input.discard_buffered();
    let max_bytes = MessageLimits::default().get().max_bytes;
    assert!(buffered <= 2 * max_bytes, "{buffered}");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(child.next().await.is_err());
    assert_eq!(
        child.link.input.discard_buffered(),
        0,
        "the link kept reading"
    );
    child.link.close(GRACE).await.unwrap();
    group_is_gone(child.group).await;
}

#[tokio::test]
async fn a_close_lets_a_child_finish_its_output() {
    let mut child = sh("cat > /dev/null; head -c 1000000 /dev/zero; echo done >&2").await;
    let closing = Instant::now();
    child.link.close(CloseSettings::default()).await.unwrap();
    assert!(closing.elapsed() < CloseSettings::default().stdin);
    assert_eq!(child.stderr.tail(), "done\n");
}

#[tokio::test]
async fn a_close_escalates_from_stdin_to_sigterm_to_sigkill() {
    let mut polite = sh("sleep 100").await;
    let closing = Instant::now();
    polite.link.close(GRACE).await.unwrap();
    assert!(closing.elapsed() >= GRACE.stdin);
    group_is_gone(polite.group).await;

    let mut stubborn = sh("trap '' TERM; echo $$ >&2; while :; do sleep 0.05; done").await;
    stubborn.pid_on_stderr().await;
    let closing = Instant::now();
    let closed = stubborn.link.close(GRACE).await;
    assert_eq!(closed.unwrap_err(), "the process had to be killed");
    assert!(closing.elapsed() >= GRACE.stdin + GRACE.terminate);
    group_is_gone(stubborn.group).await;
}

#[tokio::test]
async fn a_dropped_link_leaves_nothing_behind() {
    let child = sh("trap '' TERM; sleep 100 & sleep 100 & echo $$ >&2; sleep 100").await;
    child.pid_on_stderr().await;
    drop(child.link);
    group_is_gone(child.group).await;
}

#[test]
fn a_dropped_runtime_leaves_nothing_behind() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let group = runtime.block_on(async {
        let mut child = sh("sleep 100 & sleep 100").await;
        let group = child.group;
        tokio::spawn(async move { child.next().await });
        group
    });
    drop(runtime);
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(group_is_gone(group));
}

#[tokio::test]
async fn a_child_sees_its_own_environment_and_directory() {
    // Cargo sets this variable, and it is not inherited.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let command = StdioCommand::new("sh")
        .args(["-c", "env >&2; pwd >&2"])
        .env("GIVEN", "by hand")
        .cwd("/");
    let mut child = open(&command).await.unwrap();
    child.down().await;
    let output = child.stderr.tail();
    assert!(output.contains("GIVEN=by hand\n"), "{output}");
    assert!(output.contains("PATH="), "{output}");
    assert!(!output.contains("CARGO_MANIFEST_DIR"), "{output}");
    assert!(output.ends_with("\n/\n"), "{output}");
}

#[tokio::test]
async fn a_command_that_cannot_start_reports_why_and_what_to_do() {
    let directory = std::env::temp_dir().join(format!("mcpvisor-link-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, mode: u32, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let locked = file("locked", 0o600, "#!/bin/sh\n");
    let lost = file("lost", 0o700, "#!/no/such/interpreter\n");
    let noise = file("noise", 0o700, "\u{1}\u{2}\u{3}");
    let found = |name: &str| StdioCommand::new(name).env("PATH", &directory);

    use OpenFailureClass::{CommandNotFound, NotExecutable};
    let cases = [
        (
            StdioCommand::new("no-such-command"),
            CommandNotFound,
            "full path",
        ),
        (StdioCommand::new(""), CommandNotFound, "install it"),
        (
            StdioCommand::new("/no/such/command"),
            CommandNotFound,
            "install it",
        ),
        (found("sh"), CommandNotFound, "full path"),
        (found("locked"), NotExecutable, "chmod"),
        (StdioCommand::new(&locked), NotExecutable, "chmod"),
        (StdioCommand::new(&lost), NotExecutable, "interpreter"),
        (found("noise"), NotExecutable, "#!"),
        (StdioCommand::new(&noise), NotExecutable, "#!"),
        (StdioCommand::new(&directory), NotExecutable, "command"),
        (
            StdioCommand::new("sh").cwd("/no/such/directory"),
            NotExecutable,
            "cwd",
        ),
        (StdioCommand::new("sh").arg("nul \0"), NotExecutable, "args"),
    ];
    let started = Instant::now();
    for (command, class, action) in cases {
        let mut failure = open(&command).await.err().unwrap();
        // Another test may have forked while the new file was open for writing (ETXTBSY).
        while failure.class == OpenFailureClass::Transient && started.elapsed() < DEADLINE {
            failure = open(&command).await.err().unwrap();
        }
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(
            failure
                .action
                .as_ref()
                .unwrap()
                .to_string()
                .contains(action),
            "{failure:?}"
        );
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn the_messages_of_a_batch_arrive_one_by_one_before_the_end() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#;
    for end in [r"\n", ""] {
        let mut running = sh(&format!("printf '{batch}{end}'")).await;
        for expected in 1..=3 {
            let inbound = running.next().await.unwrap();
            let Inbound::Request { id, .. } = inbound else {
                panic!("{inbound:?}");
            };
            assert_eq!(id, RequestId::Number(expected));
        }
        running.down().await;
    }
}
