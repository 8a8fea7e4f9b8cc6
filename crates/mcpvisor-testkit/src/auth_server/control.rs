//! `/control/…`: what the handle can do, for tests in other processes.

use std::time::Duration;

use serde_json::{Value, json};

use super::device;
use super::endpoint::Endpoint;
use super::fault_queue::arm;
use super::form::Form;
use super::ledger::TokenInfo;
use super::options::AuthorizeMode;
use super::record::AuthRequest;
use super::service::Shared;
use crate::http_server::WireReply;

/// Performs a command. Every reply is a JSON object.
pub(super) fn answer(shared: &Shared, command: &str, form: &Form) -> WireReply {
    match perform(shared, command, form) {
        Ok(result) => WireReply::json(200, &result),
        Err(problem) => WireReply::json(400, &json!({ "error": problem })),
    }
}

fn perform(shared: &Shared, command: &str, form: &Form) -> Result<Value, String> {
    let text = |name: &str| form.get(name).ok_or_else(|| format!("{name} is missing"));
    let millis = |name: &str| -> Result<Duration, String> {
        let number = text(name)?.parse();
        number
            .map(Duration::from_millis)
            .map_err(|_| format!("{name} is no number"))
    };
    Ok(match command {
        "state" => state(shared),
        "requests" => json!(
            shared
                .record()
                .requests
                .iter()
                .map(request)
                .collect::<Vec<_>>()
        ),
        "tokens" => {
            let tokens = shared.ledger().current();
            json!({ "access": tokens.access.iter().map(token).collect::<Vec<_>>(), "refresh": tokens.refresh.iter().map(token).collect::<Vec<_>>() })
        }
        "fault" => {
            arm(
                shared,
                text("fault")?,
                form.get("on"),
                form.get("grant"),
                form.get("times"),
            )?;
            json!({})
        }
        "disarm" => {
            shared.faults().disarm();
            json!({})
        }
        "expire-access-tokens" => json!({ "expired": shared.ledger().expire_access() }),
        "revoke-refresh-token" => {
            json!({ "revoked": shared.ledger().revoke_refresh(text("token")?) })
        }
        "approve-device" => {
            json!({ "known": device::set_decision(shared, text("user_code")?, true) })
        }
        "deny-device" => {
            json!({ "known": device::set_decision(shared, text("user_code")?, false) })
        }
        "prune-clients" => json!({ "pruned": shared.ledger().prune_clients() }),
        "lifetime" => {
            shared.options_mut().access_lifetime = millis("ms")?;
            json!({})
        }
        "grace" => {
            shared.options_mut().reuse_grace = millis("ms")?;
            json!({})
        }
        "account" => {
            shared.options_mut().account = text("name")?.to_owned();
            json!({})
        }
        "mode" => {
            shared.options_mut().mode = match text("mode")? {
                "page" => AuthorizeMode::Page,
                _ => AuthorizeMode::Redirect,
            };
            json!({})
        }
        "tool-scopes" => {
            let (tool, scopes) = (text("tool")?.to_owned(), form.words("scopes"));
            let protected = shared.protected().clone();
            let guard = protected.and_then(|(_, guard)| guard.upgrade());
            let guard = guard.ok_or("there is no protected server")?;
            guard.configure(|options| options.tool_scopes.push((tool, scopes)));
            json!({})
        }
        "mcp" => mcp(shared, form)?,
        other => return Err(format!("no command {other}")),
    })
}

/// The counters of the authorization server.
fn state(shared: &Shared) -> Value {
    let (counters, codes) = {
        let ledger = shared.ledger();
        let devices = ledger.devices.iter();
        let codes: Vec<String> = devices.map(|device| device.user_code.clone()).collect();
        (ledger.counters, codes)
    };
    let injected = shared.faults().injected();
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
