//! The device flow (RFC 8628).

use std::time::{Duration, Instant};

use serde_json::json;

use super::authorize::requested_scopes;
use super::client::Client;
use super::client_auth::ClientAuth;
use super::endpoint::Endpoint;
use super::form::{Form, with_query};
use super::grants::RefreshToken;
use super::ledger::{TokenInfo, fresh};
use super::page;
use super::service::{Reply, Shared, error};
use super::token::{TokenRequest, issue};
use crate::http_server::WireReply;

/// Lifetime of a device code, in seconds.
const LIFETIME: u64 = 600;
/// What `slow_down` adds to the interval.
const SLOW_DOWN: Duration = Duration::from_secs(5);

/// A device that waits for its user.
#[derive(Debug)]
pub(super) struct Device {
    code: String,
    pub(super) user_code: String,
    info: TokenInfo,
    decision: Decision,
    interval: Duration,
    polled: Option<Instant>,
    started: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Pending,
    Approved,
    Denied,
}

pub(super) fn start(shared: &Shared, form: &Form, client_auth: &ClientAuth) -> Reply {
    let client = client_auth.check(shared, form)?;
    let scopes = requested_scopes(shared, form);
    let scopes = scopes.map_err(|text| error(400, "invalid_scope", &text))?;
    let resource = shared.resource(form)?;
    let options = shared.options();
    let code = fresh("device");
    let mut ledger = shared.ledger();
    let family = ledger.new_family();
    let user_code = format!("TEST-{family:04}");
    ledger.devices.push(Device {
        code: code.clone(),
        user_code: user_code.clone(),
        info: TokenInfo {
            client_id: client.id,
            account: options.account,
            scopes,
            resource,
            family,
            jkt: None,
        },
        decision: Decision::Pending,
        interval: Duration::from_secs(options.device_interval),
        polled: None,
        started: Instant::now(),
    });
    drop(ledger);
    let page = shared.url(Endpoint::DevicePage);
    Ok(WireReply::json(
        200,
        &json!({
            "device_code": code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": with_query(&page, &[("user_code", &user_code)]),
            "expires_in": LIFETIME,
            "interval": options.device_interval,
        }),
    ))
}

/// The token request of a device.
pub(super) fn poll(shared: &Shared, client: &Client, request: &TokenRequest<'_>) -> Reply {
    let refused = |code: &str| Err(error(400, code, "the device flow"));
    let options = shared.options();
    let mut ledger = shared.ledger();
    let code = request.form.get("device_code").unwrap_or_default();
    let of_client = |device: &Device| device.code == code && device.info.client_id == client.id;
    let Some(number) = ledger.devices.iter().position(of_client) else {
        return refused("invalid_grant");
    };
    let device = &mut ledger.devices[number];
    if device.started.elapsed() > Duration::from_secs(LIFETIME) {
        return refused("expired_token");
    }
    let polled = device.polled.replace(Instant::now());
    if polled.is_some_and(|polled| polled.elapsed() < device.interval) {
        device.interval += SLOW_DOWN;
        return refused("slow_down");
    }
    match device.decision {
        Decision::Pending => refused("authorization_pending"),
        Decision::Denied => refused("access_denied"),
        Decision::Approved => {
            let info = ledger.devices.remove(number).info;
            let new = RefreshToken::New;
            Ok(issue(&options, &mut ledger, request, info, new))
        }
    }
}

/// The user's decision. Returns whether the code is known.
pub(super) fn set_decision(shared: &Shared, user_code: &str, approved: bool) -> bool {
    let mut ledger = shared.ledger();
    let mut devices = ledger.devices.iter_mut();
    let Some(device) = devices.find(|device| device.user_code == user_code) else {
        return false;
    };
    device.decision = match approved {
        true => Decision::Approved,
        false => Decision::Denied,
    };
    true
}

/// The page where the user enters or confirms a code.
pub(super) fn page(shared: &Shared, form: &Form) -> WireReply {
    let action = shared.url(Endpoint::DevicePage);
    match form.get("user_code") {
        Some(code) => page::question(
            &format!("Connect the device {code}?"),
            &action,
            ("user_code", code),
        ),
        None => page::code_entry(&action),
    }
}

/// The answer of that page.
pub(super) fn decide(shared: &Shared, form: &Form) -> Reply {
    let code = form.get("user_code").unwrap_or_default();
    let approved = form.get("decision") == Some("approve");
    match set_decision(shared, code, approved) {
        true => Ok(page::message("Return to the device.")),
        false => Err(WireReply::text(400, "no such code")),
    }
}
