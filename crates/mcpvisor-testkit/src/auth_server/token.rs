//! `/token` and `/revoke`: which grant is asked, and the reply with the tokens.

use std::time::Duration;

use serde_json::json;

use super::client_auth::ClientAuth;
use super::device;
use super::fault::AuthFault;
use super::fault_queue::Faults;
use super::form::Form;
use super::grants::{self, RefreshToken};
use super::ledger::{Ledger, TokenInfo};
use super::options::{AuthOptions, RefreshPolicy};
use super::service::{Reply, Shared, error};
use crate::http_server::WireReply;

pub(super) const AUTHORIZATION_CODE: &str = "authorization_code";
pub(super) const REFRESH_TOKEN: &str = "refresh_token";
pub(super) const CLIENT_CREDENTIALS: &str = "client_credentials";
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
pub(super) const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

pub(super) fn answer(
    shared: &Shared,
    form: &Form,
    client_auth: &ClientAuth,
    faults: &Faults,
) -> Reply {
    let client = client_auth.check(shared, form)?;
    match form.get("grant_type").unwrap_or_default() {
        AUTHORIZATION_CODE => grants::code(shared, &client, form, faults),
        REFRESH_TOKEN => grants::refresh(shared, &client, form, faults),
        CLIENT_CREDENTIALS => grants::client_credentials(shared, &client, form, faults),
        DEVICE_CODE => device::poll(shared, &client, form, faults),
        JWT_BEARER => grants::jwt_bearer(shared, &client, form, faults),
        TOKEN_EXCHANGE => grants::token_exchange(shared, &client, form, faults),
        _ => Err(error(400, "unsupported_grant_type", "unknown grant type")),
    }
}

/// Issues tokens and writes the reply.
pub(super) fn issue(
    options: &AuthOptions,
    ledger: &mut Ledger,
    faults: &Faults,
    mut info: TokenInfo,
    refresh: RefreshToken<'_>,
) -> WireReply {
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
    let kind = match faults.has(&AuthFault::MacToken) {
        true => "mac",
        false => "Bearer",
    };
    let mut reply = json!({
        "access_token": ledger.issue_access(&info, lifetime),
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
