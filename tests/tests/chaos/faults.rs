//! Faults: actor crashes, signals to children, lost sessions, restarts, hostile replies.

use std::time::{Duration, Instant};

use fastrand::Rng;
use mcpvisor::Runtime;
use mcpvisor_testkit::http_server::HttpServer;
use mcpvisor_testkit::processes::{MARKER, Marker};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fleet::millis;
use crate::load::{ended, issue, report};
use crate::record::Record;
use crate::servers::{Peer, Server, newest_process};

/// Call faults that a child performs on request. None of them runs a tool without recording it.
const OF_CHILDREN: &[&str] = &[
    "exit-on-call",
    "kill-on-call",
    "sigstop-on-call",
    "close-stdout-on-call",
    "close-stdin-on-call",
    "grandchild-holds-stdout",
    "spawn-grandchildren=2",
    "stop-reading-stdin",
    "mute-calls",
    "garbage",
    "truncated-json",
    "half-answer-exit",
    "wrong-id",
    "foreign-id",
    "wrong-shape",
    "bad-utf8",
    "nesting=1000",
    "slow-drip=5",
    "late-answer=500",
    "duplicate-answers",
    "stderr-flood=200000",
    "change-tools",
    "endless-cursor",
];

/// HTTP faults that replace a call instead of running it.
const OF_CALLS: &[&str] = &[
    "http-404",
    "http-close",
    "http-drop",
    "http-stall-headers",
    "http-stall-body",
    "http-202",
    "http-503",
    "http-503-after=1",
    "http-429",
    "http-status=500",
    "http-bad-json",
    "http-wrong-id",
    "http-content-type",
    "http-empty-stream",
    "http-400-null-id",
];

/// The same, for servers with sessions.
const OF_SESSIONS: &[&str] = &["http-session-400", "http-session-410", "http-session-error"];

/// Faults of handshakes, listings, session ends and notifications.
const OF_OTHERS: &[(&str, &str)] = &[
    ("http-503", "initialize"),
    ("http-close", "initialize"),
    ("http-stall-headers", "initialize"),
    ("http-503", "tools/list"),
    ("http-close", "tools/list"),
    ("http-bad-json", "tools/list"),
    ("http-close", "DELETE"),
    ("http-status=500", "DELETE"),
    ("http-stall-headers", "DELETE"),
    ("http-close", "GET"),
    ("http-status=500", "notifications/initialized"),
    ("http-close", "ping"),
];

/// Injects one fault at a time.
pub(crate) struct Faults<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) record: &'a Record,
    pub(crate) chance: &'a mut Rng,
    pub(crate) marker: &'a Marker,
}

impl Faults<'_> {
    pub(crate) async fn inject(&mut self, server: &Server) {
        match self.chance.u32(..10) {
            0..2 => self.crash(server),
            2 => self.report_broken(server),
            _ => match &server.peer {
                Peer::Child => self.signal(server).await,
                Peer::BadChild if self.chance.bool() => self.signal(server).await,
                Peer::BadChild => {
                    let fault = OF_CHILDREN[self.chance.usize(..OF_CHILDREN.len())];
                    self.record.count("hostile answers");
                    self.provoke(server, "misbehave", json!({ "fault": fault }))
                        .await;
                }
                Peer::Http(http) => self.http(http).await,
                Peer::InProcess(_) => {
                    let tool = ["hang_up", "hang_up", "news", "mute"][self.chance.usize(..4)];
                    self.record.count("hostile answers");
                    self.provoke(server, tool, json!({})).await;
                }
            },
        }
    }

    fn crash(&self, server: &Server) {
        if let Ok(handle) = self.runtime.server(&server.name) {
            self.record.count("actor crashes");
            handle.crash_actor();
        }
    }

    fn report_broken(&self, server: &Server) {
        if let Ok(handle) = self.runtime.server(&server.name) {
            self.record.count("reports of a broken connection");
            handle.report_broken(handle.status().generation);
        }
    }

    /// Kills the child of a server, or suspends it for a while.
    async fn signal(&mut self, server: &Server) {
        let Some(pid) = newest_process(&server.journal) else {
            return;
        };
        if self.chance.u32(..4) > 0 {
            self.record.count("kills");
            send(pid, Signal::KILL, self.marker);
            return;
        }
        self.record.count("stopped children");
        send(pid, Signal::STOP, self.marker);
        sleep(millis(self.chance.u64(20..1_500))).await;
        send(pid, Signal::CONT, self.marker);
    }

    async fn http(&mut self, http: &HttpServer) {
        match self.chance.u32(..10) {
            0..3 => {
                self.record.count("expired sessions");
                http.forget_sessions();
            }
            3 => {
                self.record.count("HTTP restarts");
                http.stop().await;
                sleep(millis(self.chance.u64(..400))).await;
                http.resume().await;
            }
            4 => {
                self.record.count("cut streams");
                http.cut_streams();
            }
            5..7 => {
                let (fault, on) = OF_OTHERS[self.chance.usize(..OF_OTHERS.len())];
                self.record.count("HTTP faults");
                http.fault(fault).on(on).once();
            }
            _ => {
                let known = [OF_CALLS, OF_SESSIONS].concat();
                let fault = known[self.chance.usize(..known.len())];
                self.record.count("HTTP faults");
                http.fault(fault).on("tools/call").once();
            }
        }
    }

    /// Calls a tool that makes its server misbehave. The outcome is recorded like any other.
    async fn provoke(&self, server: &Server, tool: &'static str, arguments: Value) {
        let Ok(handle) = self.runtime.server(&server.name) else {
            return;
        };
        let deadline = Duration::from_millis(400);
        let id = issue(self.record, &server.name, deadline, false, false);
        let begin = Instant::now();
        let call = handle.call_tool(tool, arguments).deadline(deadline);
        report(self.record, id, begin, ended(call, deadline).await);
    }
}

/// Sends a signal, unless the process has exited or is not a child of this run.
pub(crate) fn send(pid: u32, signal: Signal, marker: &Marker) {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let wanted = format!("{MARKER}={}", marker.value());
    let mut variables = environment.split(|byte| *byte == 0);
    if variables.any(|variable| variable == wanted.as_bytes())
        && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        // The process may have exited meanwhile.
        let _ = kill_process(pid, signal);
    }
}
