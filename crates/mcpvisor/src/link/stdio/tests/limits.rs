//! The output of a child is limited, and replies are delivered whatever else it writes.

use mcpvisor_core::ListKind;
use rmcp::model::ServerNotification;

use super::*;
use crate::link::flood_gate::{BURST, REFILL_INTERVAL};

/// Tool calls 7 and 8 are pending.
struct SevenAndEight;

impl PendingRequests for SevenAndEight {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        self.snapshot().reply_kind(id)
    }

    fn snapshot(&self) -> PendingSnapshot {
        PendingSnapshot(vec![
            (CallId(7), ReplyKind::CallTool),
            (CallId(8), ReplyKind::CallTool),
        ])
    }
}

impl Running {
    async fn receive(&mut self) -> Result<Inbound, LinkDown> {
        timeout(DEADLINE, self.link.next(&SevenAndEight))
            .await
            .unwrap()
    }

    async fn unreadable(&mut self, call: u64) -> String {
        match self.receive().await {
            Ok(Inbound::Unreadable { id, problem }) if id == CallId(call) => problem,
            other => panic!("{other:?}"),
        }
    }

    async fn answer(&mut self, call: u64) {
        let inbound = self.receive().await;
        assert!(
            matches!(inbound, Ok(Inbound::Response { id, result: Ok(_) }) if id == CallId(call)),
            "{inbound:?}"
        );
    }
}

/// A shell command that writes `count` MiB of a character to stdout.
fn mib(count: usize, digit: char) -> String {
    format!(
        "head -c {} /dev/zero | tr '\\0' {digit}",
        count * 1024 * 1024
    )
}

/// A shell command that answers a call.
fn answer(call: u64) -> String {
    format!(r#"printf '{{"jsonrpc":"2.0","id":{call},"result":{{"content":[]}}}}\n'"#)
}

#[tokio::test]
async fn an_oversized_reply_fails_its_call_and_the_link_continues() {
    for (before, after) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":"#, "}"),
        (r#"{"jsonrpc":"2.0","result":"#, r#","id":7}"#),
    ] {
        let mut child = sh(&format!(
            "printf '{before}'; {}; printf '{after}\\n'; {}; sleep 100",
            mib(17, '1'),
            answer(8)
        ))
        .await;
        let problem = child.unreadable(7).await;
        assert!(problem.contains("longer than 16 MiB"), "{problem}");
        child.answer(8).await;
    }
}

#[tokio::test]
async fn an_oversized_line_of_no_call_is_skipped() {
    for (before, after) in [
        (r#"{"jsonrpc":"2.0","id":9,"result":"#, "}"),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":"#,
            "}",
        ),
    ] {
        let mut child = sh(&format!(
            "printf '{before}'; {}; printf '{after}\\n'; {}; exec 1>&-; sleep 100",
            mib(17, '1'),
            answer(8)
        ))
        .await;
        let mut skipped = 0;
        let mut answers = 0;
        let down = loop {
            match child.receive().await {
                Ok(Inbound::Response { .. }) => answers += 1,
                Ok(Inbound::Stray { .. }) => skipped += 1,
                Ok(Inbound::Dropped(report)) if report.messages == 1 => skipped += 1,
                Ok(other) => panic!("{other:?}"),
                Err(down) => break down,
            }
        };
        assert_eq!((skipped, answers), (1, 1));
        assert_eq!(down.kind, DownKind::Closed);
    }
}

#[tokio::test]
async fn an_oversized_line_that_cannot_be_identified_breaks_the_link() {
    let mut child = sh(&format!(
        r#"printf '{{"jsonrpc":"2.0","result":'; {}; echo '}}'; sleep 100"#,
        mib(17, '1')
    ))
    .await;
    let expected = LinkDown::new(DownKind::Broken, "a line is longer than 16 MiB");
    assert_eq!(child.receive().await.unwrap_err(), expected);
}

/// A reply of several MiB to call 7, between other messages.
fn large_reply_between_others() -> String {
    let notification =
        |name| format!(r#"printf '{{"jsonrpc":"2.0","method":"notifications/{name}"}}\n'"#);
    let text = r#"{"content":[{"type":"text","text":""#;
    format!(
        r#"{}; printf '{{"jsonrpc":"2.0","id":7,"result":{text}'; {}; printf '"}}]}}}}\n'; {}; {}"#,
        notification("before"),
        mib(5, 'x'),
        notification("after"),
        answer(8)
    )
}

/// The kinds of all messages up to the end; each wait is cancelled after `limit`.
async fn kinds(child: &mut Running, limit: Duration) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    loop {
        match timeout(limit, child.link.next(&SevenAndEight)).await {
            Ok(Ok(Inbound::Notification { .. })) => kinds.push("notification"),
            Ok(Ok(Inbound::Response { id, .. })) => {
                kinds.push(if id == CallId(7) { "large" } else { "small" });
            }
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(_)) => return kinds,
            Err(_) => {}
        }
    }
}

#[tokio::test]
async fn a_large_line_keeps_its_place_and_a_cancelled_wait_loses_nothing() {
    let expected = ["notification", "large", "notification", "small"];
    let mut child = sh(&large_reply_between_others()).await;
    assert_eq!(kinds(&mut child, DEADLINE).await, expected);
    let mut child = sh(&large_reply_between_others()).await;
    assert_eq!(
        kinds(&mut child, Duration::from_micros(200)).await,
        expected
    );
}

#[tokio::test]
async fn while_a_large_line_is_decoded_the_link_writes_and_notices_the_exit() {
    let mut child = sh(&format!(
        r#"{}; read line; echo "$line" >&2; exit 3"#,
        large_reply_between_others()
    ))
    .await;
    while !matches!(child.receive().await, Ok(Inbound::Notification { .. })) {}
    while child.link.input.blocking_decode.is_none() {
        assert!(
            timeout(Duration::from_millis(1), child.link.next(&SevenAndEight))
                .await
                .is_err()
        );
    }
    // Delays the thread, as if decoding took long.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let decode = child.link.input.blocking_decode.take().unwrap();
    child.link.input.blocking_decode = Some(tokio::spawn(async move {
        let held = tokio::task::spawn_blocking(move || held.recv());
        let _ = held.await;
        decode.await.unwrap()
    }));
    child.link.push(ping(1)).unwrap();
    let deadline = Instant::now() + DEADLINE;
    while child.link.process.is_running() {
        assert!(Instant::now() < deadline, "the exit was not noticed");
        let waited = timeout(Duration::from_millis(5), child.link.next(&SevenAndEight)).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    let stderr_end = poll_fn(|cx| child.link.stderr.poll_end(cx));
    timeout(DEADLINE, stderr_end).await.unwrap();
    assert!(child.stderr.tail().contains("ping"));
    release.send(()).unwrap();
    assert_eq!(
        kinds(&mut child, DEADLINE).await,
        ["large", "notification", "small"]
    );
    let down = child.receive().await.unwrap_err();
    assert_eq!(down.message, "the process exited with code 3");
}

#[tokio::test]
async fn lines_read_together_with_the_end_of_a_large_line_are_delivered() {
    // The reply is read together with the last part of a line that is dropped.
    let mut child = sh(&format!(
        r#"(printf '{{"jsonrpc":"2.0","method":"x","params":"'; {}; printf '"}}\n'; {}) | cat; sleep 100"#,
        mib(2, 'x'),
        answer(8)
    ))
    .await;
    loop {
        match child.receive().await {
            Ok(Inbound::Dropped(report)) if report.messages == 1 => {}
            Ok(Inbound::Response { id: CallId(8), .. }) => return,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_flood_is_dropped_and_counted_and_replies_are_delivered() {
    const MANY: u64 = 20_000;
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let tools = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let mut child = sh(&format!(
        "yes '{log}' | head -n {MANY}; echo '{tools}'; echo '{tools}'; {}; yes noise | head -n {MANY}; {}",
        answer(7),
        answer(8)
    ))
    .await;
    let started = Instant::now();
    let (mut admitted, mut dropped, mut noise) = (0, 0, 0);
    let (mut changed, mut answers) = (Vec::new(), Vec::new());
    let down = loop {
        match child.receive().await {
            // The bucket may have refilled by the time that this one arrives.
            Ok(Inbound::Notification {
                notification: ServerNotification::ToolListChangedNotification(_),
                ..
            }) => {
                changed.push(ListKind::Tools);
            }
            Ok(Inbound::Notification { .. }) => admitted += 1,
            Ok(Inbound::Stray { .. }) => noise += 1,
            Ok(Inbound::Dropped(report)) => {
                dropped += report.messages;
                noise += report.strays;
                changed.extend(report.changed_lists);
            }
            Ok(Inbound::Response { id, .. }) => answers.push(id),
            Ok(other) => panic!("{other:?}"),
            Err(down) => break down,
        }
    };
    assert_eq!(down.kind, DownKind::Exited, "{down:?}");
    assert_eq!(answers, [CallId(7), CallId(8)]);
    assert_eq!((admitted + dropped, noise), (MANY, MANY));
    let refilled = started.elapsed().as_millis() as u64 / REFILL_INTERVAL.as_millis() as u64;
    let max = u64::from(BURST) + refilled + 1;
    assert!(
        (u64::from(BURST)..=max).contains(&admitted),
        "{admitted} of at most {max}"
    );
    assert!(changed.contains(&ListKind::Tools));
}

#[tokio::test]
async fn a_child_that_never_pauses_does_not_block_the_thread() {
    // There is one thread, so the timer can only fire if the link yields.
    let mut child = sh("yes noise").await;
    let started = Instant::now();
    let pause = tokio::time::sleep(Duration::from_millis(300));
    let flood = async {
        loop {
            child.receive().await.unwrap();
        }
    };
    tokio::select! {
        () = pause => {}
        () = flood => {}
    }
    assert!(started.elapsed() < Duration::from_millis(300) + BUSY);
}
