//! `/control/…`: what the handle can do, for tests in other processes.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{AuthMethod, Client};
use super::device;
use super::endpoint::Endpoint;
use super::fault_queue::arm;
use super::form::Form;
use super::ledger::TokenInfo;
use super::options::AuthorizeMode;
use super::record::AuthRequest;
use super::service::Shared;
use crate::http_server::WireReply;

/// Performs a command. Every reply is JSON.
pub(super) fn answer(shared: &Shared, command: &str, form: &Form) -> WireReply {
    match perform(shared, command, form) {
        Ok(result) => WireReply::json(200, &result),
        Err(problem) => WireReply::json(400, &json!({ "error": problem })),
    }
}

fn perform(shared: &Shared, command: &str, form: &Form) -> Result<Value, String> {
    match command {
        "state" => Ok(state(shared)),
        "requests" => {
            let record = shared.record();
            Ok(record.requests.iter().map(request).collect())
        }
        "tokens" => {
            let tokens = shared.ledger().current();
            let listed = |tokens: &[_]| tokens.iter().map(token).collect::<Value>();
            Ok(json!({ "access": listed(&tokens.access), "refresh": listed(&tokens.refresh) }))
        }
        "mcp" => mcp(shared, form),
        "fault" => {
            let fault = text(form, "fault")?;
            let [on, grant, times] = ["on", "grant", "times"].map(|name| form.get(name));
            arm(shared, fault, on, grant, times)?;
            Ok(json!({}))
        }
        "disarm" => {
            shared.faults().disarm();
            Ok(json!({}))
        }
        "lifetime" | "grace" | "account" | "mode" | "tool-scopes" => {
            set_option(shared, command, form)?;
            Ok(json!({}))
        }
        _ => change_ledger(shared, command, form),
    }
}

/// Changes an option of one of the servers.
fn set_option(shared: &Shared, command: &str, form: &Form) -> Result<(), String> {
    match command {
        "lifetime" => shared.options_mut().access_lifetime = millis(form, "ms")?,
        "grace" => shared.options_mut().reuse_grace = millis(form, "ms")?,
        "account" => text(form, "name")?.clone_into(&mut shared.options_mut().account),
        "mode" => {
            shared.options_mut().mode = match text(form, "mode")? {
                "page" => AuthorizeMode::Page,
                "redirect" => AuthorizeMode::Redirect,
                other => return Err(format!("no mode {other}")),
            }
        }
        _ => {
            let (tool, scopes) = (text(form, "tool")?, form.words("scopes"));
            let protected = shared.protected().clone();
            let guard = protected.and_then(|(_, guard)| guard.upgrade());
            let guard = guard.ok_or("there is no protected server")?;
            guard.require_for_tool(tool, scopes);
        }
    }
    Ok(())
}

/// Changes clients, tokens or devices.
fn change_ledger(shared: &Shared, command: &str, form: &Form) -> Result<Value, String> {
    Ok(match command {
        "expire-access-tokens" => json!({ "expired": shared.ledger().expire_access() }),
        "revoke-refresh-token" => {
            json!({ "revoked": shared.ledger().revoke_refresh(text(form, "token")?) })
        }
        "issue-tokens" => {
            let (client, scopes) = (text(form, "client_id")?, form.words("scope"));
            let (access, refresh) = shared.issue_tokens(client, scopes, form.get("resource"));
            json!({ "access_token": access, "refresh_token": refresh })
        }
        "approve-device" | "deny-device" => {
            let approved = command == "approve-device";
            json!({ "known": device::set_decision(shared, text(form, "user_code")?, approved) })
        }
        "add-client" => {
            let method = form.get("method").unwrap_or("none");
            let method = AuthMethod::named(method).ok_or(format!("no method {method}"))?;
            let redirect_uri = form.get("redirect_uri").unwrap_or_default();
            let mut client = Client::public(text(form, "id")?, redirect_uri);
            client.method = method;
            client.secret = form.get("secret").map(str::to_owned);
            shared.ledger().add_client(client);
            json!({})
        }
        "prune-clients" => json!({ "pruned": shared.ledger().prune_clients() }),
        other => return Err(format!("no command {other}")),
    })
}

fn text<'a>(form: &'a Form, name: &str) -> Result<&'a str, String> {
    form.get(name).ok_or_else(|| format!("{name} is missing"))
}

fn millis(form: &Form, name: &str) -> Result<Duration, String> {
    let number = text(form, name)?.parse().map(Duration::from_millis);
    number.map_err(|_| format!("{name} is no number"))
}

/// The counters of the authorization server.
fn state(shared: &Shared) -> Value {
    let (counters, codes) = {
        let ledger = shared.ledger();
        let devices = ledger.devices.iter();
        let codes: Vec<String> = devices.map(|device| device.user_code.clone()).collect();
        (ledger.counters, codes)
    };
    let injected = shared.faults().taken();
    let record = shared.record();
    let mut endpoints = json!({});
    for request in &record.requests {
        let name = request.endpoint.name();
        endpoints[name] = json!(endpoints[name].as_u64().unwrap_or(0) + 1);
    }
    let refreshes = record.requests.iter().filter(|it| {
        it.endpoint == Endpoint::Token && it.form.get("grant_type") == Some("refresh_token")
    });
    json!({
        "requests": endpoints,
        "refreshes": refreshes.count(),
        "most_token_requests": record.most_token_requests,
        "injected": injected,
        "access_issued": counters.access_issued,
        "refresh_issued": counters.refresh_issued,
        "rotated": counters.rotated,
        "reused": counters.reused,
        "reused_in_grace": counters.reused_in_grace,
        "revoked": counters.revoked,
        "families_revoked": counters.families_revoked,
        "clients_registered": counters.clients_registered,
        "user_codes": codes,
    })
}

/// The counters of the protected server; with `key` those of a side effect too.
fn mcp(shared: &Shared, form: &Form) -> Result<Value, String> {
    let protected = shared.protected().clone();
    let (http, guard) = protected.ok_or("there is no protected server")?;
    let (Some(http), Some(guard)) = (http.upgrade(), guard.upgrade()) else {
        return Err("the protected server is gone".to_owned());
    };
    let counters = guard.counters();
    Ok(json!({
        "runs": form.get("key").map(|key| http.runs(key)),
        "all_runs": http.all_runs(),
        "ran_twice": http.ran_twice(),
        "sessions_opened": http.sessions_opened(),
        "accepted": counters.accepted,
        "unauthorized": counters.unauthorized,
        "forbidden": counters.forbidden,
    }))
}

fn request(request: &AuthRequest) -> Value {
    json!({
        "endpoint": request.endpoint.name(),
        "method": request.http_method,
        "path": request.path,
        "form": request.form.0,
        "body": request.body,
        "client_id": request.client_auth.id(),
        "at_ms": request.at_ms,
        "status": request.status,
    })
}

fn token((token, info): &(String, TokenInfo)) -> Value {
    json!({
        "token": token,
        "client_id": info.client_id,
        "account": info.account,
        "scopes": info.scopes,
        "resource": info.resource,
        "family": info.family,
    })
}
