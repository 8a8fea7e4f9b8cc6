//! The server's record of requests and tokens.

use super::client_auth::ClientAuth;
use super::endpoint::Endpoint;
use super::form::Form;

/// One HTTP request to the authorization server, or for the metadata of the protected server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRequest {
    /// What it was for.
    pub endpoint: Endpoint,
    /// GET or POST.
    pub http_method: String,
    /// The path without its query.
    pub path: String,
    /// The parameters of the query and of the body.
    pub form: Form,
    /// The body as text, if it is not a form.
    pub body: String,
    /// All headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// How the client authenticated.
    pub client_auth: ClientAuth,
    /// Arrival time, in milliseconds since the server was created.
    pub at_ms: u64,
    /// The status of the reply; `None` if there was none, or not yet.
    pub status: Option<u16>,
}

/// What happened to tokens since the server was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthCounters {
    /// Access tokens issued.
    pub access_issued: u64,
    /// Refresh tokens issued, those that replace another included.
    pub refresh_issued: u64,
    /// Refresh tokens replaced by a refresh.
    pub rotated: u64,
    /// Uses of a replaced refresh token that revoked its family.
    pub reused: u64,
    /// Uses of a replaced refresh token within the grace period.
    pub reused_in_grace: u64,
    /// Tokens revoked, one by one or with their family.
    pub revoked: u64,
    /// Families revoked.
    pub families_revoked: u64,
    /// Clients registered dynamically.
    pub clients_registered: u64,
}

/// All requests since the server was created.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) requests: Vec<AuthRequest>,
    /// Token requests being processed or delayed now, and the peak.
    pub(super) token_requests: usize,
    pub(super) most_token_requests: usize,
}
