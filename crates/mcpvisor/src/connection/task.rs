//! The connection task: one per generation, the only owner of its transport.
//!
//! It opens the link, does the handshake, runs the session and closes the link. It always reports
//! its end, even after a panic.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::ConnectionEnd;
#[cfg(feature = "http")]
use mcpvisor_core::machine::{Fault, RenewalFailure};
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CredentialRevision, Generation};
use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;

use super::handle::{Command, ConnectionHandle};
use super::handshake::error::HandshakeError;
use super::session::Session;
use super::{faults, handshake};
use crate::api::transport::TransportKind;
#[cfg(feature = "http")]
use crate::link::http::HttpEndpoint;
use crate::link::in_process::{ChannelLink, ServeFn};
#[cfg(feature = "stream")]
use crate::link::limits::MessageLimits;
#[cfg(feature = "stdio")]
use crate::link::stdio::{StdioCommand, StdioLink};
#[cfg(feature = "stream")]
use crate::link::stream::{StreamLink, StreamOpener};
use crate::link::{Link, OpenFailure};
use crate::server::active_config::ActiveConfig;
use crate::server::message::{ConnectionEvent, ServerMessage};
use crate::server::places::Place;
use crate::server::slot::ServerSlot;

/// How long a cancelled open may take to finish, so that its link can be closed.
const CANCELLED_OPEN_TIMEOUT: Duration = Duration::from_millis(200);

/// No grace: kill the server if it does not exit at once.
const NO_GRACE: CloseSettings = CloseSettings::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);

/// Starts the connection task of a generation.
pub(crate) fn spawn(
    slot: &Arc<ServerSlot>,
    actor: &ActorRef<ServerMessage>,
    generation: Generation,
    place: Option<Arc<Place>>,
) -> ConnectionHandle {
    // Admission limits the queue: at most `limits.inFlight` calls, and the commands that end them.
    let (sender, commands) = mpsc::unbounded_channel();
    let config = slot.config();
    let (grace_sender, grace) = watch::channel(config.settings.close);
    let task = ConnectionTask {
        slot: Arc::clone(slot),
        config: Arc::clone(&config),
        commands,
        grace,
        reporter: Reporter {
            actor: actor.clone(),
            generation,
            end: None,
        },
        _place: place,
    };
    let slot = Arc::clone(slot);
    match &config.transport.0 {
        #[cfg(feature = "stdio")]
        TransportKind::Stdio(command) => {
            let command = command.for_client(slot.owner().map(|owner| &*owner.name));
            let slot = Arc::clone(&slot);
            tokio::spawn(task.run(OpenStdio { slot, command }));
        }
        #[cfg(feature = "http")]
        TransportKind::Http(endpoint) => {
            tokio::spawn(task.run_http(endpoint.clone()));
        }
        #[cfg(feature = "stream")]
        TransportKind::Stream(opener) => {
            let (limits, opener) = (slot.message_limits.clone(), opener.clone());
            tokio::spawn(task.run(OpenStream { opener, limits }));
        }
        TransportKind::Channel { serve, .. } => {
            let serve = Arc::clone(serve);
            tokio::spawn(task.run(OpenChannel { serve, generation }));
        }
    }
    ConnectionHandle {
        generation,
        commands: sender,
        slot,
        grace: grace_sender,
        config,
    }
}

/// Opens the link of a connection. It may be called again, if the server refuses the credential.
pub(super) trait OpenLink: Send + Sync {
    type Link: Link;

    fn open(&self) -> impl Future<Output = Result<Self::Link, OpenFailure>> + Send;
}

#[cfg(feature = "stdio")]
struct OpenStdio {
    slot: Arc<ServerSlot>,
    command: StdioCommand,
}

#[cfg(feature = "stdio")]
impl OpenLink for OpenStdio {
    type Link = StdioLink;

    async fn open(&self) -> Result<StdioLink, OpenFailure> {
        let slot = &self.slot;
        let (stderr, limits) = (Arc::clone(&slot.stderr), slot.message_limits.clone());
        StdioLink::open(&self.command, stderr, limits, slot.name()).await
    }
}

#[cfg(feature = "stream")]
struct OpenStream {
    opener: StreamOpener,
    limits: MessageLimits,
}

#[cfg(feature = "stream")]
impl OpenLink for OpenStream {
    type Link = StreamLink;

    async fn open(&self) -> Result<StreamLink, OpenFailure> {
        StreamLink::open(&self.opener, self.limits.clone()).await
    }
}

struct OpenChannel {
    serve: ServeFn,
    generation: Generation,
}

impl OpenLink for OpenChannel {
    type Link = ChannelLink;

    async fn open(&self) -> Result<ChannelLink, OpenFailure> {
        Ok(ChannelLink::open(&self.serve, self.generation))
    }
}

pub(super) struct ConnectionTask {
    pub(super) slot: Arc<ServerSlot>,
    /// The config that the connection is opened with.
    config: Arc<ActiveConfig>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    /// The grace periods of the close; the latest value counts.
    grace: watch::Receiver<CloseSettings>,
    pub(super) reporter: Reporter,
    /// Freed when the connection has ended.
    _place: Option<Arc<Place>>,
}

/// Why there is no session on a link.
pub(super) enum ConnectFailure<L> {
    /// The link could not be opened, or the connection was closed meanwhile.
    Ended(ConnectionEnd),
    /// The handshake failed, and the link is closed.
    Handshake {
        error: HandshakeError,
        close_problem: Option<String>,
        /// Only servers over HTTP are tried with another link.
        #[cfg_attr(not(feature = "http"), allow(dead_code))]
        link: L,
    },
}

impl<L> ConnectFailure<L> {
    pub(super) fn into_end(self, slot: &ServerSlot) -> ConnectionEnd {
        match self {
            Self::Ended(end) => end,
            Self::Handshake {
                error,
                close_problem,
                ..
            } => error.into_end(slot, close_problem),
        }
    }
}

/// Sends reports to the actor. When dropped it reports the end of the task, whatever the cause.
pub(super) struct Reporter {
    pub(super) actor: ActorRef<ServerMessage>,
    pub(super) generation: Generation,
    end: Option<ConnectionEnd>,
}

impl Reporter {
    pub(super) fn send(&self, event: ConnectionEvent) {
        // An actor that has stopped dropped its handle, which closes the connection too. Calls in
        // a report that cannot be delivered answer their callers when they are dropped.
        let _ = self.actor.send_message(ServerMessage::Connection {
            generation: self.generation,
            event,
        });
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| ConnectionEnd::Closed {
            problem: Some("the connection task ended unexpectedly".to_owned()),
        });
        self.send(ConnectionEvent::Ended(end));
    }
}

impl ConnectionTask {
    async fn run(mut self, open: impl OpenLink) {
        let lock = self.acquire_lock().await;
        let end = match lock {
            Some(_) => self.connect(open).await,
            None => ConnectionEnd::Closed { problem: None },
        };
        self.end(lock, end);
    }

    #[cfg(feature = "http")]
    async fn run_http(mut self, endpoint: HttpEndpoint) {
        let lock = self.acquire_lock().await;
        let end = match lock {
            Some(_) => self.connect_http(&endpoint).await,
            None => ConnectionEnd::Closed { problem: None },
        };
        self.end(lock, end);
    }

    /// Waits for the end of the last connection; `None` if this one is closed meanwhile.
    async fn acquire_lock(&mut self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = close_requested(&mut self.commands) => None,
            lock = self.slot.connection_lock.acquire() => lock,
        }
    }

    fn end(mut self, lock: Option<OwnedSemaphorePermit>, end: ConnectionEnd) {
        self.reporter.end = Some(end);
        // Release the lock before the end is reported, so that the next generation finds it free.
        drop(lock);
    }

    async fn connect(&mut self, open: impl OpenLink) -> ConnectionEnd {
        match self.negotiate(&open).await {
            Ok((link, negotiated)) => self.run_session(link, negotiated).await,
            Err(failure) => failure.into_end(&self.slot),
        }
    }

    /// Opens a link and does the handshake.
    pub(super) async fn negotiate<O: OpenLink>(
        &mut self,
        open: &O,
    ) -> Result<(O::Link, handshake::Negotiated), ConnectFailure<O::Link>> {
        // A server that refuses a credential gets another one, once.
        let mut may_renew = true;
        loop {
            let mut link = self.open(open).await.map_err(ConnectFailure::Ended)?;
            let error = match handshake::run(&mut link, self).await {
                Ok(negotiated) => return Ok((link, negotiated)),
                Err(error) => error,
            };
            let closed = self.close(&mut link).await;
            match error.refused_credential() {
                Some(refused) if std::mem::take(&mut may_renew) => {
                    let renewed = self.renew_credential(refused).await;
                    renewed.map_err(ConnectFailure::Ended)?;
                }
                _ => {
                    return Err(ConnectFailure::Handshake {
                        error,
                        close_problem: closed.err(),
                        link,
                    });
                }
            }
        }
    }

    async fn open<O: OpenLink>(&mut self, open: &O) -> Result<O::Link, ConnectionEnd> {
        #[cfg(feature = "http")]
        self.prepare_credential().await?;
        // Register secrets before the server can repeat them, and again after the open, which may
        // read more of them.
        self.slot.add_secrets(&self.config);
        let mut open = pin!(open.open());
        let opened = tokio::select! {
            biased;
            () = close_requested(&mut self.commands) => {
                cancel_open(open).await;
                return Err(ConnectionEnd::Closed { problem: None });
            }
            opened = &mut open => opened,
        };
        self.slot.add_secrets(&self.config);
        opened.map_err(|failure| faults::open_failed(failure, &self.slot))
    }

    pub(super) async fn run_session<L: Link>(
        &mut self,
        mut link: L,
        negotiated: handshake::Negotiated,
    ) -> ConnectionEnd {
        let era = negotiated.era;
        self.reporter.send(ConnectionEvent::Up {
            info: Arc::clone(&negotiated.info),
            lists: negotiated.lists,
        });
        // Let the actor queue its waiting calls, so that they go out in one write with the end of
        // the handshake.
        tokio::task::yield_now().await;
        Session::new(&mut link, self, era, &negotiated.info)
            .run()
            .await;
        let problem = self.close(&mut link).await.err();
        ConnectionEnd::Closed { problem }
    }

    /// Reads the credential, and renews it if it is due. Not part of the open, which is waited for
    /// when it is cancelled.
    #[cfg(feature = "http")]
    async fn prepare_credential(&mut self) -> Result<(), ConnectionEnd> {
        let auth = self.slot.auth();
        let prepared = tokio::select! {
            biased;
            () = close_requested(&mut self.commands) => {
                return Err(ConnectionEnd::Closed { problem: None });
            }
            prepared = auth.for_connect() => prepared,
        };
        prepared
            .map(drop)
            .map_err(|failure| faults::open_failed(failure.into(), &self.slot))
    }

    /// Renews the credential that the server refused.
    #[cfg(feature = "http")]
    async fn renew_credential(&mut self, refused: CredentialRevision) -> Result<(), ConnectionEnd> {
        let auth = self.slot.auth();
        let renewed = tokio::select! {
            biased;
            () = close_requested(&mut self.commands) => {
                return Err(ConnectionEnd::Closed { problem: None });
            }
            renewed = auth.renew(refused) => renewed,
        };
        renewed.map(drop).map_err(|failure| match failure {
            RenewalFailure::Permanent(failure) => ConnectionEnd::Permanent(failure),
            // The machine decides when to connect again.
            RenewalFailure::Transient(fault) => ConnectionEnd::Failed {
                fault: Fault::new(fault.class, fault.message),
                retry_after: None,
            },
        })
    }

    /// Only servers over HTTP have credentials that can be renewed.
    #[cfg(not(feature = "http"))]
    async fn renew_credential(&mut self, _: CredentialRevision) -> Result<(), ConnectionEnd> {
        Err(ConnectionEnd::Closed { problem: None })
    }

    /// Closes the link. When the grace periods change, the close restarts with the new ones.
    async fn close<L: Link>(&mut self, link: &mut L) -> Result<(), String> {
        let mut force_close = self.slot.connection_lock.watch_force_close();
        loop {
            let grace = if *force_close.borrow_and_update() {
                NO_GRACE
            } else {
                *self.grace.borrow_and_update()
            };
            tokio::select! {
                biased;
                result = link.close(grace) => return result,
                () = changed(&mut force_close) => {}
                () = changed(&mut self.grace) => {}
            }
        }
    }
}

/// Waits briefly for an open in progress and closes its link, so that nothing is left when the end
/// is reported. An open that takes longer cleans up after itself.
async fn cancel_open<L: Link>(open: impl Future<Output = Result<L, OpenFailure>>) {
    if let Ok(Ok(mut link)) = tokio::time::timeout(CANCELLED_OPEN_TIMEOUT, open).await {
        let _ = link.close(NO_GRACE).await;
    }
}

/// Waits until the actor closes the connection or has stopped.
async fn close_requested(commands: &mut mpsc::UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Close) | None => return,
            // The actor sends no requests before the connection is up.
            Some(_) => {}
        }
    }
}

/// Waits until this instant, or forever.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits for the output of the next task, forever if there is none, and reaps aborted tasks.
/// Cancel-safe.
pub(super) async fn next_output<T: 'static>(tasks: &mut JoinSet<T>) -> T {
    loop {
        match tasks.join_next().await {
            Some(Ok(output)) => return output,
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }
}

async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        // The sender is gone: the value cannot change any more.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits only while there are tasks, as a session does.
    #[tokio::test(start_paused = true)]
    async fn aborted_tasks_are_reaped_when_nothing_else_runs() {
        let mut tasks: JoinSet<u8> = JoinSet::new();
        for _ in 0..1_000 {
            tasks.spawn(std::future::pending()).abort();
        }
        while !tasks.is_empty() {
            let next = tokio::time::timeout(Duration::from_secs(1), next_output(&mut tasks)).await;
            assert!(next.is_err());
        }
        tasks.spawn(async { 7 });
        assert_eq!(next_output(&mut tasks).await, 7);
        assert!(tasks.is_empty());
    }
}
