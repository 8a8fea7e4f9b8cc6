//! Which transport a server over HTTP speaks: Streamable HTTP, or the older HTTP+SSE.
//!
//! A server that does not take the first POST is tried over HTTP+SSE in the same attempt. What works
//! is remembered with the era of the server, and forgotten when it fails.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::machine::ConnectionEnd;

use super::era;
use super::handshake::Negotiated;
use super::handshake::error::HandshakeError;
use super::task::{ConnectFailure, ConnectionTask, OpenLink};
use crate::auth::{Authorization, ServerAuth};
use crate::link::http::{HttpEndpoint, HttpLink, SseLink};
use crate::link::{LinkDown, OpenFailure};
use crate::server::slot::ServerSlot;

/// How long a server that may speak HTTP+SSE may take to send its endpoint. One that speaks only
/// Streamable HTTP may open a stream and never send one.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

impl ConnectionTask {
    pub(super) async fn connect_http(&mut self, endpoint: &HttpEndpoint) -> ConnectionEnd {
        if endpoint.is_sse {
            return match self.negotiate_sse(endpoint, None).await {
                Ok((link, negotiated)) => self.run_session(link, negotiated).await,
                Err(failure) => failure.into_end(&self.slot),
            };
        }
        if era::is_sse(&self.slot).await {
            let timeout = Some(ENDPOINT_TIMEOUT);
            return match self.negotiate_sse(endpoint, timeout).await {
                Ok((link, negotiated)) => self.run_session(link, negotiated).await,
                Err(failure) => {
                    if failure.is_about_transport() {
                        era::remember_sse(&self.slot, endpoint, false);
                    }
                    failure.into_end(&self.slot)
                }
            };
        }
        let open = OpenStreamable {
            slot: Arc::clone(&self.slot),
            endpoint: endpoint.clone(),
        };
        let refused = match self.negotiate(&open).await {
            Ok((link, negotiated)) => return self.run_session(link, negotiated).await,
            Err(failure) => failure,
        };
        match refused.is_refused_like_sse(&self.slot) {
            true => self.fall_back_to_sse(endpoint, refused).await,
            false => refused.into_end(&self.slot),
        }
    }

    /// Tries HTTP+SSE after Streamable HTTP was refused. If the server speaks neither, the first
    /// refusal is the error.
    async fn fall_back_to_sse(
        &mut self,
        endpoint: &HttpEndpoint,
        refused: ConnectFailure<HttpLink>,
    ) -> ConnectionEnd {
        let timeout = Some(ENDPOINT_TIMEOUT);
        let failure = match self.negotiate_sse(endpoint, timeout).await {
            Ok((link, negotiated)) => {
                tracing::debug!(server = %self.slot.name(), "the server speaks HTTP+SSE");
                era::remember_sse(&self.slot, endpoint, true);
                return self.run_session(link, negotiated).await;
            }
            Err(failure) => failure,
        };
        match (refused, failure) {
            (
                ConnectFailure::Handshake {
                    error,
                    close_problem,
                    ..
                },
                ConnectFailure::Handshake {
                    error: sse, link, ..
                },
            ) if !link.has_endpoint() && sse.is_about_transport() => {
                let hint = format!(
                    "HTTP+SSE does not work either ({}); check the url",
                    sse.summary()
                );
                error.with_hint(&hint).into_end(&self.slot, close_problem)
            }
            (_, failure) => failure.into_end(&self.slot),
        }
    }

    async fn negotiate_sse(
        &mut self,
        endpoint: &HttpEndpoint,
        endpoint_timeout: Option<Duration>,
    ) -> Result<(SseLink, Negotiated), ConnectFailure<SseLink>> {
        let open = OpenSse {
            slot: Arc::clone(&self.slot),
            endpoint: endpoint.clone(),
            endpoint_timeout,
        };
        self.negotiate(&open).await
    }
}

struct OpenStreamable {
    slot: Arc<ServerSlot>,
    endpoint: HttpEndpoint,
}

impl OpenLink for OpenStreamable {
    type Link = HttpLink;

    async fn open(&self) -> Result<HttpLink, OpenFailure> {
        let (auth, authorization) = authorize(&self.slot);
        let (context, limits) = (&self.slot.host.http, self.slot.message_limits.clone());
        HttpLink::open(&self.endpoint, context, limits, auth, authorization).await
    }
}

struct OpenSse {
    slot: Arc<ServerSlot>,
    endpoint: HttpEndpoint,
    endpoint_timeout: Option<Duration>,
}

impl OpenLink for OpenSse {
    type Link = SseLink;

    async fn open(&self) -> Result<SseLink, OpenFailure> {
        let (auth, authorization) = authorize(&self.slot);
        let (context, limits) = (&self.slot.host.http, self.slot.message_limits.clone());
        let (endpoint, timeout) = (&self.endpoint, self.endpoint_timeout);
        SseLink::open(endpoint, context, limits, auth, authorization, timeout).await
    }
}

/// The credential, which the task has prepared.
fn authorize(slot: &ServerSlot) -> (ServerAuth, Authorization) {
    let auth = ServerAuth::clone(&slot.auth());
    let authorization = auth.current();
    slot.add_credential_secrets(&authorization);
    (auth, authorization)
}

impl ConnectFailure<HttpLink> {
    /// Whether the server refused the handshake like one that speaks only HTTP+SSE, and the config
    /// allows that.
    fn is_refused_like_sse(&self, slot: &ServerSlot) -> bool {
        let Self::Handshake { error, link, .. } = self else {
            return false;
        };
        let is_modern = match error {
            HandshakeError::Refused(error) => era::is_modern_error(error),
            HandshakeError::RequestFailed(failed) => {
                failed.error.as_ref().is_some_and(era::is_modern_error)
            }
            HandshakeError::InvalidReply(_) => false,
            HandshakeError::CloseRequested
            | HandshakeError::LinkDown(_)
            | HandshakeError::OtherEra(_)
            | HandshakeError::Incompatible(_) => return false,
        };
        let allows_legacy = slot.config().protocol.as_ref() != Some(&era::MODERN);
        link.is_refused_like_sse() && !is_modern && allows_legacy
    }
}

impl ConnectFailure<SseLink> {
    /// Whether the server may speak another transport.
    fn is_about_transport(&self) -> bool {
        match self {
            Self::Ended(_) => false,
            Self::Handshake { error, .. } => error.is_about_transport(),
        }
    }
}

impl HandshakeError {
    /// Whether the failure may mean that the server does not speak this transport. One that cannot be
    /// reached, is busy or demands authorization shows nothing about it.
    fn is_about_transport(&self) -> bool {
        match self {
            Self::CloseRequested => false,
            Self::LinkDown(down) | Self::OtherEra(down) => !down.is_unreachable(),
            Self::RequestFailed(failed) => {
                !failed.is_busy_or_unauthorized() && failed.status != Some(403)
            }
            Self::Refused(_) | Self::Incompatible(_) | Self::InvalidReply(_) => true,
        }
    }

    /// Adds a hint to the message.
    fn with_hint(self, hint: &str) -> Self {
        match self {
            Self::Refused(mut error) => {
                error.message = format!("{}; {hint}", error.message).into();
                Self::Refused(error)
            }
            Self::RequestFailed(mut failed) => {
                failed.message = format!("{}; {hint}", failed.message);
                Self::RequestFailed(failed)
            }
            Self::InvalidReply(problem) => Self::InvalidReply(format!("{problem}; {hint}")),
            other => other,
        }
    }

    /// The failure in a few words.
    fn summary(&self) -> String {
        match self {
            Self::LinkDown(LinkDown { message, .. })
            | Self::OtherEra(LinkDown { message, .. })
            | Self::Incompatible(message)
            | Self::InvalidReply(message) => message.clone(),
            Self::Refused(error) => error.message.to_string(),
            Self::RequestFailed(failed) => failed.message.clone(),
            Self::CloseRequested => "closed".to_owned(),
        }
    }
}
