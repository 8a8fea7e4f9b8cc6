//! A new config for a running fleet: what differs is touched, what does not is left alone.
//!
//! Comparing is pure. What has to happen goes through the same doors as every other wish: the
//! supervisor adds and removes, the actor of a server adjusts and restarts it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use mcpvisor_core::{GovernorSettings, InvalidSetting, ServerName};
use serde::Serialize;

use crate::api::error::ControlError;
use crate::api::events::EventKind;
use crate::api::runtime::{Runtime, check_connects, check_drivers};
use crate::config::{Config, ConfigProblem, ServerConfig, Severity};
use crate::server::active_config::ActiveConfig;
use crate::server::message::{ConnectionUpdate, ServerMessage};
use crate::server::slot::ServerSlot;

/// How a report names the headers of a server, with the token that is one of them.
const HEADERS: &str = "headers";

/// What a reload did, server by server.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReloadReport {
    /// Each server of the old config and of the new one, in the order of their names.
    pub servers: Vec<ServerReload>,
    /// What differs for the fleet as a whole.
    pub fleet: Vec<&'static str>,
    /// What the reader of the new config had to say about it.
    pub problems: Vec<ConfigProblem>,
}

impl ReloadReport {
    /// What became of one server.
    pub fn server(&self, name: &str) -> Option<&ServerReload> {
        self.servers.iter().find(|it| it.server.as_str() == name)
    }

    /// Whether nothing was touched.
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
    /// Why it could not be done, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a reload does with a server, and because of which settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerChange {
    /// It is new.
    Added,
    /// It is no longer there: calls in flight may finish, then it is closed and forgotten.
    Removed,
    /// It is reached in another way: its connection is replaced, calls in flight may finish first.
    Restarted {
        /// What differs.
        why: Vec<&'static str>,
    },
    /// Its connection stays, and so do its calls.
    Adjusted {
        /// What differs.
        what: Vec<&'static str>,
    },
    /// Its new entry cannot be used, so it goes on with the old one.
    Kept,
    /// Nothing differs.
    Unchanged,
}

/// Why a new config was not taken. Nothing has changed then.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Two servers have the same name.
    #[error("the server {0} is configured twice; give one of them another name")]
    DuplicateServer(ServerName),
    /// A setting would make the runtime misbehave.
    #[error("{server}: {problem}")]
    InvalidSetting {
        /// Which server.
        server: ServerName,
        /// Which setting, and what to write instead.
        #[source]
        problem: InvalidSetting,
    },
    /// A bound on the connects of the fleet would make the runtime misbehave.
    #[error("{0}")]
    InvalidConnects(#[source] InvalidSetting),
    /// The runtime has ended.
    #[error("the runtime has shut down")]
    RuntimeGone,
}

/// What differs between two configs of one server.
pub(crate) fn compare(old: &ServerConfig, new: &ServerConfig) -> ServerChange {
    let mut why = old.transport.differences(&new.transport);
    if old.protocol != new.protocol || old.prefer_older_protocol != new.prefer_older_protocol {
        why.push("protocol");
    }
    if !why.is_empty() {
        return ServerChange::Restarted { why };
    }
    let (before, after) = (&old.settings, &new.settings);
    let differs = [
        (
            before.backoff != after.backoff || before.budget != after.budget,
            "reconnect",
        ),
        (before.health != after.health, "health"),
        (
            before.admission != after.admission || before.messages != after.messages,
            "limits",
        ),
        (before.timeouts != after.timeouts, "timeouts"),
        (before.close != after.close, "close"),
        (before.retry != after.retry, "retries"),
        (before.listing != after.listing, "listing"),
        (old.tools != new.tools, "tools"),
        (
            old.start != new.start || before.rest.lazy != after.rest.lazy,
            "start",
        ),
        (
            old.sleep_after != new.sleep_after || before.rest.sleep_after != after.rest.sleep_after,
            "sleepAfter",
        ),
        (old.pin != new.pin, "pin"),
        (old.check_arguments != new.check_arguments, "checkArguments"),
        (old.required != new.required, "required"),
        (old.enabled != new.enabled, "enabled"),
        (old.transport.sends_otherwise(&new.transport), HEADERS),
    ];
    let what: Vec<&'static str> = differs
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
        .collect();
    if what.is_empty() {
        ServerChange::Unchanged
    } else {
        ServerChange::Adjusted { what }
    }
}

/// The same for a server that runs: a token of the environment is no part of its entry.
fn compare_now(old: &ActiveConfig, new: &ServerConfig) -> ServerChange {
    match compare(old, new) {
        ServerChange::Unchanged if old.has_new_token() => ServerChange::Adjusted {
            what: vec![HEADERS],
        },
        ServerChange::Adjusted { mut what } if old.has_new_token() && !what.contains(&HEADERS) => {
            what.push(HEADERS);
            ServerChange::Adjusted { what }
        }
        change => change,
    }
}

/// What the connection of a server cannot go on with.
fn renewed(change: &ServerChange) -> ConnectionUpdate {
    match change {
        ServerChange::Restarted { .. } => ConnectionUpdate::Reconnect,
        ServerChange::Adjusted { what } if what.contains(&HEADERS) => ConnectionUpdate::Headers,
        _ => ConnectionUpdate::None,
    }
}

/// The servers of a config by name, if all of it can be used.
fn checked(servers: Vec<ServerConfig>) -> Result<BTreeMap<ServerName, ServerConfig>, ReloadError> {
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

/// Refuses another way to reach a server that this tokio runtime has no driver for.
fn checked_drivers(config: &ServerConfig, change: &ServerChange) -> Result<(), ControlError> {
    match change {
        ServerChange::Restarted { .. } => check_drivers(config),
        _ => Ok(()),
    }
}

/// One thing to do.
enum Step {
    Add(ServerConfig),
    Remove,
    Change(Arc<ServerSlot>, ServerConfig),
    Nothing,
}

impl Runtime {
    /// Takes another config: servers that are new are added, those that are gone removed, those that
    /// are reached in another way restarted, and all other settings adjusted in place. New headers of
    /// a server over HTTP are sent from the next request on. Servers whose
    /// entries did not change notice nothing. A config that cannot be used as a whole changes nothing.
    ///
    /// How many servers connect at once is taken too, unless [`crate::RuntimeBuilder::governor`] said
    /// it.
    ///
    /// Handles stay: those of a restarted server work on its new connection. A server that
    /// [`Runtime::add`] brought and the config does not name is removed. Where things are kept
    /// (`state_dir`) stays as it was at the start. Once it was begun it goes on to its end, also when
    /// nobody waits for that any more.
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
        let wanted = checked(config.servers)?;
        let (connects, problems) = (config.connects, config.problems);
        check_connects(connects.as_ref()).map_err(ReloadError::InvalidConnects)?;
        let runtime = self.clone();
        // In a task of its own: given up half-way, servers would run on what their slots no longer say.
        let reload = tokio::spawn(async move { runtime.take(wanted, connects, problems).await });
        reload.await.unwrap_or(Err(ReloadError::RuntimeGone))
    }

    /// Servers that run, and whose new entries cannot be used but for being switched off: that is
    /// obeyed, and all else stays.
    fn switched_off(&self, problems: &[ConfigProblem]) -> BTreeMap<ServerName, ServerConfig> {
        let off = problems.iter().filter(|it| it.severity == Severity::Off);
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

    async fn take(
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
        let mut one_at_a_time = self.lifeline().reloading.lock().await;
        let governed = self.govern(&mut one_at_a_time, connects);
        let mut steps = Vec::new();
        wanted.extend(self.switched_off(&problems));
        for name in self.servers() {
            let Ok(slot) = self.slot(name.as_str()) else {
                continue;
            };
            let (change, step) = match wanted.remove(&name) {
                Some(new) => match compare_now(&slot.config(), &new) {
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
        // Each in its own time: one that is slow to close holds up no other.
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

    /// Does one thing, and says whether the runtime ended meanwhile.
    async fn perform(
        &self,
        (server, mut change, step): (ServerName, ServerChange, Step),
    ) -> (ServerReload, bool) {
        let done = match step {
            Step::Add(config) => self.add(config).await,
            Step::Remove => self.remove(server.as_str()).await,
            Step::Change(slot, config) => match checked_drivers(&config, &change) {
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

    /// The new config is in the slot before the actor hears of it, so an actor that crashes now comes
    /// back with it.
    async fn change(
        &self,
        slot: &Arc<ServerSlot>,
        config: ServerConfig,
        change: &ServerChange,
    ) -> Result<(), ControlError> {
        let name = slot.name().clone();
        let (before, enabled) = (slot.config().enabled, config.enabled);
        let renew = match (before, enabled, renewed(change)) {
            // It is switched off next, so nothing is opened for it.
            (true, false, ConnectionUpdate::Reconnect) => ConnectionUpdate::ForgetEra,
            (true, false, _) => ConnectionUpdate::None,
            // A host may have switched it on, whatever the config says.
            (_, _, renew) => renew,
        };
        if config.pin {
            // Known before the rule holds, so that there is no moment in which it cannot be kept.
            slot.load_approvals().await;
        }
        slot.configure(config);
        let adjusted = self
            .control(name.as_str(), |reply| ServerMessage::Reconfigure {
                update: renew,
                reply,
            })
            .await;
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{StartMode, ToolFilter, Transport};

    fn server() -> ServerConfig {
        let transport = Transport::channel(|_| async {});
        ServerConfig::new("a", transport).unwrap()
    }

    #[test]
    fn every_setting_that_differs_is_named_and_needs_no_restart() {
        let old = server();
        assert_eq!(compare(&old, &old.clone()), ServerChange::Unchanged);
        type Change = (&'static str, fn(&mut ServerConfig));
        let changes: [Change; 14] = [
            ("reconnect", |it| it.settings.budget.attempts += 1),
            ("health", |it| it.settings.health.threshold += 1),
            ("limits", |it| it.settings.admission.in_flight += 1),
            ("timeouts", |it| {
                it.settings.timeouts.call += Duration::from_secs(1)
            }),
            ("close", |it| {
                it.settings.close.drain += Duration::from_secs(1)
            }),
            ("retries", |it| it.settings.retry.trusted = true),
            ("listing", |it| it.settings.listing.max_items += 1),
            ("tools", |it| {
                it.tools = ToolFilter {
                    allow: Vec::new(),
                    deny: vec!["x".to_owned()],
                };
            }),
            ("start", |it| it.start = StartMode::Lazy),
            ("sleepAfter", |it| {
                it.sleep_after = Some(Duration::from_secs(1))
            }),
            ("pin", |it| it.pin = true),
            ("checkArguments", |it| it.check_arguments = true),
            ("required", |it| it.required = true),
            ("enabled", |it| it.enabled = false),
        ];
        let mut all = old.clone();
        for (name, change) in changes {
            let mut new = old.clone();
            change(&mut new);
            let what = vec![name];
            assert_eq!(compare(&old, &new), ServerChange::Adjusted { what });
            change(&mut all);
        }
        let what = changes.map(|(name, _)| name).to_vec();
        assert_eq!(compare(&old, &all), ServerChange::Adjusted { what });
    }

    #[cfg(feature = "http")]
    #[test]
    fn what_the_settings_say_of_rest_counts_as_what_the_server_says_of_it() {
        let old = server();
        let second = Some(Duration::from_secs(1));
        let adjusted = |what| ServerChange::Adjusted { what: vec![what] };
        let mut lazy = old.clone();
        lazy.settings.rest.lazy = true;
        assert_eq!(compare(&old, &lazy), adjusted("start"));
        let mut larger = old.clone();
        larger.settings.messages.max_bytes += 1;
        assert_eq!(compare(&old, &larger), adjusted("limits"));
        let mut sleepy = old.clone();
        sleepy.settings.rest.sleep_after = second;
        assert_eq!(compare(&old, &sleepy), adjusted("sleepAfter"));
    }

    #[test]
    fn other_headers_need_no_restart_but_another_address_and_certificates_do() {
        let server = |it: crate::HttpEndpoint| ServerConfig::new("a", it).unwrap();
        let plain = || Transport::http("http://localhost").header("K", "v");
        let old = server(plain());
        let adjusted = || ServerChange::Adjusted {
            what: vec![HEADERS],
        };
        for other in [
            Transport::http("http://localhost"),
            plain().header("K", "w"),
            plain().secret("v"),
        ] {
            assert_eq!(compare(&old, &server(other)), adjusted());
        }
        let elsewhere = Transport::http("http://127.0.0.1").header("K", "w");
        for (other, why) in [
            (elsewhere, "url"),
            (plain().root_certificate("/a.pem"), "certificates"),
            (plain().client_certificate("/a.pem"), "certificates"),
            (plain().header("K", "\n"), "headers"),
            (plain().bearer_token_env("NO_SUCH_VARIABLE"), "headers"),
        ] {
            let why = vec![why];
            let change = compare(&old, &server(other));
            assert_eq!(change, ServerChange::Restarted { why });
        }
    }

    #[cfg(feature = "http")]
    #[test]
    fn another_token_in_the_environment_is_another_header() {
        // PATH is not the token that it had.
        let endpoint = Transport::http("http://localhost").bearer_token_env("PATH");
        let server = ServerConfig::new("a", endpoint).unwrap();
        let mut old = ActiveConfig::new(server.clone(), None);
        assert_eq!(compare_now(&old, &server), ServerChange::Unchanged);
        old.forget_token();
        let what = vec![HEADERS];
        assert_eq!(compare_now(&old, &server), ServerChange::Adjusted { what });
        let what = vec!["pin", HEADERS];
        assert_eq!(
            compare_now(&old, &server.pin(true)),
            ServerChange::Adjusted { what }
        );
    }

    #[test]
    fn another_way_to_reach_it_is_a_restart_and_says_why() {
        let old = server();
        let mut new = old.clone();
        new.transport = Transport::channel(|_| async {});
        let why = vec!["transport"];
        assert_eq!(compare(&old, &new), ServerChange::Restarted { why });
        #[cfg(feature = "stdio")]
        {
            let stdio = |command: crate::StdioCommand| ServerConfig::new("a", command).unwrap();
            let plain = || Transport::stdio("x").arg("1").env("K", "v");
            assert_eq!(
                compare(&stdio(plain()), &stdio(plain())),
                ServerChange::Unchanged
            );
            for (other, why) in [
                (
                    Transport::stdio("y").arg("1").env("K", "v"),
                    vec!["command"],
                ),
                (plain().arg("2"), vec!["args"]),
                (plain().env("K", "w"), vec!["env"]),
                (plain().inherit_env("L"), vec!["env"]),
                (plain().cwd("/"), vec!["cwd"]),
                (Transport::stdio("y").env("K", "v"), vec!["command", "args"]),
            ] {
                let change = compare(&stdio(plain()), &stdio(other));
                assert_eq!(change, ServerChange::Restarted { why });
            }
        }
    }
}
