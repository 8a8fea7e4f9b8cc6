//! `/token` and `/revoke`: which grant is asked, and the reply with the tokens.

use std::time::Duration;

use serde_json::json;

use super::client_auth::ClientAuth;
use super::device;
use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::fault_queue::Faults;
use super::form::Form;
use super::grants::{self, RefreshToken};
use super::ledger::{Ledger, TokenInfo};
use super::options::{AuthOptions, RefreshPolicy};
use super::proof::{ProofProblem, SignedRequest};
use super::service::{Reply, Shared, error};
use crate::http_server::{Request, WireReply};

pub(super) const AUTHORIZATION_CODE: &str = "authorization_code";
pub(super) const REFRESH_TOKEN: &str = "refresh_token";
pub(super) const CLIENT_CREDENTIALS: &str = "client_credentials";
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
pub(super) const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// A token request, and what it proved.
#[derive(Debug)]
pub(super) struct TokenRequest<'a> {
    pub(super) form: &'a Form,
    pub(super) faults: &'a Faults,
    /// The thumbprint of the key whose possession it proved.
    pub(super) jkt: Option<String>,
}

/// Answers a token request. The reply carries a nonce, if the options say so.
pub(super) fn answer(
    shared: &Shared,
    http: &Request,
    form: &Form,
    client_auth: &ClientAuth,
    faults: &Faults,
) -> Reply {
    let nonce = shared.proofs.next_nonce(shared.options().nonces);
    let with_nonce = |reply: WireReply| match &nonce {
        Some(nonce) => reply.header("dpop-nonce", nonce),
        None => reply,
    };
    let granted = prove(shared, http, faults).and_then(|jkt| {
        let request = TokenRequest { form, faults, jkt };
        grant(shared, &request, client_auth)
    });
    granted.map(with_nonce).map_err(with_nonce)
}

/// Verifies the proof of a token request, if it has one.
fn prove(shared: &Shared, http: &Request, faults: &Faults) -> Result<Option<String>, WireReply> {
    let options = shared.options();
    if !options.dpop || http.header("dpop").is_none() {
        return Ok(None);
    }
    let url = shared.url(Endpoint::Token);
    let signed = SignedRequest {
        method: &http.method,
        url: &url,
        headers: &http.headers,
        token: None,
    };
    let refuses = faults.has(&AuthFault::RefuseNonces);
    let proven = shared.proofs.verify(signed, options.nonces, refuses);
    proven.map(Some).map_err(|problem| match problem {
        ProofProblem::Invalid(problem) => error(400, "invalid_dpop_proof", &problem),
        ProofProblem::Nonce => error(400, "use_dpop_nonce", "a nonce is required"),
    })
}

fn grant(shared: &Shared, request: &TokenRequest<'_>, client_auth: &ClientAuth) -> Reply {
    let form = request.form;
    let client = client_auth.check(shared, form)?;
    match form.get("grant_type").unwrap_or_default() {
        AUTHORIZATION_CODE => grants::code(shared, &client, request),
        REFRESH_TOKEN => grants::refresh(shared, &client, request),
        CLIENT_CREDENTIALS => grants::client_credentials(shared, &client, request),
        DEVICE_CODE => device::poll(shared, &client, request),
        JWT_BEARER => grants::jwt_bearer(shared, &client, request),
        TOKEN_EXCHANGE => grants::token_exchange(shared, &client, request),
        _ => Err(error(400, "unsupported_grant_type", "unknown grant type")),
    }
}

/// Issues tokens and writes the reply.
pub(super) fn issue(
    options: &AuthOptions,
    ledger: &mut Ledger,
    request: &TokenRequest<'_>,
    mut info: TokenInfo,
    refresh: RefreshToken<'_>,
) -> WireReply {
    let faults = request.faults;
    info.jkt = request.jkt.clone();
    let reduced = faults.find(|fault| match fault {
        AuthFault::ReducedScope(scopes) => Some(scopes),
        _ => None,
    });
    if let Some(scopes) = reduced {
        info.scopes = scopes.split_whitespace().map(str::to_owned).collect();
    }
    let lifetime = match faults.has(&AuthFault::ExpiredAtOnce) {
        true => Duration::ZERO,
        false => options.access_lifetime,
    };
    let mut access = info.clone();
    access.jkt.take_if(|_| faults.has(&AuthFault::BearerToken));
    let kind = match &access.jkt {
        _ if faults.has(&AuthFault::MacToken) => "mac",
        Some(_) => "DPoP",
        None => "Bearer",
    };
    let mut reply = json!({
        "access_token": ledger.issue_access(&access, lifetime),
        "token_type": kind,
        "scope": info.scopes.join(" "),
    });
    let seconds = options.access_lifetime.as_secs_f64().ceil() as u64;
    if faults.has(&AuthFault::ExpiresInString) {
        reply["expires_in"] = json!(seconds.to_string());
    } else if faults.has(&AuthFault::ExpiresInFloat) {
        reply["expires_in"] = json!(seconds as f64 + 0.5);
    } else if !faults.has(&AuthFault::NoExpiresIn) {
        reply["expires_in"] = json!(seconds);
    }
    if faults.has(&AuthFault::NoRefreshToken) {
        return success(&reply);
    }
    let offline = info.scopes.iter().any(|scope| scope == "offline_access");
    let wanted = match options.refresh {
        RefreshPolicy::Always => true,
        RefreshPolicy::OfflineAccess => offline,
        RefreshPolicy::Never => false,
    };
    match refresh {
        RefreshToken::New if wanted => reply["refresh_token"] = json!(ledger.issue_refresh(&info)),
        RefreshToken::Replaces(old) if options.rotate => {
            ledger.replace_refresh(old);
            reply["refresh_token"] = json!(ledger.issue_refresh(&info));
        }
        RefreshToken::New | RefreshToken::Replaces(_) | RefreshToken::None => {}
    }
    success(&reply)
}

pub(super) fn success(body: &serde_json::Value) -> WireReply {
    WireReply::json(200, body).header("cache-control", "no-store")
}

/// Revokes a token. A refresh token takes its family along.
pub(super) fn revoke(shared: &Shared, form: &Form, client_auth: &ClientAuth) -> Reply {
    client_auth.check(shared, form)?;
    let token = form.get("token").unwrap_or_default();
    let mut ledger = shared.ledger();
    match ledger.family_of_refresh(token) {
        Some(family) => ledger.revoke_family(family),
        None => drop(ledger.revoke_access(token)),
    }
    Ok(WireReply::text(200, ""))
}
