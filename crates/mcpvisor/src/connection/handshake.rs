//! The handshake: which era the server speaks, at which version, and what it offers.
//!
//! What to say and what follows from the answer is the [`Negotiation`]'s business. Here it is said
//! and heard: `server/discover` in the modern era, `initialize` and `initialized` in the others.

use std::sync::Arc;
use std::time::Instant;

use mcpvisor_core::negotiation::{HandshakeReply, HandshakeRequest, NextStep};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, Era, ListKind, Negotiation};
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, DiscoverRequest,
    DiscoverRequestParams, DiscoverResult, ErrorCode, GetMeta, InitializeRequest, InitializeResult,
    InitializedNotification, ProtocolVersion, ServerCapabilities, ServerPeerInfo, ServerResult,
};

use super::era::{self, LEGACY, MODERN};
use super::handshake_error::Stop;
use super::peer_info;
use super::session::{answer_server, refuse_unread};
use super::{Command, Task, sleep_until};
use crate::link::{DownKind, Inbound, Link, LinkDown, PendingRequests, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::message::{ConnectionEvent, InboundSummary};

/// What the server said of itself.
pub(super) struct Welcome {
    pub(super) info: Arc<ServerPeerInfo>,
    pub(super) lists: Vec<ListKind>,
    pub(super) era: Era,
}

/// Shakes hands, and remembers what was learned of the server's era. How long that may take is the
/// machine's business: it asks for the close.
pub(super) async fn run<L: Link>(link: &mut L, task: &mut Task) -> Result<Welcome, Stop> {
    let config = task.slot.config();
    let known = era::known(&task.slot).await?;
    let (negotiation, first) = Negotiation::begin(known);
    let mut handshake = Handshake {
        link,
        task,
        negotiation,
        sent: Sent::default(),
        discovered: None,
        refusal: None,
        fault: None,
        theirs: None,
        silent_at: None,
        heard: false,
    };
    let result = handshake.run(first).await;
    let result = result.map_err(|stop| handshake.blame(stop));
    let lesson = match &result {
        Ok(agreed) => handshake
            .negotiation
            .learned_era(NextStep::Agreed(agreed.era)),
        Err(Stop::OtherEra(_)) => handshake.negotiation.learned_era(NextStep::TryOtherEra),
        Err(Stop::Down(down)) if was_unreached(down) => {
            handshake.negotiation.learned_era(NextStep::Unreachable)
        }
        // What was remembered may be why nothing came of it.
        Err(_) => handshake.negotiation.learned_era(NextStep::Lost),
    };
    // What an old address or command taught says nothing of a new one.
    if config
        .transport
        .is_reached_as(&task.slot.config().transport)
    {
        era::learn(&task.slot, known, lesson);
    }
    result
}

/// The questions that are on the wire.
#[derive(Default)]
struct Sent {
    discover: Option<CallId>,
    initialize: Option<CallId>,
}

impl PendingRequests for Sent {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        if self.initialize == Some(id) {
            Some(ReplyKind::Initialize)
        } else {
            (self.discover == Some(id)).then_some(ReplyKind::Any)
        }
    }

    #[cfg(any(feature = "stdio", feature = "http"))]
    fn snapshot(&self) -> crate::link::PendingSnapshot {
        let discover = self.discover.map(|id| (id, ReplyKind::Any));
        let initialize = self.initialize.map(|id| (id, ReplyKind::Initialize));
        crate::link::PendingSnapshot(discover.into_iter().chain(initialize).collect())
    }
}

struct Handshake<'a, L> {
    link: &'a mut L,
    task: &'a mut Task,
    negotiation: Negotiation,
    sent: Sent,
    discovered: Option<DiscoverResult>,
    /// The last refusal, for people.
    refusal: Option<Stop>,
    /// The server failed on the question for the modern era, which may mean the other one.
    fault: Option<Stop>,
    /// What the server says of its versions.
    theirs: Option<String>,
    silent_at: Option<Instant>,
    heard: bool,
}

/// What one answer means: what was heard, and the result that comes with it.
enum Answer {
    Heard(HandshakeReply),
    Initialized(Box<InitializeResult>),
    Stop(Stop),
}

impl<L: Link> Handshake<'_, L> {
    async fn run(&mut self, first: HandshakeRequest) -> Result<Welcome, Stop> {
        self.say(first)?;
        loop {
            self.silent_at = self
                .negotiation
                .reply_timeout()
                .map(|patience| now() + patience);
            let answer = self.listen().await?;
            let mut initialized = None;
            let heard = match answer {
                Answer::Heard(heard) => heard,
                Answer::Initialized(info) => {
                    let heard = self.judge(&info);
                    initialized = Some(info);
                    heard
                }
                Answer::Stop(Stop::Down(down)) => {
                    let heard = match was_unreached(&down) {
                        true => HandshakeReply::Unreachable,
                        false => HandshakeReply::Lost,
                    };
                    return Err(match self.negotiation.on_reply(heard) {
                        NextStep::TryOtherEra => Stop::OtherEra(down),
                        _ => Stop::Down(down),
                    });
                }
                Answer::Stop(stop) => return Err(stop),
            };
            // Silence is no byte: the server may still be starting, and keeps its slot meanwhile.
            let is_byte = heard != HandshakeReply::Silence;
            match self.negotiation.on_reply(heard) {
                NextStep::Send(say) => {
                    self.first_byte_if(is_byte);
                    self.say(say)?;
                }
                NextStep::Wait => self.first_byte_if(is_byte),
                NextStep::Agreed(Era::Modern) => return self.agree_modern(),
                NextStep::Agreed(Era::Legacy) => {
                    let info = initialized.ok_or_else(|| nonsense("no answer"))?;
                    return self.agree_legacy(*info);
                }
                NextStep::Incompatible => return Err(self.incompatible()),
                NextStep::Refused
                | NextStep::Lost
                | NextStep::Unreachable
                | NextStep::TryOtherEra => {
                    return Err(self.refused());
                }
            }
        }
    }

    fn say(&mut self, say: HandshakeRequest) -> Result<(), Stop> {
        let id = self.task.slot.calls.next_id();
        let client = &self.task.slot.host.client;
        let request = match say {
            HandshakeRequest::Discover => {
                self.sent.discover = Some(id);
                let mut request =
                    ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
                *request.get_meta_mut() = era::request_meta(client);
                request
            }
            HandshakeRequest::Initialize => {
                self.sent.initialize = Some(id);
                let pinned = self.task.slot.config().protocol.clone();
                let version = pinned.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
                let params = client.clone().with_protocol_version(version);
                ClientRequest::InitializeRequest(InitializeRequest::new(params))
            }
        };
        self.link
            .push_request(id, &mut Some(request), false)
            .map_err(Stop::Nonsense)?;
        Ok(())
    }

    /// Waits for something that bears on the questions.
    async fn listen(&mut self) -> Result<Answer, Stop> {
        loop {
            let silent_at = self.silent_at;
            let inbound = tokio::select! {
                biased;
                command = self.task.commands.recv() => match command {
                    Some(Command::Close) | None => return Err(Stop::Asked),
                    // Nothing is wanted of a connection that is not up.
                    Some(_) => continue,
                },
                inbound = self.link.next(&self.sent) => match inbound {
                    Ok(inbound) => inbound,
                    Err(down) => return Ok(Answer::Stop(Stop::Down(down))),
                },
                () = sleep_until(silent_at) => return Ok(Answer::Heard(HandshakeReply::Silence)),
            };
            if let Some(answer) = self.take(inbound) {
                return Ok(answer);
            }
            self.first_byte();
        }
    }

    fn first_byte(&mut self) {
        self.first_byte_if(true);
    }

    /// The end of the handshake says as much by itself.
    fn first_byte_if(&mut self, is_byte: bool) {
        if is_byte && !std::mem::replace(&mut self.heard, true) {
            self.task.report.say(ConnectionEvent::FirstByte);
        }
    }

    fn take(&mut self, inbound: Inbound) -> Option<Answer> {
        match inbound {
            // No session is in use yet, so there is none to doubt.
            Inbound::PossibleSessionLoss { id, error } => self.take(Inbound::Response {
                id,
                result: Err(error),
            }),
            Inbound::Response { id, result } if self.sent.discover == Some(id) => {
                self.sent.discover = None;
                Some(Answer::Heard(self.discovered(result)))
            }
            Inbound::Response { id, result } if self.sent.initialize == Some(id) => {
                self.sent.initialize = None;
                Some(self.initialized(result))
            }
            Inbound::Unreadable { id, problem } if self.sent.discover == Some(id) => {
                self.sent.discover = None;
                self.refusal = Some(Stop::Nonsense(problem));
                Some(Answer::Heard(HandshakeReply::NotDiscovered))
            }
            Inbound::Unreadable { id, problem } if self.sent.initialize == Some(id) => {
                self.sent.initialize = None;
                Some(self.not_initialized(Stop::Nonsense(problem)))
            }
            Inbound::Failed {
                id,
                trouble,
                status,
                error,
                message,
            } => self.failed(id, trouble, status, error, message),
            Inbound::Request { id, request } => {
                answer_server(self.link, id, &request);
                None
            }
            Inbound::Stray { problem } => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), problem = %slot.redact(problem), "passed over a line before the handshake");
                self.task
                    .report
                    .say(ConnectionEvent::Inbound(InboundSummary {
                        strays: 1,
                        ..InboundSummary::default()
                    }));
                None
            }
            // The lists are fetched once it is up, so what changed before does not matter.
            Inbound::Dropped {
                messages: dropped,
                strays,
                requests,
                ..
            } => {
                refuse_unread(self.link, requests);
                self.task
                    .report
                    .say(ConnectionEvent::Inbound(InboundSummary {
                        dropped_flood: dropped,
                        strays,
                        ..InboundSummary::default()
                    }));
                None
            }
            Inbound::Response { .. }
            | Inbound::Unreadable { .. }
            | Inbound::SessionGone { .. }
            | Inbound::Notification(_) => None,
            #[cfg(feature = "http")]
            Inbound::NotificationsMissed => None,
        }
    }

    /// A question met trouble over HTTP. A server that refuses the modern one with a status alone
    /// speaks the other era, and one that fails on it may; one that is busy, or wants a person, says
    /// nothing of eras.
    fn failed(
        &mut self,
        id: CallId,
        trouble: RequestFailure,
        status: Option<u16>,
        error: Option<ErrorData>,
        message: String,
    ) -> Option<Answer> {
        let stop = Stop::Failed {
            trouble,
            status,
            message,
        };
        let waits = matches!(
            trouble,
            RequestFailure::Unauthorized | RequestFailure::Busy { .. }
        );
        if self.sent.initialize == Some(id) {
            self.sent.initialize = None;
            return Some(match error {
                Some(error) if era::is_modern(&error) => self.initialized(Err(error)),
                _ if era::may_be_another(status) => {
                    self.refusal = Some(stop);
                    Answer::Heard(HandshakeReply::NotInitialized)
                }
                _ if waits => Answer::Stop(stop),
                _ => self.not_initialized(stop),
            });
        }
        if self.sent.discover != Some(id) {
            return None;
        }
        self.sent.discover = None;
        Some(match error {
            Some(error) => Answer::Heard(self.discovered(Err(error))),
            None if era::may_be_another(status) => {
                self.refusal = Some(stop);
                Answer::Heard(HandshakeReply::NotDiscovered)
            }
            // Some throw on a method that they do not know, and what stands before them may say
            // anything then.
            None if !waits && self.negotiation.is_open() => {
                self.fault = Some(stop);
                Answer::Heard(HandshakeReply::NotDiscovered)
            }
            None => Answer::Stop(stop),
        })
    }

    /// A server that failed on the first question, and made nothing of the second either, has
    /// failed: that it refuses another era than its own says nothing.
    fn blame(&mut self, stop: Stop) -> Stop {
        let says_nothing = match &stop {
            Stop::Refused(_) | Stop::Nonsense(_) => true,
            Stop::Failed {
                trouble, status, ..
            } => match trouble {
                RequestFailure::Unauthorized | RequestFailure::Busy { .. } => false,
                _ => *status != Some(403),
            },
            Stop::Asked | Stop::Down(_) | Stop::OtherEra(_) | Stop::Incompatible(_) => false,
        };
        match self.fault.take() {
            Some(fault) if says_nothing => fault,
            _ => stop,
        }
    }

    fn discovered(&mut self, result: Result<ServerResult, ErrorData>) -> HandshakeReply {
        match result.map(era::read_discovery) {
            Ok(Some(result)) => {
                let versions = &result.supported_versions;
                if versions.contains(&MODERN) {
                    self.discovered = Some(result);
                    return HandshakeReply::Discovered;
                }
                self.other_versions(&versions.clone())
            }
            Ok(None) => {
                self.refusal = Some(nonsense("no list of versions"));
                HandshakeReply::NotDiscovered
            }
            Err(error) if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                match era::supported(&error) {
                    Some(versions) => self.other_versions(&versions),
                    None => self.other_versions(&LEGACY),
                }
            }
            Err(error) => {
                let modern = era::is_modern(&error);
                self.refusal = Some(Stop::Refused(error));
                if modern {
                    HandshakeReply::ModernRefusal
                } else {
                    HandshakeReply::NotDiscovered
                }
            }
        }
    }

    fn other_versions(&mut self, versions: &[ProtocolVersion]) -> HandshakeReply {
        self.theirs = Some(format!("it speaks {}", era::names(versions)));
        HandshakeReply::OtherVersions {
            modern: versions.contains(&MODERN),
            legacy: versions.iter().any(|version| LEGACY.contains(version)),
        }
    }

    fn initialized(&mut self, result: Result<ServerResult, ErrorData>) -> Answer {
        match result {
            Ok(ServerResult::InitializeResult(info)) => Answer::Initialized(Box::new(info)),
            // What it is instead may be as long as a line, and is no help.
            Ok(_) => self.not_initialized(nonsense("a result of another kind")),
            Err(error) => {
                self.refusal = Some(Stop::Refused(error));
                Answer::Heard(HandshakeReply::NotInitialized)
            }
        }
    }

    /// Nothing sensible came of `initialize`. That is the end of it, unless the server may still be
    /// met in the modern era.
    fn not_initialized(&mut self, stop: Stop) -> Answer {
        if self.sent.discover.is_none() && self.discovered.is_none() {
            return Answer::Stop(stop);
        }
        self.refusal = Some(stop);
        Answer::Heard(HandshakeReply::NotInitialized)
    }

    /// Why the server refused. One that still has the question for the modern era may answer it the
    /// next time, whatever it said of the other.
    fn refused(&mut self) -> Stop {
        match self.refusal.take() {
            Some(Stop::Refused(error)) if self.sent.discover.is_some() => Stop::Failed {
                trouble: RequestFailure::ServerFault,
                status: None,
                message: format!(
                    "did not answer server/discover in time, and refused initialize: {} (code {})",
                    error.message, error.code.0
                ),
            },
            Some(stop) => stop,
            None => nonsense("no answer"),
        }
    }

    /// Whether the answered version is one of ours, and the one that the config wants.
    fn judge(&mut self, info: &InitializeResult) -> HandshakeReply {
        let version = &info.protocol_version;
        let config = self.task.slot.config();
        let wanted = config.protocol.as_ref();
        if LEGACY.contains(version) && wanted.is_none_or(|wanted| wanted == version) {
            HandshakeReply::Initialized
        } else {
            self.theirs = Some(format!("it answered {:?}", version.as_str()));
            HandshakeReply::OtherVersion
        }
    }

    fn incompatible(&mut self) -> Stop {
        let theirs = match (self.theirs.take(), self.refusal.take()) {
            (Some(theirs), _) => theirs,
            (None, Some(Stop::Refused(error))) => format!("it answered {:?}", error.message),
            (None, _) => "it does not speak it".to_owned(),
        };
        Stop::Incompatible(theirs)
    }

    fn agree_modern(&mut self) -> Result<Welcome, Stop> {
        let discovered = self.discovered.take();
        let discovered = discovered.ok_or_else(|| nonsense("no answer"))?;
        self.let_go_of_the_rest();
        self.link.set_protocol_version(&MODERN);
        let info = ServerPeerInfo::from_discover_result(MODERN, discovered);
        Ok(welcome(info, Era::Modern))
    }

    fn agree_legacy(&mut self, info: InitializeResult) -> Result<Welcome, Stop> {
        self.let_go_of_the_rest();
        self.link.set_protocol_version(&info.protocol_version);
        let initialized = ClientNotification::InitializedNotification(InitializedNotification {
            method: Default::default(),
            extensions: Default::default(),
        });
        self.link
            .push(ClientJsonRpcMessage::notification(initialized))
            .map_err(Stop::Nonsense)?;
        Ok(welcome(info.into(), Era::Legacy))
    }

    /// What was agreed on makes the other question pointless.
    fn let_go_of_the_rest(&mut self) {
        let open = [self.sent.discover.take(), self.sent.initialize.take()];
        for id in open.into_iter().flatten() {
            self.link.forget(id);
        }
    }
}

fn welcome(mut info: ServerPeerInfo, era: Era) -> Welcome {
    peer_info::shorten(&mut info);
    Welcome {
        lists: lists(&info.capabilities),
        info: Arc::new(info),
        era,
    }
}

fn nonsense(problem: &str) -> Stop {
    Stop::Nonsense(problem.to_owned())
}

/// Whether nothing that was said can have been heard.
fn was_unreached(down: &LinkDown) -> bool {
    match down.kind {
        DownKind::Unreachable => true,
        DownKind::Exited
        | DownKind::Killed
        | DownKind::Closed
        | DownKind::WriteFailed
        | DownKind::Broken => false,
    }
}

/// Only what was negotiated is asked for.
fn lists(capabilities: &ServerCapabilities) -> Vec<ListKind> {
    let mut lists = Vec::new();
    if capabilities.tools.is_some() {
        lists.push(ListKind::Tools);
    }
    if capabilities.prompts.is_some() {
        lists.push(ListKind::Prompts);
    }
    if capabilities.resources.is_some() {
        lists.push(ListKind::Resources);
        lists.push(ListKind::Templates);
    }
    lists
}
