//! Servers that are upgraded or rolled back at the same address, so that their era changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{Known, Runtime, ServerHandle, Transport};
use serde_json::{Value, json};

use crate::harness::{LONG, call, started_with, until};
use mcpvisor_testkit::stub_server::{
    StubReply, StubRequest, StubServer, default_reply, one_tool, text_result,
};

pub fn error(request: &StubRequest, status: &str, error: &Value) -> StubReply {
    let body = json!({"jsonrpc": "2.0", "id": request.id(), "error": error});
    let headers = "content-type: application/json\r\n";
    StubReply::status(status, headers, &body.to_string())
}

/// A server that speaks only 2026-07-28.
pub fn modern(request: &StubRequest) -> StubReply {
    let meta = &request.body["params"]["_meta"];
    if meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" {
        let supported = json!({"supported": ["2026-07-28"], "requested": "2025-06-18"});
        let refused =
            json!({"code": -32022, "message": "Unsupported protocol version", "data": supported});
        return error(request, "400 Bad Request", &refused);
    }
    let mut result = match request.operation() {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "2"},
        }),
        "tools/list" => one_tool(),
        "tools/call" => text_result("hello from the new one"),
        _ => {
            let unknown = json!({"code": -32601, "message": "no such method"});
            return error(request, "404 Not Found", &unknown);
        }
    };
    for (name, value) in [
        ("resultType", json!("complete")),
        ("ttlMs", json!(0)),
        ("cacheScope", json!("private")),
    ] {
        result[name] = value;
    }
    StubReply::result(request, &result)
}

/// A server with sessions that rejects everything else as a bad request.
pub fn legacy(request: &StubRequest) -> StubReply {
    let lost = request.header("mcp-session-id").is_none() && request.operation() != "initialize";
    if request.method == "POST" && lost {
        let refused =
            json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
        return error(request, "400 Bad Request", &refused);
    }
    default_reply(request)
}

pub type Handler = fn(&StubRequest) -> StubReply;

struct Swap {
    server: StubServer,
    runtime: Runtime,
    handle: ServerHandle,
    swapped: Arc<AtomicBool>,
}

/// Connects to the first server, which the second can then replace.
async fn swap(before: Handler, after: Handler, keepalive: Duration) -> Swap {
    let swapped = Arc::new(AtomicBool::new(false));
    let is_swapped = Arc::clone(&swapped);
    let server = StubServer::start(move |request| match is_swapped.load(Ordering::Relaxed) {
        true => after(request),
        false => before(request),
    })
    .await;
    let (runtime, handle) = started_with(Transport::http(server.url()), |config| {
        config.protocol = None;
        config.settings.health.keepalive = keepalive;
        config.settings.backoff.initial = Duration::from_millis(10);
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    Swap {
        server,
        runtime,
        handle,
        swapped,
    }
}

impl Swap {
    /// Switches to the second server. Returns the number of requests before.
    fn now(&self) -> usize {
        self.swapped.store(true, Ordering::Relaxed);
        self.server.requests().len()
    }

    async fn speaks(&self, version: &str) {
        until("it is met in its new era", || {
            let status = self.handle.status();
            status.is_ready() && status.protocol.as_deref() == Some(version)
        })
        .await;
        assert_eq!(
            self.handle.status().generation.get(),
            2,
            "one new connection"
        );
    }
}

const IDLE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_call_that_a_newer_server_refuses_is_answered_by_it_in_its_own_era() {
    let swap = swap(legacy, modern, LONG).await;
    let before = swap.now();
    assert_eq!(call(&swap.handle).await.unwrap(), "hello from the new one");
    swap.speaks("2026-07-28").await;
    let asked: Vec<_> = swap.server.requests()[before..]
        .iter()
        .filter(|request| request.method == "POST")
        .map(|request| request.operation().to_owned())
        .collect();
    assert_eq!(
        asked[..2],
        ["tools/call", "server/discover"],
        "it is asked anew"
    );
    assert_eq!(swap.server.count("tools/call"), 2, "refused, and run");
    assert_eq!(swap.server.count("initialize"), 1);
    swap.runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn an_idle_connection_finds_out_that_the_server_speaks_another_era() {
    for (before, after, version) in [
        (legacy as Handler, modern as Handler, "2026-07-28"),
        (modern, legacy, "2025-06-18"),
        // Only a status.
        (
            modern,
            |request| match request.operation() {
                "server/discover" => StubReply::status("405 Method Not Allowed", "", ""),
                _ => legacy(request),
            },
            "2025-06-18",
        ),
    ] {
        let swap = swap(before, after, IDLE).await;
        swap.now();
        swap.speaks(version).await;
        assert!(call(&swap.handle).await.is_ok());
        swap.runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_caller_of_an_older_server_gets_its_error_and_the_next_one_an_answer() {
    // With an error, or with only a status.
    let plain: Handler = |request| match request.operation() {
        "initialize" => default_reply(request),
        _ if request.header("mcp-session-id").is_some() => default_reply(request),
        _ => StubReply::status("400 Bad Request", "", "no session"),
    };
    for (after, known) in [
        (legacy as Handler, Known::Answered),
        (plain, Known::Refused),
    ] {
        let swap = swap(modern, after, LONG).await;
        swap.now();
        let refused = call(&swap.handle).await.unwrap_err();
        assert_eq!(refused.known(), known, "{refused}");
        swap.speaks("2025-06-18").await;
        assert_eq!(call(&swap.handle).await.unwrap(), "hello");
        swap.runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn errors_of_a_server_that_is_the_same_replace_nothing() {
    // One server fails on `server/discover`; the other has no `ping` and uses a non-standard code.
    let failing: Handler = |request| match request.operation() {
        "server/discover" => {
            let failed = json!({"code": -32603, "message": "try again"});
            error(request, "500 Internal StubServer Error", &failed)
        }
        "tools/call" => error(
            request,
            "200 OK",
            &json!({"code": -32000, "message": "full"}),
        ),
        _ => modern(request),
    };
    let own_code: Handler = |request| match request.operation() {
        "tools/call" => error(
            request,
            "200 OK",
            &json!({"code": -32022, "message": "mine"}),
        ),
        "ping" => error(
            request,
            "200 OK",
            &json!({"code": -32601, "message": "no ping"}),
        ),
        _ => legacy(request),
    };
    for (before, after, question) in [
        (modern as Handler, failing, "server/discover"),
        (legacy, own_code, "ping"),
    ] {
        let swap = swap(before, after, IDLE).await;
        swap.now();
        let asked = swap.server.count(question);
        let refused = call(&swap.handle).await.unwrap_err();
        assert_eq!(refused.known(), Known::Answered, "{refused}");
        until("it was checked", || {
            swap.server.count(question) >= asked + 3
        })
        .await;
        assert_eq!(swap.handle.status().generation.get(), 1);
        swap.runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_much_is_not_asked_for_its_era_each_time() {
    let refusing: Handler = |request| match request.operation() {
        "tools/call" => error(request, "200 OK", &json!({"code": -32000, "message": "no"})),
        _ => modern(request),
    };
    let begun = Instant::now();
    let swap = swap(modern, refusing, LONG).await;
    swap.now();
    for _ in 0..20 {
        assert!(call(&swap.handle).await.is_err());
    }
    swap.runtime.shutdown(LONG).await;
    // At the start, and then once in 10 s.
    let most = 2 + begun.elapsed().as_secs() as usize / 10;
    let asked = swap.server.count("server/discover");
    assert!((2..=most).contains(&asked), "{asked}");
}
