//! Resuming reply streams: after the reply, without success, and for requests that were only
//! accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcpvisor::Known;
use serde_json::{Value, json};

use crate::harness::{LONG, call, connected, until};
use mcpvisor_testkit::stub_server::{
    Condition, StubReply, StubRequest, StubServer, chunk, default_reply, event, initialize_reply,
    one_tool, sse_head, text_result,
};

/// The reply to a request as one event with an id.
fn numbered(request: &StubRequest, result: &Value) -> String {
    let answer = json!({"jsonrpc": "2.0", "id": request.id(), "result": result});
    sse_head() + &chunk(&format!("id: 7\n{}", event(&answer)))
}

#[tokio::test]
async fn a_stream_that_ends_after_its_answer_is_not_resumed() {
    // The stream ends properly or breaks off, both together with the reply.
    let ends: [fn(String) -> StubReply; 2] =
        [|text| StubReply::raw(text + "0\r\n\r\n"), StubReply::Close];
    for end in ends {
        let server = StubServer::start(move |request| match request.operation() {
            "initialize" => {
                let StubReply::Parts(parts) = initialize_reply(request, Some("session-1")) else {
                    unreachable!()
                };
                let body = parts[0].1.split("\r\n\r\n").nth(1).unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                let text = numbered(request, &body["result"]);
                end(text.replacen("\r\n", "\r\nmcp-session-id: session-1\r\n", 1))
            }
            "tools/list" => end(numbered(request, &one_tool())),
            "tools/call" => end(numbered(request, &text_result("whole"))),
            "GET" if request.header("last-event-id").is_some() => {
                StubReply::status("404 Not Found", "", "")
            }
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        for _ in 0..20 {
            assert_eq!(call(&web).await.unwrap(), "whole");
        }
        runtime.shutdown(LONG).await;
        let requests = server.requests();
        assert_eq!(requests[1].operation(), "notifications/initialized");
        let resumed = requests
            .iter()
            .filter(|it| it.header("last-event-id").is_some());
        assert_eq!(resumed.count(), 0, "everything was answered");
        assert_eq!(server.count("initialize"), 1, "the session is there");
    }
}

#[tokio::test]
async fn a_stream_resumed_with_anything_but_a_stream_leaves_the_outcome_unknown() {
    let others: [fn() -> StubReply; 4] = [
        || StubReply::status("200 OK", "content-type: text/html\r\n", "<html>"),
        || StubReply::status("200 OK", "content-type: application/json\r\n", "{}"),
        || StubReply::status("202 Accepted", "", ""),
        || StubReply::raw("HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
    ];
    for other in others {
        let server = StubServer::start(move |request| {
            match (request.operation(), request.header("last-event-id")) {
                ("tools/call", _) => StubReply::events(&["id: 1\ndata:\n\n".to_owned()]),
                ("GET", Some(_)) => other(),
                // The server has its own stream, which carries no replies.
                ("GET", None) => StubReply::raw(sse_head()),
                _ => default_reply(request),
            }
        })
        .await;
        let (runtime, web) = connected(&server).await;
        let error = call(&web).await.unwrap_err();
        assert_eq!(
            (error.code(), error.known()),
            ("outcome_unknown", Known::Unknown),
            "{error}"
        );
        assert_eq!(server.count("tools/call"), 1);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn an_accepted_request_ends_when_the_stream_for_its_answer_is_gone() {
    // Rejected permanently after a proper end, or broken off in the middle.
    for breaks in [false, true] {
        let accepted = Arc::new(AtomicUsize::new(0));
        let (opened, taken) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&accepted));
        let pinged = Arc::new(AtomicUsize::new(0));
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => {
                taken.fetch_add(1, Ordering::SeqCst);
                StubReply::status("202 Accepted", "", "")
            }
            "GET" if opened.fetch_add(1, Ordering::SeqCst) == 0 => {
                let end = if breaks { "" } else { "0\r\n\r\n" };
                let (pinged, end) = (Arc::clone(&pinged), end.to_owned());
                let is_known = Condition::new(move || pinged.load(Ordering::SeqCst) == 2);
                StubReply::PausedThenClose(sse_head(), is_known, end)
            }
            "GET" if breaks => StubReply::raw(sse_head()),
            "ping" => {
                pinged.fetch_add(1, Ordering::SeqCst);
                default_reply(request)
            }
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        until("the stream is open", || server.count("GET") == 1).await;
        let caller = web.clone();
        let waiting = tokio::spawn(async move { call(&caller).await });
        until("the call is taken", || accepted.load(Ordering::SeqCst) == 1).await;
        // Once the first of them is answered, the client has read that too, and the stream may end.
        for _ in 0..2 {
            web.ping().deadline(LONG).await.unwrap();
        }
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(
            (error.code(), error.known()),
            ("outcome_unknown", Known::Unknown),
            "{error}"
        );
        assert_eq!(server.count("tools/call"), 1);
        assert_eq!(web.status().generation.get(), 1);
        runtime.shutdown(LONG).await;
    }
}
