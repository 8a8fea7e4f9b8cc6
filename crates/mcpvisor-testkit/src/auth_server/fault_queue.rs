//! The armed faults: which of them apply to a request, and what they do to its reply.

use std::mem::discriminant;
use std::sync::Mutex;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::form::Form;
use super::service::{Shared, error};
use crate::armed_faults::{ArmedFaults, FaultBuilder};
use crate::http_server::{Body, WireReply};

/// The armed faults, in order.
pub(super) type FaultQueue = ArmedFaults<EndpointFault>;

/// A fault, and which requests it affects.
#[derive(Debug, Clone)]
pub struct EndpointFault {
    fault: AuthFault,
    on: Vec<Endpoint>,
    /// Only token requests of this grant type.
    grant: Option<String>,
}

impl EndpointFault {
    fn new(fault: AuthFault) -> Self {
        Self {
            on: fault.default_endpoints().to_vec(),
            grant: None,
            fault,
        }
    }

    fn affects(&self, endpoint: Endpoint, form: &Form) -> bool {
        let grant = self.grant.as_deref();
        let token = match &self.fault {
            AuthFault::InvalidGrantFor(token) => Some(token.as_str()),
            _ => None,
        };
        self.on.contains(&endpoint)
            && grant.is_none_or(|grant| form.get("grant_type") == Some(grant))
            && token.is_none_or(|token| form.get("refresh_token") == Some(token))
    }
}

impl FaultQueue {
    /// Takes the faults for a request. Faults of different kinds combine; of the same kind the
    /// first one applies. One that replaces the reply applies alone.
    pub(super) fn take_for(&mut self, endpoint: Endpoint, form: &Form) -> Faults {
        let mut taken: Vec<AuthFault> = Vec::new();
        self.take(|armed| {
            let fault = &armed.fault;
            let same = |other: &AuthFault| discriminant(other) == discriminant(fault);
            let alone = taken.iter().any(AuthFault::replaces_reply)
                || fault.replaces_reply() && !taken.is_empty();
            let takes = armed.affects(endpoint, form) && !alone && !taken.iter().any(same);
            if takes {
                taken.push(fault.clone());
            }
            takes
        });
        Faults(taken)
    }
}

/// The faults of one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(Vec<AuthFault>);

impl Faults {
    pub(super) fn has(&self, fault: &AuthFault) -> bool {
        self.0.contains(fault)
    }

    /// The value that a fault of some kind carries.
    pub(super) fn find<'a, T>(&'a self, pick: impl Fn(&'a AuthFault) -> Option<T>) -> Option<T> {
        self.0.iter().find_map(pick)
    }

    /// The pause before the request is processed.
    pub(super) fn delay(&self) -> Duration {
        let delay = self.find(|fault| match fault {
            AuthFault::Delay(delay) => Some(*delay),
            _ => None,
        });
        delay.unwrap_or_default()
    }

    /// The reply instead of processing the request. `here` is the path of the request.
    pub(super) fn replacement(&self, here: &str) -> Option<WireReply> {
        self.find(|fault| {
            Some(match fault {
                AuthFault::DropBefore => WireReply::closed(),
                AuthFault::Status(status) => WireReply::text(*status, "a fault of the test"),
                AuthFault::TooManyRequests(seconds) => busy(429, *seconds),
                AuthFault::Unavailable(seconds) => busy(503, *seconds),
                AuthFault::Redirect(url) => WireReply::redirect(307, url),
                AuthFault::RedirectLoop => {
                    let separator = if here.contains('?') { '&' } else { '?' };
                    WireReply::redirect(307, &format!("{here}{separator}again"))
                }
                AuthFault::Endless => endless(Body::Endless),
                AuthFault::Drip(interval) => endless(Body::Drip(*interval)),
                AuthFault::InvalidGrant(status) => {
                    error(*status, "invalid_grant", "a fault of the test")
                }
                AuthFault::InvalidGrantFor(_) => error(400, "invalid_grant", "a fault of the test"),
                AuthFault::InvalidClient => error(401, "invalid_client", "a fault of the test"),
                _ => return None,
            })
        })
    }

    /// Changes the reply of a request that was processed.
    pub(super) fn change(&self, mut reply: WireReply) -> WireReply {
        for fault in &self.0 {
            match fault {
                AuthFault::DelayAnswer(delay) => reply.delay = *delay,
                AuthFault::DropAfter => reply.body = Body::Closed,
                AuthFault::Created => reply.status = 201,
                AuthFault::Garbage => {
                    if let Body::Whole(bytes) = &mut reply.body {
                        bytes.truncate(bytes.len() / 2);
                    }
                }
                _ => {}
            }
        }
        reply
    }
}

fn busy(status: u16, seconds: u64) -> WireReply {
    WireReply::text(status, "later").header("retry-after", &seconds.to_string())
}

fn endless(body: Body) -> WireReply {
    let mut reply = WireReply::new(200, "application/json", "");
    reply.body = body;
    reply
}

/// Arms a fault that is given as text.
pub(super) fn arm(
    shared: &Shared,
    fault: &str,
    on: Option<&str>,
    grant: Option<&str>,
    times: Option<&str>,
) -> Result<(), String> {
    let mut armed = EndpointFault::new(fault.parse()?);
    let mut left = None;
    if let Some(on) = on {
        armed.on = vec![on.parse()?];
    }
    if let Some(times) = times {
        let times = times
            .parse()
            .map_err(|_| format!("not a number: {times:?}"))?;
        left = Some(times);
    }
    armed.grant = grant.map(str::to_owned);
    shared.faults().arm(armed, left);
    Ok(())
}

/// A fault that is not armed yet.
pub type AuthFaultBuilder<'a> = FaultBuilder<'a, EndpointFault>;

impl<'a> AuthFaultBuilder<'a> {
    pub(super) fn new(faults: &'a Mutex<FaultQueue>, fault: AuthFault) -> Self {
        let fault = EndpointFault::new(fault);
        Self { faults, fault }
    }

    /// Affects this endpoint, instead of the one that the fault belongs to.
    pub fn on(mut self, endpoint: Endpoint) -> Self {
        self.fault.on = vec![endpoint];
        self
    }

    /// Affects only token requests of this grant type.
    pub fn grant(mut self, grant_type: &str) -> Self {
        self.fault.grant = Some(grant_type.to_owned());
        self
    }
}
