//! The runtime: a fleet of servers under one supervisor.
//!
//! There is no global state: two runtimes in one process are independent. Handles only send
//! messages and read snapshots.

mod builder;
mod drivers;
mod weak;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mcpvisor_core::{ClientId, GovernorSettings, ServerInstance, ServerName};
use ractor::ActorRef;
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use self::builder::RuntimeBuilder;
use self::builder::load_cached_catalogs;
pub(crate) use self::builder::{check_connects, default_governor};
pub(crate) use self::drivers::check_drivers;
pub use self::weak::WeakRuntime;
use crate::api::agent::Agent;
use crate::api::client::{Client, ClientBuilder};
use crate::api::error::{ControlError, NotReady, ServerNotReady, UnknownServer, UnknownTool};
use crate::api::events::{EventBus, Events};
use crate::api::handle::ServerHandle;
use crate::api::notifications::Notifications;
use crate::api::request::Request;
use crate::api::status::{Readiness, ServerStatus};
use crate::catalog::{CatalogChanges, CatalogMerger, ClientView, FleetCatalog};
use crate::config::ServerConfig;
use crate::fleet::host::Host;
use crate::fleet::{
    CloseOutcome, DROP_SHUTDOWN_LIMIT, MAX_SHUTDOWN, SHUTDOWN_MARGIN, ServerRegistry,
    ShutdownReport, SupervisorMessage,
};
use crate::server::group::until_available;
use crate::server::message::{ControlReply, ServerMessage};
use crate::server::published::Availability;
use crate::server::slot::{Mailbox, ServerSlot};
use crate::state::pins::HeldTool;

/// Timeout for the forced end of a connection.
const FORCED_END: Duration = Duration::from_secs(1);

/// Minimum time for saving state at a shutdown.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Cap of the wait for renewals at a shutdown, whatever its limit: a token request (45 s), and time to
/// save its answer.
const RENEWAL_WAIT: Duration = Duration::from_secs(60);

/// A supervised fleet of MCP servers. Cheap to clone.
///
/// It needs a tokio runtime with the time and the I/O driver, as with `#[tokio::main]` or
/// `enable_all()`. [`RuntimeBuilder::start`] fails without the time driver, and for servers over
/// stdio or HTTP without the I/O driver.
///
/// Await [`Runtime::shutdown`] before the tokio runtime ends. Dropping the last handle starts a
/// shutdown in the background; [`Runtime::downgrade`] gives a weak reference.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) lifeline: Arc<Lifeline>,
}

/// Shared by all handles of a runtime. Dropping the last one starts the shutdown.
#[derive(Debug)]
pub(crate) struct Lifeline {
    pub(crate) registry: Arc<ServerRegistry>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) host: Arc<Host>,
    pub(crate) catalogs: Arc<CatalogMerger>,
    next_client: AtomicU32,
    /// The client of requests without one.
    pub(crate) default_agent: Arc<Agent>,
    /// Locked during a reload, so that there is one at a time.
    pub(crate) reloading: tokio::sync::Mutex<Governed>,
}

/// The limits of concurrent connects and who sets them.
#[derive(Debug)]
pub(crate) struct Governed {
    /// Set by the embedding program, which overrides the config.
    by_host: bool,
    /// The limits of the config.
    connects: Option<GovernorSettings>,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // If the supervisor is gone, there is nothing to shut down.
        let _ = self.supervisor.send_message(SupervisorMessage::Shutdown {
            limit: DROP_SHUTDOWN_LIMIT,
            reply: None,
        });
    }
}

/// Waits until an instance of a server is ready, or none can become ready by itself.
async fn decided(slot: &Arc<ServerSlot>) {
    if slot.is_gone() {
        return;
    }
    let is_decided = |all: &[Availability]| {
        let any = |wanted| all.contains(&wanted);
        any(Availability::Ready) || !any(Availability::Pending)
    };
    until_available(&slot.instances(), is_decided).await;
}

/// The status of an instance that is ready, else that of the main one.
fn readiest(slot: &Arc<ServerSlot>) -> ServerStatus {
    let instances = slot.instances();
    let mut instances = instances.iter().map(|it| it.published.status());
    let ready = instances.find(ServerStatus::is_ready);
    ready.unwrap_or_else(|| slot.published.status())
}

/// The status of a server once it has settled, or at the deadline.
async fn settled(slot: &ServerSlot, due: Instant) -> ServerStatus {
    let mut status = slot.published.subscribe_status();
    let decided = status.wait_for(|status| status.readiness() != Readiness::Pending);
    match timeout_at(due, decided).await {
        Ok(Ok(status)) => status.clone(),
        Ok(Err(_)) | Err(_) => slot.published.status(),
    }
}

/// Saves the state for the next run, with a timeout for hung file systems.
async fn save_state(slots: &[Arc<ServerSlot>], due: Instant) {
    // Concurrently, so that a hung file delays no other.
    let written = join_all(slots.iter().map(|slot| slot.flush()));
    let due = due.max(Instant::now() + LAST_WRITES);
    if timeout_at(due, written).await.is_err() {
        tracing::warn!("saving the state for the next run timed out");
    }
}

/// Ends renewals for good, and waits for those whose token may be lost. Returns the servers of those
/// that have not ended by then.
async fn finish_renewals(slots: &[Arc<ServerSlot>], due: Instant) -> Vec<ServerName> {
    let finished = join_all(slots.iter().map(|slot| slot.finish_renewal()));
    // At the deadline, the servers tell which are not finished.
    let _ = timeout_at(due, finished).await;
    renewing(slots)
}

fn renewing(slots: &[Arc<ServerSlot>]) -> Vec<ServerName> {
    let renewing = slots.iter().filter(|slot| slot.is_renewing());
    renewing.map(|slot| slot.name().clone()).collect()
}

/// Waits for connections whose actors are gone. The connection of a crashed actor closes by itself;
/// those still open at the deadline are killed and returned.
async fn end_connections(slots: Vec<Arc<ServerSlot>>, due: Instant) -> BTreeSet<ServerInstance> {
    let mut late = Vec::new();
    for slot in slots {
        if timeout_at(due, slot.connection_lock.released())
            .await
            .is_err()
        {
            late.push(slot);
        }
    }
    for slot in &late {
        slot.connection_lock.force_close();
    }
    let due = Instant::now() + FORCED_END;
    for slot in &late {
        // An in-process server that blocks its thread cannot be killed at all.
        let _ = timeout_at(due, slot.connection_lock.released()).await;
    }
    late.iter().map(|slot| slot.id.clone()).collect()
}

impl Runtime {
    /// Starts building a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// A handle to a server, by a `&str`, a `String` or a [`ServerName`].
    pub fn server(&self, name: impl AsRef<str>) -> Result<ServerHandle, UnknownServer> {
        Ok(self.handle(self.slot(name.as_ref())?, None, None))
    }

    pub(crate) fn handle(
        &self,
        slot: Arc<ServerSlot>,
        agent: Option<Arc<Agent>>,
        view: Option<Arc<ClientView>>,
    ) -> ServerHandle {
        ServerHandle {
            slot,
            agent,
            view,
            lifeline: Arc::clone(&self.lifeline),
        }
    }

    pub(crate) fn slot(&self, name: &str) -> Result<Arc<ServerSlot>, UnknownServer> {
        let servers = self.lifeline.registry.load();
        servers.get(name).cloned().ok_or_else(|| UnknownServer {
            name: name.to_owned(),
            known: servers.keys().cloned().collect(),
        })
    }

    /// The main slots.
    fn main_slots(&self) -> Vec<Arc<ServerSlot>> {
        self.lifeline.registry.load().values().cloned().collect()
    }

    /// All slots: those of all instances of all servers, in the order of names and instances.
    pub(crate) fn slots(&self) -> Vec<Arc<ServerSlot>> {
        let servers = self.lifeline.registry.load();
        servers.values().flat_map(|slot| slot.all_slots()).collect()
    }

    /// The names of all servers, in order.
    pub fn servers(&self) -> Vec<ServerName> {
        self.lifeline.registry.load().keys().cloned().collect()
    }

    /// The current status of every server, ordered by name, with one entry for each instance of a
    /// pool. Never waits.
    pub fn status(&self) -> Vec<ServerStatus> {
        let slots = self.slots();
        slots.iter().map(|slot| slot.published.status()).collect()
    }

    /// The catalog of the whole fleet, with the last good lists of each server. Never waits.
    pub fn catalog(&self) -> Arc<FleetCatalog> {
        self.lifeline.catalogs.catalog()
    }

    /// Subscribes to changes of the fleet's catalog.
    ///
    /// ```no_run
    /// # async fn example(runtime: mcpvisor::Runtime) {
    /// let mut changes = runtime.catalog_changes();
    /// while let Some(catalog) = changes.changed().await {
    ///     println!("{} tools", catalog.tool_count());
    /// }
    /// # }
    /// ```
    pub fn catalog_changes(&self) -> CatalogChanges<FleetCatalog> {
        self.lifeline.catalogs.changes()
    }

    /// Calls a tool by its exposed name, such as `github__search`, or one of the
    /// [`meta_tools`](Client::meta_tools). `arguments` is an object, or null for none.
    ///
    /// ```no_run
    /// # async fn example(runtime: mcpvisor::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// let found = runtime.call("github__search", serde_json::json!({ "q": "reconnect" }))?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn call(
        &self,
        exposed: &str,
        arguments: impl Into<Value>,
    ) -> Result<Request<CallToolResult>, UnknownTool> {
        Client::default_of(self).call(exposed, arguments)
    }

    /// Subscribes to events. [`RuntimeBuilder::events`] includes those of the start.
    pub fn events(&self) -> Events {
        self.lifeline.events.subscribe()
    }

    /// Reads what servers send for requests without a client, as
    /// [`Client::notifications`] does for one client. [`events`](Self::events) has all of it.
    pub fn notifications(&self) -> Notifications {
        Client::default_of(self).notifications()
    }

    /// Builds an agent's view of the fleet.
    pub fn client(&self, name: impl Into<String>) -> ClientBuilder {
        let id = ClientId(self.lifeline.next_client.fetch_add(1, Ordering::Relaxed));
        ClientBuilder::new(self.clone(), name.into(), id)
    }

    /// Waits until the required servers are connected and listed; if none is marked as required,
    /// all enabled ones. A pool is ready as soon as one of its instances is. It keeps waiting for the others if a server failed permanently or is
    /// disabled. The error names each server that is not ready, and why.
    ///
    /// It waits for the retries of a failing server until the timeout; [`settled`](Self::settled)
    /// does not.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        let slots = self.main_slots();
        let any_required = slots.iter().any(|slot| slot.config().required);
        let wanted: Vec<_> = slots
            .into_iter()
            .filter(|slot| match any_required {
                true => slot.config().required,
                false => slot.config().enabled,
            })
            .collect();
        let all = join_all(wanted.iter().map(decided));
        // After a timeout too, the statuses tell which servers are ready.
        let _ = tokio::time::timeout(timeout, all).await;
        let servers: Vec<_> = wanted
            .iter()
            .map(|slot| (readiest(slot), slot.is_gone()))
            .filter(|(status, gone)| *gone || !status.is_ready())
            .map(|(status, gone)| {
                let fault = status.last_error.filter(|_| !gone);
                let (class, problem) = match fault {
                    Some(fault) => (Some(fault.class), Some(fault.to_string())),
                    None => (None, gone.then(|| ControlError::RuntimeGone.to_string())),
                };
                ServerNotReady {
                    server: status.name,
                    state: status.state,
                    class,
                    problem,
                    action: status.action,
                }
            })
            .collect();
        if servers.is_empty() {
            Ok(())
        } else {
            Err(NotReady { servers })
        }
    }

    /// Waits until every server, with every instance of a pool, is connected and listed, has failed, or
    /// is disabled. Returns the status of each, ordered by name, with its
    /// [`ServerStatus::readiness`]: [`Readiness::Pending`] if it had none before the timeout.
    ///
    /// ```no_run
    /// # async fn example(runtime: mcpvisor::Runtime) {
    /// use std::time::Duration;
    /// use mcpvisor::Readiness;
    ///
    /// for status in runtime.settled(Duration::from_secs(10)).await {
    ///     if status.readiness() == Readiness::Failed {
    ///         println!("{}: {:?} {:?}", status.name, status.last_error, status.action);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn settled(&self, timeout: Duration) -> Vec<ServerStatus> {
        let slots = self.slots();
        let due = Instant::now() + timeout.min(MAX_SHUTDOWN);
        let first = join_all(slots.iter().map(|slot| settled(slot, due))).await;
        // The current status, unless it is pending again.
        let newest = slots.iter().map(|slot| slot.published.status()).zip(first);
        newest
            .map(|(now, then)| match now.readiness() {
                Readiness::Pending => then,
                Readiness::Ready | Readiness::Failed | Readiness::Disabled => now,
            })
            .collect()
    }

    /// Enables a server, with all instances of a pool. A permanently failed server is tried again.
    pub async fn enable(&self, name: impl AsRef<str>) -> Result<(), ControlError> {
        let slot = self.slot(name.as_ref())?;
        slot.set_enabled(true);
        self.control_all(&slot, ServerMessage::Enable).await
    }

    /// Disables a server: calls in flight may finish, then it is closed. Returns when it is closed.
    pub async fn disable(&self, name: impl AsRef<str>) -> Result<(), ControlError> {
        let slot = self.slot(name.as_ref())?;
        slot.set_enabled(false);
        self.control_all(&slot, ServerMessage::Disable).await
    }

    /// Replaces a server's connection, or those of all instances of a pool. Calls in flight may finish
    /// first.
    pub async fn reconnect(&self, name: impl AsRef<str>) -> Result<(), ControlError> {
        let slot = self.slot(name.as_ref())?;
        self.control_all(&slot, ServerMessage::Reconnect).await
    }

    /// Sends a request to every slot of a server. Fails with the first failure, except those of slots
    /// that are removed meanwhile.
    pub(crate) async fn control_all(
        &self,
        slot: &Arc<ServerSlot>,
        message: impl Fn(ControlReply) -> ServerMessage,
    ) -> Result<(), ControlError> {
        let slots = slot.all_slots();
        let requests = slots.iter().map(|it| self.control(it, &message));
        let mut done = join_all(requests).await.into_iter().zip(&slots);
        done.try_for_each(|(done, slot)| match done {
            Err(_) if slot.is_leaving() => Ok(()),
            done => done,
        })
    }

    async fn control<T>(
        &self,
        slot: &ServerSlot,
        message: impl FnOnce(oneshot::Sender<Result<T, ControlError>>) -> ServerMessage,
    ) -> Result<T, ControlError> {
        let (reply, answer) = oneshot::channel();
        let mut mailbox = slot.mailbox.subscribe();
        let live = mailbox
            .wait_for(|mailbox| !matches!(mailbox, Mailbox::Starting))
            .await
            .map_err(|_| ControlError::RuntimeGone)?
            .clone();
        match live {
            Mailbox::Live(actor) => {
                let _ = actor.send_message(message(reply));
                answer
                    .await
                    .unwrap_or_else(|_| Err(self.interrupted(slot.name())))
            }
            Mailbox::Gone => Err(ControlError::RuntimeGone),
            Mailbox::Removed | Mailbox::Starting => Err(UnknownServer {
                name: slot.name().to_string(),
                known: self.servers(),
            }
            .into()),
        }
    }

    /// The tools of a server that are held back until a person approves them, with their
    /// differences from the approved definitions.
    pub fn held(&self, server: impl AsRef<str>) -> Result<Vec<HeldTool>, UnknownServer> {
        let slot = self.slot(server.as_ref())?;
        Ok(slot.shared.public.load().held.to_vec())
    }

    /// Approves one held tool, or all of them, as [`held`](Self::held) shows them now. Returns the
    /// names of the approved tools once they are saved.
    pub async fn approve(
        &self,
        server: impl AsRef<str>,
        tool: Option<&str>,
    ) -> Result<Vec<String>, ControlError> {
        let slot = self.slot(server.as_ref())?;
        let tool = tool.map(str::to_owned);
        let hash = None;
        let message = |reply| ServerMessage::Approve { tool, hash, reply };
        self.control(&slot, message).await
    }

    /// Approves a held tool only if its definition still has this [`hash`](HeldTool::hash). If the
    /// server changed it again, nothing is approved ([`ControlError::NotHeld`]).
    pub async fn approve_definition(
        &self,
        server: impl AsRef<str>,
        tool: &str,
        hash: &str,
    ) -> Result<(), ControlError> {
        let slot = self.slot(server.as_ref())?;
        let (tool, hash) = (Some(tool.to_owned()), Some(hash.to_owned()));
        let message = |reply| ServerMessage::Approve { tool, hash, reply };
        self.control(&slot, message).await.map(drop)
    }

    fn interrupted(&self, name: &ServerName) -> ControlError {
        match self.slot(name.as_str()) {
            Ok(slot) if slot.is_gone() => ControlError::RuntimeGone,
            Ok(_) | Err(_) => ControlError::Interrupted(name.clone()),
        }
    }

    /// Adds a server at run time.
    pub async fn add(&self, config: ServerConfig) -> Result<(), ControlError> {
        config
            .validate_settings()
            .map_err(|problem| ControlError::InvalidSetting {
                server: config.name.clone(),
                problem,
            })?;
        check_drivers(&config)?;
        let slot = ServerSlot::new(
            config,
            self.lifeline.host.next_instance(),
            Arc::clone(&self.lifeline.host),
            Arc::clone(&self.lifeline.events),
            Arc::clone(&self.lifeline.catalogs),
        );
        let slot = ServerSlot::with_pool(slot);
        load_cached_catalogs(vec![Arc::clone(&slot)], &self.lifeline.host, false).await;
        self.ask_supervisor(|reply| SupervisorMessage::Add { slot, reply })
            .await
    }

    /// Removes a server: calls in flight may finish, then it is closed and forgotten.
    pub async fn remove(&self, name: impl AsRef<str>) -> Result<(), ControlError> {
        let slot = self.slot(name.as_ref())?;
        let (server, slots) = (slot.name().clone(), slot.all_slots());
        self.ask_supervisor(|reply| SupervisorMessage::Remove { server, reply })
            .await?;
        let due = Instant::now() + slot.config().settings.close.total().min(MAX_SHUTDOWN);
        end_connections(slots, due).await;
        Ok(())
    }

    /// Adds a further slot of a server.
    pub(crate) fn start_slot(&self, slot: Arc<ServerSlot>) {
        let message = SupervisorMessage::AddSlot(slot);
        // If the supervisor is gone, so are the other slots.
        let _ = self.lifeline.supervisor.send_message(message);
    }

    /// Removes a further slot of a server that gets no more calls. Its open calls may end first.
    pub(crate) async fn retire_slot(&self, slot: &Arc<ServerSlot>) {
        slot.note_leaving();
        let settings = slot.config().settings.close;
        // Queued calls of an actor that is shut down would fail.
        let _ = tokio::time::timeout(settings.drain, slot.calls.until_none_open()).await;
        let message = SupervisorMessage::RemoveSlot(slot.id.clone());
        let _ = self.lifeline.supervisor.send_message(message);
        let mut mailbox = slot.mailbox.subscribe();
        let is_removed = |it: &Mailbox| matches!(it, Mailbox::Removed | Mailbox::Gone);
        let removed = mailbox.wait_for(is_removed);
        let limit = settings.total().min(MAX_SHUTDOWN) + SHUTDOWN_MARGIN;
        let _ = tokio::time::timeout(limit, removed).await;
        end_connections(vec![Arc::clone(slot)], Instant::now()).await;
    }

    /// Applies new connect limits. Returns whether they differ.
    pub(crate) fn govern(
        &self,
        governed: &mut Governed,
        connects: Option<GovernorSettings>,
    ) -> bool {
        if governed.by_host || governed.connects == connects {
            return false;
        }
        governed.connects.clone_from(&connects);
        let settings = connects.unwrap_or_else(default_governor);
        // If the supervisor is gone, the reload reports it.
        let message = SupervisorMessage::ReconfigureGovernor(settings);
        let _ = self.lifeline.supervisor.send_message(message);
        true
    }

    async fn ask_supervisor(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<(), ControlError>>) -> SupervisorMessage,
    ) -> Result<(), ControlError> {
        let (reply, answer) = oneshot::channel();
        self.lifeline
            .supervisor
            .send_message(message(reply))
            .map_err(|_| ControlError::RuntimeGone)?;
        answer.await.unwrap_or(Err(ControlError::RuntimeGone))
    }

    /// Ends the runtime within the limit: no new calls are accepted, those in flight may finish,
    /// then all servers are closed concurrently. A limit shorter than the servers' close timeouts
    /// shrinks every step in proportion; time that the drain does not use is left to the later
    /// steps.
    ///
    /// A login that is being renewed is waited for within the limit, at least 1 s and at most 60 s:
    /// the issuer may have replaced its token, and the new one has to be saved. If the limit is
    /// over before, [`renewing`](Self::renewing) names the servers, and
    /// [`finish_renewals`](Self::finish_renewals) waits longer. The status after the shutdown tells
    /// whether a login could not be saved ([`ServerStatus::unsaved_login`]).
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let slots = self.slots();
        let due = Instant::now() + limit.min(MAX_SHUTDOWN);
        let (reply, answer) = oneshot::channel();
        let message = SupervisorMessage::Shutdown {
            limit,
            reply: Some(reply),
        };
        let mut report = match self.lifeline.supervisor.send_message(message) {
            Ok(()) => answer.await.unwrap_or_default(),
            // The supervisor has already ended.
            Err(_) => ShutdownReport::default(),
        };
        report.complete(&slots);
        let now = Instant::now();
        let renewed_by = due.clamp(now + LAST_WRITES, now + RENEWAL_WAIT);
        tokio::join!(save_state(&slots, due), finish_renewals(&slots, renewed_by),);
        let forced = end_connections(slots, due).await;
        for closed in &mut report.servers {
            if forced.contains(&closed.id()) {
                closed.how = CloseOutcome::Forced;
            }
        }
        report
    }

    /// The servers whose login is being renewed: the issuer may have replaced the token, and the
    /// new one is not saved yet. If the process ends now, a person may have to log in again.
    pub fn renewing(&self) -> Vec<ServerName> {
        renewing(&self.slots())
    }

    /// Waits for renewals that a [`shutdown`](Self::shutdown) did not wait for any longer, so that
    /// their tokens are saved. No renewal begins any more. Returns the servers of those that have
    /// not ended within the limit.
    pub async fn finish_renewals(&self, limit: Duration) -> Vec<ServerName> {
        finish_renewals(&self.slots(), Instant::now() + limit.min(MAX_SHUTDOWN)).await
    }

    /// Makes the supervisor panic. For tests of the handles.
    #[doc(hidden)]
    pub fn crash_supervisor(&self) {
        let supervisor = &self.lifeline.supervisor;
        let _ = supervisor.send_message(SupervisorMessage::Crash);
    }
}
