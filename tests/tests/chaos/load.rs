//! Callers: clients with and without quotas, whose calls have effects that the servers record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use mcpvisor::{CallError, Client, Known, RetryPolicy, Runtime, ServerHandle};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::checker::LATE;
use crate::fleet::millis;
use crate::history::{Call, Outcome, Told};
use crate::record::Record;
use crate::servers::{EFFECT, Fleet, Server};

/// Concurrent callers.
const CALLERS: usize = 10;

/// Calls per burst.
const BURST: usize = 24;

/// How one caller reaches the fleet.
#[derive(Debug, Clone)]
enum Way {
    Runtime(Runtime),
    Client(Client),
}

impl Way {
    fn handle(&self, server: &str) -> Option<ServerHandle> {
        match self {
            Self::Runtime(runtime) => runtime.server(server).ok(),
            Self::Client(client) => client.server(server).ok(),
        }
    }
}

/// Starts the callers. They end when the record is stopped.
pub(crate) fn start(
    runtime: &Runtime,
    fleet: &Arc<Fleet>,
    record: &Arc<Record>,
    seed: u64,
) -> JoinSet<()> {
    let small = runtime.client("small").quota(2).build();
    let large = runtime.client("large").quota(16).build();
    let free = runtime.client("free").build();
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let way = match number % 5 {
            0 | 1 => Way::Runtime(runtime.clone()),
            2 => Way::Client(small.clone()),
            3 => Way::Client(large.clone()),
            _ => Way::Client(free.clone()),
        };
        let caller = Caller {
            way,
            fleet: Arc::clone(fleet),
            record: Arc::clone(record),
            chance: Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64)),
            kept: None,
        };
        callers.spawn(caller.run());
    }
    callers
}

struct Caller {
    way: Way,
    fleet: Arc<Fleet>,
    record: Arc<Record>,
    chance: Rng,
    /// A handle that is reused across restarts, removals and additions of its server.
    kept: Option<(usize, ServerHandle)>,
}

impl Caller {
    async fn run(mut self) {
        while !self.record.is_stopped() {
            match self.chance.u32(..100) {
                0..8 => self.read().await,
                8..10 => self.burst().await,
                _ => {
                    if let Some(call) = self.pick() {
                        call.run().await;
                    }
                }
            }
            sleep(millis(self.chance.u64(0..30))).await;
        }
    }

    fn pick(&mut self) -> Option<OneCall> {
        let number = match (&self.kept, self.chance.u32(..4)) {
            (Some((number, _)), 0) => *number,
            _ => self.chance.usize(..self.fleet.servers.len()),
        };
        let handle = match &self.kept {
            Some((known, handle)) if *known == number => handle.clone(),
            _ => self.way.handle(&self.fleet.servers[number].name)?,
        };
        if self.chance.u32(..50) == 0 {
            self.kept = Some((number, handle.clone()));
        }
        Some(self.call(handle, number))
    }

    fn call(&mut self, handle: ServerHandle, number: usize) -> OneCall {
        let chance = &mut self.chance;
        let ms = match chance.u32(..10) {
            0..6 => 0,
            6..9 => chance.u64(1..50),
            _ => chance.u64(50..400),
        };
        let deadline = millis([60, 250, 1_000, 3_000][chance.usize(..4)]);
        let wish = match chance.u32(..12) {
            0 => RetryPolicy::Always,
            1 => RetryPolicy::Never,
            _ => RetryPolicy::Default,
        };
        OneCall {
            record: Arc::clone(&self.record),
            server: self.fleet.servers[number].clone(),
            handle,
            ms,
            deadline,
            wish,
            abandon: (chance.u32(..20) == 0).then(|| millis(chance.u64(..60))),
        }
    }

    /// Sends many concurrent calls from one client to one server.
    async fn burst(&mut self) {
        let number = self.chance.usize(..self.fleet.servers.len());
        let mut calls = JoinSet::new();
        for _ in 0..BURST {
            if let Some(handle) = self.way.handle(&self.fleet.servers[number].name) {
                calls.spawn(self.call(handle, number).run());
            }
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
    }

    /// Sends a request of another kind, without an effect.
    async fn read(&mut self) {
        let number = self.chance.usize(..self.fleet.servers.len());
        let server = self.fleet.servers[number].name.clone();
        let Some(handle) = self.way.handle(&server) else {
            return;
        };
        let deadline = millis([250, 2_000][self.chance.usize(..2)]);
        let id = issue(&self.record, &server, deadline, true, false);
        let begin = Instant::now();
        let ended = match self.chance.u32(..4) {
            0 => ended(handle.ping().deadline(deadline), deadline).await,
            1 => ended(handle.list_tools(None).deadline(deadline), deadline).await,
            2 => {
                let read = handle.read_resource("fixture://one").deadline(deadline);
                ended(read, deadline).await
            }
            _ => {
                let echo = handle.call_tool("echo", json!({ "a": 1 }));
                ended(echo.deadline(deadline), deadline).await
            }
        };
        report(&self.record, id, begin, ended);
    }
}

/// A call of the counted tool, about to be sent.
struct OneCall {
    record: Arc<Record>,
    server: Server,
    handle: ServerHandle,
    /// How long the tool takes after its effect.
    ms: u64,
    deadline: Duration,
    wish: RetryPolicy,
    /// The caller drops it after this time.
    abandon: Option<Duration>,
}

impl OneCall {
    async fn run(self) {
        let name = &self.server.name;
        let repeatable = self.wish == RetryPolicy::Always;
        let id = issue(&self.record, name, self.deadline, repeatable, true);
        let begin = Instant::now();
        let call = self.handle.call_tool(
            EFFECT,
            json!({ "file": self.server.effects, "text": id.to_string(), "ms": self.ms }),
        );
        let call = call.deadline(self.deadline).retry(self.wish);
        let told = match self.abandon {
            None => ended(call, self.deadline).await,
            Some(patience) => match timeout(patience, ended(call, self.deadline)).await {
                Ok(told) => told,
                Err(_) => Some((Told::Abandoned, String::new())),
            },
        };
        report(&self.record, id, begin, told);
    }
}

/// Sends one call after the chaos and returns whether it got a result.
pub(crate) async fn answers(record: &Record, handle: &ServerHandle, server: &Server) -> bool {
    let deadline = Duration::from_secs(5);
    let id = issue(record, &server.name, deadline, false, true);
    let begin = Instant::now();
    let arguments = json!({ "file": server.effects, "text": id.to_string() });
    let call = handle.call_tool(EFFECT, arguments).deadline(deadline);
    let told = ended(call, deadline).await;
    let answers = matches!(told, Some((Told::Result, _)));
    report(record, id, begin, told);
    answers
}

/// Records a call before it is issued.
pub(crate) fn issue(
    record: &Record,
    server: &str,
    deadline: Duration,
    repeatable: bool,
    counted: bool,
) -> u64 {
    let id = record.next_id();
    record.call(Call {
        id,
        server: server.to_owned(),
        deadline,
        repeatable,
        counted,
    });
    id
}

/// The outcome of a request, or nothing if it has none long after its deadline.
pub(crate) async fn ended<R>(
    request: impl IntoFuture<Output = Result<R, CallError>>,
    deadline: Duration,
) -> Option<(Told, String)> {
    let ended = timeout(deadline + 2 * LATE, request.into_future()).await;
    ended.ok().map(|ended| match ended {
        Ok(_) => (Told::Result, String::new()),
        Err(error) => (told(&error), error.to_string()),
    })
}

fn told(error: &CallError) -> Told {
    match (error, error.known()) {
        (CallError::RuntimeGone { .. }, _) => Told::RuntimeGone,
        (_, Known::NotSent) => Told::NotSent,
        (_, Known::Unknown) => Told::Unknown,
        (_, Known::Refused) => Told::Refused,
        (_, Known::Answered) => Told::Answered,
    }
}

pub(crate) fn report(record: &Record, id: u64, begin: Instant, told: Option<(Told, String)>) {
    let Some((told, detail)) = told else {
        return;
    };
    record.count(match told {
        Told::Result => "calls with a result",
        Told::Answered => "calls answered with an error",
        Told::Refused => "calls refused",
        Told::Unknown => "calls unknown",
        Told::NotSent => "calls not sent",
        Told::RuntimeGone => "calls after the end",
        Told::Abandoned => "calls abandoned",
    });
    record.outcome(Outcome {
        id,
        told,
        took: begin.elapsed(),
        at: record.now(),
        detail,
    });
}
