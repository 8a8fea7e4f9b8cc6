//! `/authorize`: checks a request, asks the user, and redirects to the callback.

use super::client::is_loopback;
use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::fault_queue::Faults;
use super::form::{Form, with_query};
use super::ledger::{Code, TokenInfo, fresh};
use super::metadata::OTHER_ISSUER;
use super::options::AuthorizeMode;
use super::page;
use super::service::{Reply, Shared};
use crate::http_server::{Body, WireReply};

/// A valid request.
#[derive(Debug)]
pub(super) struct Authorization {
    client_id: String,
    redirect_uri: String,
    state: String,
    challenge: String,
    scopes: Vec<String>,
    resource: Option<String>,
    jkt: Option<String>,
}

/// A request that waits for the login page, and the faults that apply to its callback.
#[derive(Debug)]
pub(super) struct OpenPage {
    authorization: Authorization,
    faults: Faults,
}

pub(super) fn answer(shared: &Shared, form: &Form, faults: &Faults) -> Reply {
    let authorization = check(shared, form)?;
    match shared.options().mode {
        AuthorizeMode::Redirect => Ok(finish(shared, authorization, faults, true)),
        AuthorizeMode::Page => {
            let id = fresh("page");
            let account = shared.options().account;
            let question = format!("{} asks for access as {account}", authorization.client_id);
            let action = shared.url(Endpoint::Decision);
            let shown = page::question(&question, &action, ("request", &id));
            let faults = faults.clone();
            let open = OpenPage {
                authorization,
                faults,
            };
            shared.ledger().pages.insert(id, open);
            Ok(shown)
        }
    }
}

/// The answer of the login page.
pub(super) fn decide(shared: &Shared, form: &Form) -> Reply {
    let page = form.get("request").unwrap_or_default();
    let open = shared.ledger().pages.remove(page);
    let open = open.ok_or_else(|| WireReply::text(400, "no such request"))?;
    let approved = form.get("decision") == Some("approve");
    let mut reply = finish(shared, open.authorization, &open.faults, approved);
    // The browser must not repeat the POST at the callback.
    reply.status = 303;
    Ok(reply)
}

fn check(shared: &Shared, form: &Form) -> Result<Authorization, WireReply> {
    let refused = |text: &str| WireReply::text(400, text);
    let client_id = form.get("client_id").unwrap_or_default();
    let client = shared.client(client_id);
    let client = client.ok_or_else(|| refused("invalid_client: unknown client"))?;
    let uri = form.get("redirect_uri").unwrap_or_default();
    let any_port = shared.options().any_loopback_port;
    let by_document = client_id.starts_with("https://") && is_loopback(uri);
    if !by_document && !client.may_redirect_to(uri, any_port) {
        return Err(refused(
            "invalid_request: the redirect_uri is not registered",
        ));
    }
    let state = form.get("state").unwrap_or_default();
    let back = |code: &str, text: &str| {
        let issuer = shared.issuer();
        let parameters = [
            ("error", code),
            ("error_description", text),
            ("state", state),
            ("iss", &issuer),
        ];
        WireReply::redirect(302, &with_query(uri, &parameters))
    };
    if form.get("response_type") != Some("code") {
        return Err(back("unsupported_response_type", "only code is supported"));
    }
    if state.is_empty() {
        return Err(back("invalid_request", "state is missing"));
    }
    if form.get("code_challenge_method") != Some("S256") || form.get("code_challenge").is_none() {
        return Err(back("invalid_request", "PKCE with S256 is required"));
    }
    let scopes = requested_scopes(shared, form).map_err(|text| back("invalid_scope", &text))?;
    let resource = shared.resource(form);
    let resource = resource.map_err(|refusal| back("invalid_target", &refusal.text_body()))?;
    Ok(Authorization {
        client_id: client_id.to_owned(),
        redirect_uri: uri.to_owned(),
        state: state.to_owned(),
        challenge: form.get("code_challenge").unwrap_or_default().to_owned(),
        scopes,
        resource,
        jkt: form.get("dpop_jkt").map(str::to_owned),
    })
}

/// The scopes of a request, or the defaults.
pub(super) fn requested_scopes(shared: &Shared, form: &Form) -> Result<Vec<String>, String> {
    let options = shared.options();
    let scopes = form.words("scope");
    if scopes.is_empty() {
        return Ok(options.default_scopes);
    }
    match scopes.iter().find(|scope| !options.scopes.contains(scope)) {
        Some(unknown) => Err(format!("no scope {unknown}")),
        None => Ok(scopes),
    }
}

/// Redirects to the callback, with a code if the user approved.
fn finish(shared: &Shared, asked: Authorization, faults: &Faults, approved: bool) -> WireReply {
    let options = shared.options();
    let mix_up = faults.find(|fault| match fault {
        AuthFault::MixUp { issuer, code } => Some((issuer.clone(), code.clone())),
        _ => None,
    });
    let state = match faults.has(&AuthFault::WrongState) {
        true => fresh("state"),
        false => asked.state.clone(),
    };
    let other = faults.has(&AuthFault::WrongIss) || faults.has(&AuthFault::UnexpectedIss);
    let (issuer, foreign_code) = match mix_up {
        Some((issuer, code)) => (issuer, Some(code)),
        None if other => (OTHER_ISSUER.to_owned(), None),
        None => (shared.issuer(), None),
    };
    let uri = asked.redirect_uri.clone();
    let denied = !approved || faults.has(&AuthFault::AccessDenied);
    let code = match foreign_code {
        Some(code) => code,
        None if denied => String::new(),
        None => issue_code(shared, asked, &options.account),
    };
    let mut parameters = match denied {
        true => vec![
            ("error", "access_denied"),
            ("error_description", "the user refused"),
        ],
        false => vec![("code", code.as_str())],
    };
    parameters.push(("state", &state));
    let send_iss = options.send_iss || other;
    if send_iss && !faults.has(&AuthFault::NoIss) {
        parameters.push(("iss", &issuer));
    }
    let mut reply = WireReply::redirect(302, &with_query(&uri, &parameters));
    reply.body = Body::Whole(Vec::new());
    reply
}

fn issue_code(shared: &Shared, asked: Authorization, account: &str) -> String {
    let code = fresh("code");
    let mut ledger = shared.ledger();
    let info = TokenInfo {
        client_id: asked.client_id,
        account: account.to_owned(),
        scopes: asked.scopes,
        resource: asked.resource,
        family: ledger.new_family(),
        jkt: None,
    };
    let issued = Code {
        info,
        redirect_uri: asked.redirect_uri,
        challenge: asked.challenge,
        jkt: asked.jkt,
        used: false,
    };
    ledger.codes.insert(code.clone(), issued);
    code
}
