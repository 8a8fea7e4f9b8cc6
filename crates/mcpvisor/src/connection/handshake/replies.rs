//! What each message of the server means for the negotiation.

use mcpvisor_core::CallId;
use mcpvisor_core::negotiation::HandshakeReply;
use mcpvisor_core::retry::RequestFailure;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, InitializeResult, ProtocolVersion, ServerResult};

use super::driver::Handshake;
use super::error::HandshakeError;
use crate::connection::era::{self, LEGACY, MODERN};
use crate::connection::session::server_requests::{answer_before_handshake, refuse_unread};
use crate::link::{Inbound, Link};
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
            Inbound::PossibleSessionLoss { id, error } => self.handle_inbound(Inbound::Response {
                id,
                result: Err(error),
            }),
            Inbound::Response { id, result } if self.unanswered.discover == Some(id) => {
                self.unanswered.discover = None;
                Some(Received::Reply(self.on_discover_result(result)))
            }
            Inbound::Response { id, result } if self.unanswered.initialize == Some(id) => {
                self.unanswered.initialize = None;
                Some(self.on_initialize_result(result))
            }
            Inbound::Unreadable { id, problem } if self.unanswered.discover == Some(id) => {
                self.unanswered.discover = None;
                self.refusal = Some(HandshakeError::InvalidReply(problem));
                Some(Received::Reply(HandshakeReply::NotDiscovered))
            }
            Inbound::Unreadable { id, problem } if self.unanswered.initialize == Some(id) => {
                self.unanswered.initialize = None;
                Some(self.initialize_failed(HandshakeError::InvalidReply(problem)))
            }
            Inbound::Failed {
                id,
                failure,
                status,
                error,
                message,
            } => self.on_request_failure(id, failure, status, error, message),
            Inbound::Request { id, request } => {
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
            Inbound::Dropped {
                messages,
                strays,
                requests,
                ..
            } => {
                refuse_unread(self.link, requests);
                self.report_inbound(InboundSummary {
                    dropped_flood: messages,
                    strays,
                    ..InboundSummary::default()
                });
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

    fn report_inbound(&self, summary: InboundSummary) {
        self.task.reporter.send(ConnectionEvent::Inbound(summary));
    }

    /// A handshake request failed over HTTP. A server that refuses `server/discover` with a status
    /// alone speaks the legacy era; one that fails on it may. A busy server, or one that requires
    /// authorization, shows nothing about its era.
    fn on_request_failure(
        &mut self,
        id: CallId,
        failure: RequestFailure,
        status: Option<u16>,
        error: Option<ErrorData>,
        message: String,
    ) -> Option<Received> {
        let failed = HandshakeError::RequestFailed {
            failure,
            status,
            message,
        };
        let busy_or_unauthorized = matches!(
            failure,
            RequestFailure::Unauthorized { .. } | RequestFailure::Busy { .. }
        );
        if self.unanswered.initialize == Some(id) {
            self.unanswered.initialize = None;
            return Some(match error {
                Some(error) if era::is_modern_error(&error) => {
                    self.on_initialize_result(Err(error))
                }
                _ if era::status_may_mean_other_era(status) => {
                    self.refusal = Some(failed);
                    Received::Reply(HandshakeReply::NotInitialized)
                }
                _ if busy_or_unauthorized => Received::Error(failed),
                _ => self.initialize_failed(failed),
            });
        }
        if self.unanswered.discover != Some(id) {
            return None;
        }
        self.unanswered.discover = None;
        Some(match error {
            Some(error) => Received::Reply(self.on_discover_result(Err(error))),
            None if era::status_may_mean_other_era(status) => {
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
            HandshakeError::RequestFailed {
                failure, status, ..
            } => match failure {
                RequestFailure::Unauthorized { .. } | RequestFailure::Busy { .. } => false,
                _ => *status != Some(403),
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
        if self.unanswered.discover.is_none() && self.discovered.is_none() {
            return Received::Error(error);
        }
        self.refusal = Some(error);
        Received::Reply(HandshakeReply::NotInitialized)
    }

    /// The error of a server that refused. If `server/discover` is still unanswered, the failure is
    /// temporary: the server may answer it next time.
    pub(super) fn refused(&mut self) -> HandshakeError {
        match self.refusal.take() {
            Some(HandshakeError::Refused(error)) if self.unanswered.discover.is_some() => {
                HandshakeError::RequestFailed {
                    failure: RequestFailure::ServerFault,
                    status: None,
                    message: format!(
                        "did not answer server/discover in time, and refused initialize: {} (code {})",
                        error.message, error.code.0
                    ),
                }
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
