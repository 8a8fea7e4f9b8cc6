//! Event streams: resumed ones, and the server's own.

use mcpvisor::{Callbacks, RetryPolicy, Runtime, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, LostSession, Received};
use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::arena::*;
use crate::fleet::*;

fn gets(arena: &Arena) -> Vec<Received> {
    let mut received = arena.server.received();
    received.retain(|it| it.http_method == "GET");
    received
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_resumed_after_the_pause_that_it_asks_for() {
    let arena = Arena::new(HttpOptions::sse()).await;
    arena.server.fault("http-resume=300").once();
    let answer = structured(arena.run("resumed").await);
    assert_eq!(answer, json!({ "key": "resumed", "runs": 1 }));
    assert_eq!(arena.server.requests("tools/call"), 1, "not sent again");
    let received = arena.server.received();
    let called = received
        .iter()
        .find(|it| it.method == "tools/call")
        .unwrap();
    let resumed = received
        .iter()
        .find(|it| it.header("last-event-id").is_some());
    let resumed = resumed.unwrap();
    let pause = resumed.at_ms - called.at_ms;
    assert!(pause >= 300, "{pause} ms");
    assert_eq!(
        resumed.header("mcp-session-id"),
        called.header("mcp-session-id")
    );
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_notification_on_the_servers_own_stream_is_handled() {
    let arena = Arena::new(HttpOptions::default()).await;
    eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
    let before = arena.server.requests("tools/list");
    arena
        .server
        .notify("notifications/tools/list_changed", json!({}));
    let listed = || arena.server.requests("tools/list") > before;
    eventually(DEADLINE, "the new list", listed).await;
    arena.end().await;
}

#[tokio::test]
async fn a_call_that_is_only_accepted_may_be_answered_on_the_servers_own_stream() {
    let arena = Arena::new(HttpOptions::default()).await;
    eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
    arena.server.fault("http-202").once();
    let answered = async {
        let accepted = || arena.server.requests("tools/call") == 1;
        eventually(DEADLINE, "the call", accepted).await;
        // Immediate consequences are visible once another request is answered.
        arena.handle.ping().deadline(DEADLINE).await.unwrap();
        let received = arena.server.received();
        let called = received.iter().find(|it| it.method == "tools/call");
        let result = json!({ "content": [], "structuredContent": { "key": "later" } });
        let id = &called.unwrap().id;
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        assert_eq!(arena.server.send_message(&answer), 1);
    };
    let (outcome, ()) = tokio::join!(arena.run("later"), answered);
    assert_eq!(structured(outcome), json!({ "key": "later" }));
    assert_eq!(arena.server.requests("tools/call"), 1, "not sent again");
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn the_servers_own_stream_is_opened_again_when_it_ends() {
    let arena = Arena::new(HttpOptions::default()).await;
    for number in 1..=2 {
        eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
        assert_eq!(arena.server.end_streams(), 1);
        let opened = || gets(&arena).len() > number;
        eventually(DEADLINE, "another stream", opened).await;
    }
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_opened(), 1);
    arena.end().await;
}

#[tokio::test]
async fn a_session_that_is_gone_is_noticed_by_the_servers_own_stream() {
    for lost in [
        LostSession::NotFound,
        LostSession::BadRequest,
        LostSession::Gone,
    ] {
        notices_by_its_stream(HttpOptions::default().lost(lost)).await;
    }
}

async fn notices_by_its_stream(options: HttpOptions) {
    let arena = Arena::new(options).await;
    eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
    arena.server.forget_sessions();
    arena.server.end_streams();
    // Without any call.
    ready_after(&arena.handle, 1).await;
    assert_eq!(arena.server.sessions_opened(), 2);
    arena.recovers(2).await;
    arena.end().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_tells_at_once_that_the_session_is_gone() {
    let arena = Arena::new(HttpOptions::default()).await;
    let mut times = Vec::new();
    for round in 1..=size(5, 50) as u64 {
        eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
        arena.server.forget_sessions();
        let began = Instant::now();
        arena.server.cut_streams();
        // Without any call.
        ready_after(&arena.handle, round).await;
        times.push(began.elapsed());
        let call = arena
            .handle
            .call_tool("run", json!({ "key": round.to_string() }));
        // On the lost session it would be refused.
        let outcome = call.retry(RetryPolicy::Never).deadline(DEADLINE).await;
        outcome.unwrap_or_else(|error| panic!("{round}: {error:?}"));
    }
    // A stream that the server ends properly is reopened after at least a second.
    let best = times.iter().min().unwrap();
    assert!(*best < secs(1), "{times:?}");
    arena.end().await;
}

#[tokio::test]
async fn a_suspected_session_delays_calls_only_briefly() {
    let arena = Arena::new(HttpOptions::default()).await;
    eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
    arena
        .server
        .fault("http-stall-headers")
        .on("GET")
        .for_ever();
    let began = Instant::now();
    arena.server.cut_streams();
    eventually(DEADLINE, "the question", || gets(&arena).len() == 2).await;
    arena.run("held").await.unwrap();
    let took = began.elapsed();
    assert!(took >= millis(100), "it went after {took:?}");
    assert!(took < millis(100) + tolerance(), "it went after {took:?}");
    assert_eq!(arena.server.sessions_opened(), 1);
    arena.end().await;
}

/// A fleet of one with or without a handler for the server's requests.
async fn fleet_that_answers(server: &HttpServer, answers: bool) -> Runtime {
    let web = crate::fleet::server("web", Transport::http(server.url()));
    let mut builder = Runtime::builder().server(web);
    if answers {
        let declines = Callbacks::new()
            .elicitation_form(|_| async { Ok(ElicitResult::new(ElicitationAction::Decline)) });
        builder = builder.callbacks(declines);
    }
    builder.start().await.unwrap()
}

#[tokio::test]
async fn a_client_with_callbacks_calls_once_the_stream_is_open() {
    let server = HttpServer::start(HttpOptions::default()).await;
    for _ in 0..size(20, 200) {
        let runtime = fleet_that_answers(&server, true).await;
        let web = runtime.server("web").unwrap();
        let call = web.call_tool("echo", Value::Null);
        call.deadline(DEADLINE).await.unwrap();
        runtime.shutdown(DEADLINE).await;
    }
    let received = server.received();
    let of_interest = received.iter().map(|it| match it.http_method.as_str() {
        "GET" => "GET",
        _ => it.method.as_str(),
    });
    let order: Vec<&str> = of_interest
        .filter(|what| ["GET", "tools/call"].contains(what))
        .collect();
    assert!(
        order.chunks(2).all(|pair| pair == ["GET", "tools/call"]),
        "{order:?}"
    );
}

/// Milliseconds from the request for a stream that never opens to the list request and to the tool
/// call.
async fn without_the_stream(answers: bool) -> (u64, u64) {
    let server = HttpServer::start(HttpOptions::default()).await;
    server.fault("http-stall-headers").on("GET").for_ever();
    let runtime = fleet_that_answers(&server, answers).await;
    runtime.ready(DEADLINE).await.unwrap();
    let asked = || server.received().iter().any(|it| it.http_method == "GET");
    eventually(DEADLINE, "the stream", asked).await;
    let web = runtime.server("web").unwrap();
    let call = web.call_tool("echo", Value::Null);
    call.deadline(DEADLINE).await.unwrap();
    runtime.shutdown(DEADLINE).await;
    let received = server.received();
    let when =
        |what: &dyn Fn(&Received) -> bool| received.iter().find(|it| what(it)).unwrap().at_ms;
    let listens = when(&|it| it.http_method == "GET");
    let lists = when(&|it| it.method == "tools/list");
    let calls = when(&|it| it.method == "tools/call");
    (lists.saturating_sub(listens), calls.saturating_sub(listens))
}

#[tokio::test]
async fn a_stream_that_does_not_open_delays_calls_only_briefly() {
    let mut soonest = (u64::MAX, u64::MAX);
    for _ in 0..5 {
        let (lists, calls) = without_the_stream(true).await;
        assert!(calls >= 250, "called after {calls} ms");
        // Lists do not wait for the stream, nor do calls of a client without a handler.
        let (_, at_once) = without_the_stream(false).await;
        soonest = (soonest.0.min(lists), soonest.1.min(at_once));
        if soonest.0.max(soonest.1) < 400 {
            return;
        }
    }
    panic!("listed and called after {soonest:?} ms");
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_works() {
    let options = HttpOptions {
        stream: false,
        ..HttpOptions::default()
    };
    let arena = Arena::new(options).await;
    arena.recovers(1).await;
    // The stream is requested once, not repeatedly.
    tokio::time::sleep(millis(500)).await;
    assert!(gets(&arena).len() <= 2, "{:?}", gets(&arena).len());
    arena.server.restart().await;
    let call = arena.handle.call_tool("echo", Value::Null);
    call.deadline(DEADLINE).await.unwrap();
    arena.end().await;
}

#[tokio::test]
async fn progress_comes_with_the_stream_of_its_call() {
    let arena = Arena::new(HttpOptions::sse()).await;
    let (sink, mut progress) = tokio::sync::mpsc::channel(16);
    let call = arena
        .handle
        .call_tool("progress", json!({ "steps": 3, "ms": 20 }));
    call.on_progress(sink).deadline(DEADLINE).await.unwrap();
    let mut seen = 0;
    while progress.recv().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3);
    arena.end().await;
}
