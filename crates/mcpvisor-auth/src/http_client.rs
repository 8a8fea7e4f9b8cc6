//! The HTTP client that the embedding program provides.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::address::AddressPolicy;

/// Time for one request of discovery, registration or revocation.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for one token request. It is longer, because a lost answer may lose a rotated token.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(45);

/// Bytes of a response body.
pub const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Sends requests to authorization servers.
///
/// An implementation
/// - follows no redirects,
/// - dials only an address that `limits.addresses` permits, and dials the very address it checked,
/// - reads at most `limits.max_bytes` of the body,
/// - ends within `limits.timeout`,
/// - logs neither bodies nor header values,
/// - reports [`SendProgress`], if the request has it and the client knows it.
pub trait HttpClient: Send + Sync + 'static {
    /// Sends a request and reads the whole response.
    fn send(
        &self,
        request: http::Request<Bytes>,
        limits: RequestLimits,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, HttpError>>;

    /// The addresses of a host, to see where the MCP server itself is.
    fn resolve(&self, host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>>;
}

/// How far a request has got whose answer must not be lost. It is in the extensions of the request.
///
/// A client that knows calls [`Self::connecting`] within [`HttpClient::send`], and sends nothing until
/// [`Self::begin_send`] allows it. Then the request can be cancelled while it still connects. Without
/// these reports it counts as sent at once.
#[derive(Debug, Clone, Default)]
pub struct SendProgress(Arc<AtomicU8>);

/// The values of [`SendProgress`].
const NOT_STARTED: u8 = 0;
const CONNECTING: u8 = 1;
const SENT: u8 = 2;
const CANCELLED: u8 = 3;

impl SendProgress {
    /// The client connects, and has sent nothing.
    pub fn connecting(&self) {
        self.advance(NOT_STARTED, CONNECTING);
    }

    /// Whether the request may be sent now. From then on it cannot be cancelled.
    pub fn begin_send(&self) -> bool {
        self.advance(CONNECTING, SENT);
        self.advance(NOT_STARTED, SENT);
        self.is_sent()
    }

    /// The client has the request. Returns whether it may go on.
    pub(crate) fn handed_over(&self) -> bool {
        self.advance(NOT_STARTED, SENT);
        self.0.load(Ordering::SeqCst) != CANCELLED
    }

    /// Cancels it, unless it may have been sent. Returns whether it is cancelled.
    pub(crate) fn cancel(&self) -> bool {
        self.advance(NOT_STARTED, CANCELLED);
        self.advance(CONNECTING, CANCELLED);
        self.0.load(Ordering::SeqCst) == CANCELLED
    }

    /// Whether it may have been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::SeqCst) == SENT
    }

    fn advance(&self, from: u8, to: u8) {
        let _ = self
            .0
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// The bounds of one request.
#[derive(Debug, Clone)]
pub struct RequestLimits {
    /// The addresses that may be dialled.
    pub addresses: AddressPolicy,
    /// Bytes of the response body.
    pub max_bytes: usize,
    /// Time for the whole exchange.
    pub timeout: Duration,
}

/// Why a request got no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Nothing was sent: the name, the connection or TLS failed.
    #[error("{0}")]
    NotSent(String),
    /// The policy refuses the address, so nothing was sent.
    #[error("{host} resolves to {address}, which is not allowed for this server")]
    AddressRefused {
        /// The host of the request.
        host: String,
        /// The address that was refused.
        address: IpAddr,
    },
    /// It was sent, and no complete response arrived: the server may have processed it.
    #[error("{0}")]
    Interrupted(String),
    /// No complete response in time; the server may have processed it.
    #[error("no response within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The response is larger than the limit.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
}

impl HttpError {
    /// Whether the server may have processed the request.
    pub fn may_have_been_processed(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::AddressRefused { .. } => false,
            Self::Interrupted(_) | Self::TimedOut(_) | Self::TooLarge(_) => true,
        }
    }
}
