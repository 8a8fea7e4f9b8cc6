//! What belongs to a configured server for as long as it is configured.
//!
//! The supervisor's child spec holds it, handles read it, and the actor of the moment works with
//! it. Generation, budget and catalog live here, so a crash of the actor loses none of them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use mcpvisor_core::{CallId, Durable, Generation, KnownEra, ServerInstance, ServerName, StateName};
use ractor::ActorRef;
use rmcp::ErrorData;
use rmcp::model::{LoggingLevel, ServerPeerInfo, Tool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::active_config::ActiveConfig;
use super::actor::now;
use super::call_admission::CallAdmission;
use super::message::ServerMessage;
use crate::api::error::{ControlError, Obstacle};
use crate::api::events::{EventBus, EventKind};
use crate::api::status::ServerStatus;
use crate::catalog::{CatalogMerger, ChangeSignal, ServerCatalog, VisibilityRules, visible};
use crate::config::ServerConfig;
use crate::fleet::CloseOutcome;
use crate::fleet::host::Host;
use crate::link::StderrRing;
use crate::link::limits::MessageLimits;
use crate::log_limit::LogLimit;
use crate::state::catalog_cache::{CatalogStore, KEEP_AFTER};
use crate::state::era_cache::EraWrites;
use crate::state::file_ops::{READ_WITHIN, WRITE_WITHIN, hung_before, is_unanswered};
use crate::state::pins::{HeldTool, PinStore};

/// A call that is held back waits no longer for a disk that may know of an approval.
const LOOKING: Duration = Duration::from_secs(1);

/// Tools that were listed wait no longer for a disk that knows which of them are approved.
const LISTED: Duration = Duration::from_secs(5);

/// The lasting part of one server.
pub(crate) struct ServerSlot {
    pub(crate) slot: ServerInstance,
    /// Replaced by a reload.
    config: ArcSwap<ActiveConfig>,
    pub(crate) host: Arc<Host>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) stderr: Arc<StderrRing>,
    /// How many log lines it may cause.
    pub(crate) log_limit: LogLimit,
    /// How large its messages may be.
    pub(crate) message_limits: MessageLimits,
    /// The schemas of the tools, compiled.
    #[cfg(feature = "schema-check")]
    pub(crate) checks: Arc<crate::server::argument_check::ArgumentChecks>,
    /// The last known catalog, from one run to the next.
    pub(crate) kept: Arc<CatalogStore>,
    /// What is being written of the era that the server speaks.
    pub(crate) eras: EraWrites,
    /// The tools that a person approved.
    pub(crate) pins: Arc<PinStore>,
    /// The catalog of the fleet, to which this server adds.
    pub(crate) catalogs: Arc<CatalogMerger>,
    /// Where messages go at the moment.
    pub(crate) mailbox: watch::Sender<Mailbox>,
    pub(crate) status: watch::Sender<ServerStatus>,
    pub(crate) readiness: watch::Sender<Readiness>,
    /// What the server last said of itself.
    pub(crate) info: ArcSwapOption<ServerPeerInfo>,
    published: ArcSwap<ServerCatalog>,
    /// Wakes those who wait for another catalog of this server.
    pub(crate) shown: ChangeSignal,
    /// One permit: a connection task holds it from opening to the end of closing, so a new
    /// generation never opens beside an old one, not even across a crash of the actor.
    pub(crate) connection: Arc<Semaphore>,
    /// The same of removed servers of this name whose connections were still closing when this one was
    /// added.
    predecessors: OnceLock<Vec<Arc<Semaphore>>>,
    /// Bounds the open calls; the order is the machine's.
    pub(crate) admission: Arc<CallAdmission>,
    /// The runtime is going away: no more patience with a connection whose actor is gone.
    hurried: watch::Sender<bool>,
    next_call: AtomicU64,
    in_flight: AtomicUsize,
    waiting: AtomicUsize,
    /// When a list is no longer good, in milliseconds since the slot was made; never, if it is the
    /// largest number.
    expiry: AtomicU64,
    made: Instant,
    memory: Mutex<Memory>,
}

/// Whether a server can be used, as far as those who wait for it care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It may come up.
    Pending,
    /// It can be used.
    Ready,
    /// It stays as it is until somebody does something about it.
    Hopeless,
}

impl Readiness {
    fn of(status: &ServerStatus) -> Self {
        match status.state {
            _ if status.is_ready() => Self::Ready,
            StateName::PermanentlyFailed | StateName::Disabled => Self::Hopeless,
            // What follows `disabling` may be a connect: an `enable` waits for the close.
            StateName::Connecting
            | StateName::Connected
            | StateName::Disabling
            | StateName::Reconnecting
            | StateName::Disconnected
            | StateName::Sleeping => Self::Pending,
        }
    }
}

/// Where the messages to a server go.
#[derive(Debug, Clone)]
pub(crate) enum Mailbox {
    /// To its actor.
    Live(ActorRef<ServerMessage>),
    /// Its actor starts, or starts again.
    Starting,
    /// The server was removed.
    Removed,
    /// The runtime ended.
    Gone,
}

/// What a restarted actor takes up again.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) durable: Durable,
    /// The lists as they were fetched.
    pub(crate) listed: Arc<ServerCatalog>,
    /// The config of the connection that listed them.
    pub(crate) listed_with: Arc<ActiveConfig>,
    /// What callers see of them, in states that publish.
    pub(crate) last_good: Arc<ServerCatalog>,
    /// An event announced what is held back in `last_good`. Not so for a catalog of an earlier run.
    pub(crate) held_announced: bool,
    /// An event announced the problem with the approvals that lasts.
    pub(crate) problem_announced: bool,
    pub(crate) subscriptions: BTreeSet<String>,
    pub(crate) log_level: Option<LoggingLevel>,
    /// What is known of the era that the server speaks.
    pub(crate) era: KnownEra,
    /// What an earlier run knew of it was looked for.
    pub(crate) era_loaded: bool,
    pub(crate) restarts: u64,
    /// How the server was closed for good. Left here by the actor, since its end overtakes its
    /// last message to the supervisor.
    pub(crate) closed: Option<CloseOutcome>,
}

impl ServerSlot {
    pub(crate) fn new(
        config: ServerConfig,
        host: Arc<Host>,
        events: Arc<EventBus>,
        catalogs: Arc<CatalogMerger>,
    ) -> Self {
        let durable = Durable::new(&config.settings, config.enabled);
        let slot = ServerInstance::first(config.name.clone());
        let config_name = config.name.clone();
        let admission = Arc::new(CallAdmission::new(&config.settings.admission));
        let messages = config.settings.messages;
        let config = Arc::new(ActiveConfig::new(config, None));
        let first = durable.first_state(&config.machine_settings());
        let status = first_status(&slot, &config, first);
        Self {
            mailbox: watch::Sender::new(Mailbox::Starting),
            readiness: watch::Sender::new(Readiness::of(&status)),
            status: watch::Sender::new(status),
            info: ArcSwapOption::empty(),
            published: ArcSwap::from_pointee(ServerCatalog::default()),
            shown: ChangeSignal::default(),
            connection: Arc::new(Semaphore::new(1)),
            predecessors: OnceLock::new(),
            admission,
            hurried: watch::Sender::new(false),
            next_call: AtomicU64::new(1),
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            expiry: AtomicU64::new(u64::MAX),
            made: now(),
            stderr: Arc::new(StderrRing::new(messages.stderr_bytes)),
            log_limit: LogLimit::default(),
            message_limits: MessageLimits::new(messages),
            memory: Mutex::new(Memory {
                durable,
                listed: Arc::new(ServerCatalog::default()),
                listed_with: Arc::clone(&config),
                last_good: Arc::new(ServerCatalog::default()),
                held_announced: false,
                problem_announced: false,
                subscriptions: BTreeSet::new(),
                log_level: None,
                era: KnownEra::Unknown,
                era_loaded: false,
                restarts: 0,
                closed: None,
            }),
            slot,
            config: ArcSwap::new(config),
            #[cfg(feature = "schema-check")]
            checks: Arc::default(),
            pins: Arc::new(PinStore::new(config_name.clone(), host.state.clone())),
            kept: Arc::new(CatalogStore::new(config_name, host.state.clone())),
            eras: EraWrites::default(),
            catalogs,
            host,
            events,
        }
    }

    /// The slot of a server that is added at run time: its instance tells it apart from an earlier one
    /// of the same name.
    pub(crate) fn added(mut self) -> Self {
        self.slot.instance = self.host.next_instance();
        let instance = self.slot.instance;
        self.status.send_modify(|status| status.instance = instance);
        self
    }

    pub(crate) fn name(&self) -> &ServerName {
        &self.slot.server
    }

    /// What the config says at the moment.
    pub(crate) fn config(&self) -> Arc<ActiveConfig> {
        self.config.load_full()
    }

    /// Another config from now on. Calls that are open stay so.
    pub(crate) fn configure(&self, config: ServerConfig) {
        let before = self.config();
        self.admission.reconfigure(&config.settings.admission);
        let messages = config.settings.messages;
        self.message_limits.set(messages);
        self.stderr.set_capacity(messages.stderr_bytes);
        let next = ActiveConfig::new(config, Some(&before));
        self.config.store(Arc::new(next));
    }

    /// Another server is reached from now on: what an earlier run knew of its era is looked for.
    pub(crate) fn forget_era(&self) {
        let mut memory = self.memory();
        memory.era = KnownEra::Unknown;
        memory.era_loaded = false;
    }

    /// What callers see of the server now.
    pub(crate) fn published(&self) -> Arc<ServerCatalog> {
        self.published.load_full()
    }

    /// Shows callers another catalog, here and in that of the fleet.
    pub(crate) fn show(&self, catalog: Arc<ServerCatalog>) {
        self.published.store(Arc::clone(&catalog));
        self.catalogs.publish(self.name(), catalog);
        self.shown.notify();
    }

    /// What callers see of the lists, by the rules of the moment.
    pub(crate) fn look_at(&self, listed: &ServerCatalog) -> ServerCatalog {
        let config = self.config();
        let approval = self.pins.approval();
        let rules = VisibilityRules {
            filter: &config.filter,
            pins: config.pin.then(|| (&*approval, config.fingerprint())),
        };
        visible(listed, rules)
    }

    /// Takes up what was kept of the run before. Until the approvals were read nothing of a pinned
    /// server is approved; a catalog that comes later is dropped, since the server may have listed its
    /// own by then.
    pub(crate) async fn recall(self: &Arc<Self>, show: bool) {
        let config = self.config();
        if config.pin {
            self.load_pins().await;
        }
        let (slot, with) = (Arc::clone(self), Arc::clone(&config));
        let read = self.kept.within(READ_WITHIN, move |kept| {
            let Some(listed) = kept.read(with.fingerprint()) else {
                return Ok(None);
            };
            let mut shown = slot.look_at(&listed);
            shown.revision = 1;
            Ok(Some((Arc::new(listed), Arc::new(shown))))
        });
        let (listed, shown) = match read.await {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(problem) => {
                tracing::warn!(server = %self.name(), %problem, "the kept catalog cannot be read");
                return;
            }
        };
        {
            let mut memory = self.memory();
            memory.listed = listed;
            memory.listed_with = Arc::clone(&config);
            memory.last_good = Arc::clone(&shown);
        }
        if show && config.enabled {
            self.show(shown);
        }
    }

    /// Reads which tools are approved, unless that is known. A disk that does not answer in time is not
    /// waited for; what it says later is shown then.
    pub(crate) async fn load_pins(self: &Arc<Self>) {
        let late = self.show_later();
        let load = |pins: &PinStore| {
            pins.load();
            Ok(())
        };
        let loaded = self.pins.within(READ_WITHIN, load, late).await;
        self.note_pins(loaded);
    }

    /// Shows what is approved, once a disk has answered that was not waited for.
    fn show_later(self: &Arc<Self>) -> impl FnOnce(io::Result<()>) + Send + 'static {
        let slot = Arc::downgrade(self);
        move |_| {
            if let Some(slot) = slot.upgrade() {
                slot.see_listed();
                slot.tell_pins_changed();
            }
        }
    }

    /// What the server has listed is approved if it was never seen before; not what was kept of an
    /// earlier run, or was listed by a server that is reached in another way. Blocks: within an
    /// operation on the file.
    fn see_listed(&self) {
        let config = self.config();
        if !config.pin || self.pins.is_settled() {
            return;
        }
        let (listed, with) = {
            let memory = self.memory();
            (Arc::clone(&memory.listed), Arc::clone(&memory.listed_with))
        };
        let is_listed = listed.generation != Generation::NONE;
        if is_listed && with.fingerprint() == config.fingerprint() {
            self.pins.see(&listed.tools, config.fingerprint());
        }
    }

    /// Approves what was listed before it was pinned, if the server was never seen before, and shows
    /// it.
    pub(crate) fn see_listed_later(self: &Arc<Self>) {
        let slot = Arc::clone(self);
        tokio::spawn(async move {
            let here = Arc::clone(&slot);
            let see = move |_: &PinStore| {
                here.see_listed();
                Ok(())
            };
            let seen = slot.pins.within(WRITE_WITHIN, see, slot.show_later());
            let seen = seen.await;
            slot.note_pins(seen);
            slot.tell_pins_changed();
        });
    }

    /// Approves what is held back, as it was shown: one tool, or all of them, whose definition has a
    /// hash if one is named. Returns their names.
    pub(crate) async fn approve(
        self: &Arc<Self>,
        shown: Arc<ServerCatalog>,
        tool: Option<String>,
        hash: Option<String>,
    ) -> Result<Vec<String>, ControlError> {
        let server = || self.name().clone();
        let name = tool.clone();
        // Large definitions are hashed and copied.
        let wanted = tokio::task::spawn_blocking(move || {
            let is_wanted = |it: &&HeldTool| {
                tool.as_ref().is_none_or(|tool| *tool == it.tool)
                    && hash.as_ref().is_none_or(|hash| *hash == it.hash())
            };
            let wanted: Vec<_> = shown.held.iter().filter(is_wanted).cloned().collect();
            wanted
        });
        let wanted = wanted.await;
        let wanted = wanted.map_err(|_| ControlError::Interrupted(server()))?;
        if wanted.is_empty() {
            // What is approved may not be known here, so that it must not be written anew.
            let server = server();
            return name.map_or_else(
                || Ok(Vec::new()),
                |tool| Err(ControlError::NotHeld { server, tool }),
            );
        }
        let names = wanted.iter().map(|it| it.tool.clone()).collect();
        let config = self.config();
        let approve = move |pins: &PinStore| pins.approve(&wanted, config.fingerprint());
        let kept = self.pins.within(WRITE_WITHIN, approve, self.show_later());
        match kept.await {
            Ok(()) => Ok(names),
            Err(problem) if is_unanswered(&problem) => Err(ControlError::NotApproved {
                server: server(),
                problem: problem.to_string(),
            }),
            Err(problem) => Err(ControlError::NotSaved {
                server: server(),
                problem: problem.to_string(),
            }),
        }
    }

    pub(super) fn tell_pins_changed(&self) {
        if let Mailbox::Live(actor) = &*self.mailbox.borrow() {
            let _ = actor.send_message(ServerMessage::PinsChanged { approved: None });
        }
    }

    /// Reports a file of approvals that did not answer, once per time that it stops answering.
    pub(crate) fn note_pins<T>(&self, outcome: io::Result<T>) {
        if let Err(problem) = outcome
            && !hung_before(&problem)
        {
            tracing::warn!(server = %self.name(), %problem, "which tools are approved is not known");
        }
    }

    /// Looks up what is approved, before tools that were just listed are shown. They are approved if
    /// nobody ever saw the server, in this process or another; not if the config by now reaches it in
    /// another way.
    pub(crate) async fn see(self: &Arc<Self>, tools: &[Tool], with: &Arc<ActiveConfig>) {
        let config = self.config();
        if !config.pin {
            return;
        }
        let same = with.fingerprint() == config.fingerprint();
        let offered = (same && !self.pins.is_settled()).then(|| tools.to_vec());
        let look = move |pins: &PinStore| {
            match offered {
                Some(offered) => pins.see(&offered, config.fingerprint()),
                None => pins.refresh(|| {}),
            }
            Ok(())
        };
        // Without an answer nothing more is approved than before.
        let looked = self.pins.within(LISTED, look, self.show_later()).await;
        self.note_pins(looked);
    }

    /// Whoever calls a tool that is held back looks whether another process approved it meanwhile.
    pub(crate) async fn look_for_approval(self: &Arc<Self>, tool: &str, until: Instant) {
        if !self.config().pin || self.published().held(tool).is_none() {
            return;
        }
        let slot = Arc::clone(self);
        let refresh = move |pins: &PinStore| {
            let mut changed = false;
            pins.refresh(|| changed = true);
            slot.see_listed();
            if changed {
                slot.tell_pins_changed();
            }
            Ok(())
        };
        let within = until.saturating_duration_since(now()).min(LOOKING);
        let looked = self.pins.within(within, refresh, |_| {}).await;
        self.note_pins(looked);
    }

    /// Keeps the lists for the next run, once they have been quiet for a while.
    pub(crate) fn keep_later(self: &Arc<Self>) {
        if !self.kept.is_on() {
            return;
        }
        let mut pending = self.kept.pending();
        pending.dirty = true;
        if pending.task.is_none() {
            pending.task = Some(tokio::spawn(Arc::clone(self).keep_until_quiet()));
        }
    }

    /// What changes while it is being written is written next.
    async fn keep_until_quiet(self: Arc<Self>) {
        loop {
            tokio::time::sleep(KEEP_AFTER).await;
            self.keep_now().await;
            let mut pending = self.kept.pending();
            if !pending.dirty {
                pending.task = None;
                return;
            }
        }
    }

    /// What was to be kept later is kept now, and what is being written is waited for.
    pub(crate) async fn flush(self: &Arc<Self>) {
        let pending = self.kept.pending().task.take();
        if let Some(task) = pending {
            task.abort();
            self.keep_now().await;
        }
        self.eras.finish().await;
    }

    async fn keep_now(self: &Arc<Self>) {
        self.kept.pending().dirty = false;
        let (listed, config) = {
            let memory = self.memory();
            (Arc::clone(&memory.listed), Arc::clone(&memory.listed_with))
        };
        let write = move |kept: &CatalogStore| {
            kept.write(config.fingerprint(), &listed);
            Ok(None::<()>)
        };
        if let Err(problem) = self.kept.within(WRITE_WITHIN, write).await
            && !hung_before(&problem)
        {
            tracing::warn!(server = %self.name(), %problem, "the catalog could not be kept");
        }
    }

    /// The server is gone: callers see nothing of it any more.
    pub(crate) fn withdraw(&self) {
        self.published.store(Arc::default());
        self.catalogs.withdraw(self.name());
        self.shown.close();
    }

    /// What a restarted actor takes up again. A panic never leaves it half-written: every change
    /// is one assignment.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection that is still closing, or that nobody holds any more, without asking.
    pub(crate) fn hurry(&self) {
        self.hurried.send_replace(true);
    }

    /// Whether the connection has to end without asking, and when that changes.
    pub(crate) fn watch_hurry(&self) -> watch::Receiver<bool> {
        self.hurried.subscribe()
    }

    /// Opens no connection beside these. Called once, before the actor starts.
    pub(crate) fn follow(&self, predecessors: Vec<Arc<Semaphore>>) {
        let _ = self.predecessors.set(predecessors);
    }

    fn predecessors(&self) -> &[Arc<Semaphore>] {
        self.predecessors.get().map_or(&[], Vec::as_slice)
    }

    /// The permits that a connection of this server may hold, or wait for.
    pub(crate) fn open_connections(&self) -> impl Iterator<Item = Arc<Semaphore>> {
        let own = std::iter::once(&self.connection);
        own.chain(self.predecessors()).cloned()
    }

    /// Waits for the permit to open a connection; nothing if there will be none.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        for predecessor in self.predecessors() {
            // Free for good once it is: its server has no actor that could open another.
            let _ = predecessor.acquire().await;
        }
        Arc::clone(&self.connection).acquire_owned().await.ok()
    }

    /// Whether the runtime ended, or lost its supervisor.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&*self.mailbox.borrow(), Mailbox::Gone)
    }

    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.next_call.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn set_gauges(&self, in_flight: usize, waiting: usize) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Says from when on the published lists are no longer good.
    pub(crate) fn set_expiry(&self, at: Option<Instant>) {
        let after = at.map(|at| at.saturating_duration_since(self.made).as_millis());
        let after = after.and_then(|after| u64::try_from(after).ok());
        self.expiry
            .store(after.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Somebody reads the lists: those that are no longer good are fetched again.
    pub(crate) fn note_use(&self) {
        let expiry = self.expiry.load(Ordering::Relaxed);
        if expiry != u64::MAX
            && now().saturating_duration_since(self.made) >= Duration::from_millis(expiry)
            && let Mailbox::Live(actor) = &*self.mailbox.borrow()
        {
            self.expiry.store(u64::MAX, Ordering::Relaxed);
            let _ = actor.send_message(ServerMessage::ListsUsed);
        }
    }

    /// Shows another status. Those who only wait for the server are woken when it makes a difference
    /// to them, which is once in many changes.
    pub(crate) fn show_status(&self, status: ServerStatus) {
        let readiness = Readiness::of(&status);
        self.status.send_replace(status);
        self.readiness
            .send_if_modified(|known| std::mem::replace(known, readiness) != readiness);
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let mut status = self.status.borrow().clone();
        status.in_flight = self.in_flight.load(Ordering::Relaxed);
        status.waiting = self.waiting.load(Ordering::Relaxed);
        status
    }

    /// What keeps requests from being sent at the moment.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let status = self.status.borrow();
        if status.state == StateName::Connected {
            return None;
        }
        let fault = status.last_error.as_ref();
        Some(Obstacle {
            cause: match fault {
                Some(fault) => format!("the server is {}: {}", status.state, fault.message),
                None => format!("the server is {}", status.state),
            },
            stderr: fault.and_then(|fault| fault.stderr.clone()),
        })
    }

    pub(crate) fn emit(&self, generation: Generation, kind: EventKind) {
        self.events.emit(self.name(), generation, kind);
    }

    /// A text about the server or of the server's, without the secrets of its config.
    pub(crate) fn redact<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        self.config.load().redact(text)
    }

    /// An error of the server's without secrets, in its message and in its data.
    pub(crate) fn redact_error(&self, mut error: ErrorData) -> ErrorData {
        error.message = self.redact(error.message);
        if let Some(data) = &error.data {
            let text = data.to_string();
            let hidden = self.redact(&*text);
            if hidden != text {
                // Data that is no JSON without its secrets is not shown at all.
                error.data = serde_json::from_str(&hidden).ok();
            }
        }
        error
    }

    /// A connection is opened with this config: what it reads of the environment may have changed
    /// since the config was taken, and is secret too.
    pub(crate) fn note_secrets(&self, config: &Arc<ActiveConfig>) {
        let read = config.transport.secrets();
        self.config.load().note_secrets(read);
    }

    /// As if the environment had held nothing when the config was taken.
    #[cfg(all(test, feature = "stdio"))]
    pub(crate) fn forget_secrets(&self) {
        let mut config = ActiveConfig::new(ServerConfig::clone(&self.config()), None);
        config.forget_secrets();
        self.config.store(Arc::new(config));
    }

    /// The end of what the server wrote on stderr, without the secrets of its config.
    pub(crate) fn stderr_tail(&self) -> String {
        self.config.load().redact_tail(&self.stderr.tail())
    }

    /// The same, of the present connection alone.
    pub(crate) fn present_stderr_tail(&self) -> String {
        self.config.load().redact_tail(&self.stderr.current_tail())
    }
}

/// Everything that prints a handle would print all of it.
impl fmt::Debug for ServerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSlot")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

fn first_status(slot: &ServerInstance, config: &ServerConfig, state: StateName) -> ServerStatus {
    ServerStatus {
        name: slot.server.clone(),
        instance: slot.instance,
        state,
        generation: Generation::NONE,
        since: SystemTime::now(),
        attempt: 0,
        attempts_used: 0,
        attempts_limit: config.settings.budget.attempts,
        retry_at: None,
        protocol: None,
        server: None,
        transport: config.transport.label(),
        tools: 0,
        prompts: 0,
        resources: 0,
        templates: 0,
        stale: true,
        in_flight: 0,
        waiting: 0,
        last_error: None,
        action: None,
        required: config.required,
        restarts: 0,
        dropped_late: 0,
        strays: 0,
        dropped_flood: 0,
        findings: 0,
        held: 0,
        lists: Default::default(),
    }
}

#[cfg(test)]
mod tests;
