//! One run: start the fleet, inject chaos, let it recover, shut it down under load.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use mcpvisor::{Runtime, StateName};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::leaks::{Slack, Snapshot};
use mcpvisor_testkit::stdio_server::JOURNAL;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::control::{self, issue};
use crate::faults::send;
use crate::fleet::{DEADLINE, millis, secs};
use crate::history::{Ended, History, Recovered};
use crate::journal;
use crate::load;
use crate::record::Record;
use crate::servers::{Fleet, Peer, Server, newest_process};
use crate::watcher::Watcher;

/// How long a healthy server may take to recover.
const RECOVERY: Duration = Duration::from_secs(60);

/// The shutdown deadline.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chaos {
    pub(crate) seed: u64,
    pub(crate) lasts: Duration,
    /// The longest pause of a task between two requests or faults, in milliseconds.
    pub(crate) pause: u64,
    /// The control: servers misbehave on purpose, and something is leaked.
    pub(crate) sabotaged: bool,
}

impl Chaos {
    /// Runs, and returns the history.
    pub(crate) async fn run(self) -> History {
        let before = Snapshot::take();
        let record = Record::new();
        let fleet = Arc::new(Fleet::new("chaos").await);
        let config = fleet.config().state_dir(fleet.state());
        let builder = Runtime::builder().config(config);
        let watcher = Watcher::start(builder.events());
        let runtime = builder.start().await.unwrap();

        self.unleash(&runtime, &fleet, &record, self.lasts).await;
        let recovered = self.recover(&runtime, &fleet, &record, &watcher).await;
        if self.sabotaged {
            lie(&runtime, &fleet, &record).await;
        }
        let (shutdown_at, ended) = self.shut_down(&runtime, &fleet, &record).await;

        drop(runtime);
        let events = watcher.end();
        println!("chaos with seed {}: {}", self.seed, record.counts());
        let mut history = History {
            first: fleet.first_states(),
            events,
            recovered,
            ended,
            shutdown_at: Some(shutdown_at),
            effects: journal::effects(&fleet),
            connections: journal::connections(&fleet),
            ..record.take()
        };
        let leak = self.sabotaged.then(Leak::new);
        let patience = if self.sabotaged { secs(2) } else { DEADLINE };
        history.leftovers = leftovers(fleet, &before, patience).await;
        drop(leak);
        history
    }

    /// Runs load, control requests and faults for a while.
    async fn unleash(
        &self,
        runtime: &Runtime,
        fleet: &Arc<Fleet>,
        record: &Arc<Record>,
        lasts: Duration,
    ) {
        let callers = load::start(runtime, fleet, record, self.seed);
        let tasks = control::start(runtime, fleet, record, *self);
        sleep(lasts).await;
        record.stop(true);
        joined(callers).await;
        joined(tasks).await;
        record.stop(false);
    }

    /// Repairs what the faults broke outside of the runtime, then waits for the runtime to recover.
    async fn recover(
        &self,
        runtime: &Runtime,
        fleet: &Arc<Fleet>,
        record: &Arc<Record>,
        watcher: &Watcher,
    ) -> Vec<Recovered> {
        for server in &fleet.servers {
            if let Peer::Http(http) = &server.peer {
                http.disarm();
                http.resume().await;
            }
            if let Some(pid) = newest_process(&server.journal) {
                send(pid, Signal::CONT, &fleet.marker);
            }
        }
        runtime.reload(fleet.config()).await.unwrap();
        let mut chance = Rng::with_seed(self.seed ^ 0x5EED);
        let mut recovered = Vec::new();
        for server in &fleet.servers {
            let wanted = last_wish(runtime, record, server, &mut chance).await;
            recovered.push(recovery(runtime, record, watcher, server, wanted).await);
        }
        recovered
    }

    /// Shuts down under load.
    async fn shut_down(
        &self,
        runtime: &Runtime,
        fleet: &Arc<Fleet>,
        record: &Arc<Record>,
    ) -> (Duration, Vec<Ended>) {
        let wave = self.unleash(runtime, fleet, record, secs(2));
        let shutdown = async {
            sleep(secs(1)).await;
            let at = record.now();
            let begin = Instant::now();
            runtime.shutdown(SHUTDOWN).await;
            let took = begin.elapsed();
            assert!(took < SHUTDOWN + secs(5), "the shutdown took {took:?}");
            at
        };
        let ((), at) = tokio::join!(wave, shutdown);
        let ended = runtime.status().into_iter().map(|status| Ended {
            server: status.name.to_string(),
            state: status.state,
            generation: status.generation.get(),
        });
        (at, ended.collect())
    }
}

async fn joined(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Enables, disables or ignores a server. Returns whether it should be up.
async fn last_wish(runtime: &Runtime, record: &Record, server: &Server, chance: &mut Rng) -> bool {
    let name = &server.name;
    match chance.u32(..4) {
        0 => {
            while !issue(record, name, "disable", runtime.disable(name)).await {
                sleep(millis(20)).await;
            }
            false
        }
        1 => {
            while !issue(record, name, "enable", runtime.enable(name)).await {
                sleep(millis(20)).await;
            }
            true
        }
        _ => {
            let handle = runtime.server(name).unwrap();
            let until = Instant::now() + RECOVERY;
            while handle.status().state == StateName::Disabling && Instant::now() < until {
                sleep(millis(20)).await;
            }
            handle.status().state != StateName::Disabled
        }
    }
}

/// Waits for a server to reach its expected state, up to a limit.
async fn recovery(
    runtime: &Runtime,
    record: &Record,
    watcher: &Watcher,
    server: &Server,
    wanted: bool,
) -> Recovered {
    let handle = runtime.server(&server.name).unwrap();
    let until = Instant::now() + RECOVERY;
    let well = |state| match state {
        StateName::Connected | StateName::Sleeping => wanted,
        StateName::Disabled => !wanted,
        _ => false,
    };
    // First without a call, which would wake the server.
    while !well(handle.status().state) && Instant::now() < until {
        sleep(millis(10)).await;
    }
    let mut answers = false;
    while wanted && !answers && Instant::now() < until {
        // A changed tool is blocked until it is approved.
        let _ = runtime.approve(&server.name, None).await;
        answers = load::answers(record, &handle, server).await;
        sleep(millis(20)).await;
    }
    loop {
        let status = handle.status();
        let (version, last) = watcher.last(&server.name);
        let agrees = last.is_none_or(|(state, _)| state == status.state);
        if (agrees && well(status.state)) || Instant::now() > until {
            return Recovered {
                server: server.name.clone(),
                wanted,
                state: status.state,
                generation: status.generation.get(),
                answers,
                version,
            };
        }
        sleep(millis(10)).await;
    }
}

/// Makes servers violate the guarantees: one runs calls that it refuses and answers without
/// running, another has two processes at once.
async fn lie(runtime: &Runtime, fleet: &Fleet, record: &Record) {
    let server = |name: &str| fleet.servers.iter().find(|server| server.name == name);
    let liar = server("h-json").unwrap();
    let Peer::Http(http) = &liar.peer else {
        panic!("{} is no HTTP server", liar.name);
    };
    runtime.enable(&liar.name).await.unwrap();
    let handle = runtime.server(&liar.name).unwrap();
    for fault in ["http-run-then-404", "http-flood=10"] {
        while !load::answers(record, &handle, liar).await {
            sleep(millis(20)).await;
        }
        http.fault(fault).on("tools/call").once();
        load::answers(record, &handle, liar).await;
    }
    let journal = &server("s-plain").unwrap().journal;
    let process = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fixture-server"));
        let command = command.env(JOURNAL, journal).stdin(Stdio::piped());
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut two = [process(), process()];
    let lines = || std::fs::read_to_string(journal).unwrap_or_default();
    eventually(DEADLINE, "a process beside another", || {
        lines().contains("beside")
    })
    .await;
    for process in &mut two {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}

/// Resources leaked on purpose, held until the check has seen them.
struct Leak {
    child: std::process::Child,
    _file: std::fs::File,
}

impl Leak {
    fn new() -> Self {
        tokio::spawn(std::future::pending::<()>());
        let mut command = Command::new("sleep");
        let command = command.arg("600").stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self {
            child: child.unwrap(),
            _file: std::fs::File::open("/dev/null").unwrap(),
        }
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is left of a run after everything was dropped.
async fn leftovers(fleet: Arc<Fleet>, before: &Snapshot, patience: Duration) -> Vec<String> {
    let until = Instant::now() + patience;
    let fleet = Arc::into_inner(fleet).unwrap();
    let marker = fleet.marker.clone();
    drop(fleet);
    let slack = Slack {
        // Tokio keeps some descriptors for signals after the first child.
        descriptors: 8,
        ..Slack::NONE
    };
    loop {
        let mut left = Vec::new();
        let marked = marker.processes();
        if !marked.is_empty() {
            left.push(format!("processes of servers: {marked:?}"));
        }
        if let Err(growth) = before.growth(&Snapshot::take(), slack) {
            left.push(format!("{growth:?}"));
        }
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        sleep(millis(50)).await;
    }
}
