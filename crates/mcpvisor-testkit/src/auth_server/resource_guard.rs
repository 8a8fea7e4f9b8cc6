//! The guard of a protected server: tokens, challenges, and the server's metadata.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::client_auth::ClientAuth;
use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::form::Form;
use super::ledger::TokenProblem;
use super::options::DpopRule;
use super::proof::{ProofProblem, ProofVerifier, SignedRequest};
use super::protected::{ProtectedOptions, ResourceMetadataLocation};
use super::record::AuthRequest;
use super::service::Shared;
use crate::http_server::{Received, RequestGuard, WireReply};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
const WELL_KNOWN_PATH: &str = "/.well-known/oauth-protected-resource/mcp";
/// Where the metadata are if no well-known location is served.
const HIDDEN: &str = "/metadata";

/// The requests that the guard decided about.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GuardCounters {
    pub(super) accepted: u64,
    pub(super) unauthorized: u64,
    pub(super) forbidden: u64,
}

/// Checks the token of each request to a protected server.
#[derive(Debug)]
pub(super) struct ResourceGuard {
    auth: Mutex<Arc<Shared>>,
    options: Mutex<ProtectedOptions>,
    counters: Mutex<GuardCounters>,
    origin: String,
    pub(super) proofs: ProofVerifier,
}

impl ResourceGuard {
    pub(super) fn new(auth: &Arc<Shared>, options: ProtectedOptions, port: u16) -> Self {
        Self {
            auth: Mutex::new(Arc::clone(auth)),
            origin: format!("http://{}:{port}", options.host.name()),
            options: Mutex::new(options),
            counters: Mutex::default(),
            proofs: ProofVerifier::default(),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    pub(super) fn resource(&self) -> String {
        let resource = lock(&self.options).resource.clone();
        resource.unwrap_or_else(|| self.url())
    }

    pub(super) fn set_auth(&self, auth: &Arc<Shared>) {
        *lock(&self.auth) = Arc::clone(auth);
    }

    pub(super) fn configure(&self, change: impl FnOnce(&mut ProtectedOptions)) {
        change(&mut lock(&self.options));
    }

    /// A tool needs these further scopes from now on.
    pub(super) fn require_for_tool(&self, tool: &str, scopes: Vec<String>) {
        self.configure(|options| {
            options.tool_scopes.retain(|(known, _)| known != tool);
            options.tool_scopes.push((tool.to_owned(), scopes));
        });
    }

    pub(super) fn counters(&self) -> GuardCounters {
        *lock(&self.counters)
    }

    fn auth(&self) -> Arc<Shared> {
        Arc::clone(&lock(&self.auth))
    }

    /// The paths of the metadata.
    fn metadata_paths(&self) -> Vec<&'static str> {
        let locations = lock(&self.options).metadata.clone();
        let mut paths: Vec<&str> = locations
            .iter()
            .filter_map(|location| match location {
                ResourceMetadataLocation::Path => Some(WELL_KNOWN_PATH),
                ResourceMetadataLocation::Root => Some(WELL_KNOWN),
                ResourceMetadataLocation::Challenge => None,
            })
            .collect();
        if paths.is_empty() && !locations.is_empty() {
            paths.push(HIDDEN);
        }
        paths
    }

    fn metadata(&self, request: &Received, path: &str) -> WireReply {
        let auth = self.auth();
        let form = Form::default();
        let faults = auth.faults().take_for(Endpoint::ResourceMetadata, &form);
        let mut reply = match faults.replacement(&request.path) {
            Some(reply) => reply,
            None => {
                let issuer = faults.find(|fault| match fault {
                    AuthFault::OtherIssuer(issuer) => Some(issuer.clone()),
                    _ => None,
                });
                let resource = match faults.has(&AuthFault::WrongResource) {
                    true => format!("{}/other-resource", self.origin),
                    false => self.resource(),
                };
                let issuer = issuer.unwrap_or_else(|| auth.issuer());
                faults.change(WireReply::json(200, &self.document(&resource, &issuer)))
            }
        };
        reply.delay += faults.delay();
        auth.record().requests.push(AuthRequest {
            endpoint: Endpoint::ResourceMetadata,
            http_method: request.http_method.clone(),
            path: path.to_owned(),
            form,
            body: String::new(),
            headers: request.headers.clone(),
            client_auth: ClientAuth::Missing,
            at_ms: auth.at_ms(),
            status: reply.visible_status(),
        });
        reply
    }

    fn document(&self, resource: &str, issuer: &str) -> Value {
        let mut document = json!({
            "resource": resource,
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
        });
        if let Some(scopes) = &lock(&self.options).scopes_supported {
            document["scopes_supported"] = json!(scopes);
        }
        if lock(&self.options).announce_dpop {
            document["dpop_bound_access_tokens_required"] = json!(true);
        }
        document
    }

    /// 401 or 403 with a challenge.
    fn refuse(&self, status: u16, error: Option<&str>, scopes: Option<&[String]>) -> WireReply {
        let mut counters = lock(&self.counters);
        match status {
            401 => counters.unauthorized += 1,
            _ => counters.forbidden += 1,
        }
        drop(counters);
        let mut parts = Vec::new();
        parts.extend(error.map(|error| format!("error=\"{error}\"")));
        let options = lock(&self.options).clone();
        let named = options
            .metadata
            .contains(&ResourceMetadataLocation::Challenge);
        if let Some(path) = self.metadata_paths().first().filter(|_| named) {
            parts.push(format!("resource_metadata=\"{}{path}\"", self.origin));
        }
        parts.extend(scopes.map(|scopes| format!("scope=\"{}\"", scopes.join(" "))));
        let schemes = match options.dpop {
            DpopRule::Off => &["Bearer"][..],
            DpopRule::Accepted => &["Bearer", "DPoP"],
            DpopRule::Required => &["DPoP"],
        };
        let mut reply = WireReply::json(status, &json!({ "error": error }));
        for extra in &options.extra_challenges {
            reply = reply.header("www-authenticate", extra);
        }
        for scheme in schemes {
            let challenge = format!("{scheme} {}", parts.join(", "));
            reply = reply.header("www-authenticate", challenge.trim_end());
        }
        reply
    }

    /// Checks that a request proves the possession of the key that its token is bound to.
    fn check_key(
        &self,
        request: &Received,
        (scheme, token): (&str, &str),
        bound_to: Option<&str>,
        refuses_nonces: bool,
    ) -> Result<(), &'static str> {
        let options = lock(&self.options).clone();
        let is_signed = scheme == "DPoP" && options.dpop != DpopRule::Off;
        if is_signed != bound_to.is_some() || !is_signed && options.dpop == DpopRule::Required {
            return Err("invalid_token");
        }
        if !is_signed {
            return Ok(());
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let url = format!("{}{path}", self.origin);
        let signed = SignedRequest {
            method: &request.http_method,
            url: &url,
            headers: &request.headers,
            token: Some(token),
        };
        let proven = self.proofs.verify(signed, options.nonces, refuses_nonces);
        match proven {
            Ok(thumbprint) if Some(&*thumbprint) == bound_to => Ok(()),
            Ok(_) => Err("invalid_token"),
            Err(ProofProblem::Nonce) => Err("use_dpop_nonce"),
            Err(ProofProblem::Invalid(_)) => Err("invalid_dpop_proof"),
        }
    }

    /// The refusal of a request to the MCP endpoint.
    fn check(&self, request: &Received, message: &Value) -> Option<WireReply> {
        let options = lock(&self.options).clone();
        if options.open_methods.contains(&request.method) {
            return None;
        }
        let hint = options
            .challenge_scopes
            .then_some(options.scopes.as_slice());
        let header = request.header("authorization");
        let Some((scheme, token)) = header.and_then(|header| header.split_once(' ')) else {
            return Some(self.refuse(401, None, hint));
        };
        let auth = self.auth();
        let faults = auth.faults().take_for(Endpoint::Mcp, &Form::default());
        if let Some(reply) = faults.replacement(&request.path) {
            return Some(reply);
        }
        let granted = auth.ledger().check_access(token);
        let granted = granted.and_then(|info| {
            let refused = faults.has(&AuthFault::RefuseTokens);
            let audience = match &info.resource {
                Some(resource) => *resource == self.resource(),
                None => options.any_audience,
            };
            (audience && !refused)
                .then_some(info)
                .ok_or(TokenProblem::Unknown)
        });
        let Ok(granted) = granted else {
            return Some(self.refuse(401, Some("invalid_token"), hint));
        };
        let refuses = faults.has(&AuthFault::RefuseNonces);
        let key = granted.jkt.as_deref();
        if let Err(error) = self.check_key(request, (scheme, token), key, refuses) {
            return Some(self.refuse(401, Some(error), hint));
        }
        let needed = needed_scopes(&options, message);
        if needed.iter().any(|scope| !granted.scopes.contains(scope)) {
            return Some(self.refuse(403, Some("insufficient_scope"), Some(&needed)));
        }
        lock(&self.counters).accepted += 1;
        None
    }
}

/// The scopes that a request needs.
fn needed_scopes(options: &ProtectedOptions, message: &Value) -> Vec<String> {
    let mut needed = options.scopes.clone();
    if message["method"] == "tools/call" {
        let tools = options.tool_scopes.iter();
        let of_tool = tools.filter(|(tool, _)| message["params"]["name"] == tool.as_str());
        needed.extend(of_tool.flat_map(|(_, scopes)| scopes.clone()));
    }
    needed
}

impl RequestGuard for ResourceGuard {
    fn intercept(&self, request: &Received, message: &Value) -> Option<WireReply> {
        let path = request.path.split('?').next().unwrap_or_default();
        if request.http_method == "GET" && self.metadata_paths().contains(&path) {
            return Some(self.metadata(request, path));
        }
        if path.starts_with("/.well-known/") || path == HIDDEN {
            return Some(WireReply::text(404, "Not Found"));
        }
        self.check(request, message)
    }

    fn response_headers(&self) -> Vec<(&'static str, String)> {
        let rule = lock(&self.options).nonces;
        let nonce = self.proofs.next_nonce(rule);
        nonce.into_iter().map(|it| ("dpop-nonce", it)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
