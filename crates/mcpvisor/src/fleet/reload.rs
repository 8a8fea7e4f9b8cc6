//! Reloads the config of a running fleet. Servers whose entries did not change are not touched.
//!
//! [`super::config_diff`] decides what changes. The supervisor adds and removes servers; the actor
//! of a server adjusts and restarts it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use mcpvisor_core::{GovernorSettings, InvalidSetting, ServerName};
use serde::Serialize;

use super::config_diff::{ServerChange, compare_active, connection_update};
use crate::api::error::ControlError;
use crate::api::events::EventKind;
use crate::api::runtime::{Runtime, check_connects, check_drivers};
use crate::config::{Config, ConfigProblem, ServerConfig, Severity};
use crate::server::message::{ConnectionUpdate, ServerMessage};
use crate::server::slot::ServerSlot;

/// What a reload did, server by server.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReloadReport {
    /// Each server of the old config and of the new one, in the order of their names.
    pub servers: Vec<ServerReload>,
    /// Settings of the fleet as a whole that changed.
    pub fleet: Vec<&'static str>,
    /// Problems in the new config.
    pub problems: Vec<ConfigProblem>,
}

impl ReloadReport {
    /// The result for one server.
    pub fn server(&self, name: &str) -> Option<&ServerReload> {
        self.servers.iter().find(|it| it.server.as_str() == name)
    }

    /// Whether nothing changed.
    pub fn is_unchanged(&self) -> bool {
        let untouched =
            |it: &ServerReload| matches!(it.change, ServerChange::Unchanged | ServerChange::Kept);
        self.fleet.is_empty() && self.servers.iter().all(untouched)
    }
}

/// What a reload did with one server.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ServerReload {
    /// Which server.
    pub server: ServerName,
    /// What was done.
    #[serde(flatten)]
    pub change: ServerChange,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Why a new config was rejected. Nothing has changed then.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Two servers have the same name.
    #[error("the server {0} is configured twice; rename one of them")]
    DuplicateServer(ServerName),
    /// A setting of a server is invalid.
    #[error("{server}: {problem}")]
    InvalidSetting {
        /// Which server.
        server: ServerName,
        /// Which setting, and what is valid.
        #[source]
        problem: InvalidSetting,
    },
    /// A limit on the connects of the fleet is invalid.
    #[error("{0}")]
    InvalidConnects(#[source] InvalidSetting),
    /// The runtime has ended.
    #[error("the runtime has shut down")]
    RuntimeGone,
}

/// Validates the servers of a config and indexes them by name.
fn validate(servers: Vec<ServerConfig>) -> Result<BTreeMap<ServerName, ServerConfig>, ReloadError> {
    let mut by_name = BTreeMap::new();
    for server in servers {
        let name = server.name.clone();
        if let Err(problem) = server.validate_settings() {
            return Err(ReloadError::InvalidSetting {
                server: name,
                problem,
            });
        }
        if by_name.insert(name.clone(), server).is_some() {
            return Err(ReloadError::DuplicateServer(name));
        }
    }
    Ok(by_name)
}

/// Rejects a new transport that this tokio runtime has no driver for.
fn check_new_transport(config: &ServerConfig, change: &ServerChange) -> Result<(), ControlError> {
    match change {
        ServerChange::Restarted { .. } => check_drivers(config),
        _ => Ok(()),
    }
}

/// One step of a reload.
enum Step {
    Add(ServerConfig),
    Remove,
    Change(Arc<ServerSlot>, ServerConfig),
    Nothing,
}

impl Runtime {
    /// Applies a new config: adds new servers, removes missing ones, restarts those whose transport
    /// changed, and adjusts all other settings in place. New headers of a server over HTTP are sent
    /// from the next request on. Servers whose entries did not change are not affected. A config
    /// that is invalid as a whole changes nothing.
    ///
    /// The limits on connects are applied too, unless [`crate::RuntimeBuilder::governor`] set them.
    ///
    /// Handles stay valid: those of a restarted server use its new connection. A server that was
    /// added with [`Runtime::add`] is removed if the config does not name it. The state folder
    /// (`state_dir`) stays the one of the start. A reload that has begun runs to its end, even if
    /// its future is dropped.
    ///
    /// ```no_run
    /// # async fn example(runtime: mcpvisor::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// # use mcpvisor::{Config, ServerChange};
    /// let report = runtime.reload(Config::new()).await?;
    /// for server in &report.servers {
    ///     println!("{}: {:?}", server.server, server.change);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reload(&self, config: Config) -> Result<ReloadReport, ReloadError> {
        let wanted = validate(config.servers)?;
        let (connects, problems) = (config.connects, config.problems);
        check_connects(connects.as_ref()).map_err(ReloadError::InvalidConnects)?;
        let runtime = self.clone();
        // A task, so that a dropped future does not leave actors with a config that their slots no
        // longer have.
        let reload = tokio::spawn(async move { runtime.apply(wanted, connects, problems).await });
        reload.await.unwrap_or(Err(ReloadError::RuntimeGone))
    }

    /// Enabled servers whose new entries are invalid but say that they are disabled: they are
    /// disabled, with their old settings.
    fn disabled_entries(&self, problems: &[ConfigProblem]) -> BTreeMap<ServerName, ServerConfig> {
        let off = problems
            .iter()
            .filter(|it| it.severity == Severity::Disabled);
        let slots = off.filter_map(|it| self.slot(it.server.as_deref()?).ok());
        let configs = slots.map(|slot| ServerConfig::clone(&slot.config()));
        let running = configs.filter(|config| config.enabled);
        let disabled = running.map(|config| {
            let off = ServerConfig {
                enabled: false,
                ..config
            };
            (off.name.clone(), off)
        });
        disabled.collect()
    }

    async fn apply(
        &self,
        mut wanted: BTreeMap<ServerName, ServerConfig>,
        connects: Option<GovernorSettings>,
        problems: Vec<ConfigProblem>,
    ) -> Result<ReloadReport, ReloadError> {
        let broken: BTreeSet<&str> = problems
            .iter()
            .filter(|problem| problem.severity != Severity::Warning)
            .filter_map(|problem| problem.server.as_deref())
            .collect();
        // One reload at a time.
        let mut reloading = self.lifeline.reloading.lock().await;
        let governed = self.govern(&mut reloading, connects);
        let mut steps = Vec::new();
        wanted.extend(self.disabled_entries(&problems));
        for name in self.servers() {
            let Ok(slot) = self.slot(name.as_str()) else {
                continue;
            };
            let (change, step) = match wanted.remove(&name) {
                Some(new) => match compare_active(&slot.config(), &new) {
                    ServerChange::Unchanged => (ServerChange::Unchanged, Step::Nothing),
                    change => (change, Step::Change(slot, new)),
                },
                None if broken.contains(name.as_str()) => (ServerChange::Kept, Step::Nothing),
                None => (ServerChange::Removed, Step::Remove),
            };
            steps.push((name, change, step));
        }
        let added = wanted
            .into_iter()
            .map(|(name, new)| (name, ServerChange::Added, Step::Add(new)));
        steps.extend(added);
        // Concurrently, so that a server that closes slowly does not delay the others.
        let done = steps.into_iter().map(|step| self.perform(step));
        let mut servers = join_all(done).await;
        if servers.iter().any(|(_, gone)| *gone) {
            return Err(ReloadError::RuntimeGone);
        }
        servers.sort_by(|a, b| a.0.server.cmp(&b.0.server));
        Ok(ReloadReport {
            servers: servers.into_iter().map(|(server, _)| server).collect(),
            fleet: governed.then_some("connects").into_iter().collect(),
            problems,
        })
    }

    /// Performs one step. Also returns whether the runtime ended meanwhile.
    async fn perform(
        &self,
        (server, mut change, step): (ServerName, ServerChange, Step),
    ) -> (ServerReload, bool) {
        let done = match step {
            Step::Add(config) => self.add(config).await,
            Step::Remove => self.remove(server.as_str()).await,
            Step::Change(slot, config) => match check_new_transport(&config, &change) {
                Ok(()) => self.change(&slot, config, &change).await,
                Err(problem) => {
                    change = ServerChange::Kept;
                    Err(problem)
                }
            },
            Step::Nothing => Ok(()),
        };
        let gone = matches!(done, Err(ControlError::RuntimeGone));
        let problem = done.err().map(|problem| problem.to_string());
        let reload = ServerReload {
            server,
            change,
            problem,
        };
        (reload, gone)
    }

    /// The new config is in the slot before the actor is notified, so an actor that crashes now
    /// restarts with it.
    async fn change(
        &self,
        slot: &Arc<ServerSlot>,
        config: ServerConfig,
        change: &ServerChange,
    ) -> Result<(), ControlError> {
        let name = slot.name().clone();
        let (before, enabled) = (slot.config().enabled, config.enabled);
        let update = match (before, enabled, connection_update(change)) {
            // It is disabled next, so it does not connect again.
            (true, false, ConnectionUpdate::Reconnect) => ConnectionUpdate::ForgetEra,
            (true, false, _) => ConnectionUpdate::None,
            // The embedding program may have enabled it, whatever the config says.
            (_, _, update) => update,
        };
        if config.pin {
            // Approvals are loaded before the pin takes effect, so that it can be enforced at once.
            slot.load_approvals().await;
        }
        slot.configure(config);
        let message = |reply| ServerMessage::Reconfigure { update, reply };
        let adjusted = self.control_all(slot, message).await;
        self.resize_pool(slot).await;
        match adjusted {
            Ok(()) | Err(ControlError::Interrupted(_)) => {}
            Err(problem) => return Err(problem),
        }
        let generation = slot.generation();
        slot.emit(generation, EventKind::Reconfigured(change.clone()));
        match (before, enabled) {
            (false, true) => self.enable(name.as_str()).await,
            (true, false) => self.disable(name.as_str()).await,
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// Adds or removes instances of a pool, as its config says, and removes the slots of clients that
    /// no longer have connections of their own. Calls of a removed slot may finish.
    async fn resize_pool(&self, slot: &Arc<ServerSlot>) {
        let Some(group) = slot.group() else {
            return;
        };
        if !slot.is_per_client() {
            let clients = slot.client_slots();
            join_all(clients.iter().map(|it| self.retire_slot(it))).await;
        }
        let mut pool = group.pool().to_vec();
        let wanted = slot
            .config()
            .settings
            .connections
            .instances
            .saturating_sub(1);
        let surplus = pool.split_off(wanted.min(pool.len()));
        let added = (pool.len()..wanted).map(|_| Arc::new(slot.new_instance()));
        let added: Vec<Arc<ServerSlot>> = added.collect();
        pool.extend(added.iter().cloned());
        group.set_pool(pool);
        for instance in added {
            self.start_slot(instance);
        }
        join_all(surplus.iter().map(|it| self.retire_slot(it))).await;
    }
}
