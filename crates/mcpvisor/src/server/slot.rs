//! The state of a server that lasts as long as it is configured.
//!
//! The supervisor's child spec owns the slot, handles read it, and the actor works with it. What
//! must survive a crash of the actor lives here: generation, budget, catalog. Approvals are in
//! [`super::approvals`], the catalog cache in [`super::catalog_saving`].

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;
use mcpvisor_core::{Durable, Generation, ServerInstance, ServerName};
use ractor::ActorRef;
use rmcp::ErrorData;
use tokio::sync::watch;

use super::active_config::ActiveConfig;
use super::call_admission::CallAdmission;
use super::connection_lock::ConnectionLock;
#[cfg(feature = "http")]
use super::credential_secrets::CredentialSecrets;
use super::list_expiry::ListExpiry;
use super::message::ServerMessage;
use super::published::Published;
use super::restart_state::{EraKnowledge, RestartState};
use crate::api::events::{EventBus, EventKind};
use crate::api::status::ServerStatus;
use crate::api::transport::SSE;
#[cfg(feature = "http")]
use crate::auth::{Authorization, ServerAuth};
use crate::catalog::{CatalogMerger, ServerCatalog, visible_catalog};
use crate::config::ServerConfig;
use crate::fleet::host::Host;
use crate::link::StderrRing;
use crate::link::limits::MessageLimits;
use crate::log_limit::LogLimit;
use crate::mutex::lock;
use crate::state::catalog_cache::CatalogCache;
use crate::state::era_cache::EraWriteQueue;
use crate::state::pins::PinStore;

/// The lasting part of one server.
pub(crate) struct ServerSlot {
    pub(super) id: ServerInstance,
    /// Replaced by a reload.
    config: ArcSwap<ActiveConfig>,
    pub(crate) host: Arc<Host>,
    events: Arc<EventBus>,
    /// Where messages to the actor go.
    pub(crate) mailbox: watch::Sender<Mailbox>,
    /// The published snapshots.
    pub(crate) published: Published,
    pub(super) list_expiry: ListExpiry,
    pub(crate) calls: Arc<CallAdmission>,
    pub(crate) connection_lock: ConnectionLock,
    pub(crate) stderr: Arc<StderrRing>,
    /// Limits the log lines that the server can cause.
    pub(crate) log_limit: LogLimit,
    /// Limits the size of its messages.
    pub(crate) message_limits: MessageLimits,
    /// The compiled schemas of its tools' arguments.
    #[cfg(feature = "schema-check")]
    pub(crate) argument_checks: Arc<super::schema_check::SchemaChecks>,
    /// The same of their results.
    #[cfg(feature = "schema-check")]
    pub(crate) result_checks: Arc<super::schema_check::SchemaChecks>,
    /// The last known catalog, on disk.
    pub(super) catalog_cache: Arc<CatalogCache>,
    /// Writes of the era cache that are under way.
    pub(crate) era_writes: EraWriteQueue,
    /// The tools that a person approved.
    pub(super) pins: Arc<PinStore>,
    restart_state: Mutex<RestartState>,
    /// How it is authorized. Replaced by a reload that changes it.
    #[cfg(feature = "http")]
    auth: ArcSwap<ServerAuth>,
    /// The credentials that its requests carried.
    #[cfg(feature = "http")]
    credential_secrets: CredentialSecrets,
}

/// Where the messages to a server go.
#[derive(Debug, Clone)]
pub(crate) enum Mailbox {
    /// To its actor.
    Live(ActorRef<ServerMessage>),
    /// Its actor is starting or restarting.
    Starting,
    /// The server was removed.
    Removed,
    /// The runtime ended.
    Gone,
}

impl ServerSlot {
    /// `instance` distinguishes a server from earlier ones of the same name.
    pub(crate) fn new(
        config: ServerConfig,
        instance: u32,
        host: Arc<Host>,
        events: Arc<EventBus>,
        fleet: Arc<CatalogMerger>,
    ) -> Self {
        let name = config.name.clone();
        let server = name.clone();
        let durable = Durable::new(&config.settings, config.enabled);
        let messages = config.settings.messages;
        let config = Arc::new(ActiveConfig::new(config, None));
        let state = durable.first_state(&config.machine_settings());
        let status = ServerStatus {
            instance,
            attempts_limit: config.settings.budget.attempts,
            required: config.required,
            ..ServerStatus::initial(name.clone(), state, config.transport.label())
        };
        Self {
            id: ServerInstance { server, instance },
            mailbox: watch::Sender::new(Mailbox::Starting),
            published: Published::new(status, fleet),
            list_expiry: ListExpiry::never(),
            calls: Arc::new(CallAdmission::new(&config.settings.admission)),
            connection_lock: ConnectionLock::default(),
            stderr: Arc::new(StderrRing::new(messages.stderr_bytes)),
            log_limit: LogLimit::default(),
            message_limits: MessageLimits::new(messages),
            #[cfg(feature = "schema-check")]
            argument_checks: Arc::default(),
            #[cfg(feature = "schema-check")]
            result_checks: Arc::default(),
            catalog_cache: Arc::new(CatalogCache::new(name.clone(), host.state.clone())),
            era_writes: EraWriteQueue::default(),
            pins: Arc::new(PinStore::new(name, host.state.clone())),
            restart_state: Mutex::new(RestartState::new(durable, &config)),
            #[cfg(feature = "http")]
            auth: ArcSwap::from_pointee(ServerAuth::new(&config.transport, &host)),
            #[cfg(feature = "http")]
            credential_secrets: CredentialSecrets::default(),
            config: ArcSwap::new(config),
            host,
            events,
        }
    }

    pub(crate) fn name(&self) -> &ServerName {
        &self.id.server
    }

    pub(crate) fn config(&self) -> Arc<ActiveConfig> {
        self.config.load_full()
    }

    /// Replaces the config. Open calls stay open.
    pub(crate) fn configure(&self, config: ServerConfig) {
        let before = self.config();
        self.calls.reconfigure(&config.settings.admission);
        let messages = config.settings.messages;
        self.message_limits.set(messages);
        self.stderr.set_capacity(messages.stderr_bytes);
        let next = ActiveConfig::new(config, Some(&before));
        #[cfg(feature = "http")]
        if next.transport.is_authorized_otherwise(&before.transport) {
            let auth = ServerAuth::new(&next.transport, &self.host);
            self.auth.store(Arc::new(auth.replacing(&self.auth())));
        }
        self.config.store(Arc::new(next));
    }

    /// How it is authorized.
    #[cfg(feature = "http")]
    pub(crate) fn auth(&self) -> Arc<ServerAuth> {
        self.auth.load_full()
    }

    /// Whether a renewal of its login must not be interrupted: the new token may be lost.
    pub(crate) fn is_renewing(&self) -> bool {
        #[cfg(feature = "http")]
        return self.auth().is_renewing();
        #[cfg(not(feature = "http"))]
        false
    }

    /// Ends renewals of its login for good, and publishes whether it is saved.
    pub(crate) async fn finish_renewal(&self) {
        #[cfg(feature = "http")]
        {
            let auth = self.auth();
            auth.finish().await;
            self.published.set_unsaved_login(auth.unsaved_login());
        }
    }

    /// Redacts a credential from now on.
    #[cfg(feature = "http")]
    pub(crate) fn add_credential_secrets(&self, authorization: &Authorization) {
        self.credential_secrets.add(authorization);
    }

    /// The transport now reaches another server, so its era has to be negotiated or read from the
    /// cache.
    pub(crate) fn forget_era(&self) {
        self.restart_state().era = EraKnowledge::UNKNOWN;
    }

    /// The kind of transport, as far as it is known: the config may leave it open.
    pub(super) fn transport_label(&self) -> &'static str {
        let config = self.config();
        match self.restart_state().era.is_sse && config.transport.is_http() {
            true => SSE,
            false => config.transport.label(),
        }
    }

    /// What callers may see of fetched lists, by the present filter and approvals.
    pub(super) fn visible_part(&self, fetched: &ServerCatalog) -> ServerCatalog {
        let config = self.config();
        let approval = self.pins.approval();
        let pins = config.pin.then(|| (&*approval, config.fingerprint()));
        visible_catalog(fetched, &config.filter, pins)
    }

    pub(crate) fn restart_state(&self) -> MutexGuard<'_, RestartState> {
        lock(&self.restart_state)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.restart_state().durable.generation
    }

    /// Whether the runtime ended, or lost its supervisor.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&*self.mailbox.borrow(), Mailbox::Gone)
    }

    /// Sends a message to the actor. It is dropped if no actor runs.
    pub(crate) fn send(&self, message: ServerMessage) {
        if let Mailbox::Live(actor) = &*self.mailbox.borrow() {
            let _ = actor.send_message(message);
        }
    }

    /// Requests a refresh of expired lists. Called when a reader uses them.
    pub(crate) fn refresh_expired_lists(&self) {
        if self.list_expiry.take_expired() {
            self.send(ServerMessage::RefreshExpiredLists);
        }
    }

    pub(crate) fn emit(&self, generation: Generation, kind: EventKind) {
        self.events.emit(self.name(), generation, kind);
    }

    /// Removes the secrets of the config and the credentials from a text by or about the server.
    pub(crate) fn redact<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        let text = self.config.load().redact(text);
        #[cfg(feature = "http")]
        let text = self.credential_secrets.redact(text);
        text
    }

    /// The same for the message and the data of an error.
    pub(crate) fn redact_error(&self, error: ErrorData) -> ErrorData {
        redact_error(error, |text| self.redact(text))
    }

    /// Removes the credentials alone from an error that the server answered. Otherwise the answer of
    /// a server is data, which the caller gets unchanged.
    pub(crate) fn redact_credentials(&self, error: ErrorData) -> ErrorData {
        #[cfg(feature = "http")]
        if !self.credential_secrets.is_empty() {
            return redact_error(error, |text| self.credential_secrets.redact(text));
        }
        error
    }

    /// Adds the secrets that a connection with this config reads from the environment now. They may
    /// differ from those at the time the config was loaded.
    pub(crate) fn add_secrets(&self, config: &ActiveConfig) {
        let secrets = config.transport.secrets();
        self.config.load().add_secrets(secrets);
    }

    /// As if the environment had been empty when the config was loaded.
    #[cfg(all(test, feature = "stdio"))]
    pub(crate) fn forget_secrets(&self) {
        let mut config = ActiveConfig::new(ServerConfig::clone(&self.config()), None);
        config.forget_secrets();
        self.config.store(Arc::new(config));
    }

    /// The last lines of stderr, redacted.
    pub(crate) fn stderr_tail(&self) -> String {
        self.config.load().redact_tail(&self.stderr.tail())
    }

    /// The last lines of stderr of the present connection, redacted.
    pub(crate) fn present_stderr_tail(&self) -> String {
        self.config.load().redact_tail(&self.stderr.current_tail())
    }
}

fn redact_error(
    mut error: ErrorData,
    redact: impl for<'t> Fn(Cow<'t, str>) -> Cow<'t, str>,
) -> ErrorData {
    error.message = redact(error.message);
    if let Some(data) = &error.data {
        let text = data.to_string();
        let redacted = redact(Cow::Borrowed(&text));
        if redacted != text {
            // Redaction can make the JSON invalid; then the data is dropped.
            error.data = serde_json::from_str(&redacted).ok();
        }
    }
    error
}

/// Short, because every `Debug` of a handle includes it.
impl fmt::Debug for ServerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSlot")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
