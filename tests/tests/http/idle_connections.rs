//! Idle connections that the server closes before the next request.

use std::time::{Duration, Instant};

use mcpvisor::{HttpEndpoint, Transport};
use tokio::runtime::{Builder, Runtime};

use crate::harness::{LONG, call, started};
use crate::tls::{encrypted, trusting};
use mcpvisor_testkit::stub_server::{StubReply, StubRequest, StubServer, default_reply};

const CALLS: usize = 100;

/// Announces keep-alive, then closes the connection.
fn hasty(request: &StubRequest) -> StubReply {
    match default_reply(request) {
        StubReply::Parts(parts) => {
            StubReply::Close(parts.into_iter().map(|(_, part)| part).collect())
        }
        other => other,
    }
}

/// Waits until the system has seen the other side close every connection to this port. Blocks the
/// thread, so that nothing else can notice before the next call does.
fn all_closed(port: u16) {
    let began = Instant::now();
    let remote = format!(":{port:04X}");
    let is_open = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        words
            .next()
            .is_some_and(|address| address.ends_with(&remote))
            && words.next() == Some("01")
    };
    while std::fs::read_to_string("/proc/net/tcp")
        .unwrap()
        .lines()
        .any(is_open)
    {
        assert!(began.elapsed() < LONG, "the server keeps a connection");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Makes calls, each after all connections to this port were closed. Nothing polls a socket between
/// the end of that wait and the next call.
fn call_after_the_end(server: &StubServer, endpoint: HttpEndpoint, port: u16) {
    let here = Builder::new_current_thread().enable_all().build().unwrap();
    here.block_on(async {
        let (runtime, web) = started(endpoint).await;
        runtime.ready(LONG).await.unwrap();
        for at in 1..=CALLS {
            all_closed(port);
            assert_eq!(call(&web).await.as_deref().unwrap(), "hello", "call {at}");
            assert_eq!(server.count("tools/call"), at, "each once");
        }
        runtime.shutdown(LONG).await;
    });
}

/// Runs servers on their own thread, so that they continue while a test's thread is blocked.
fn backstage() -> Runtime {
    let mut backstage = Builder::new_multi_thread();
    let backstage = backstage.worker_threads(1).enable_all().build();
    backstage.unwrap()
}

#[test]
fn a_connection_that_the_server_has_closed_is_never_used() {
    let backstage = backstage();
    let server = backstage.block_on(StubServer::start(hasty));
    call_after_the_end(&server, Transport::http(server.url()), server.port);
}

#[test]
fn an_encrypted_connection_that_the_server_has_closed_is_never_used() {
    let backstage = backstage();
    let server = backstage.block_on(StubServer::start(hasty));
    let port = backstage.block_on(encrypted(&server, false));
    call_after_the_end(&server, trusting(port), port);
}

#[test]
fn a_connection_that_the_server_keeps_is_used_again() {
    let backstage = backstage();
    let server = backstage.block_on(StubServer::start(default_reply));
    let port = backstage.block_on(encrypted(&server, false));
    for endpoint in [Transport::http(server.url()), trusting(port)] {
        let (before, called) = (server.accepted(), server.count("tools/call"));
        let here = Builder::new_current_thread().enable_all().build().unwrap();
        here.block_on(async {
            let (runtime, web) = started(endpoint).await;
            for _ in 0..CALLS {
                assert_eq!(call(&web).await.unwrap(), "hello");
            }
            runtime.shutdown(LONG).await;
        });
        assert_eq!(server.count("tools/call") - called, CALLS);
        // One for the calls, plus those for the requests that accompany the handshake.
        let opened = server.accepted() - before;
        assert!(opened <= 4, "{opened}");
    }
}
