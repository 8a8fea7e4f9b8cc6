//! What each message of the server means for the negotiation.

use mcpvisor_core::CallId;
use mcpvisor_core::negotiation::HandshakeReply;
use mcpvisor_core::retry::RequestFailure;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, InitializeResult, ProtocolVersion, ServerResult};

use super::driver::{DISCOVER, Handshake};
use super::error::HandshakeError;
use crate::connection::era::{self, LEGACY, MODERN};
use crate::connection::session::server_requests::{answer_before_handshake, refuse_unread};
use crate::link::{FailedRequest, Inbound, Link, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::message::{ConnectionEvent, InboundSummary};

/// A message that concerns the handshake.
pub(super) enum Received {
    /// An input of the negotiation.
    Reply(HandshakeReply),
    /// A result of `initialize`, whose version is still to be checked.
    Initialized(Box<InitializeResult>),
    /// The handshake failed.
    Error(HandshakeError),
}

impl<L: Link> Handshake<'_, L> {
    pub(super) fn handle_inbound(&mut self, inbound: Inbound) -> Option<Received> {
        match inbound {
            // No session exists yet, so the error cannot mean a lost one.
            Inbound::PossibleSessionLoss { id, error } => self.on_result(id, Err(error)),
            Inbound::Response { id, result } => self.on_result(id, result),
            Inbound::Unreadable { id, problem } => {
                let is_discover = self.take_unanswered(id)? == DISCOVER;
                let error = HandshakeError::InvalidReply(problem);
                if !is_discover {
                    return Some(self.initialize_failed(error));
                }
                self.refusal = Some(error);
                Some(Received::Reply(HandshakeReply::NotDiscovered))
            }
            Inbound::Failed { id, failed } => self.on_request_failure(id, failed),
            // The handshake requests themselves are refused too.
            #[cfg(feature = "http")]
            Inbound::Unauthorized { .. } => None,
            Inbound::Request { id, request, .. } => {
                answer_before_handshake(self.link, id, &request);
                None
            }
            Inbound::Stray { problem } => {
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, DEBUG, server = %slot.name(), problem = %slot.redact(problem), "ignored a message before the handshake");
                self.report_inbound(InboundSummary {
                    strays: 1,
                    ..InboundSummary::default()
                });
                None
            }
            // Changed lists do not matter yet: all lists are fetched once the connection is up.
            Inbound::Dropped(report) => {
                refuse_unread(self.link, report.requests);
                self.report_inbound(InboundSummary {
                    dropped_flood: report.messages,
                    strays: report.strays,
                    ..InboundSummary::default()
                });
                None
            }
            Inbound::SessionGone { .. } | Inbound::Notification { .. } => None,
            #[cfg(feature = "http")]
            Inbound::NotificationsMissed => None,
        }
    }

    /// Takes the handshake request with this id out of the unanswered ones.
    fn take_unanswered(&mut self, id: CallId) -> Option<ReplyKind> {
        let unanswered = &mut self.unanswered.0;
        let at = unanswered.iter().position(|(it, _)| *it == id)?;
        Some(unanswered.swap_remove(at).1)
    }

    fn awaits_discover(&self) -> bool {
        self.unanswered.0.iter().any(|(_, kind)| *kind == DISCOVER)
    }

    fn on_result(
        &mut self,
        id: CallId,
        result: Result<ServerResult, ErrorData>,
    ) -> Option<Received> {
        Some(match self.take_unanswered(id)? {
            DISCOVER => Received::Reply(self.on_discover_result(result)),
            _ => self.on_initialize_result(result),
        })
    }

    fn report_inbound(&self, summary: InboundSummary) {
        self.task.reporter.send(ConnectionEvent::Inbound(summary));
    }

    /// A handshake request failed over HTTP. A server that refuses `server/discover` with a status
    /// alone speaks the legacy era; one that fails on it may. A busy server, or one that requires
    /// authorization, shows nothing about its era.
    fn on_request_failure(&mut self, id: CallId, mut failed: FailedRequest) -> Option<Received> {
        let is_discover = self.take_unanswered(id)? == DISCOVER;
        let may_be_other_era = era::status_may_mean_other_era(failed.status);
        let busy_or_unauthorized = failed.is_busy_or_unauthorized();
        let error = failed.error.take();
        let failed = HandshakeError::RequestFailed(Box::new(failed));
        if !is_discover {
            return Some(match error {
                Some(error) if era::is_modern_error(&error) => {
                    self.on_initialize_result(Err(error))
                }
                _ if may_be_other_era => {
                    self.refusal = Some(failed);
                    Received::Reply(HandshakeReply::NotInitialized)
                }
                _ if busy_or_unauthorized => Received::Error(failed),
                _ => self.initialize_failed(failed),
            });
        }
        Some(match error {
            Some(error) => Received::Reply(self.on_discover_result(Err(error))),
            None if may_be_other_era => {
                self.refusal = Some(failed);
                Received::Reply(HandshakeReply::NotDiscovered)
            }
            // Some servers crash on an unknown method, and a proxy in front of them may then answer
            // with any status.
            None if !busy_or_unauthorized && self.negotiation.is_open() => {
                self.discover_failure = Some(failed);
                Received::Reply(HandshakeReply::NotDiscovered)
            }
            None => Received::Error(failed),
        })
    }

    /// Chooses the error to report. If `server/discover` failed, a refused `initialize` only shows
    /// that the server does not speak the legacy era, so the first failure is the cause.
    pub(super) fn root_cause(&mut self, error: HandshakeError) -> HandshakeError {
        let is_era_refusal = match &error {
            HandshakeError::Refused(_) | HandshakeError::InvalidReply(_) => true,
            HandshakeError::RequestFailed(failed) => match failed.failure {
                RequestFailure::Unauthorized { .. } | RequestFailure::Busy { .. } => false,
                _ => !matches!(failed.status, Some(401 | 403)),
            },
            HandshakeError::CloseRequested
            | HandshakeError::LinkDown(_)
            | HandshakeError::OtherEra(_)
            | HandshakeError::Incompatible(_) => false,
        };
        match self.discover_failure.take() {
            Some(failure) if is_era_refusal => failure,
            _ => error,
        }
    }

    fn on_discover_result(&mut self, result: Result<ServerResult, ErrorData>) -> HandshakeReply {
        match result.map(era::parse_discover_result) {
            Ok(Some(result)) => {
                if result.supported_versions.contains(&MODERN) {
                    self.discovered = Some(result);
                    return HandshakeReply::Discovered;
                }
                self.on_other_versions(&result.supported_versions)
            }
            Ok(None) => {
                let problem = "no list of versions".to_owned();
                self.refusal = Some(HandshakeError::InvalidReply(problem));
                HandshakeReply::NotDiscovered
            }
            Err(error) if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                match era::versions_in_error(&error) {
                    Some(versions) => self.on_other_versions(&versions),
                    None => self.on_other_versions(&LEGACY),
                }
            }
            Err(error) => {
                let modern = era::is_modern_error(&error);
                self.refusal = Some(HandshakeError::Refused(error));
                if modern {
                    HandshakeReply::ModernRefusal
                } else {
                    HandshakeReply::NotDiscovered
                }
            }
        }
    }

    fn on_other_versions(&mut self, versions: &[ProtocolVersion]) -> HandshakeReply {
        self.server_versions = Some(format!("it speaks {}", era::join_versions(versions)));
        HandshakeReply::OtherVersions {
            modern: versions.contains(&MODERN),
            legacy: versions.iter().any(|version| LEGACY.contains(version)),
        }
    }

    fn on_initialize_result(&mut self, result: Result<ServerResult, ErrorData>) -> Received {
        match result {
            Ok(ServerResult::InitializeResult(info)) => Received::Initialized(Box::new(info)),
            // The result itself may be as long as a message, and would not help.
            Ok(_) => self.initialize_failed(HandshakeError::InvalidReply(
                "a result of another kind".to_owned(),
            )),
            Err(error) => {
                self.refusal = Some(HandshakeError::Refused(error));
                Received::Reply(HandshakeReply::NotInitialized)
            }
        }
    }

    /// `initialize` had no usable result. The handshake fails, unless the server may still agree on
    /// the modern era.
    fn initialize_failed(&mut self, error: HandshakeError) -> Received {
        if !self.awaits_discover() && self.discovered.is_none() {
            return Received::Error(error);
        }
        self.refusal = Some(error);
        Received::Reply(HandshakeReply::NotInitialized)
    }

    /// The error of a server that refused. If `server/discover` is still unanswered, the failure is
    /// temporary: the server may answer it next time.
    pub(super) fn refused(&mut self) -> HandshakeError {
        match self.refusal.take() {
            Some(HandshakeError::Refused(error)) if self.awaits_discover() => {
                let message = format!(
                    "did not answer server/discover in time, and refused initialize: {} (code {})",
                    error.message, error.code.0
                );
                let failure = RequestFailure::ServerFault;
                HandshakeError::RequestFailed(Box::new(FailedRequest::new(failure, message)))
            }
            Some(error) => error,
            None => HandshakeError::no_answer(),
        }
    }

    /// Checks whether we speak the server's version and the config allows it.
    pub(super) fn check_version(&mut self, info: &InitializeResult) -> HandshakeReply {
        let version = &info.protocol_version;
        let config = self.task.slot.config();
        let pinned = config.protocol.as_ref();
        if LEGACY.contains(version) && pinned.is_none_or(|pinned| pinned == version) {
            HandshakeReply::Initialized
        } else {
            self.server_versions = Some(format!("it answered {:?}", version.as_str()));
            HandshakeReply::OtherVersion
        }
    }

    pub(super) fn incompatible(&mut self) -> HandshakeError {
        let theirs = match (self.server_versions.take(), self.refusal.take()) {
            (Some(versions), _) => versions,
            (None, Some(HandshakeError::Refused(error))) => {
                format!("it answered {:?}", error.message)
            }
            (None, _) => "it does not speak it".to_owned(),
        };
        HandshakeError::Incompatible(theirs)
    }
}
