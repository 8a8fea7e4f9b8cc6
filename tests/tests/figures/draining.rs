//! Figure 25: a draining HTTP server, and a process without free descriptors. Requests in flight
//! complete, and no other server is affected (C8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::{CallError, Known, Runtime, ServerHandle, StateName, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
use mcpvisor_testkit::in_own_process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fleet::*;
use crate::limit;

/// Calls in flight when the server stops listening.
const IN_FLIGHT: usize = 8;

/// Calls that find no connection meanwhile.
const FURTHER: usize = 4;

/// How long the server drains. An earlier version cut requests off after 5 s.
fn drain() -> Duration {
    secs(size(8, 30) as u64)
}

/// The outcomes of calls to a draining server and to its neighbour.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Calls in flight that were answered.
    answered: usize,
    /// Calls of any kind whose outcome is unknown.
    unknown: usize,
    /// Failed calls of the neighbour.
    disturbed: usize,
}

async fn two(one: &HttpServer, other: &HttpServer) -> (Runtime, ServerHandle, ServerHandle) {
    let servers = [("draining", one), ("neighbour", other)];
    let servers = servers.map(|(name, it)| server(name, Transport::http(it.url())));
    let runtime = fleet(servers).await;
    runtime.ready(DEADLINE).await.unwrap();
    let handle = |name| runtime.server(name).unwrap();
    let (one, other) = (handle("draining"), handle("neighbour"));
    (runtime, one, other)
}

fn slow(handle: &ServerHandle, time: Duration) -> impl Future<Output = Option<Known>> + 'static {
    let ms = u64::try_from(time.as_millis()).unwrap();
    let call = handle.call_tool("sleep", json!({ "ms": ms }));
    let call = call.deadline(time + 2 * DEADLINE);
    async move { known(&call.await) }
}

/// What is known about a failed call.
fn known<T>(result: &Result<T, CallError>) -> Option<Known> {
    result.as_ref().err().map(CallError::known)
}

/// Drains the server, or kills it halfway.
async fn drained(ends_early: bool) -> Seen {
    let one = HttpServer::start(HttpOptions::default()).await;
    let other = HttpServer::start(HttpOptions::default()).await;
    let (runtime, draining, neighbour) = two(&one, &other).await;
    eventually(DEADLINE, "a listening stream", || one.open_streams() == 1).await;
    let mut in_flight = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        in_flight.spawn(slow(&draining, drain()));
    }
    let sent = || one.requests("tools/call") == IN_FLIGHT;
    eventually(DEADLINE, "calls in flight", sent).await;
    one.stop_listening().await;
    one.cut_streams();
    let mut further = JoinSet::new();
    for _ in 0..FURTHER {
        further.spawn(slow(&draining, Duration::ZERO));
    }
    let over = Arc::new(AtomicBool::new(false));
    let watched = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut disturbed = 0;
            while !over.load(Ordering::Relaxed) {
                let call = neighbour.call_tool("echo", json!({}));
                disturbed += usize::from(call.deadline(DEADLINE).await.is_err());
                tokio::time::sleep(millis(50)).await;
            }
            (disturbed, neighbour.status().generation.get())
        }
    });
    if ends_early {
        tokio::time::sleep(secs(1)).await;
        one.stop().await;
    }
    let in_flight = in_flight.join_all().await;
    if ends_early {
        one.restart().await;
    } else {
        assert_eq!(draining.status().generation.get(), 1, "the same connection");
    }
    // Of a server that drained, they use the connections that are idle now. A restart meanwhile could
    // cut them off.
    let further = further.join_all().await;
    over.store(true, Ordering::Relaxed);
    let (disturbed, generation) = watched.await.unwrap();
    assert_eq!(generation, 1, "the neighbour's connection");
    runtime.shutdown(DEADLINE).await;
    let all = in_flight.iter().chain(&further);
    Seen {
        answered: in_flight.iter().filter(|known| known.is_none()).count(),
        unknown: all.filter(|known| **known == Some(Known::Unknown)).count(),
        disturbed,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figure_25_a_server_that_drains_answers_what_is_in_flight() {
    let expected = Seen {
        answered: IN_FLIGHT,
        ..Seen::default()
    };
    assert_eq!(drained(false).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_figure_25_a_server_that_ends_before_it_has_drained_is_seen() {
    let seen = drained(true).await;
    assert_eq!((seen.answered, seen.unknown), (0, IN_FLIGHT), "{seen:?}");
}

/// Prevents this process from opening descriptors. Open ones stay open.
fn without_descriptors() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let current = Some(3);
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
    before
}

#[test]
fn figure_25_a_process_without_descriptors_ends_nothing_that_is_in_flight() {
    let name = "draining::figure_25_a_process_without_descriptors_ends_nothing_that_is_in_flight";
    in_own_process(name, limit() + 2 * drain(), || async {
        let one = HttpServer::start(HttpOptions::default()).await;
        let other = HttpServer::start(HttpOptions::default()).await;
        let (runtime, busy, idle) = two(&one, &other).await;
        eventually(DEADLINE, "listening streams", || {
            one.open_streams() == 1 && other.open_streams() == 1
        })
        .await;
        let in_flight = tokio::spawn(slow(&busy, drain()));
        let sent = || one.requests("tools/call") == 1;
        eventually(DEADLINE, "a call in flight", sent).await;
        // Idle connections are closed, so that every further request needs a new one.
        let closed = || one.open_connections() == 2 && other.open_connections() == 1;
        eventually(DEADLINE, "no idle connections", closed).await;
        let before = without_descriptors();
        one.cut_streams();
        other.cut_streams();
        let further = tokio::spawn(slow(&busy, Duration::ZERO));
        let error = idle
            .call_tool("echo", json!({}))
            .deadline(2 * DEADLINE)
            .await;
        let error = error.unwrap_err();
        assert_eq!(error.known(), Known::NotSent, "{error:?}");
        let cause = "too many open files in this process: raise the limit";
        assert!(error.to_string().contains(cause), "{error}");
        assert_eq!(in_flight.await.unwrap(), None, "answered");
        assert_ne!(further.await.unwrap(), Some(Known::Unknown));
        for handle in [&busy, &idle] {
            let status = handle.status();
            assert_eq!(status.state, StateName::Connected, "{status:?}");
            assert_eq!(status.generation.get(), 1);
        }
        setrlimit(Resource::Nofile, before).unwrap();
        for handle in [&busy, &idle] {
            assert_eq!(
                slow(handle, Duration::ZERO).await,
                None,
                "in the same session"
            );
            assert_eq!(handle.status().generation.get(), 1);
        }
        assert_eq!((one.sessions_opened(), other.sessions_opened()), (1, 1));
        let reopened = || one.open_streams() == 1 && other.open_streams() == 1;
        eventually(DEADLINE, "listening streams again", reopened).await;
        runtime.shutdown(DEADLINE).await;
    });
}
