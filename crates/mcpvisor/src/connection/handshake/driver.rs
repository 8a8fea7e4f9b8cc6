//! Drives the negotiation over the link, from the first request to the agreed version.

use std::sync::Arc;
use std::time::Instant;

use mcpvisor_core::negotiation::{HandshakeReply, HandshakeRequest, NextStep};
use mcpvisor_core::{Era, ListKind, Negotiation};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, DiscoverRequest,
    DiscoverRequestParams, DiscoverResult, GetMeta, InitializeRequest, InitializeResult,
    InitializedNotification, ProtocolVersion, ServerCapabilities, ServerPeerInfo,
};

use super::error::HandshakeError;
use super::peer_info;
use super::replies::Received;
use crate::connection::era::{self, MODERN};
use crate::connection::handle::Command;
use crate::connection::task::{ConnectionTask, sleep_until};
use crate::link::{Link, PendingSnapshot, ReplyKind};
use crate::server::actor::now;
use crate::server::message::ConnectionEvent;
use crate::server::slot::ServerSlot;

/// The result of a successful handshake.
pub(crate) struct Negotiated {
    pub(crate) info: Arc<ServerPeerInfo>,
    pub(crate) lists: Vec<ListKind>,
    pub(crate) era: Era,
}

/// Does the handshake and remembers the server's era. The machine sets the time limit: it closes
/// the connection when it is over.
pub(crate) async fn run<L: Link>(
    link: &mut L,
    task: &mut ConnectionTask,
) -> Result<Negotiated, HandshakeError> {
    let config = task.slot.config();
    let known = era::load_known(&task.slot, link.is_legacy()).await?;
    let (negotiation, first) = Negotiation::begin(known);
    let mut handshake = Handshake {
        link,
        task,
        negotiation,
        unanswered: PendingSnapshot::default(),
        discovered: None,
        refusal: None,
        discover_failure: None,
        server_versions: None,
        reply_deadline: None,
        first_byte_reported: false,
    };
    let result = handshake.run(first).await;
    let result = result.map_err(|error| handshake.root_cause(error));
    let last_step = match &result {
        Ok(negotiated) => NextStep::Agreed(negotiated.era),
        Err(HandshakeError::OtherEra(_)) => NextStep::TryOtherEra,
        Err(HandshakeError::LinkDown(down)) if down.is_unreachable() => NextStep::Unreachable,
        // A wrong remembered era may be the reason for the failure.
        Err(_) => NextStep::Lost,
    };
    let learned = handshake.negotiation.learned_era(last_step);
    // The era of an old address or command does not apply to a new one.
    if config
        .transport
        .is_reached_as(&task.slot.config().transport)
    {
        era::remember(&task.slot, known, learned);
    }
    result
}

/// The reply to `server/discover` is decoded by its shape, because servers leave out members.
pub(super) const DISCOVER: ReplyKind = ReplyKind::Any;

pub(super) struct Handshake<'a, L> {
    pub(super) link: &'a mut L,
    pub(super) task: &'a mut ConnectionTask,
    pub(super) negotiation: Negotiation,
    /// The unanswered handshake requests, at most one of each kind.
    pub(super) unanswered: PendingSnapshot,
    pub(super) discovered: Option<DiscoverResult>,
    /// The last refusal, for the error message.
    pub(super) refusal: Option<HandshakeError>,
    /// `server/discover` failed, which may mean that the server speaks the legacy era.
    pub(super) discover_failure: Option<HandshakeError>,
    /// The versions that the server named, for the error message.
    pub(super) server_versions: Option<String>,
    reply_deadline: Option<Instant>,
    first_byte_reported: bool,
}

impl<L: Link> Handshake<'_, L> {
    async fn run(&mut self, first: HandshakeRequest) -> Result<Negotiated, HandshakeError> {
        self.send(first)?;
        loop {
            let timeout = self.negotiation.reply_timeout();
            self.reply_deadline = timeout.map(|timeout| now() + timeout);
            let mut initialized = None;
            let reply = match self.receive().await? {
                Received::Reply(reply) => reply,
                Received::Initialized(info) => {
                    let reply = self.check_version(&info);
                    initialized = Some(info);
                    reply
                }
                Received::Error(HandshakeError::LinkDown(down)) => {
                    let reply = match down.is_unreachable() {
                        true => HandshakeReply::Unreachable,
                        false => HandshakeReply::Lost,
                    };
                    return Err(match self.negotiation.on_reply(reply) {
                        NextStep::TryOtherEra => HandshakeError::OtherEra(down),
                        _ => HandshakeError::LinkDown(down),
                    });
                }
                Received::Error(error) => return Err(error),
            };
            // A timeout does not count as a first byte: the server may still be starting, and keeps
            // its permit.
            let is_byte = reply != HandshakeReply::Silence;
            match self.negotiation.on_reply(reply) {
                NextStep::Send(request) => {
                    self.report_first_byte_if(is_byte);
                    self.send(request)?;
                }
                NextStep::Wait => self.report_first_byte_if(is_byte),
                NextStep::Agreed(Era::Modern) => return self.agree_modern(),
                NextStep::Agreed(Era::Legacy) => {
                    let info = initialized.ok_or_else(HandshakeError::no_answer)?;
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

    fn send(&mut self, request: HandshakeRequest) -> Result<(), HandshakeError> {
        let id = self.task.slot.calls.next_id();
        let client = &self.task.slot.host.client;
        let (kind, request) = match request {
            HandshakeRequest::Discover => {
                let mut request =
                    ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
                *request.get_meta_mut() = era::request_meta(client);
                (DISCOVER, request)
            }
            HandshakeRequest::Initialize => {
                let pinned = self.task.slot.config().protocol.clone();
                let version = pinned.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE);
                let params = self.task.slot.client_params();
                let params = params.with_protocol_version(version);
                let request = InitializeRequest::new(params);
                (
                    ReplyKind::Initialize,
                    ClientRequest::InitializeRequest(request),
                )
            }
        };
        self.unanswered.0.push((id, kind));
        self.link
            .push_request(id, &mut Some(request), false)
            .map(drop)
            .map_err(HandshakeError::InvalidReply)
    }

    /// Waits for a message that concerns the handshake requests.
    async fn receive(&mut self) -> Result<Received, HandshakeError> {
        loop {
            let deadline = self.reply_deadline;
            let inbound = tokio::select! {
                biased;
                command = self.task.commands.recv() => match command {
                    Some(Command::Close) | None => return Err(HandshakeError::CloseRequested),
                    // The actor sends no requests before the connection is up.
                    Some(_) => continue,
                },
                inbound = self.link.next(&self.unanswered) => match inbound {
                    Ok(inbound) => inbound,
                    Err(down) => return Ok(Received::Error(HandshakeError::LinkDown(down))),
                },
                () = sleep_until(deadline) => {
                    return Ok(Received::Reply(HandshakeReply::Silence));
                }
            };
            if let Some(received) = self.handle_inbound(inbound) {
                return Ok(received);
            }
            self.report_first_byte_if(true);
        }
    }

    /// Reports the first byte once. The end of the handshake implies it.
    fn report_first_byte_if(&mut self, is_byte: bool) {
        if is_byte && !std::mem::replace(&mut self.first_byte_reported, true) {
            self.task.reporter.send(ConnectionEvent::FirstByte);
        }
    }

    fn agree_modern(&mut self) -> Result<Negotiated, HandshakeError> {
        let discovered = self
            .discovered
            .take()
            .ok_or_else(HandshakeError::no_answer)?;
        self.forget_unanswered();
        self.link.set_protocol_version(&MODERN);
        let info = ServerPeerInfo::from_discover_result(MODERN, discovered);
        Ok(negotiated(info, Era::Modern, &self.task.slot))
    }

    fn agree_legacy(&mut self, info: InitializeResult) -> Result<Negotiated, HandshakeError> {
        self.forget_unanswered();
        self.link.set_protocol_version(&info.protocol_version);
        let initialized = InitializedNotification::default();
        let initialized = ClientNotification::InitializedNotification(initialized);
        self.link
            .push(ClientJsonRpcMessage::notification(initialized))
            .map_err(HandshakeError::InvalidReply)?;
        Ok(negotiated(info.into(), Era::Legacy, &self.task.slot))
    }

    /// Forgets the request of the era that was not chosen.
    fn forget_unanswered(&mut self) {
        for (id, _) in self.unanswered.0.drain(..) {
            self.link.forget(id);
        }
    }
}

fn negotiated(mut info: ServerPeerInfo, era: Era, slot: &ServerSlot) -> Negotiated {
    peer_info::redact(&mut info, slot);
    peer_info::truncate(&mut info);
    Negotiated {
        lists: offered_lists(&info.capabilities),
        info: Arc::new(info),
        era,
    }
}

/// The lists that the server offers; no others are requested.
fn offered_lists(capabilities: &ServerCapabilities) -> Vec<ListKind> {
    let is_offered = |list: &ListKind| match list {
        ListKind::Tools => capabilities.tools.is_some(),
        ListKind::Prompts => capabilities.prompts.is_some(),
        ListKind::Resources | ListKind::Templates => capabilities.resources.is_some(),
    };
    ListKind::ALL.into_iter().filter(is_offered).collect()
}
