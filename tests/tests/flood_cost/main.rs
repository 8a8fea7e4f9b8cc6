//! Limits on the cost of a flooding server: CPU time and log lines. (Figure 26.)
//!
//! Each flood runs in its own process, and the CPU time of the server is subtracted. Meanwhile,
//! calls go to the flooding server and to another one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../fleet/mod.rs"]
mod fleet;
mod http;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mcpvisor::{Callbacks, Runtime, Transport};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use self::fleet::*;
use self::http::{FloodServer, Place};

/// Deadline of one test in its own process.
const LIMIT: Duration = Duration::from_secs(300);

/// Maximum number of our log lines per flood, at all levels down to `debug`.
const LOG_LINES: usize = 100;

/// The share of one core that the client may use.
const SHARE: f64 = 0.10;

/// The same, with an allowance for an unoptimized build on a busy machine.
fn share() -> f64 {
    let exact = in_full() && !cfg!(debug_assertions);
    if exact { SHARE } else { 2.0 * SHARE }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Counts the log lines of this process.
fn count_log_lines() -> Arc<AtomicUsize> {
    struct Lines(Arc<AtomicUsize>);
    impl std::io::Write for Lines {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            self.0.fetch_add(lines, Ordering::Relaxed);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lines);
    tracing_subscriber::fmt()
        .with_env_filter("mcpvisor=debug")
        .with_writer(move || Lines(Arc::clone(&counted)))
        .init();
    lines
}

/// The cost of a flood.
#[derive(Debug)]
struct Cost {
    share: f64,
    lines: usize,
    slowest_call: Duration,
    slowest_neighbour: Duration,
}

/// Lets a server flood for a while, and calls it and its neighbour meanwhile.
async fn flooded(transport: Transport, of_server: impl Fn() -> Duration, calls: bool) -> Cost {
    let lines = count_log_lines();
    let callbacks = Callbacks::new().sampling(|_| async {
        tokio::time::sleep(DEADLINE).await;
        Err(ErrorData::internal_error("no", None))
    });
    let good = ScriptedServer::new(Script::new().tool("echo", Behaviour::answer()));
    let runtime = Runtime::builder()
        .server(server("flood", transport))
        .server(server("good", good.transport()))
        .callbacks(callbacks)
        .start()
        .await
        .unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    let (handle, good) = (
        runtime.server("flood").unwrap(),
        runtime.server("good").unwrap(),
    );
    let flood = tokio::spawn({
        let flood = handle.call_tool("flood", json!({})).deadline(LIMIT);
        flood.into_future()
    });
    // After the burst allowance is used up.
    tokio::time::sleep(secs(1)).await;
    let length = secs(size(4, 60) as u64);
    let before = (Instant::now(), cpu(), of_server());
    let mut slowest = (Duration::ZERO, Duration::ZERO);
    while before.0.elapsed() < length {
        tokio::time::sleep(millis(500)).await;
        let called = Instant::now();
        good.call_tool("echo", json!({}))
            .deadline(DEADLINE)
            .await
            .unwrap();
        slowest.1 = slowest.1.max(called.elapsed());
        if calls {
            let called = Instant::now();
            handle
                .call_tool("echo", json!({}))
                .deadline(DEADLINE)
                .await
                .unwrap();
            slowest.0 = slowest.0.max(called.elapsed());
        }
    }
    let spent = (cpu() - before.1).saturating_sub(of_server() - before.2);
    let cost = Cost {
        share: spent.as_secs_f64() / before.0.elapsed().as_secs_f64(),
        lines: lines.load(Ordering::Relaxed),
        slowest_call: slowest.0,
        slowest_neighbour: slowest.1,
    };
    flood.abort();
    runtime.shutdown(secs(10)).await;
    cost
}

fn check(what: &str, cost: &Cost) {
    println!("figure 26: {what}: {cost:.3?}");
    assert!(cost.share <= share(), "{what}: {cost:?}");
    assert!(cost.lines <= LOG_LINES, "{what}: {cost:?}");
    assert!(cost.slowest_call < secs(5), "{what}: {cost:?}");
    assert!(cost.slowest_neighbour < secs(5), "{what}: {cost:?}");
}

async fn over_http(place: Place, kind: &'static str) {
    let server = FloodServer::start(place, kind);
    let transport = Transport::http(&server.url).into();
    let cost = flooded(transport, || Duration::from_nanos(server.cpu()), true).await;
    check(&format!("http, {place:?}, {kind}"), &cost);
}

async fn over_http_sse(kind: &'static str) {
    let server = FloodServer::start(Place::Session, kind);
    let transport = Transport::sse(&server.url).into();
    // Calls would wait behind all that the buffers of the system hold.
    let cost = flooded(transport, || Duration::from_nanos(server.cpu()), false).await;
    check(&format!("http+sse, {kind}"), &cost);
}

async fn over_stdio(kind: &str) {
    let command = Transport::stdio(env!("CARGO_BIN_EXE_flood-server")).arg(kind);
    // Calls wait behind the flood on the only pipe.
    let cost = flooded(command.into(), || Duration::ZERO, true).await;
    check(&format!("stdio, {kind}"), &cost);
}

/// CPU time that tokio's workers used or waited for: on a busy machine they do not get all they
/// need.
fn wanted() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |task: &std::fs::DirEntry, file| std::fs::read_to_string(task.path().join(file));
    let workers = tasks.filter(|task| read(task, "comm").is_ok_and(|it| it.starts_with("tokio")));
    let stats = workers.filter_map(|task| read(&task, "schedstat").ok());
    let nanos = stats.map(|stat| {
        let fields = stat.split_whitespace().take(2);
        fields
            .map(|field| field.parse::<u64>().unwrap())
            .sum::<u64>()
    });
    Duration::from_nanos(nanos.sum())
}

/// The control: rmcp's own client reads as fast as it can.
async fn over_bare_rmcp() {
    mcpvisor_tests::provide_tls();
    let server = FloodServer::start(Place::Call, "messages");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let config = StreamableHttpClientTransportConfig::with_uri(server.url.as_str());
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let legacy = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let handler = ClientConfig::default().with_protocol_version(legacy);
    let lifecycle = ClientLifecycleMode::Initialize;
    let client = handler.serve_with_lifecycle(transport, lifecycle);
    let client = client.await.unwrap();
    let peer = client.peer().clone();
    let flood = CallToolRequestParams::new("flood");
    let flood = tokio::spawn(async move { peer.call_tool(flood).await });
    tokio::time::sleep(secs(1)).await;
    let before = (Instant::now(), wanted());
    tokio::time::sleep(secs(2)).await;
    let spent = wanted() - before.1;
    let share = spent.as_secs_f64() / before.0.elapsed().as_secs_f64();
    println!("figure 26: http, bare rmcp: {share:.3} of a core wanted");
    assert!(share > SHARE, "{share}");
    flood.abort();
    drop(client);
}

macro_rules! figures {
    ($($name:ident: $flood:expr;)*) => {$(
        #[test]
        fn $name() {
            in_own_process(stringify!($name), LIMIT, async || $flood.await);
        }
    )*};
}

figures! {
    figure_26_http_messages_on_the_listening_stream: over_http(Place::Listening, "messages");
    figure_26_http_requests_on_the_listening_stream: over_http(Place::Listening, "requests");
    figure_26_http_large_messages_on_the_listening_stream: over_http(Place::Listening, "heavy");
    figure_26_http_comments_on_the_listening_stream: over_http(Place::Listening, "comments");
    figure_26_http_blank_lines_on_the_listening_stream: over_http(Place::Listening, "blanks");
    figure_26_http_unknown_events_on_the_listening_stream: over_http(Place::Listening, "unknown");
    figure_26_http_events_without_end_on_the_listening_stream: over_http(Place::Listening, "endless");
    figure_26_http_tiny_chunks_on_the_listening_stream: over_http(Place::Listening, "chunks");
    figure_26_http_a_chunk_length_without_end: over_http(Place::Listening, "zeros");
    figure_26_http_messages_in_the_answer_to_a_call: over_http(Place::Call, "messages");
    figure_26_http_early_hints_before_the_answer_to_a_call: over_http(Place::Call, "hints");
    figure_26_http_a_body_that_comes_byte_by_byte: over_http(Place::Call, "trickle");
    figure_26_http_sse_messages: over_http_sse("messages");
    figure_26_http_sse_requests: over_http_sse("requests");
    figure_26_http_sse_comments: over_http_sse("comments");
    figure_26_http_sse_unknown_events: over_http_sse("unknown");
    figure_26_http_sse_tiny_chunks: over_http_sse("chunks");
    figure_26_http_sse_an_event_without_end: over_http_sse("endless");
    control_figure_26_bare_rmcp_takes_more: over_bare_rmcp();
    figure_26_stdio_messages: over_stdio("messages");
    figure_26_stdio_requests: over_stdio("requests");
    figure_26_stdio_noise: over_stdio("noise");
    figure_26_stdio_blank_lines: over_stdio("blanks");
    figure_26_stdio_bytes_one_by_one: over_stdio("trickle");
}
