//! Random control requests: enable, disable, reconnect, reload, add, remove, approve, status reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use mcpvisor::{Config, ControlError, ReloadError, Runtime, ServerConfig, StartMode, Transport};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::checker::CONTROL;
use crate::faults::Faults;
use crate::fleet::millis;
use crate::history::{Request, RequestEnd, StatusRead};
use crate::record::Record;
use crate::run::Chaos;
use crate::servers::{Fleet, Peer, Server};

/// Tasks that issue control requests and cause faults.
const TASKS: usize = 8;

/// Starts the tasks. They end when the record is stopped.
pub(crate) fn start(
    runtime: &Runtime,
    fleet: &Arc<Fleet>,
    record: &Arc<Record>,
    chaos: Chaos,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let chance = Rng::with_seed(chaos.seed.wrapping_mul(1_009).wrapping_add(number as u64));
        let mut task = Control {
            number,
            runtime: runtime.clone(),
            fleet: Arc::clone(fleet),
            record: Arc::clone(record),
            chance,
            read: BTreeMap::new(),
        };
        tasks.spawn(async move {
            while !task.record.is_stopped() {
                task.step().await;
                sleep(millis(task.chance.u64(..chaos.pause))).await;
            }
        });
    }
    tasks
}

/// One of the tasks.
struct Control {
    number: usize,
    runtime: Runtime,
    fleet: Arc<Fleet>,
    record: Arc<Record>,
    chance: Rng,
    /// The instances and generations that this task read last.
    read: BTreeMap<String, (u32, u64)>,
}

impl Control {
    async fn step(&mut self) {
        let number = self.chance.usize(..self.fleet.servers.len());
        let server = self.fleet.servers[number].clone();
        match self.chance.u32(..100) {
            0..12 => self.enable(&server).await,
            12..18 => self.disable(&server).await,
            18..26 => self.reconnect(&server).await,
            26..30 => self.reload().await,
            30..36 => self.add(&server).await,
            36..39 => self.remove(&server).await,
            39..43 => self.approve(&server).await,
            43..58 => self.read_status(),
            _ => {
                let mut faults = Faults {
                    runtime: &self.runtime,
                    record: &self.record,
                    chance: &mut self.chance,
                    marker: &self.fleet.marker,
                };
                faults.inject(&server).await;
            }
        }
    }

    async fn enable(&self, server: &Server) {
        let request = self.runtime.enable(&server.name);
        issue(&self.record, &server.name, "enable", request).await;
    }

    async fn disable(&self, server: &Server) {
        let request = self.runtime.disable(&server.name);
        issue(&self.record, &server.name, "disable", request).await;
    }

    async fn reconnect(&self, server: &Server) {
        let request = self.runtime.reconnect(&server.name);
        issue(&self.record, &server.name, "reconnect", request).await;
    }

    async fn add(&self, server: &Server) {
        let request = self.runtime.add(server.config.clone());
        issue(&self.record, &server.name, "add", request).await;
    }

    /// Removes a server; most are added again immediately.
    async fn remove(&mut self, server: &Server) {
        let request = self.runtime.remove(&server.name);
        issue(&self.record, &server.name, "remove", request).await;
        if self.chance.u32(..4) > 0 {
            sleep(millis(self.chance.u64(..20))).await;
            self.add(server).await;
        }
    }

    async fn approve(&self, server: &Server) {
        let approve = self.runtime.approve(&server.name, None);
        issue(&self.record, &server.name, "approve", async {
            approve.await.map(drop)
        })
        .await;
    }

    async fn reload(&mut self) {
        let config = self.changed_config();
        let reload = async {
            match self.runtime.reload(config).await {
                Err(ReloadError::RuntimeGone) => Err(ControlError::RuntimeGone),
                Ok(_) | Err(_) => Ok(()),
            }
        };
        issue(&self.record, "", "reload", reload).await;
    }

    /// The initial config with a few servers changed.
    fn changed_config(&mut self) -> Config {
        let mut config = Config::new();
        for server in &self.fleet.servers {
            let changed = match self.chance.u32(..40) {
                0 => None,
                1..8 => Some(changed(server, &mut self.chance)),
                _ => Some(server.config.clone()),
            };
            config.servers.extend(changed);
        }
        config
    }

    fn read_status(&mut self) {
        self.record.count("status reads");
        for status in self.runtime.status() {
            let (instance, generation) = (status.instance, status.generation.get());
            let server = status.name.to_string();
            let now = (instance, generation);
            if self.read.insert(server.clone(), now) != Some(now) {
                self.record.read(StatusRead {
                    reader: self.number,
                    server,
                    instance,
                    generation,
                });
            }
        }
    }
}

/// A changed config for a server.
fn changed(server: &Server, chance: &mut Rng) -> ServerConfig {
    let mut config = server.config.clone();
    match chance.u32(..8) {
        0 => config.deny_tools(format!("none-{}", chance.u32(..3))),
        1 => {
            config.settings.timeouts.idle = millis(chance.u64(1_000..3_000));
            config
        }
        2 => {
            config.settings.admission.in_flight = chance.usize(1..8);
            config
        }
        3 => {
            let enabled = !config.enabled;
            config.enabled(enabled)
        }
        4 => config.start(StartMode::Lazy),
        5 => config.sleep_after(millis(chance.u64(200..1_000))),
        _ => {
            config.transport = reached_otherwise(server, chance);
            config
        }
    }
}

/// A different transport to the same server. For a child, sometimes a command that does not exist.
fn reached_otherwise(server: &Server, chance: &mut Rng) -> Transport {
    let variant = chance.u32(..1_000).to_string();
    match &server.peer {
        Peer::Child | Peer::BadChild if chance.u32(..4) == 0 => {
            Transport::stdio("/nonexistent/mcp-server").into()
        }
        Peer::Child | Peer::BadChild => {
            let command = server.config.transport.as_stdio().unwrap().clone();
            command.env("VARIANT", variant).into()
        }
        Peer::Http(http) => Transport::http(http.url())
            .header("x-variant", variant)
            .into(),
        Peer::InProcess(scripted) => scripted.transport(),
    }
}

/// Issues a control request and records how it ended.
pub(crate) async fn issue(
    record: &Record,
    server: &str,
    what: &'static str,
    request: impl Future<Output = Result<(), ControlError>>,
) -> bool {
    record.count(what);
    let begin = Instant::now();
    let answer = timeout(2 * CONTROL, request).await;
    let (end, done) = match answer {
        Ok(Ok(())) => (RequestEnd::Answered, true),
        Ok(Err(ControlError::RuntimeGone)) => (RequestEnd::RuntimeGone, false),
        Ok(Err(_)) => (RequestEnd::Answered, false),
        Err(_) => (RequestEnd::None, false),
    };
    record.request(Request {
        server: server.to_owned(),
        what,
        took: begin.elapsed(),
        at: record.now(),
        end,
    });
    done
}
