//! The server's handle, with which a test controls it and reads its record.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::AbortHandle;

use super::fault::HttpFault;
use super::guard::RequestGuard;
use super::http_sse::{self, SessionStream};
use super::listener::Listener;
use super::record::{Received, Record};
use super::{HttpOptions, LostSession, ReplyKind, other_origin};
use crate::armed_faults::{self, ArmedFaults};
use crate::eventually::eventually;
use crate::task_book::TaskBook;

/// Queued commands for open streams; a lagging stream skips the oldest.
const STREAM_BUFFER: usize = 4_096;

/// A server that runs until it is dropped. Clones refer to the same server.
#[derive(Debug, Clone)]
pub struct HttpServer(Arc<Owner>);

/// A server that may have been dropped.
#[derive(Debug, Clone)]
pub(crate) struct WeakHttpServer(Weak<Owner>);

impl WeakHttpServer {
    pub(crate) fn upgrade(&self) -> Option<HttpServer> {
        self.0.upgrade().map(HttpServer)
    }
}

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// `None` while it is stopped.
    listener: tokio::sync::Mutex<Option<Listener>>,
    other_origin: AbortHandle,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.other_origin.abort();
    }
}

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct Shared {
    options: Mutex<HttpOptions>,
    state: Mutex<State>,
    faults: Mutex<ArmedFaults<MethodFault>>,
    record: Mutex<Record>,
    streams: broadcast::Sender<StreamCommand>,
    frozen: watch::Sender<bool>,
    /// Notified when a call is cancelled.
    pub(super) cancellation: Notify,
    made: Instant,
    next: AtomicU64,
    pub(super) other_origin: OnceLock<SocketAddr>,
    guard: OnceLock<Arc<dyn RequestGuard>>,
    /// Its tasks.
    pub(super) book: TaskBook,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashSet<String>,
    /// Over HTTP+SSE: the streams of the sessions.
    session_streams: HashMap<String, Arc<SessionStream>>,
    /// Replies that wait for the client to resume their stream.
    parked: HashMap<String, String>,
    cancelled: HashSet<String>,
    /// In 2026-07-28: the header that mirrors a tool's argument.
    param_header: Option<String>,
    /// In 2026-07-28: the time to live of lists.
    ttl_ms: u64,
}

/// A fault, and which requests it affects.
#[derive(Debug, Clone)]
pub struct MethodFault {
    fault: HttpFault,
    /// The JSON-RPC method, or the HTTP method if there is no message.
    on: String,
}

impl MethodFault {
    fn affects(&self, method: &str) -> bool {
        let handshake = matches!(method, "initialize" | "server/discover");
        self.on == method || (self.on == "*" && !handshake)
    }
}

/// A command to all open streams.
#[derive(Debug, Clone)]
pub(super) enum StreamCommand {
    Message(String),
    End,
    Cut,
}

impl HttpServer {
    /// Starts a server on a free port.
    pub async fn start(options: HttpOptions) -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(loopback, options)
            .await
            .unwrap_or_else(|problem| {
                panic!("no server can be started on loopback: {problem}");
            })
    }

    /// Its tasks, if it has any.
    pub fn task_book(&self) -> &TaskBook {
        &self.0.shared.book
    }

    /// Starts a server at this address.
    pub async fn start_at(address: SocketAddr, options: HttpOptions) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            options: Mutex::new(options),
            state: Mutex::default(),
            faults: Mutex::default(),
            record: Mutex::default(),
            streams: broadcast::Sender::new(STREAM_BUFFER),
            frozen: watch::Sender::new(false),
            cancellation: Notify::new(),
            made: Instant::now(),
            next: AtomicU64::new(1),
            other_origin: OnceLock::new(),
            guard: OnceLock::new(),
            book: TaskBook::default(),
        });
        let other_origin = other_origin::open(&shared).await?;
        let listener = Listener::open(address, &shared).await?;
        Ok(Self(Arc::new(Owner {
            shared,
            address: listener.address(),
            listener: tokio::sync::Mutex::new(Some(listener)),
            other_origin,
        })))
    }

    /// Sets the guard of all further requests. A server has at most one.
    pub(crate) fn set_guard(&self, guard: Arc<dyn RequestGuard>) {
        let _ = self.0.shared.guard.set(guard);
    }

    /// A reference that does not keep the server running.
    pub(crate) fn downgrade(&self) -> WeakHttpServer {
        WeakHttpServer(Arc::downgrade(&self.0))
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let path = match self.0.shared.options().reply {
            ReplyKind::Session => http_sse::STREAM_PATH,
            ReplyKind::Json | ReplyKind::Sse => "/mcp",
        };
        format!("http://{}{path}", self.0.address)
    }

    /// The options that it serves with.
    pub fn options(&self) -> HttpOptions {
        self.0.shared.options()
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Closes its port and every connection, as if the process had ended.
    pub async fn stop(&self) {
        if let Some(listener) = self.0.listener.lock().await.take() {
            listener.close().await;
        }
    }

    /// Closes its port and keeps its connections, like a draining server.
    pub async fn stop_listening(&self) {
        if let Some(listener) = self.0.listener.lock().await.as_ref() {
            listener.refuse();
        }
        let refused = || std::net::TcpStream::connect(self.0.address).is_err();
        eventually(Duration::from_secs(30), "a closed port", refused).await;
    }

    /// Listens on its port again. Earlier sessions are unknown.
    pub async fn resume(&self) {
        self.forget_sessions();
        let mut listener = self.0.listener.lock().await;
        if listener.is_none() {
            *listener = Some(Listener::reopen(self.0.address, &self.0.shared).await);
        }
    }

    /// Stops, and resumes on the same port.
    pub async fn restart(&self) {
        self.stop().await;
        self.resume().await;
    }

    /// Forgets all sessions. Returns how many there were.
    pub fn forget_sessions(&self) -> usize {
        std::mem::take(&mut self.0.shared.state().sessions).len()
    }

    /// Changes how the server reports a lost session.
    pub fn set_lost_session(&self, lost: LostSession) {
        lock(&self.0.shared.options).lost = lost;
    }

    /// Changes the transport or the kind of replies, for further requests.
    pub fn set_reply(&self, reply: ReplyKind) {
        lock(&self.0.shared.options).reply = reply;
    }

    /// While frozen, the server reads, answers and closes nothing.
    pub fn freeze(&self, frozen: bool) {
        self.0.shared.frozen.send_replace(frozen);
    }

    /// Builds a fault: `server.fault("http-404").on("tools/list").once()`.
    #[track_caller]
    pub fn fault(&self, fault: &str) -> FaultBuilder<'_> {
        let fault = fault.parse();
        let fault = fault.unwrap_or_else(|problem: String| panic!("{problem}"));
        self.fault_builder(fault)
    }

    /// Builds a fault.
    pub fn fault_builder(&self, fault: HttpFault) -> FaultBuilder<'_> {
        FaultBuilder {
            faults: &self.0.shared.faults,
            fault: MethodFault {
                fault,
                on: "tools/call".to_owned(),
            },
        }
    }

    /// Disarms all faults and unfreezes the server.
    pub fn disarm(&self) {
        lock(&self.0.shared.faults).disarm();
        self.freeze(false);
    }

    /// Sends a notification on every open server stream. Returns their number.
    pub fn notify(&self, method: &str, params: Value) -> usize {
        self.send_message(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// Sends a message on every open server stream. Returns their number.
    pub fn send_message(&self, message: &Value) -> usize {
        let commands = StreamCommand::Message(message.to_string());
        self.0.shared.streams.send(commands).unwrap_or(0)
    }

    /// Ends every open server stream. Returns their number.
    pub fn end_streams(&self) -> usize {
        self.0.shared.streams.send(StreamCommand::End).unwrap_or(0)
    }

    /// Closes the connection of every open server stream. Returns their number.
    pub fn cut_streams(&self) -> usize {
        self.0.shared.streams.send(StreamCommand::Cut).unwrap_or(0)
    }

    /// In 2026-07-28: changes the header that mirrors the argument of `marked`.
    pub fn rename_param_header(&self, header: &str) {
        self.0.shared.state().param_header = Some(header.to_owned());
    }

    /// In 2026-07-28: sets the time to live of lists.
    pub fn set_time_to_live(&self, ttl: Duration) {
        self.0.shared.state().ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    }

    /// Protocol errors in requests of 2026-07-28: missing or mismatched metadata and headers.
    pub fn complaints(&self) -> Vec<String> {
        self.0.shared.record().complaints.clone()
    }

    /// The number of running calls whose clients disconnected before the reply.
    pub fn abandoned_calls(&self) -> u64 {
        self.0.shared.record().abandoned_calls
    }

    /// The number of open server streams.
    pub fn open_streams(&self) -> usize {
        self.0.shared.streams.receiver_count()
    }

    /// The number of open sessions.
    pub fn open_sessions(&self) -> usize {
        self.0.shared.state().sessions.len()
    }

    /// The number of accepted connections.
    pub fn connects(&self) -> u64 {
        self.0.shared.record().connects
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> u64 {
        self.0.shared.record().open
    }

    /// The number of sessions ever opened.
    pub fn sessions_opened(&self) -> u64 {
        self.0.shared.record().sessions_opened
    }

    /// The number of sessions that a client ended with DELETE.
    pub fn sessions_deleted(&self) -> u64 {
        self.0.shared.record().sessions_deleted
    }

    /// The number of requests of a method.
    pub fn requests(&self, method: &str) -> usize {
        let record = self.0.shared.record();
        let of_method = record.received.iter().filter(|it| it.method == method);
        of_method.count()
    }

    /// The number of faults injected into requests of this method.
    pub fn injected(&self, method: &str) -> u64 {
        let record = self.0.shared.record();
        record.injected.get(method).copied().unwrap_or(0)
    }

    /// All HTTP requests, in order of arrival.
    pub fn received(&self) -> Vec<Received> {
        self.0.shared.record().received.clone()
    }

    /// How often the side effect with this key ran.
    pub fn runs(&self, key: &str) -> u64 {
        let record = self.0.shared.record();
        record.runs.get(key).copied().unwrap_or(0)
    }

    /// The number of side effects that ran, over all keys.
    pub fn all_runs(&self) -> u64 {
        self.0.shared.record().runs.values().sum()
    }

    /// The keys whose side effect ran more than once.
    pub fn ran_twice(&self) -> Vec<String> {
        let record = self.0.shared.record();
        let twice = record.runs.iter().filter(|(_, runs)| **runs > 1);
        twice.map(|(key, _)| key.clone()).collect()
    }

    /// What clients sent to the other origin, verbatim.
    pub fn other_origin_received(&self) -> Vec<String> {
        self.0.shared.record().other_origin.clone()
    }
}

/// A fault that is not armed yet.
pub type FaultBuilder<'a> = armed_faults::FaultBuilder<'a, MethodFault>;

impl FaultBuilder<'_> {
    /// Affects requests of this JSON-RPC method, or of this HTTP method if there is no message. The
    /// default is tool calls; `*` is every request except the handshake.
    pub fn on(mut self, method: &str) -> Self {
        method.clone_into(&mut self.fault.on);
        self
    }
}

impl Shared {
    pub(super) fn options(&self) -> HttpOptions {
        *lock(&self.options)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    pub(super) fn streams(&self) -> broadcast::Receiver<StreamCommand> {
        self.streams.subscribe()
    }

    pub(super) fn guard(&self) -> Option<&dyn RequestGuard> {
        self.guard.get().map(AsRef::as_ref)
    }

    pub(super) fn frozen(&self) -> &watch::Sender<bool> {
        &self.frozen
    }

    /// The header that mirrors a tool's argument.
    pub(super) fn param_header(&self) -> String {
        let header = self.state().param_header.clone();
        header.unwrap_or_else(|| "Region".to_owned())
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        self.state().ttl_ms
    }

    /// Waits while the server is frozen.
    pub(super) async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        let _ = frozen.wait_for(|frozen| !frozen).await;
    }

    /// Milliseconds since the server was created.
    pub(super) fn at_ms(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A unique name with this prefix.
    pub(super) fn fresh(&self, prefix: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}-{}-{number}", std::process::id())
    }

    pub(super) fn open_session(&self) -> String {
        let session = self.fresh("session");
        self.state().sessions.insert(session.clone());
        self.record().sessions_opened += 1;
        session
    }

    /// Sets the stream of a session.
    pub(super) fn set_session_stream(&self, session: &str, stream: SessionStream) {
        let streams = &mut self.state().session_streams;
        streams.insert(session.to_owned(), Arc::new(stream));
    }

    /// The stream of a session, if the session is known.
    pub(super) fn session_stream(&self, session: &str) -> Option<Arc<SessionStream>> {
        let state = self.state();
        let known = state.sessions.contains(session);
        state
            .session_streams
            .get(session)
            .filter(|_| known)
            .cloned()
    }

    /// The stream of a session ended.
    pub(super) fn end_session(&self, session: &str) {
        let mut state = self.state();
        state.sessions.remove(session);
        state.session_streams.remove(session);
    }

    pub(super) fn knows_session(&self, session: &str) -> bool {
        self.state().sessions.contains(session)
    }

    /// Deletes a session. Returns whether it existed.
    pub(super) fn delete_session(&self, session: &str) -> bool {
        let known = self.state().sessions.remove(session);
        self.record().sessions_deleted += u64::from(known);
        known
    }

    /// The fault for a request of this method, if one is armed.
    pub(super) fn take_fault(&self, method: &str) -> Option<HttpFault> {
        let mut found = false;
        // The first one alone.
        let first = |fault: &MethodFault| {
            let takes = !found && fault.affects(method);
            found |= takes;
            takes
        };
        let taken = lock(&self.faults).take(first).pop()?;
        let mut record = self.record();
        *record.injected.entry(method.to_owned()).or_default() += 1;
        Some(taken.fault)
    }

    /// Stores a reply until its stream is resumed after this event.
    pub(super) fn park(&self, event: &str, answer: String) {
        self.state().parked.insert(event.to_owned(), answer);
    }

    pub(super) fn take_parked(&self, event: &str) -> Option<String> {
        self.state().parked.remove(event)
    }

    pub(super) fn cancel(&self, id: &Value) {
        self.state().cancelled.insert(id.to_string());
        self.cancellation.notify_waiters();
    }

    pub(super) fn is_cancelled(&self, id: &Value) -> bool {
        self.state().cancelled.contains(&id.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
