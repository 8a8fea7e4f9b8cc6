//! The HTTP client that the embedding program provides.

use std::net::IpAddr;
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
/// - logs neither bodies nor header values.
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
