//! The connection task: one per generation, the only owner of its transport.
//!
//! It opens the link, shakes hands, runs the session and closes the link, all in one task, and
//! always reports its end, even when it panics. It decides nothing about retries or reconnects:
//! what it had not answered goes back to the actor.

mod era;
mod handshake;
mod handshake_error;
mod idle_pause;
mod modern;
mod peer_info;
mod pending;
mod server_requests;
mod session;
mod session_check;
mod tasks;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{Action, ConnectionEnd, Fault, FaultClass, Outcome, PermanentFailure};
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, Generation};
use ractor::ActorRef;
use rmcp::model::ClientRequest;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use self::pending::{InternalFailure, InternalReply, InternalRequest};
use self::session::Session;
use crate::api::transport::TransportKind;
#[cfg(feature = "http")]
use crate::link::http::{HttpEndpoint, HttpLink};
use crate::link::in_process::ChannelLink;
#[cfg(feature = "stdio")]
use crate::link::stdio::StdioLink;
use crate::link::{DownKind, Link, LinkDown, OpenFailure, OpenFailureClass};
use crate::server::active_config::ActiveConfig;
use crate::server::call::Call;
use crate::server::message::{ConnectionEvent, ServerMessage};
use crate::server::slot::ServerSlot;

/// What the actor tells its connection task. Dropping the sender means: close.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send this request.
    Start(Box<Call>),
    /// Give this request up, a caller's or one of the runtime's own: cancel it at the server and
    /// answer it so.
    Abandon {
        /// Which request.
        call: CallId,
        /// What its caller gets.
        outcome: Outcome,
    },
    /// Send a request of the runtime's own.
    Internal(Box<InternalRequest>),
    /// The headers of the server are others now.
    #[cfg(feature = "http")]
    UpdateHeaders(Box<HttpEndpoint>),
    /// Close.
    Close,
}

/// The actor's hold on its connection task. Dropped, the task closes the connection by itself.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    pub(crate) generation: Generation,
    commands: mpsc::UnboundedSender<Command>,
    slot: Arc<ServerSlot>,
    grace: watch::Sender<CloseSettings>,
    /// What it was opened with.
    pub(crate) config: Arc<ActiveConfig>,
}

impl ConnectionHandle {
    /// Hands a command over, or back when the connection takes no more.
    pub(crate) fn send(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|error| error.0)
    }

    /// Asks it to close; a second time may only shorten the first.
    pub(crate) fn close(&self, grace: CloseSettings) {
        let _ = self.grace.send(grace);
        let _ = self.commands.send(Command::Close);
    }

    /// A way to send requests of the runtime's own that does not keep the connection.
    pub(crate) fn internal_requests(&self) -> InternalRequestSender {
        InternalRequestSender {
            commands: self.commands.downgrade(),
            slot: Arc::clone(&self.slot),
        }
    }
}

/// Sends requests of the runtime's own as long as the connection is held.
#[derive(Debug, Clone)]
pub(crate) struct InternalRequestSender {
    commands: mpsc::WeakUnboundedSender<Command>,
    /// Gives out the ids.
    slot: Arc<ServerSlot>,
}

impl InternalRequestSender {
    /// Sends a request and waits for its answer. `None`: the connection ended first. Dropped before
    /// that, the request is given up at the server too.
    pub(crate) async fn request(&self, request: ClientRequest) -> Option<InternalReply> {
        self.send(request)?.reply().await
    }

    /// Sends a request: what the connection is told after this goes out after it.
    pub(crate) fn send(&self, request: ClientRequest) -> Option<SentRequest<'_>> {
        let (sender, answer) = oneshot::channel();
        let id = self.slot.calls.next_id();
        let own = InternalRequest {
            id,
            request,
            answer: sender,
        };
        let commands = self.commands.upgrade()?;
        commands.send(Command::Internal(Box::new(own))).ok()?;
        Some(SentRequest {
            id: Some(id),
            commands: &self.commands,
            answer,
        })
    }
}

/// A request that was sent. Dropped before its answer, it is given up.
pub(crate) struct SentRequest<'a> {
    id: Option<CallId>,
    commands: &'a mpsc::WeakUnboundedSender<Command>,
    answer: oneshot::Receiver<InternalReply>,
}

impl SentRequest<'_> {
    /// Waits for the answer. `None`: the connection ended first.
    pub(crate) async fn reply(mut self) -> Option<InternalReply> {
        let answer = (&mut self.answer).await.ok();
        self.id = None;
        answer
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.id
            && let Some(commands) = self.commands.upgrade()
        {
            let outcome = Outcome::Cancelled;
            let _ = commands.send(Command::Abandon { call, outcome });
        }
    }
}

/// Starts the connection task of a generation.
pub(crate) fn spawn(
    slot: &Arc<ServerSlot>,
    actor: &ActorRef<ServerMessage>,
    generation: Generation,
) -> ConnectionHandle {
    // Commands are bounded by admission: at most `limits.inFlight` calls, and what ends them.
    let (sender, commands) = mpsc::unbounded_channel();
    let config = slot.config();
    let (grace_sender, grace) = watch::channel(config.settings.close);
    let task = Task {
        slot: Arc::clone(slot),
        config: Arc::clone(&config),
        commands,
        grace,
        report: EndReport {
            actor: actor.clone(),
            generation,
            end: None,
        },
    };
    match &config.transport.0 {
        #[cfg(feature = "stdio")]
        TransportKind::Stdio(command) => {
            let command = command.clone();
            let slot = Arc::clone(slot);
            tokio::spawn(task.run(async move {
                let (stderr, bounds) = (Arc::clone(&slot.stderr), slot.message_limits.clone());
                StdioLink::open(&command, stderr, bounds, slot.name()).await
            }));
        }
        #[cfg(feature = "http")]
        TransportKind::Http(endpoint) => {
            let endpoint = endpoint.clone();
            let slot = Arc::clone(slot);
            tokio::spawn(task.run(async move {
                let bounds = slot.message_limits.clone();
                HttpLink::open(&endpoint, &slot.host.http, bounds).await
            }));
        }
        TransportKind::Channel { serve, .. } => {
            let serve = Arc::clone(serve);
            tokio::spawn(task.run(async move { Ok(ChannelLink::open(&serve, generation)) }));
        }
    }
    ConnectionHandle {
        generation,
        commands: sender,
        slot: Arc::clone(slot),
        grace: grace_sender,
        config,
    }
}

struct Task {
    slot: Arc<ServerSlot>,
    /// What it is opened with.
    config: Arc<ActiveConfig>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// How patiently to close; the last word counts.
    grace: watch::Receiver<CloseSettings>,
    report: EndReport,
}

/// Says that the task is done, whatever ended it.
struct EndReport {
    actor: ActorRef<ServerMessage>,
    generation: Generation,
    end: Option<ConnectionEnd>,
}

impl EndReport {
    fn say(&self, report: ConnectionEvent) {
        // An actor that is gone has dropped its hold, which closes the connection too. The
        // requests inside a report that nobody takes answer their callers by themselves.
        let _ = self.actor.send_message(ServerMessage::Connection {
            generation: self.generation,
            event: report,
        });
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| ConnectionEnd::Closed {
            problem: Some("the connection task ended unexpectedly".to_owned()),
        });
        self.say(ConnectionEvent::Ended(end));
    }
}

impl Task {
    async fn run<L: Link>(mut self, open: impl Future<Output = Result<L, OpenFailure>>) {
        let permit = tokio::select! {
            biased;
            () = close_asked(&mut self.commands) => None,
            permit = self.slot.connection_lock.acquire() => permit,
        };
        let end = match permit {
            Some(_) => self.open_and_run(open).await,
            None => ConnectionEnd::Closed { problem: None },
        };
        self.report.end = Some(end);
        // The permit is free before the end is known, so that the next generation never waits.
        drop(permit);
    }

    async fn open_and_run<L: Link>(
        &mut self,
        open: impl Future<Output = Result<L, OpenFailure>>,
    ) -> ConnectionEnd {
        // Before anybody can repeat it, and after the last look at it.
        self.slot.add_secrets(&self.config);
        let mut open = pin!(open);
        let opened = tokio::select! {
            biased;
            () = close_asked(&mut self.commands) => {
                give_up(open).await;
                return ConnectionEnd::Closed { problem: None };
            }
            opened = &mut open => opened,
        };
        self.slot.add_secrets(&self.config);
        let mut link = match opened {
            Ok(link) => link,
            Err(failure) => return self.cannot_open(failure),
        };
        match handshake::run(&mut link, self).await {
            Ok(welcome) => {
                let era = welcome.era;
                self.report.say(ConnectionEvent::Up {
                    info: Arc::clone(&welcome.info),
                    lists: welcome.lists,
                });
                // Whoever waited for this goes out with the end of the handshake, in one write.
                tokio::task::yield_now().await;
                Session::new(&mut link, self, era, &welcome.info)
                    .run()
                    .await;
                let problem = self.close(&mut link).await.err();
                ConnectionEnd::Closed { problem }
            }
            Err(stop) => {
                let closed = self.close(&mut link).await;
                stop.into_end(self, closed.err())
            }
        }
    }

    /// Closes the link. A later word about the grace starts the close again with less patience.
    async fn close<L: Link>(&mut self, link: &mut L) -> Result<(), String> {
        let mut hurry = self.slot.connection_lock.watch_force_close();
        loop {
            let patience = if *hurry.borrow_and_update() {
                AT_ONCE
            } else {
                *self.grace.borrow_and_update()
            };
            tokio::select! {
                biased;
                result = link.close(patience) => return result,
                () = changed(&mut hurry) => {}
                () = changed(&mut self.grace) => {}
            }
        }
    }

    fn cannot_open(&self, failure: OpenFailure) -> ConnectionEnd {
        let message = self.slot.redact(failure.message);
        let class = match failure.class {
            OpenFailureClass::CommandNotFound => FaultClass::CommandNotFound,
            OpenFailureClass::NotExecutable => FaultClass::InvalidCommand,
            OpenFailureClass::InvalidAddress => FaultClass::InvalidAddress,
            OpenFailureClass::Unauthorized => FaultClass::Unauthorized,
            OpenFailureClass::Transient => {
                return ConnectionEnd::Failed {
                    fault: Fault::new(FaultClass::ConnectFailed, message),
                    retry_after: None,
                };
            }
        };
        ConnectionEnd::Permanent(PermanentFailure {
            fault: Fault::new(class, message),
            action: failure.action.unwrap_or(Action::FixEntry(None)),
        })
    }

    /// What went wrong, with the end of what the server wrote on stderr.
    fn fault_of(&self, down: &LinkDown) -> Fault {
        let class = match down.kind {
            DownKind::Exited | DownKind::Killed => FaultClass::Exited,
            DownKind::Closed | DownKind::WriteFailed => FaultClass::ConnectionLost,
            DownKind::Unreachable => FaultClass::ConnectFailed,
            DownKind::Broken => FaultClass::Protocol,
        };
        fault_with_stderr(class, &down.message, &self.slot)
    }
}

/// Kill what does not go by itself at once.
const AT_ONCE: CloseSettings = CloseSettings::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);

/// How long an opening that nobody wants any more is waited for.
const GIVING_UP: Duration = Duration::from_millis(200);

/// What went wrong, with the end of what the server wrote on stderr, and without its secrets.
pub(super) fn fault_with_stderr(class: FaultClass, message: &str, slot: &ServerSlot) -> Fault {
    // Secrets go before the texts are cut, so that no part of one stays.
    Fault::new(class, slot.redact(message)).with_stderr(&slot.present_stderr_tail())
}

/// An opening that is under way comes to its end soon, and what it opened is closed, so that nothing
/// is left when the end is told. One that is stuck takes back by itself what comes of it.
async fn give_up<L: Link>(open: impl Future<Output = Result<L, OpenFailure>>) {
    if let Ok(Ok(mut link)) = tokio::time::timeout(GIVING_UP, open).await {
        let _ = link.close(AT_ONCE).await;
    }
}

/// Waits until the actor wants the connection closed, or is gone.
async fn close_asked(commands: &mut mpsc::UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Close) | None => return,
            // Nothing is started before the connection is up.
            Some(_) => {}
        }
    }
}

/// Waits for a moment, or for ever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn changed<T>(word: &mut watch::Receiver<T>) {
    if word.changed().await.is_err() {
        // Whoever said it is gone: nobody changes it any more.
        std::future::pending().await
    }
}
