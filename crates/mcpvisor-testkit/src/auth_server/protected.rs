//! An MCP server behind the tokens of an authorization server.

use std::ops::Deref;
use std::sync::Arc;

use super::options::{DpopRule, IssuerHost, NonceRule};
use super::resource_guard::ResourceGuard;
use super::server::AuthServer;
use crate::http_server::{HttpOptions, HttpServer};

/// Where the metadata of the protected server can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceMetadataLocation {
    /// Named by `resource_metadata` in the challenge. The URL is that of the first well-known
    /// location that is served, or `/metadata` if none is.
    Challenge,
    /// `/.well-known/oauth-protected-resource/mcp`
    Path,
    /// `/.well-known/oauth-protected-resource`
    Root,
}

/// The options of a protected server.
#[derive(Debug, Clone)]
pub struct ProtectedOptions {
    /// The options of the MCP server.
    pub http: HttpOptions,
    /// The host name in its URL.
    pub host: IssuerHost,
    /// Where its metadata can be found.
    pub metadata: Vec<ResourceMetadataLocation>,
    /// Its resource identifier, if it is not its URL.
    pub resource: Option<String>,
    /// The scopes that every request needs.
    pub scopes: Vec<String>,
    /// The further scopes that a call of a tool needs.
    pub tool_scopes: Vec<(String, Vec<String>)>,
    /// The scopes in its metadata; `None` leaves them out.
    pub scopes_supported: Option<Vec<String>>,
    /// Whether the challenge of a 401 names scopes.
    pub challenge_scopes: bool,
    /// Further `WWW-Authenticate` lines, verbatim, before its own.
    pub extra_challenges: Vec<String>,
    /// Whether a token without an audience is accepted.
    pub any_audience: bool,
    /// The JSON-RPC methods that need no token.
    pub open_methods: Vec<String>,
    /// Whether tokens are bound to keys.
    pub dpop: DpopRule,
    /// Whether its metadata say that bound tokens are required.
    pub announce_dpop: bool,
    /// The nonces that proofs need.
    pub nonces: NonceRule,
}

impl Default for ProtectedOptions {
    fn default() -> Self {
        Self {
            http: HttpOptions::default(),
            host: IssuerHost::Ip,
            metadata: vec![
                ResourceMetadataLocation::Challenge,
                ResourceMetadataLocation::Path,
            ],
            resource: None,
            scopes: vec!["mcp".to_owned()],
            tool_scopes: Vec::new(),
            scopes_supported: Some(vec!["mcp".to_owned()]),
            challenge_scopes: true,
            extra_challenges: Vec::new(),
            any_audience: false,
            open_methods: Vec::new(),
            dpop: DpopRule::Off,
            announce_dpop: false,
            nonces: NonceRule::None,
        }
    }
}

/// A protected server that runs until it is dropped. It is an [`HttpServer`], which has its
/// controls, faults and counters. Clones refer to the same server.
#[derive(Debug, Clone)]
pub struct ProtectedServer {
    http: HttpServer,
    guard: Arc<ResourceGuard>,
}

impl Deref for ProtectedServer {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.http
    }
}

impl ProtectedServer {
    /// Starts a server that this authorization server protects.
    pub async fn start(auth: &AuthServer) -> Self {
        Self::start_with(auth, ProtectedOptions::default()).await
    }

    /// Starts a server with these options.
    pub async fn start_with(auth: &AuthServer, options: ProtectedOptions) -> Self {
        let http = HttpServer::start(options.http).await;
        let port = http.address().port();
        let guard = Arc::new(ResourceGuard::new(auth.shared(), options, port));
        http.set_guard(Arc::clone(&guard) as Arc<_>);
        let server = Self { http, guard };
        server.register_at(auth);
        server
    }

    fn register_at(&self, auth: &AuthServer) {
        let shared = auth.shared();
        shared.ledger().resources.push(self.guard.resource());
        let weak = (self.http.downgrade(), Arc::downgrade(&self.guard));
        *shared.protected() = Some(weak);
    }

    /// The URL of the MCP endpoint.
    pub fn url(&self) -> String {
        self.guard.url()
    }

    /// The resource identifier.
    pub fn resource(&self) -> String {
        self.guard.resource()
    }

    /// The MCP server.
    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// Accepts only tokens of this authorization server from now on, and names it in the metadata.
    pub fn migrate_to(&self, auth: &AuthServer) {
        self.register_at(auth);
        self.guard.set_auth(auth.shared());
    }

    /// Changes options for all further requests; those of the MCP server, the host and the resource
    /// stay.
    pub fn configure(&self, change: impl FnOnce(&mut ProtectedOptions)) {
        self.guard.configure(change);
    }

    /// A tool needs these further scopes from now on.
    pub fn require_for_tool(&self, tool: &str, scopes: &[&str]) {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        self.guard.require_for_tool(tool, scopes);
    }

    /// The number of requests with an accepted token.
    pub fn accepted(&self) -> u64 {
        self.guard.counters().accepted
    }

    /// The number of requests answered with 401.
    pub fn unauthorized(&self) -> u64 {
        self.guard.counters().unauthorized
    }

    /// Lets the nonces of proofs expire.
    pub fn expire_nonces(&self) {
        self.guard.proofs.expire_nonces();
    }

    /// The number of requests refused for the nonce of their proof.
    pub fn refused_nonces(&self) -> u64 {
        self.guard.proofs.refused_nonces()
    }

    /// Why proofs of requests were not valid.
    pub fn invalid_proofs(&self) -> Vec<String> {
        self.guard.proofs.invalid_proofs()
    }

    /// The number of requests answered with 403.
    pub fn forbidden(&self) -> u64 {
        self.guard.counters().forbidden
    }
}
