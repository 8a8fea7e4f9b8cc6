//! Servers over byte streams that the program opens: the pipes of a child that it starts itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "fleet/deadlines.rs"]
#[allow(dead_code, reason = "each specification uses some of it")]
mod deadlines;
mod fleet;

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use deadlines::*;
use fleet::*;
use mcpvisor::{CallError, FaultClass, Known, Runtime, ServerHandle, StateName, Transport};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker};
use rmcp::model::CallToolResult;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

/// The output of a child that is killed with it.
struct Output {
    stdout: ChildStdout,
    _child: Child,
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buf)
    }
}

/// Starts a server, and opens its pipes.
fn spawn(program: &str, args: &[&str], marker: &Marker) -> io::Result<(Output, ChildStdin)> {
    let mut command = Command::new(program);
    command.args(args).env(MARKER, marker.value());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let output = Output {
        stdout,
        _child: child,
    };
    Ok((output, stdin))
}

const FIXTURE: &str = env!("CARGO_BIN_EXE_fixture-server");
const BAD: &str = env!("CARGO_BIN_EXE_bad-server");

/// A server whose connections are children of the test.
fn transport(
    program: &'static str,
    args: &'static [&'static str],
    marker: &Arc<Marker>,
) -> Transport {
    let marker = Arc::clone(marker);
    Transport::stream(move || {
        let marker = Arc::clone(&marker);
        async move { spawn(program, args, &marker) }
    })
}

/// A fleet of one that is connected.
async fn connected(program: &'static str) -> (Runtime, ServerHandle, Arc<Marker>) {
    let marker = Arc::new(Marker::new("stream"));
    let config = server("far", transport(program, &[], &marker)).settings(quick());
    let (runtime, handle) = ready(config).await;
    (runtime, handle, marker)
}

async fn end(runtime: Runtime, marker: &Marker) {
    let (_, took) = timed(runtime.shutdown(secs(20))).await;
    assert!(took < GRACE.total() + secs(1) + tolerance(), "{took:?}");
    eventually(DEADLINE, "no process", || marker.processes().is_empty()).await;
}

async fn recovers(handle: &ServerHandle, generation: u64) {
    let call = handle.call_tool("echo", json!({ "a": 1 }));
    let echoed = structured(call.deadline(DEADLINE).await);
    assert_eq!(echoed, json!({ "a": 1 }));
    assert_eq!(handle.status().generation.get(), generation);
}

/// Injects a fault into a call.
async fn inject(
    handle: &ServerHandle,
    fault: &str,
    deadline: Duration,
) -> (Result<CallToolResult, CallError>, Duration) {
    let call = handle.call_tool("misbehave", json!({ "fault": fault }));
    timed(call.deadline(deadline).idle_timeout(deadline)).await
}

#[tokio::test]
async fn a_server_over_streams_is_called_and_closed_cleanly() {
    let (runtime, handle, marker) = connected(FIXTURE).await;
    recovers(&handle, 1).await;
    let status = handle.status();
    assert_eq!((status.transport, status.is_ready()), ("stream", true));
    assert_eq!(marker.processes().len(), 1);
    let report = runtime.shutdown(DEADLINE).await;
    assert!(report.is_clean(), "its input was closed: {report:?}");
    eventually(DEADLINE, "no process", || marker.processes().is_empty()).await;
}

#[tokio::test]
async fn a_lost_stream_is_opened_again_with_exact_outcomes() {
    let (runtime, handle, marker) = connected(FIXTURE).await;
    for generation in 1..=5 {
        recovers(&handle, generation).await;
        let error = handle.call_tool("kill_self", json!({})).deadline(DEADLINE);
        let error = error.await.unwrap_err();
        assert_eq!(error.known(), Known::Unknown, "{error:?}");
        says(&error, &["far", "the server ended the stream"]);
    }
    recovers(&handle, 6).await;
    end(runtime, &marker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_cost_no_outcome_and_run_nothing_twice() {
    let (runtime, handle, marker) = connected(FIXTURE).await;
    let file = std::env::temp_dir().join(marker.value());
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (handle, stop, file) = (handle.clone(), Arc::clone(&stop), file.clone());
        callers.spawn(async move {
            let mut unknown = 0;
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let text = format!("{caller}-{number}");
                let arguments = json!({ "file": file, "text": text });
                match handle
                    .call_tool("append", arguments)
                    .deadline(DEADLINE)
                    .await
                {
                    Ok(_) => {}
                    Err(CallError::OutcomeUnknown { .. }) => unknown += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            unknown
        });
    }
    let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    for _ in 0..size(5, 50) {
        let before = lines();
        eventually(DEADLINE, "calls", || lines() > before + 16).await;
        let kill = handle.call_tool("kill_self", json!({})).deadline(DEADLINE);
        kill.await.unwrap_err();
    }
    stop.store(true, Ordering::Relaxed);
    let unknown: usize = callers.join_all().await.into_iter().sum();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut ran: Vec<&str> = text.lines().collect();
    let all = ran.len();
    ran.sort_unstable();
    ran.dedup();
    println!("{all} calls ran, {unknown} unknown");
    assert_eq!(ran.len(), all, "one ran twice");
    std::fs::remove_file(&file).unwrap();
    end(runtime, &marker).await;
}

#[tokio::test]
async fn every_fault_of_a_server_has_its_outcome() {
    for fault in CALL_FAULTS.iter().filter(|fault| {
        // These concern the process, which the program owns.
        !matches!(**fault, "grandchild-holds-stdout" | "spawn-grandchildren=3")
    }) {
        let (runtime, handle, marker) = connected(BAD).await;
        let (outcome, took) = inject(&handle, fault, secs(4)).await;
        assert!(took < secs(4) + tolerance(), "{fault}: {took:?}");
        if let Err(error) = outcome {
            assert_ne!(error.known(), Known::NotSent, "{fault}: {error:?}");
        }
        runtime.reconnect("far").await.unwrap();
        let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
        call.await
            .unwrap_or_else(|error| panic!("{fault}: {error:?}"));
        end(runtime, &marker).await;
    }
}

#[tokio::test]
async fn a_silent_server_holds_no_call_beyond_its_deadline() {
    for fault in ["mute-calls", "sigstop-on-call", "stop-reading-stdin"] {
        let (runtime, handle, marker) = connected(BAD).await;
        let (outcome, took) = inject(&handle, fault, SHORT).await;
        assert_sent_and_late(outcome, took, fault);
        end(runtime, &marker).await;
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_is_tried_within_the_budget() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let marker = Arc::new(Marker::new("stream"));
    let of_opener = Arc::clone(&marker);
    let transport = Transport::stream(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        let marker = Arc::clone(&of_opener);
        async move {
            match number {
                0..3 => Err(io::Error::other("the tunnel is down")),
                _ => spawn(FIXTURE, &[], &marker),
            }
        }
    });
    let mut settings = quick();
    settings.budget.attempts = 3;
    let runtime = fleet([server("far", transport).settings(settings)]).await;
    let handle = runtime.server("far").unwrap();
    reaches(&handle, StateName::Disconnected).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::ConnectFailed);
    says(&fault, &["cannot open the stream: the tunnel is down"]);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    // A call wakes it.
    let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
    call.await.unwrap();
    end(runtime, &marker).await;
}

#[tokio::test]
async fn a_stream_that_never_opens_meets_the_connect_timeout_and_delays_no_shutdown() {
    let transport = Transport::stream(|| async {
        std::future::pending::<()>().await;
        Ok((tokio::io::empty(), tokio::io::sink()))
    });
    let mut settings = quick();
    settings.timeouts.connect = millis(200);
    let runtime = fleet([server("far", transport).settings(settings)]).await;
    let handle = runtime.server("far").unwrap();
    reaches(&handle, StateName::Reconnecting).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Timeout, "{fault:?}");
    let (_, took) = timed(runtime.shutdown(secs(20))).await;
    assert!(took < secs(1) + tolerance(), "{took:?}");
}

#[tokio::test]
async fn one_pair_of_streams_serves_one_connection() {
    let marker = Marker::new("stream");
    let (output, input) = spawn(FIXTURE, &[], &marker).unwrap();
    let config = server("far", Transport::stream_once(output, input)).settings(quick());
    let (runtime, handle) = ready(config).await;
    recovers(&handle, 1).await;
    let error = handle.call_tool("kill_self", json!({})).deadline(DEADLINE);
    assert_eq!(error.await.unwrap_err().known(), Known::Unknown);
    reaches(&handle, StateName::PermanentlyFailed).await;
    let status = handle.status();
    says(&status.last_error.unwrap(), &["cannot be opened again"]);
    says(&status.action.unwrap(), &["configure a new stream"]);
    let error = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert_eq!(error.known(), Known::NotSent, "{error:?}");
    // Another pair takes its place.
    let (output, input) = spawn(FIXTURE, &[], &marker).unwrap();
    let config = server("far", Transport::stream_once(output, input)).settings(quick());
    let config = mcpvisor::Config::new().server(config);
    runtime.reload(config).await.unwrap();
    ready_after(&handle, 1).await;
    let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
    call.await.unwrap();
    end(runtime, &marker).await;
}

/// A probe could end the only stream, so the handshake begins with `initialize`.
#[tokio::test]
async fn only_a_stream_that_can_be_opened_again_is_probed() {
    for once in [true, false] {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(ours);
        let transport = if once {
            Transport::stream_once(reader, writer)
        } else {
            let streams = Arc::new(std::sync::Mutex::new(Some((reader, writer))));
            Transport::stream(move || {
                let streams = streams.lock().unwrap().take();
                async { streams.ok_or_else(|| io::Error::other("used up")) }
            })
        };
        let runtime = fleet([server("far", transport).settings(quick())]).await;
        let mut theirs = BufReader::new(theirs);
        let mut first = String::new();
        let read = tokio::time::timeout(DEADLINE, theirs.read_line(&mut first)).await;
        read.unwrap().unwrap();
        let method = if once {
            "initialize"
        } else {
            "server/discover"
        };
        assert!(first.contains(&format!("{method:?}")), "{first}");
        theirs.shutdown().await.unwrap();
        runtime.shutdown(DEADLINE).await;
    }
}
