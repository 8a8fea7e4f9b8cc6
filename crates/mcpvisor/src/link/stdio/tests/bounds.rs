//! What a child says is bounded, and replies come through whatever else it says.

use mcpvisor_core::ListKind;
use rmcp::model::ServerNotification;

use super::*;
use crate::link::flood_gate::{BURST, REFILL_INTERVAL};

/// Calls 7 and 8 wait for a tool's result.
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
    async fn hear(&mut self) -> Result<Inbound, LinkDown> {
        timeout(DEADLINE, self.link.next(&SevenAndEight))
            .await
            .unwrap()
    }

    async fn unreadable(&mut self, call: u64) -> String {
        match self.hear().await {
            Ok(Inbound::Unreadable { id, problem }) if id == CallId(call) => problem,
            other => panic!("{other:?}"),
        }
    }

    async fn answer(&mut self, call: u64) {
        let inbound = self.hear().await;
        assert!(
            matches!(inbound, Ok(Inbound::Response { id, result: Ok(_) }) if id == CallId(call)),
            "{inbound:?}"
        );
    }
}

/// A command that says so many MiB of the digit on its stdout.
fn mib(count: usize, digit: char) -> String {
    format!(
        "head -c {} /dev/zero | tr '\\0' {digit}",
        count * 1024 * 1024
    )
}

/// A command that answers a call.
fn answer(call: u64) -> String {
    format!(r#"printf '{{"jsonrpc":"2.0","id":{call},"result":{{"content":[]}}}}\n'"#)
}

#[tokio::test]
async fn a_line_that_is_too_long_fails_its_call_and_the_link_goes_on() {
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
async fn a_line_that_is_too_long_and_belongs_to_no_call_is_passed_over() {
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
        let mut passed_over = 0;
        let mut answers = 0;
        let down = loop {
            match child.hear().await {
                Ok(Inbound::Response { .. }) => answers += 1,
                Ok(Inbound::Stray { .. } | Inbound::Dropped { messages: 1, .. }) => {
                    passed_over += 1
                }
                Ok(other) => panic!("{other:?}"),
                Err(down) => break down,
            }
        };
        assert_eq!((passed_over, answers), (1, 1));
        assert_eq!(down.kind, DownKind::Closed);
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_and_does_not_tell_whose_it_is_breaks_the_link() {
    let mut child = sh(&format!(
        r#"printf '{{"jsonrpc":"2.0","result":'; {}; echo '}}'; sleep 100"#,
        mib(17, '1')
    ))
    .await;
    let expected = LinkDown::new(DownKind::Broken, "a line is longer than 16 MiB");
    assert_eq!(child.hear().await.unwrap_err(), expected);
}

/// A reply to call 7 of several MiB, behind and before other messages.
fn heavy_reply_among_others() -> String {
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

/// What comes, in a word each.
async fn words(child: &mut Running, patience: Duration) -> Vec<&'static str> {
    let mut words = Vec::new();
    loop {
        match timeout(patience, child.link.next(&SevenAndEight)).await {
            Ok(Ok(Inbound::Notification(_))) => words.push("notification"),
            Ok(Ok(Inbound::Response { id, .. })) => {
                words.push(if id == CallId(7) { "heavy" } else { "light" });
            }
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(_)) => return words,
            Err(_) => {}
        }
    }
}

#[tokio::test]
async fn a_heavy_line_keeps_its_place_and_a_wait_that_is_given_up_loses_nothing() {
    let expected = ["notification", "heavy", "notification", "light"];
    let mut child = sh(&heavy_reply_among_others()).await;
    assert_eq!(words(&mut child, DEADLINE).await, expected);
    let mut child = sh(&heavy_reply_among_others()).await;
    assert_eq!(
        words(&mut child, Duration::from_micros(200)).await,
        expected
    );
}

#[tokio::test]
async fn while_a_heavy_line_is_read_the_link_writes_and_notices_the_exit() {
    let mut child = sh(&format!(
        r#"{}; read line; echo "$line" >&2; exit 3"#,
        heavy_reply_among_others()
    ))
    .await;
    while !matches!(child.hear().await, Ok(Inbound::Notification(_))) {}
    while child.link.heavy.is_none() {
        assert!(
            timeout(Duration::from_millis(1), child.link.next(&SevenAndEight))
                .await
                .is_err()
        );
    }
    // The reader is held up, as if the line took long.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let reader = child.link.heavy.take().unwrap();
    child.link.heavy = Some(reader.hold(held));
    child.link.push(ping(1)).unwrap();
    let deadline = Instant::now() + DEADLINE;
    while child.link.process.is_running() {
        assert!(Instant::now() < deadline, "the exit was not noticed");
        let waited = timeout(Duration::from_millis(5), child.link.next(&SevenAndEight)).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    let said = poll_fn(|cx| child.link.stderr.poll_end(cx));
    timeout(DEADLINE, said).await.unwrap();
    assert!(child.stderr.tail().contains("ping"));
    release.send(()).unwrap();
    assert_eq!(
        words(&mut child, DEADLINE).await,
        ["heavy", "notification", "light"]
    );
    let down = child.hear().await.unwrap_err();
    assert_eq!(down.message, "the process exited with code 3");
}

#[tokio::test]
async fn what_comes_with_the_end_of_a_heavy_line_is_not_left_lying() {
    // Read at once with the last part of a line that is for nobody.
    let mut child = sh(&format!(
        r#"(printf '{{"jsonrpc":"2.0","method":"x","params":"'; {}; printf '"}}\n'; {}) | cat; sleep 100"#,
        mib(2, 'x'),
        answer(8)
    ))
    .await;
    loop {
        match child.hear().await {
            Ok(Inbound::Dropped { messages: 1, .. }) => {}
            Ok(Inbound::Response { id: CallId(8), .. }) => return,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_flood_is_cut_off_and_counted_and_replies_come_through() {
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
    let (mut let_in, mut dropped, mut noise) = (0, 0, 0);
    let (mut changed, mut answers) = (Vec::new(), Vec::new());
    let down = loop {
        match child.hear().await {
            // There may be room for one of these by the time that it comes.
            Ok(Inbound::Notification(ServerNotification::ToolListChangedNotification(_))) => {
                changed.push(ListKind::Tools);
            }
            Ok(Inbound::Notification(_)) => let_in += 1,
            Ok(Inbound::Stray { .. }) => noise += 1,
            Ok(Inbound::Dropped {
                messages: lost,
                strays,
                changed_lists: lists,
                ..
            }) => {
                dropped += lost;
                noise += strays;
                changed.extend(lists);
            }
            Ok(Inbound::Response { id, .. }) => answers.push(id),
            Ok(other) => panic!("{other:?}"),
            Err(down) => break down,
        }
    };
    assert_eq!(down.kind, DownKind::Exited, "{down:?}");
    assert_eq!(answers, [CallId(7), CallId(8)]);
    assert_eq!((let_in + dropped, noise), (MANY, MANY));
    let refilled = started.elapsed().as_millis() as u64 / REFILL_INTERVAL.as_millis() as u64;
    let most = u64::from(BURST) + refilled + 1;
    assert!(
        (u64::from(BURST)..=most).contains(&let_in),
        "{let_in} of at most {most}"
    );
    assert!(changed.contains(&ListKind::Tools));
}

#[tokio::test]
async fn a_child_that_never_pauses_leaves_the_thread_to_others() {
    // There is one thread, so the timer can only fire if the link lets go of it.
    let mut child = sh("yes noise").await;
    let started = Instant::now();
    let pause = tokio::time::sleep(Duration::from_millis(300));
    let flood = async {
        loop {
            child.hear().await.unwrap();
        }
    };
    tokio::select! {
        () = pause => {}
        () = flood => {}
    }
    assert!(started.elapsed() < Duration::from_millis(300) + BUSY);
}
