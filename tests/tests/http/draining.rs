//! A server that accepts no new connections while requests are in flight (C8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor::{CallError, Callbacks, Config, Known, Runtime, StateName, Transport};
use serde_json::json;
use tokio::sync::watch;

use crate::harness::{LONG, call, connected, reaches, started_with, until, web};
use mcpvisor_testkit::stub_server::{
    Condition, StubReply, StubRequest, StubServer, chunk, default_reply, event, sse_head,
    text_result,
};

/// Longer than an earlier limit that cut requests off.
const DRAIN: Duration = Duration::from_secs(7);

/// The default reply, on a connection that is closed after it.
fn closing(request: &StubRequest) -> StubReply {
    let StubReply::Parts(parts) = default_reply(request) else {
        unreachable!()
    };
    StubReply::Close(parts[0].1.replacen("\r\n", "\r\nconnection: close\r\n", 1))
}

/// A listening stream that the test can break off.
fn listening(broken: &Arc<AtomicBool>) -> StubReply {
    let broken = Arc::clone(broken);
    let is_broken = Condition::new(move || broken.load(Ordering::SeqCst));
    StubReply::PausedThenClose(sse_head(), is_broken, String::new())
}

#[tokio::test]
async fn a_call_in_flight_and_one_without_a_connection_are_answered_by_a_server_that_drains() {
    let broken = Arc::new(AtomicBool::new(false));
    let (release, released) = watch::channel(false);
    let stream = Arc::clone(&broken);
    let server = StubServer::start(move |request| match request.operation() {
        "GET" => listening(&stream),
        "tools/call" => StubReply::result(request, &text_result("done")).held(&released),
        _ => closing(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("it listens", || server.count("GET") == 1).await;
    let other = web.clone();
    let first = tokio::spawn(async move { call(&other).await });
    until("it runs", || server.count("tools/call") == 1).await;
    server.stop_listening();
    broken.store(true, Ordering::SeqCst);
    let other = web.clone();
    let second = tokio::spawn(async move { call(&other).await });
    tokio::time::sleep(DRAIN).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(web.status().state, StateName::Connected);
    release.send_replace(true);
    assert_eq!(first.await.unwrap().unwrap(), "done");
    assert_eq!(
        second.await.unwrap().unwrap(),
        "done",
        "on the connection of the first"
    );
    assert_eq!(server.count("initialize"), 1, "the session goes on");
    assert_eq!(server.count("tools/call"), 2, "each once");
    runtime.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_listening_stream_that_is_refused_for_its_session_cuts_no_call_off() {
    let broken = Arc::new(AtomicBool::new(false));
    let (release, released) = watch::channel(false);
    let stream = Arc::clone(&broken);
    let server = StubServer::start(move |request| match request.operation() {
        "GET" if stream.load(Ordering::SeqCst) => {
            StubReply::status("404 Not Found", "", "Session not found")
        }
        "GET" => listening(&stream),
        "tools/call" => StubReply::result(request, &text_result("done")).held(&released),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.settings.close.drain = Duration::from_millis(100);
    })
    .await;
    reaches(&web, StateName::Connected).await;
    until("it listens", || server.count("GET") == 1).await;
    let other = web.clone();
    let running = tokio::spawn(async move { call(&other).await });
    until("it runs", || server.count("tools/call") == 1).await;
    broken.store(true, Ordering::SeqCst);
    until("the stream is refused again and again", || {
        server.count("GET") >= 3
    })
    .await;
    assert!(!running.is_finished());
    assert_eq!(web.status().state, StateName::Connected);
    release.send_replace(true);
    assert_eq!(running.await.unwrap().unwrap(), "done");
    until("the session is replaced once nothing is in flight", || {
        server.count("initialize") >= 2
    })
    .await;
    runtime.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_connection_was_not_sent_when_its_time_is_up() {
    let (release, released) = watch::channel(false);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => StubReply::result(request, &text_result("done")).held(&released),
        _ => closing(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let other = web.clone();
    let first = tokio::spawn(async move { call(&other).await });
    until("it runs", || server.count("tools/call") == 1).await;
    server.stop_listening();
    let late = web.call_tool("echo", json!({}));
    let error = late.deadline(Duration::from_secs(1)).await.unwrap_err();
    assert!(
        matches!(error, CallError::Deadline { sent: false, .. }),
        "{error:?}"
    );
    let cancelled = web.call_tool("echo", json!({})).deadline(LONG);
    let cancelled = tokio::time::timeout(Duration::from_millis(300), cancelled).await;
    assert!(cancelled.is_err(), "it waits");
    let patient = web.call_tool("echo", json!({})).deadline(LONG).await;
    let error = patient.unwrap_err();
    assert_eq!(error.known(), Known::NotSent, "{error:?}");
    assert!(error.to_string().contains("cannot reach"), "{error}");
    release.send_replace(true);
    assert_eq!(first.await.unwrap().unwrap(), "done");
    assert_eq!(server.count("tools/call"), 1, "the others never left");
    assert_eq!(server.count("notifications/cancelled"), 0);
    runtime.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn the_link_ends_when_the_last_call_ended_and_what_waits_goes_to_the_next_server() {
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let server = StubServer::start(move |request: &StubRequest| match request.operation() {
        "tools/call" => {
            let StubReply::Parts(parts) = StubReply::result(request, &text_result("done")) else {
                unreachable!()
            };
            let is_done = Arc::clone(&is_done);
            let is_done = Condition::new(move || is_done.load(Ordering::SeqCst));
            StubReply::PausedThenClose(String::new(), is_done, parts[0].1.clone())
        }
        _ => closing(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let other = web.clone();
    let first = tokio::spawn(async move { call(&other).await });
    until("it runs", || server.count("tools/call") == 1).await;
    server.stop_listening();
    let other = web.clone();
    let second = tokio::spawn(async move { call(&other).await });
    done.store(true, Ordering::SeqCst);
    assert_eq!(first.await.unwrap().unwrap(), "done");
    reaches(&web, StateName::Reconnecting).await;
    let port = server.port;
    server.stop().await;
    let next = StubServer::start_on(port, default_reply).await;
    assert_eq!(second.await.unwrap().unwrap(), "hello");
    assert_eq!(next.count("tools/call"), 1);
    runtime.shutdown(LONG).await;
}

/// Nothing wakes the link while it waits for the stream: no list is answered, and no connection is
/// idle.
#[tokio::test]
async fn requests_that_were_held_for_the_handshake_wait_for_the_stream_only_for_a_moment() {
    let server = StubServer::start(|request| match request.operation() {
        "GET" | "tools/list" => StubReply::Hang,
        "notifications/initialized" => StubReply::Parts(vec![(
            Duration::from_millis(300),
            "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
        )]),
        "resources/read" => StubReply::result(request, &json!({ "contents": [] })),
        _ => closing(request),
    })
    .await;
    let callbacks = Callbacks::new().roots(|_| async { Ok(Vec::new()) });
    let config = Config::new().server(web(Transport::http(server.url())));
    let builder = Runtime::builder().config(config).callbacks(callbacks);
    let runtime = builder.start().await.unwrap();
    let web = runtime.server("web").unwrap();
    let read = web.read_resource("test://resource").deadline(LONG).await;
    assert!(read.unwrap().contents.is_empty());
    runtime.shutdown(Duration::ZERO).await;
}

const CALLERS: usize = 64;

#[tokio::test]
async fn answered_streams_whose_end_is_late_keep_their_connections_for_the_next_calls() {
    let late = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicUsize::new(0));
    let (is_late, ends) = (Arc::clone(&late), Arc::clone(&ended));
    let server = StubServer::start(move |request| match request.operation() {
        "tools/call" => {
            let answer =
                json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("done")});
            let (late, ends) = (Arc::clone(&is_late), Arc::clone(&ends));
            let may_end = Condition::new(move || {
                let may = !late.load(Ordering::SeqCst);
                ends.fetch_add(usize::from(may), Ordering::SeqCst);
                may
            });
            let answer = sse_head() + &chunk(&event(&answer));
            StubReply::Paused(answer, may_end, "0\r\n\r\n".to_owned())
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let before = server.accepted();
    for _ in 0..6 {
        late.store(true, Ordering::SeqCst);
        ended.store(0, Ordering::SeqCst);
        let calls: Vec<_> = (0..CALLERS)
            .map(|_| {
                let web = web.clone();
                tokio::spawn(async move { call(&web).await })
            })
            .collect();
        for answer in calls {
            assert_eq!(answer.await.unwrap().unwrap(), "done");
        }
        late.store(false, Ordering::SeqCst);
        until("the ends are sent", || {
            ended.load(Ordering::SeqCst) >= CALLERS
        })
        .await;
        for _ in 0..2 {
            assert_eq!(call(&web).await.unwrap(), "done", "behind all the ends");
        }
    }
    let opened = server.accepted() - before;
    assert!(opened <= 2 * CALLERS, "{opened} connections");
    runtime.shutdown(LONG).await;
}
