//! Sessions that end before their connection does (S1, S2, S4, S5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mcpvisor::{CallError, Known, StateName};
use serde_json::{Value, json};

use crate::harness::{LONG, call, connected, known, reaches, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, default_reply, initialize_reply, text_result,
};

/// A server that forgets its sessions on command, and counts its runs.
#[derive(Clone, Default)]
struct Forgetful {
    sessions: Arc<AtomicUsize>,
    forgotten: Arc<AtomicUsize>,
    ran: Arc<AtomicUsize>,
}

impl Forgetful {
    /// Forgets all sessions up to the current one.
    fn forget(&self) {
        self.forgotten
            .store(self.sessions.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn answer(&self, request: &StubRequest, refusal: &StubReply) -> StubReply {
        if request.operation() == "initialize" {
            assert_eq!(
                request.header("mcp-session-id"),
                None,
                "a new session has no id"
            );
            let number = self.sessions.fetch_add(1, Ordering::SeqCst) + 1;
            return initialize_reply(request, Some(&format!("session-{number}")));
        }
        let session = request.header("mcp-session-id").unwrap_or("session-0");
        let number: usize = session.trim_start_matches("session-").parse().unwrap();
        if number <= self.forgotten.load(Ordering::SeqCst) {
            return refusal.clone();
        }
        if request.operation() == "tools/call" {
            self.ran.fetch_add(1, Ordering::SeqCst);
            return StubReply::result(request, &text_result(session));
        }
        default_reply(request)
    }
}

fn not_found() -> StubReply {
    StubReply::status("404 Not Found", "", "")
}

fn error(status: &str, message: &str) -> StubReply {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": message}});
    StubReply::status(
        status,
        "content-type: application/json\r\n",
        &body.to_string(),
    )
}

#[tokio::test]
async fn sixty_four_callers_of_a_session_that_is_gone_cause_one_reconnect_and_are_all_answered() {
    let forgetful = Forgetful::default();
    let behind = forgetful.clone();
    let server = StubServer::start(move |request| behind.answer(request, &not_found())).await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(call(&web).await.unwrap(), "session-1");
    forgetful.forget();
    let before = forgetful.ran.load(Ordering::SeqCst);
    let calls = (0..64).map(|_| call(&web));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap(), "session-2");
    }
    assert_eq!(server.count("initialize"), 2, "one reconnect");
    assert_eq!(server.count("DELETE"), 0, "what is gone is not ended");
    assert_eq!(
        forgetful.ran.load(Ordering::SeqCst) - before,
        64,
        "nothing ran twice"
    );
    assert_eq!(web.status().generation.get(), 2);
    assert_eq!(
        web.status().last_error,
        None,
        "a success clears what was before"
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_session_is_gone_by_a_known_text_too() {
    for (status, text) in [
        (
            "400 Bad Request",
            "Bad Request: No valid session ID provided",
        ),
        ("410 Gone", "Session expired"),
        ("200 OK", "Session not found"),
    ] {
        let forgetful = Forgetful::default();
        let behind = forgetful.clone();
        let refusal = error(status, text);
        let server = StubServer::start(move |request| behind.answer(request, &refusal)).await;
        let (runtime, web) = connected(&server).await;
        forgetful.forget();
        assert_eq!(call(&web).await.unwrap(), "session-2", "{status} {text}");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn every_kind_of_request_finds_its_way_to_the_new_session() {
    let forgetful = Forgetful::default();
    let behind = forgetful.clone();
    let server = StubServer::start(move |request| {
        let answer = |result: Value| StubReply::result(request, &result);
        let good = behind.answer(request, &not_found());
        let accepted =
            matches!(&good, StubReply::Parts(parts) if parts[0].1.starts_with("HTTP/1.1 202"));
        match request.operation() {
            _ if !accepted => good,
            "prompts/list" => answer(json!({"prompts": []})),
            "prompts/get" => answer(json!({"messages": []})),
            "resources/list" => answer(json!({"resources": []})),
            "resources/templates/list" => answer(json!({"resourceTemplates": []})),
            "resources/read" => answer(json!({"contents": []})),
            "resources/subscribe" | "logging/setLevel" => answer(json!({})),
            _ => good,
        }
    })
    .await;
    let (runtime, web) = connected(&server).await;
    for round in 1.. {
        forgetful.forget();
        let asked = match round {
            1 => web.list_tools(None).await.map(drop),
            2 => web.list_prompts(None).await.map(drop),
            3 => web.get_prompt("p", json!({})).await.map(drop),
            4 => web.list_resources(None).await.map(drop),
            5 => web.list_resource_templates(None).await.map(drop),
            6 => web.read_resource("x:y").await.map(drop),
            7 => web.subscribe("x:y").await,
            8 => web.ping().await,
            _ => break,
        };
        asked.unwrap_or_else(|error| panic!("{round}: {error}"));
        assert_eq!(server.count("initialize"), round + 1);
    }
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_listing_of_our_own_that_finds_the_session_gone_opens_a_new_one() {
    let forgetful = Forgetful::default();
    let behind = forgetful.clone();
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let server = StubServer::start(move |request| {
        if request.operation() == "GET" && !tell.swap(true, Ordering::SeqCst) {
            // The stream of the first session announces that the tools have changed, once they
            // have.
            behind.forget();
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            return StubReply::Parts(vec![
                (
                    std::time::Duration::ZERO,
                    mcpvisor_testkit::stub_server::sse_head(),
                ),
                (
                    std::time::Duration::from_millis(300),
                    mcpvisor_testkit::stub_server::chunk(&mcpvisor_testkit::stub_server::event(
                        &changed,
                    )),
                ),
                (LONG, String::new()),
            ]);
        }
        behind.answer(request, &not_found())
    })
    .await;
    let (runtime, _web) = connected(&server).await;
    until("there is a new session", || server.count("initialize") == 2).await;
    assert_eq!(server.count("tools/call"), 0, "nobody called");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_tool_that_changed_with_the_session_is_not_called_again() {
    let forgetful = Forgetful::default();
    let behind = forgetful.clone();
    let server = StubServer::start(move |request| match request.operation() {
        "tools/list" if behind.forgotten.load(Ordering::SeqCst) > 0 && request.header("mcp-session-id") == Some("session-2") => {
            StubReply::result(request, &json!({"tools": [{"name": "echo", "description": "another", "inputSchema": {"type": "object"}}]}))
        }
        _ => behind.answer(request, &not_found()),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    until("the tools are known", || web.status().tools == 1).await;
    forgetful.forget();
    let error = call(&web).await.unwrap_err();
    assert!(matches!(error, CallError::ToolChanged { .. }), "{error:?}");
    assert_eq!(error.known(), Known::Refused, "it was never run");
    assert!(!error.to_string().contains("unknown"), "{error}");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn unrelated_errors_never_take_the_path_of_a_session() {
    for reply in [
        error("400 Bad Request", "the argument is missing"),
        error("200 OK", "your bank's vault is closed"),
        StubReply::status("403 Forbidden", "", ""),
        StubReply::status("500 Internal StubServer Error", "", ""),
    ] {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => reply.clone(),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        call(&web).await.unwrap_err();
        assert_eq!(server.count("tools/call"), 1);
        assert_eq!(server.count("initialize"), 1);
        assert_eq!(web.status().state, StateName::Connected);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_refused_credential_never_takes_the_path_of_a_session() {
    let server = StubServer::start(|request| match request.operation() {
        "tools/call" => StubReply::status("401 Unauthorized", "", ""),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(known(call(&web).await), Known::Refused);
    reaches(&web, StateName::PermanentlyFailed).await;
    assert_eq!(server.count("tools/call"), 1);
    assert_eq!(server.count("initialize"), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn without_a_session_nothing_is_taken_for_its_end() {
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => initialize_reply(request, None),
        "tools/call" => error("404 Not Found", "Session not found"),
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    let error = call(&web).await.unwrap_err();
    assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
    assert_eq!(server.count("initialize"), 1);
    runtime.shutdown(LONG).await;
    assert_eq!(server.count("DELETE"), 0, "there is nothing to end");
}

#[tokio::test]
async fn an_id_in_an_error_is_never_taken_for_a_session() {
    let server = StubServer::start(|request| match request.operation() {
        "initialize" => initialize_reply(request, None),
        "tools/call" => {
            let headers = "mcp-session-id: planted\r\ncontent-type: text/plain\r\n";
            StubReply::status("400 Bad Request", headers, "no session")
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    assert_eq!(known(call(&web).await), Known::Refused);
    web.ping().await.unwrap();
    let planted = |request: &StubRequest| request.header("mcp-session-id").is_some();
    assert!(!server.requests().iter().any(planted));
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_session_is_opened_by_a_good_answer_to_initialize_and_by_nothing_else() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let foreign = "content-type: application/json\r\nmcp-session-id: nobodys\r\n";
    let server = StubServer::start(move |request| match request.operation() {
        "initialize" if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            StubReply::status("500 Internal StubServer Error", foreign, "{}")
        }
        "tools/call" => {
            let answer =
                json!({"jsonrpc": "2.0", "id": request.id(), "result": text_result("hello")});
            StubReply::status("200 OK", foreign, &answer.to_string())
        }
        _ => default_reply(request),
    })
    .await;
    let (runtime, web) = connected(&server).await;
    for _ in 0..2 {
        assert_eq!(call(&web).await.unwrap(), "hello");
    }
    runtime.shutdown(LONG).await;
    let ids = server.requests().into_iter();
    let mut ids: Vec<String> = ids
        .filter_map(|request| request.header("mcp-session-id").map(str::to_owned))
        .collect();
    ids.dedup();
    assert_eq!(ids, ["session-1"]);
    assert_eq!(server.count("DELETE"), 1);
}

#[tokio::test]
async fn a_failure_that_speaks_of_another_session_is_no_session_that_is_gone() {
    for status in [
        "500 Internal StubServer Error",
        "403 Forbidden",
        "502 Bad Gateway",
    ] {
        let server = StubServer::start(move |request| match request.operation() {
            "tools/call" => error(status, "upstream database session expired"),
            _ => default_reply(request),
        })
        .await;
        let (runtime, web) = connected(&server).await;
        let failed = call(&web).await.unwrap_err();
        assert_eq!(failed.known(), Known::Answered, "{status}: {failed}");
        assert_eq!(server.count("tools/call"), 1, "{status}: it may have run");
        assert_eq!(server.count("initialize"), 1, "{status}");
        runtime.shutdown(LONG).await;
    }
}
