//! The grants of the token endpoint, except the device flow.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::authorize::requested_scopes;
use super::client::{AuthMethod, Client};
use super::jwt;
use super::ledger::{TokenInfo, fresh};
use super::service::{Reply, Shared, error};
use super::token::{TokenRequest, issue, success};
use crate::http_server::WireReply;

/// The token type of an ID-JAG (enterprise-managed authorization).
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// The token type of an access token.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Lifetime of an ID-JAG, in seconds.
const ID_JAG_LIFETIME: u64 = 300;

/// What happens to refresh tokens when an access token is issued.
#[derive(Debug, Clone, Copy)]
pub(super) enum RefreshToken<'a> {
    /// One is issued, if the options say so.
    New,
    /// A new one replaces this one, if the options say so.
    Replaces(&'a str),
    /// None is issued.
    None,
}

fn invalid_grant(text: &str) -> WireReply {
    error(400, "invalid_grant", text)
}

/// Redeems a code. A second use revokes the tokens of the first.
pub(super) fn code(shared: &Shared, client: &Client, request: &TokenRequest<'_>) -> Reply {
    let form = request.form;
    let resource = shared.resource(form)?;
    let options = shared.options();
    let mut ledger = shared.ledger();
    let value = form.get("code").unwrap_or_default();
    let code = ledger.codes.get(value).cloned();
    let code = code.ok_or_else(|| invalid_grant("unknown code"))?;
    if code.used {
        ledger.revoke_family(code.info.family);
        return Err(invalid_grant("the code was used before"));
    }
    if let Some(stored) = ledger.codes.get_mut(value) {
        stored.used = true;
    }
    if code.info.client_id != client.id {
        return Err(invalid_grant("the code of another client"));
    }
    if form.get("redirect_uri") != Some(&code.redirect_uri) {
        return Err(invalid_grant("another redirect_uri"));
    }
    let verifier = form.get("code_verifier").unwrap_or_default();
    if URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) != code.challenge {
        return Err(invalid_grant("the code_verifier does not match"));
    }
    if code.jkt.is_some() && code.jkt != request.jkt {
        return Err(invalid_grant("the code is bound to another key"));
    }
    if resource.is_some() && resource != code.info.resource {
        return Err(error(400, "invalid_target", "another resource"));
    }
    let new = RefreshToken::New;
    Ok(issue(&options, &mut ledger, request, code.info, new))
}

pub(super) fn refresh(shared: &Shared, client: &Client, request: &TokenRequest<'_>) -> Reply {
    let form = request.form;
    let resource = shared.resource(form)?;
    let options = shared.options();
    // One lock for check and replacement: of two requests with one token, the second is reuse.
    let mut ledger = shared.ledger();
    let token = form.get("refresh_token").unwrap_or_default();
    let used = ledger.use_refresh(token, options.reuse_grace);
    let mut info = used.map_err(invalid_grant)?;
    if info.client_id != client.id {
        return Err(invalid_grant("the refresh token of another client"));
    }
    if info.jkt.is_some() && info.jkt != request.jkt {
        return Err(invalid_grant("the refresh token is bound to another key"));
    }
    if resource.is_some() && resource != info.resource {
        return Err(error(400, "invalid_target", "another resource"));
    }
    let scopes = form.words("scope");
    if scopes.iter().any(|scope| !info.scopes.contains(scope)) {
        return Err(error(400, "invalid_scope", "more than was granted"));
    }
    if !scopes.is_empty() {
        info.scopes = scopes;
    }
    let replaces = RefreshToken::Replaces(token);
    Ok(issue(&options, &mut ledger, request, info, replaces))
}

pub(super) fn client_credentials(
    shared: &Shared,
    client: &Client,
    request: &TokenRequest<'_>,
) -> Reply {
    if client.method == AuthMethod::None {
        return Err(error(400, "unauthorized_client", "a public client"));
    }
    without_refresh(shared, client, request, client.id.clone())
}

/// Exchanges an assertion of another issuer, such as an ID-JAG or a workload's token.
pub(super) fn jwt_bearer(shared: &Shared, client: &Client, request: &TokenRequest<'_>) -> Reply {
    let form = request.form;
    let assertion = form.get("assertion").unwrap_or_default();
    let claims = jwt::claims(assertion).ok_or_else(|| invalid_grant("no JWT"))?;
    if !jwt::is_for(&claims, &shared.audiences()) {
        return Err(invalid_grant("the assertion is for another audience"));
    }
    if !jwt::is_fresh(&claims) {
        return Err(invalid_grant("the assertion has expired"));
    }
    let account = claims["sub"].as_str().unwrap_or_default().to_owned();
    without_refresh(shared, client, request, account)
}

/// Exchanges a token: for an ID-JAG, or for an access token of this server.
pub(super) fn token_exchange(
    shared: &Shared,
    client: &Client,
    request: &TokenRequest<'_>,
) -> Reply {
    let form = request.form;
    let subject = form.get("subject_token");
    let subject = subject.ok_or_else(|| error(400, "invalid_request", "no subject_token"))?;
    let claims = jwt::claims(subject).unwrap_or_default();
    if !claims.is_null() && !jwt::is_fresh(&claims) {
        return Err(invalid_grant("the subject_token has expired"));
    }
    let account = claims["sub"].as_str().unwrap_or("subject").to_owned();
    if form.get("requested_token_type") != Some(ID_JAG) {
        let reply = without_refresh(shared, client, request, account)?;
        return Ok(reply.with_json_field("issued_token_type", json!(ACCESS_TOKEN)));
    }
    let audience = form.get("audience");
    let audience = audience.ok_or_else(|| error(400, "invalid_request", "no audience"))?;
    let claims = json!({
        "iss": shared.issuer(),
        "sub": account,
        "aud": audience,
        "resource": form.get("resource"),
        "client_id": client.id,
        "scope": form.get("scope"),
        "iat": jwt::now(),
        "exp": jwt::now() + ID_JAG_LIFETIME,
        "jti": fresh("jti"),
    });
    Ok(success(&json!({
        "access_token": jwt::unsigned("oauth-id-jag+jwt", &claims),
        "issued_token_type": ID_JAG,
        "token_type": "N_A",
        "expires_in": ID_JAG_LIFETIME,
    })))
}

fn without_refresh(
    shared: &Shared,
    client: &Client,
    request: &TokenRequest<'_>,
    account: String,
) -> Reply {
    let form = request.form;
    let scopes = requested_scopes(shared, form);
    let scopes = scopes.map_err(|text| error(400, "invalid_scope", &text))?;
    let resource = shared.resource(form)?;
    let options = shared.options();
    let mut ledger = shared.ledger();
    let info = TokenInfo {
        client_id: client.id.clone(),
        account,
        scopes,
        resource,
        family: ledger.new_family(),
        jkt: None,
    };
    Ok(issue(
        &options,
        &mut ledger,
        request,
        info,
        RefreshToken::None,
    ))
}
