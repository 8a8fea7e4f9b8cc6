//! Builds and starts a runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use mcpvisor_core::{GovernorSettings, InvalidSetting};
use ractor::Actor;

use super::{Governed, Lifeline, Runtime, drivers};
use crate::api::agent::Agent;
use crate::api::callbacks::Callbacks;
use crate::api::error::StartError;
use crate::api::events::{EventBus, Events};
#[cfg(feature = "auth")]
use crate::auth::StoreChoice;
use crate::catalog::CatalogMerger;
use crate::config::{Config, ServerConfig};
use crate::fleet::host::{Host, HostResources};
use crate::fleet::{SupervisorActor, SupervisorArguments};
#[cfg(feature = "http")]
use crate::link::http::{NameLookup, Resolver};
use crate::server::slot::ServerSlot;
use crate::state::file_ops::{FileHook, FileOps};
use crate::state::state_dir::StateDir;

/// Builds a runtime.
#[derive(Debug, Default)]
pub struct RuntimeBuilder {
    servers: Vec<ServerConfig>,
    governor: Option<GovernorSettings>,
    connects: Option<GovernorSettings>,
    client: Option<(String, String)>,
    callbacks: Callbacks,
    client_callbacks: Vec<Callbacks>,
    state_dir: Option<PathBuf>,
    events: Arc<EventBus>,
    resources: HostResources,
}

impl RuntimeBuilder {
    /// Adds the servers and the fleet settings of a config.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.servers.extend(config.servers);
        self.connects = config.connects.or(self.connects);
        self.state_dir = config.state_dir.or(self.state_dir);
        #[cfg(feature = "auth")]
        if let Some(store) = config.auth_store {
            self.resources.store = store;
        }
        self
    }

    /// Adds one server.
    #[must_use]
    pub fn server(mut self, server: ServerConfig) -> Self {
        self.servers.push(server);
        self
    }

    /// Limits concurrent connects, and overrides the config.
    #[must_use]
    pub fn governor(mut self, governor: GovernorSettings) -> Self {
        self.governor = Some(governor);
        self
    }

    /// The client name and version that servers see.
    #[must_use]
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.client = Some((name.into(), version.into()));
        self
    }

    /// Handles requests of servers. Without callbacks they are declined.
    #[must_use]
    pub fn callbacks(mut self, callbacks: Callbacks) -> Self {
        self.callbacks = callbacks;
        self
    }

    /// Advertises what these callbacks answer, without using them: for clients with such
    /// [callbacks](crate::ClientBuilder::callbacks) that are built after servers have connected.
    #[must_use]
    pub fn client_callbacks(mut self, callbacks: &Callbacks) -> Self {
        self.client_callbacks.push(callbacks.clone());
        self
    }

    /// Where the runtime saves its state for the next run. Without it nothing is saved.
    #[must_use]
    pub fn state_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(folder.into());
        self
    }

    /// Subscribes to events from the start on: the first event has version 1. The reader ends
    /// ([`EventsError::Closed`](crate::EventsError::Closed)) if the runtime does not start.
    ///
    /// ```no_run
    /// # async fn example(config: mcpvisor::Config) -> Result<(), mcpvisor::StartError> {
    /// let builder = mcpvisor::Runtime::builder().config(config);
    /// let mut events = builder.events();
    /// tokio::spawn(async move {
    ///     while let Ok(event) = events.recv().await {
    ///         println!("{event:?}");
    ///     }
    /// });
    /// let runtime = builder.start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.events.subscribe()
    }

    /// Calls this with the path on the thread of every file operation. For tests of hung file
    /// systems.
    #[doc(hidden)]
    #[must_use]
    pub fn file_hook(mut self, hook: FileHook) -> Self {
        self.resources.ops = FileOps::new(Some(hook));
        self
    }

    /// Resolves host names with this function. For tests.
    #[cfg(feature = "http")]
    #[doc(hidden)]
    #[must_use]
    pub fn name_lookup(mut self, lookup: NameLookup) -> Self {
        self.resources.resolver = Resolver::new(lookup);
        self
    }

    /// Where tokens are stored: in the state folder, encrypted if the system has a keyring. Without
    /// a state folder they stay in memory.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn auth_store(mut self, store: StoreChoice) -> Self {
        self.resources.store = store;
        self
    }

    /// Starts the runtime. Returns without waiting for servers to connect: slow is not failed.
    pub async fn start(self) -> Result<Runtime, StartError> {
        drivers::check_time()?;
        for server in &self.servers {
            drivers::check_io(&server.transport)?;
        }
        check_connects(self.connects.as_ref()).map_err(StartError::InvalidConnects)?;
        let governed = Governed {
            by_host: self.governor.is_some(),
            connects: self.connects.clone(),
        };
        let governor = self.governor.or(self.connects);
        let events = self.events;
        let catalogs = Arc::new(CatalogMerger::default());
        let (name, version) = self
            .client
            .unwrap_or_else(|| ("mcpvisor".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        if self.callbacks.listens() {
            tokio::spawn(self.callbacks.clone().listen(events.subscribe()));
        }
        let resources = self.resources;
        let state_dir = self.state_dir;
        let state = state_dir.map(|it| StateDir::with(it, resources.ops.sibling()));
        let host = Host::new(&name, &version, self.callbacks, state, resources);
        for callbacks in &self.client_callbacks {
            host.offer(callbacks);
        }
        let host = Arc::new(host);
        let mut servers = BTreeMap::new();
        for config in self.servers {
            validate(&config)?;
            let name = config.name.clone();
            let slot = ServerSlot::new(
                config,
                0,
                Arc::clone(&host),
                Arc::clone(&events),
                Arc::clone(&catalogs),
            );
            let slot = ServerSlot::with_pool(slot);
            if servers.insert(name.clone(), slot).is_some() {
                return Err(StartError::DuplicateServer(name));
            }
        }
        load_cached_catalogs(servers.values().cloned().collect(), &host, true).await;
        let registry = Arc::new(ArcSwap::from_pointee(servers));
        let arguments = SupervisorArguments {
            registry: Arc::clone(&registry),
            events: Arc::clone(&events),
            catalogs: Arc::clone(&catalogs),
            governor: governor.unwrap_or_else(default_governor),
        };
        let (supervisor, _) = Actor::spawn(None, SupervisorActor, arguments)
            .await
            .map_err(|problem| StartError::Supervisor(problem.to_string()))?;
        Ok(Runtime {
            lifeline: Arc::new(Lifeline {
                registry,
                supervisor,
                events,
                host,
                catalogs,
                next_client: AtomicU32::new(1),
                default_agent: Arc::new(Agent::default()),
                reloading: tokio::sync::Mutex::new(governed),
            }),
        })
    }
}

/// Loads the cached catalogs before the runtime is visible to callers. Concurrently, so that a slow
/// file delays no other.
pub(super) async fn load_cached_catalogs(slots: Vec<Arc<ServerSlot>>, host: &Host, show: bool) {
    if host.state.is_none() {
        return;
    }
    join_all(slots.iter().map(|slot| slot.load_cached_catalog(show))).await;
}

/// Rejects limits that would make the runtime misbehave.
pub(crate) fn check_connects(connects: Option<&GovernorSettings>) -> Result<(), InvalidSetting> {
    connects.map_or(Ok(()), GovernorSettings::validate)
}

/// The default limits of concurrent connects on this machine.
pub(crate) fn default_governor() -> GovernorSettings {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let mut settings = GovernorSettings::default();
    settings.max_stdio = cores * 4;
    settings
}

fn validate(config: &ServerConfig) -> Result<(), StartError> {
    config
        .validate_settings()
        .map_err(|problem| StartError::InvalidSetting {
            server: config.name.clone(),
            problem,
        })
}
