//! Servers that are upgraded or rolled back behind their address: another era answers from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{Known, Runtime, ServerHandle, Transport};
use serde_json::{Value, json};

use crate::harness::{LONG, call, started_with, until};
use crate::reply_server::{Reply, Seen, Server, manners, said, tools};

pub fn error(seen: &Seen, status: &str, error: &Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": seen.id(), "error": error});
    let headers = "content-type: application/json\r\n";
    Reply::status(status, headers, &body.to_string())
}

/// A server of 2026-07-28 alone.
pub fn modern(seen: &Seen) -> Reply {
    let meta = &seen.body["params"]["_meta"];
    if meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" {
        let supported = json!({"supported": ["2026-07-28"], "requested": "2025-06-18"});
        let refused =
            json!({"code": -32022, "message": "Unsupported protocol version", "data": supported});
        return error(seen, "400 Bad Request", &refused);
    }
    let mut result = match seen.asks() {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "2"},
        }),
        "tools/list" => tools(),
        "tools/call" => said("hello from the new one"),
        _ => {
            let unknown = json!({"code": -32601, "message": "no such method"});
            return error(seen, "404 Not Found", &unknown);
        }
    };
    for (name, value) in [
        ("resultType", json!("complete")),
        ("ttlMs", json!(0)),
        ("cacheScope", json!("private")),
    ] {
        result[name] = value;
    }
    Reply::result(seen, &result)
}

/// A server with sessions, to which everything else is a bad request.
pub fn legacy(seen: &Seen) -> Reply {
    let lost = seen.header("mcp-session-id").is_none() && seen.asks() != "initialize";
    if seen.method == "POST" && lost {
        let refused =
            json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
        return error(seen, "400 Bad Request", &refused);
    }
    manners(seen)
}

pub type Manners = fn(&Seen) -> Reply;

struct Swap {
    server: Server,
    runtime: Runtime,
    handle: ServerHandle,
    swapped: Arc<AtomicBool>,
}

/// Connected to the one, which becomes the other.
async fn swap(before: Manners, after: Manners, keepalive: Duration) -> Swap {
    let swapped = Arc::new(AtomicBool::new(false));
    let is_swapped = Arc::clone(&swapped);
    let server = Server::start(move |seen| match is_swapped.load(Ordering::Relaxed) {
        true => after(seen),
        false => before(seen),
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
    /// The other one answers from now on. Gives how many requests there were before.
    fn now(&self) -> usize {
        self.swapped.store(true, Ordering::Relaxed);
        self.server.seen().len()
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
    let asked: Vec<_> = swap.server.seen()[before..]
        .iter()
        .filter(|seen| seen.method == "POST")
        .map(|seen| seen.asks().to_owned())
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
        (legacy as Manners, modern as Manners, "2026-07-28"),
        (modern, legacy, "2025-06-18"),
        // Nothing but a status.
        (
            modern,
            |seen| match seen.asks() {
                "server/discover" => Reply::status("405 Method Not Allowed", "", ""),
                _ => legacy(seen),
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
    // In an error, or with nothing but a status.
    let plain: Manners = |seen| match seen.asks() {
        "initialize" => manners(seen),
        _ if seen.header("mcp-session-id").is_some() => manners(seen),
        _ => Reply::status("400 Bad Request", "", "no session"),
    };
    for (after, known) in [
        (legacy as Manners, Known::Answered),
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
    // It fails on the question for a while, has no such method, and uses a code of its own.
    let failing: Manners = |seen| match seen.asks() {
        "server/discover" => {
            let failed = json!({"code": -32603, "message": "try again"});
            error(seen, "500 Internal Server Error", &failed)
        }
        "tools/call" => error(seen, "200 OK", &json!({"code": -32000, "message": "full"})),
        _ => modern(seen),
    };
    let own_code: Manners = |seen| match seen.asks() {
        "tools/call" => error(seen, "200 OK", &json!({"code": -32022, "message": "mine"})),
        "ping" => error(
            seen,
            "200 OK",
            &json!({"code": -32601, "message": "no ping"}),
        ),
        _ => legacy(seen),
    };
    for (before, after, question) in [
        (modern as Manners, failing, "server/discover"),
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
    let refusing: Manners = |seen| match seen.asks() {
        "tools/call" => error(seen, "200 OK", &json!({"code": -32000, "message": "no"})),
        _ => modern(seen),
    };
    let begun = Instant::now();
    let swap = swap(modern, refusing, LONG).await;
    swap.now();
    for _ in 0..20 {
        assert!(call(&swap.handle).await.is_err());
    }
    swap.runtime.shutdown(LONG).await;
    // At the start, and once in 10 s.
    let most = 2 + begun.elapsed().as_secs() as usize / 10;
    let asked = swap.server.count("server/discover");
    assert!((2..=most).contains(&asked), "{asked}");
}
