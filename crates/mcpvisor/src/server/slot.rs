//! The state of a server that lasts as long as it is configured.
//!
//! The supervisor's child spec owns the slot, handles read it, and the actor works with it. What
//! must survive a crash of the actor lives here: generation, budget, catalog. Approvals are in
//! [`super::approvals`], the catalog cache in [`super::catalog_saving`]. A server may have further
//! slots beside its main one: [`super::group`].

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use arc_swap::ArcSwap;
use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::{ClientId, Durable, Generation, ServerInstance, ServerName, ServerSettings};
use ractor::ActorRef;
use rmcp::ErrorData;
use rmcp::model::InitializeRequestParams;
use tokio::sync::watch;

use super::active_config::ActiveConfig;
use super::call_admission::CallAdmission;
use super::client_slots::{AccountConfig, SlotOwner};
use super::connection_lock::ConnectionLock;
#[cfg(feature = "http")]
use super::credential_secrets::CredentialSecrets;
use super::group::SlotGroup;
use super::list_expiry::ListExpiry;
use super::message::ServerMessage;
use super::published::Published;
use super::restart_state::{EraKnowledge, RestartState};
use super::shared::ServerShared;
use crate::api::callbacks::BoundCallbacks;
use crate::api::events::{EventBus, EventKind, EventSource};
use crate::api::status::ServerStatus;
use crate::api::transport::SSE;
#[cfg(feature = "http")]
use crate::auth::{Authorization, ServerAuth};
use crate::catalog::{Audience, CatalogMerger, ServerCatalog, visible_catalog};
use crate::config::ServerConfig;
use crate::fleet::host::Host;
use crate::link::StderrRing;
use crate::link::limits::MessageLimits;
use crate::log_limit::LogLimit;
use crate::mutex::lock;
use crate::state::catalog_cache::CatalogCache;

/// The lasting part of one server, or of one of its instances.
pub(crate) struct ServerSlot {
    pub(crate) id: ServerInstance,
    role: SlotRole,
    pub(crate) shared: Arc<ServerShared>,
    /// Replaced by a reload.
    config: ArcSwap<ActiveConfig>,
    pub(crate) host: Arc<Host>,
    pub(crate) events: Arc<EventBus>,
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
    restart_state: Mutex<RestartState>,
    /// Its client ended, or its pool became smaller.
    leaving: AtomicBool,
    /// How it is authorized. Replaced by a reload that changes it.
    #[cfg(feature = "http")]
    auth: ArcSwap<ServerAuth>,
    /// The credentials that its requests carried.
    #[cfg(feature = "http")]
    credential_secrets: CredentialSecrets,
}

/// What a slot is for.
#[derive(Debug)]
enum SlotRole {
    /// The server itself, in the registry under its name. It knows the further slots.
    Main(SlotGroup),
    /// A further instance of the pool of this main slot.
    Pooled(Weak<ServerSlot>),
    /// The connection of one client.
    Owned(Box<SlotOwner>),
}

/// What a slot is made of, beside its settings.
struct SlotParts {
    instance: u32,
    role: SlotRole,
    enabled: bool,
    config: Arc<ActiveConfig>,
    catalog_cache: CatalogCache,
    shared: Arc<ServerShared>,
    host: Arc<Host>,
    events: Arc<EventBus>,
    #[cfg(feature = "http")]
    auth: Arc<ServerAuth>,
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
    /// The main slot of a server. `instance` distinguishes it from earlier ones of the same name.
    pub(crate) fn new(
        config: ServerConfig,
        instance: u32,
        host: Arc<Host>,
        events: Arc<EventBus>,
        fleet: Arc<CatalogMerger>,
    ) -> Self {
        let (name, enabled) = (config.name.clone(), config.enabled);
        Self::of(SlotParts {
            instance,
            role: SlotRole::Main(SlotGroup::new(enabled)),
            enabled,
            catalog_cache: CatalogCache::new(name.clone(), host.state.clone()),
            shared: Arc::new(ServerShared::new(&name, &host, fleet)),
            #[cfg(feature = "http")]
            auth: Arc::new(ServerAuth::new(&config.transport, &host)),
            config: Arc::new(ActiveConfig::new(config, None)),
            host,
            events,
        })
    }

    /// A main slot and the further instances of its pool.
    pub(crate) fn with_pool(main: Self) -> Arc<Self> {
        let main = Arc::new(main);
        let limit = main.config().settings.connections.max_connections;
        main.shared.places.set_limit(limit);
        if let Some(group) = main.group() {
            let further = 1..main.config().settings.connections.instances;
            group.set_pool(further.map(|_| Arc::new(main.new_instance())).collect());
        }
        main
    }

    /// A further instance of this server.
    pub(crate) fn new_instance(self: &Arc<Self>) -> Self {
        let instance = Self::of(SlotParts {
            instance: self.host.next_instance(),
            role: SlotRole::Pooled(Arc::downgrade(self)),
            enabled: self.group().is_some_and(SlotGroup::is_enabled),
            config: self.config(),
            // The main slot saves the lists for all.
            catalog_cache: CatalogCache::new(self.name().clone(), None),
            shared: Arc::clone(&self.shared),
            host: Arc::clone(&self.host),
            events: Arc::clone(&self.events),
            #[cfg(feature = "http")]
            auth: self.auth(),
        });
        instance.restart_state().inherit(&self.restart_state());
        instance
    }

    /// The connection of one client of this server; `account` for another account than that of its
    /// config.
    pub(super) fn new_client_slot(
        self: &Arc<Self>,
        owner: SlotOwner,
        account: Option<AccountConfig>,
    ) -> Self {
        let shares_account = account.is_none();
        let account = account.unwrap_or_else(|| AccountConfig {
            config: self.config(),
            #[cfg(feature = "http")]
            auth: self.auth(),
        });
        let slot = Self::of(SlotParts {
            instance: self.host.next_instance(),
            role: SlotRole::Owned(Box::new(owner)),
            enabled: self.group().is_some_and(SlotGroup::is_enabled),
            config: account.config,
            // The main slot saves the lists of its account.
            catalog_cache: CatalogCache::new(self.name().clone(), None),
            shared: Arc::clone(&self.shared),
            host: Arc::clone(&self.host),
            events: Arc::clone(&self.events),
            #[cfg(feature = "http")]
            auth: account.auth,
        });
        if shares_account {
            slot.restart_state().era = self.restart_state().era;
        }
        slot
    }

    fn of(parts: SlotParts) -> Self {
        let SlotParts {
            instance,
            role,
            enabled,
            config,
            catalog_cache,
            shared,
            host,
            events,
            #[cfg(feature = "http")]
            auth,
        } = parts;
        let server = config.name.clone();
        let view = match &role {
            SlotRole::Owned(owner) => Some(Arc::clone(&owner.view)),
            SlotRole::Main(_) | SlotRole::Pooled(_) => None,
        };
        let durable = Durable::new(&config.settings, enabled);
        let messages = config.settings.messages;
        let mut settings = config.machine_settings();
        settings.rest.lazy |= matches!(role, SlotRole::Owned(_));
        let state = durable.first_state(&settings);
        let client = match &role {
            SlotRole::Owned(owner) => Some(Arc::clone(&owner.name)),
            SlotRole::Main(_) | SlotRole::Pooled(_) => None,
        };
        let status = ServerStatus {
            instance,
            client,
            attempts_limit: config.settings.budget.attempts,
            required: config.required,
            ..ServerStatus::initial(server.clone(), state, config.transport.label())
        };
        Self {
            id: ServerInstance { server, instance },
            role,
            mailbox: watch::Sender::new(Mailbox::Starting),
            published: Published::new(status, Arc::clone(&shared), view),
            shared,
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
            catalog_cache: Arc::new(catalog_cache),
            restart_state: Mutex::new(RestartState::new(durable, &config)),
            leaving: AtomicBool::new(false),
            #[cfg(feature = "http")]
            auth: ArcSwap::new(auth),
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

    /// Whether it is the one in the registry, under the server's name.
    pub(crate) fn is_main(&self) -> bool {
        matches!(self.role, SlotRole::Main(_))
    }

    /// All slots of the server. Without a main slot there are none.
    fn siblings(self: &Arc<Self>) -> Vec<Arc<Self>> {
        match &self.role {
            SlotRole::Main(_) => self.all_slots(),
            SlotRole::Pooled(main) => main.upgrade().map_or_else(Vec::new, |it| it.all_slots()),
            SlotRole::Owned(owner) => {
                let main = owner.main.upgrade();
                main.map_or_else(Vec::new, |it| it.all_slots())
            }
        }
    }

    /// Sends a message to every other slot of the server.
    pub(super) fn send_to_siblings(self: &Arc<Self>, message: impl Fn() -> ServerMessage) {
        let others = self.siblings().into_iter();
        for slot in others.filter(|it| it.id != self.id) {
            slot.send(message());
        }
    }

    /// The further slots of a main one.
    pub(crate) fn group(&self) -> Option<&SlotGroup> {
        match &self.role {
            SlotRole::Main(group) => Some(group),
            SlotRole::Pooled(_) | SlotRole::Owned(_) => None,
        }
    }

    /// The client that it belongs to.
    pub(crate) fn owner(&self) -> Option<&SlotOwner> {
        match &self.role {
            SlotRole::Owned(owner) => Some(owner),
            SlotRole::Main(_) | SlotRole::Pooled(_) => None,
        }
    }

    /// The settings of its machine.
    pub(super) fn machine_settings(&self) -> ServerSettings {
        let mut settings = self.config().machine_settings();
        if self.owner().is_some() {
            (settings.rest.lazy, settings.rest.on_demand) = (true, true);
        }
        settings
    }

    /// What its callers see: the lists of its own connection, or those of the server.
    pub(crate) fn callers_catalog(&self) -> Arc<ServerCatalog> {
        let own = self.owner().map(|_| self.published.catalog());
        let own = own.filter(|catalog| catalog.revision > 0);
        own.unwrap_or_else(|| self.shared.public.load())
    }

    /// The client's part of a handshake before 2026-07-28.
    pub(crate) fn client_params(&self) -> InitializeRequestParams {
        let Some(owner) = self.owner() else {
            return self.host.shared_client();
        };
        let mut client = self.host.client.clone();
        if let Some(callbacks) = &owner.callbacks {
            client.capabilities = callbacks.capabilities();
        }
        client
    }

    /// Who answers requests of the server that no call caused.
    pub(crate) fn default_callbacks(&self) -> BoundCallbacks {
        let own = self.owner().and_then(|owner| owner.callbacks.clone());
        own.unwrap_or_else(|| {
            BoundCallbacks::new(Answerer::Runtime, Arc::clone(&self.host.callbacks))
        })
    }

    pub(crate) fn config(&self) -> Arc<ActiveConfig> {
        self.config.load_full()
    }

    /// Replaces the config of all instances. Open calls stay open.
    pub(crate) fn configure(self: &Arc<Self>, config: ServerConfig) {
        let before = self.config();
        let next = Arc::new(ActiveConfig::new(config, Some(&before)));
        #[cfg(feature = "http")]
        if next.transport.is_authorized_otherwise(&before.transport) {
            let auth = ServerAuth::new(&next.transport, &self.host);
            self.auth.store(Arc::new(auth.replacing(&self.auth())));
        }
        // The limit first, so that a lower one is not exceeded.
        let connections = &next.settings.connections;
        self.shared.places.set_limit(connections.max_connections);
        if connections.is_per_client() && !before.settings.connections.is_per_client() {
            let open = self.instances().into_iter();
            for slot in open.filter(|it| !it.connection_lock.taken().is_empty()) {
                self.shared.places.adopt(&slot);
            }
        }
        for instance in self.instances() {
            #[cfg(feature = "http")]
            instance.auth.store(self.auth());
            instance.use_config(Arc::clone(&next));
        }
        self.configure_clients(&next);
    }

    #[cfg(feature = "http")]
    pub(super) fn set_auth(&self, auth: Arc<ServerAuth>) {
        self.auth.store(auth);
    }

    pub(super) fn use_config(&self, config: Arc<ActiveConfig>) {
        self.calls.reconfigure(&config.settings.admission);
        let messages = config.settings.messages;
        self.message_limits.set(messages);
        self.stderr.set_capacity(messages.stderr_bytes);
        self.config.store(config);
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
        let approval = self.shared.pins.approval();
        let pins = config.pin.then(|| (&*approval, config.fingerprint()));
        let mut visible = visible_catalog(fetched, &config.filter, pins);
        visible.audience = match config.settings.connections.is_per_client() {
            true if config.transport.has_accounts() => {
                Audience::Account(config.transport.account().map(Arc::from))
            }
            _ => Audience::Everyone,
        };
        visible
    }

    /// Remembers whether the server was last enabled or disabled, for new slots.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        if let Some(group) = self.group() {
            group.set_enabled(enabled);
        }
    }

    /// Publishes the end of the slot.
    pub(crate) fn publish_end(&self) {
        self.published.publish_end(self.is_main());
    }

    /// The runtime has ended: its handles report that at once.
    pub(crate) fn end_with_runtime(&self) {
        let before = self.mailbox.send_replace(Mailbox::Gone);
        if !matches!(before, Mailbox::Gone) {
            self.publish_end();
        }
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

    /// Whether it has ended for good.
    pub(crate) fn is_removed(&self) -> bool {
        matches!(&*self.mailbox.borrow(), Mailbox::Removed | Mailbox::Gone)
    }

    /// It is about to be removed, and its server is not.
    pub(crate) fn note_leaving(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Whether it is removed, or about to be, without its server.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Whether another slot of the server was removed, but not this main one.
    pub(crate) fn outlives(&self, other: &Self) -> bool {
        self.id != other.id && !self.is_removed()
    }

    /// Sends a message to the actor. It is dropped if no actor runs.
    pub(crate) fn send(&self, message: ServerMessage) {
        if let Mailbox::Live(actor) = &*self.mailbox.borrow() {
            let _ = actor.send_message(message);
        }
    }

    /// Forgets what a client wants, and has the server informed. Also without an actor: the next one
    /// restores what is left.
    pub(crate) fn release_client(&self, client: ClientId) {
        self.restart_state().session.release(client);
        self.send(ServerMessage::ReleaseClient(client));
    }

    /// Requests a refresh of expired lists. Called when a reader uses them.
    pub(crate) fn refresh_expired_lists(&self) {
        if self.list_expiry.take_expired() {
            self.send(ServerMessage::RefreshExpiredLists);
        }
    }

    pub(crate) fn emit(&self, generation: Generation, kind: EventKind) {
        let source = EventSource {
            id: &self.id,
            client: self.owner().map(|owner| &owner.name),
        };
        if let EventKind::CatalogChanged { list, diff, .. } = &kind
            && !self.events.inboxes.is_empty()
        {
            let owner = self.owner().map(|owner| owner.client);
            let change = (generation, *list, diff);
            let inboxes = &self.events.inboxes;
            inboxes.deliver_list_change(self.name(), owner, change);
        }
        self.events.emit(source, generation, kind);
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
