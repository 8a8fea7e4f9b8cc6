//! The subscriptions of a modern session, and when to send the next listen request.
//!
//! One long request, `subscriptions/listen`, covers all lists that the server announces changes of
//! and all resources that callers subscribed to. It is sent again, at a limited rate, when it ends
//! or when the set changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{
    ClientRequest, NotificationMetaObject, RequestId, ServerCapabilities, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};

use crate::link::request_id;

/// The least time between two listen requests.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How long a changed set waits for the acknowledgement of the current request.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest delay after requests that end too soon.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A request that was acknowledged for this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The subscriptions of one session.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The lists that the server announces changes of.
    lists: SubscriptionFilter,
    /// Whether the server supports resource subscriptions.
    offers_resources: bool,
    /// The subscribed resources.
    uris: BTreeSet<String>,
    /// The newest request.
    current: Option<ListenRequest>,
    /// The last acknowledged request, if a newer one was sent: its notifications count until the
    /// newer one is acknowledged.
    replaced: Option<CallId>,
    /// When to send the next request.
    due_at: Option<Instant>,
    last_sent_at: Option<Instant>,
    /// Requests in a row that ended before they were stable.
    failures: u32,
    /// The server does not know the method.
    unsupported: bool,
    /// Notifications may have been missed, since no request was in flight for a while.
    gap: bool,
}

#[derive(Debug)]
struct ListenRequest {
    id: CallId,
    requested: SubscriptionFilter,
    accepted: Option<SubscriptionFilter>,
    acknowledged_at: Option<Instant>,
}

/// The outcome of a subscribe call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubscribeOutcome {
    /// The server has acknowledged it.
    Active,
    /// It waits for the server's acknowledgement.
    Pending,
    /// The server does not support resource subscriptions.
    Unsupported,
}

impl Subscriptions {
    /// Subscribes to all announced lists, and to the resources of the last connection.
    pub(super) fn new(
        capabilities: &ServerCapabilities,
        uris: BTreeSet<String>,
        now: Instant,
    ) -> Self {
        let all = SubscriptionFilter::builder()
            .tools_list_changed()
            .prompts_list_changed()
            .resources_list_changed()
            .build();
        let resources = capabilities.resources.as_ref();
        let mut subscriptions = Self {
            lists: all.supported_by(capabilities),
            offers_resources: resources.is_some_and(|it| it.subscribe == Some(true)),
            uris,
            ..Self::default()
        };
        if subscriptions.is_needed() {
            subscriptions.due_at = Some(now);
        }
        subscriptions
    }

    /// Whether there is anything to listen for.
    fn is_needed(&self) -> bool {
        self.lists != SubscriptionFilter::default()
            || self.offers_resources && !self.uris.is_empty()
    }

    /// When to send the next listen request.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due_at
    }

    /// Builds the next listen request. Also returns an older one to cancel.
    pub(super) fn next_request(
        &mut self,
        now: Instant,
        id: CallId,
    ) -> (ClientRequest, Option<CallId>) {
        let mut requested = self.lists.clone();
        if self.offers_resources && !self.uris.is_empty() {
            requested.resource_subscriptions = Some(self.uris.iter().cloned().collect());
        }
        self.due_at = None;
        self.last_sent_at = Some(now);
        let mut replaced = None;
        if let Some(old) = self.current.take() {
            self.reset_failures_if_stable(now, &old);
            match old.acknowledged_at {
                Some(_) => replaced = self.replaced.replace(old.id),
                None => replaced = Some(old.id),
            }
        }
        self.current = Some(ListenRequest {
            id,
            requested: requested.clone(),
            accepted: None,
            acknowledged_at: None,
        });
        let params = SubscriptionsListenRequestParams::new(requested);
        let request = SubscriptionsListenRequest::new(params);
        (ClientRequest::SubscriptionsListenRequest(request), replaced)
    }

    /// The subscribed resources.
    pub(super) fn uris(&self) -> &BTreeSet<String> {
        &self.uris
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.uris.contains(uri)
    }

    /// Adds a resource.
    pub(super) fn subscribe(&mut self, now: Instant, uri: &str) -> SubscribeOutcome {
        if !self.offers_resources || self.unsupported {
            return SubscribeOutcome::Unsupported;
        }
        self.uris.insert(uri.to_owned());
        if self.is_accepted(uri) {
            return SubscribeOutcome::Active;
        }
        let current = self.current.as_ref();
        if !current.is_some_and(|it| contains(&it.requested, uri)) {
            self.schedule_request(now);
        }
        SubscribeOutcome::Pending
    }

    /// Removes a resource. Returns the requests to cancel if no subscription is left.
    pub(super) fn unsubscribe(&mut self, now: Instant, uri: &str) -> Vec<CallId> {
        if !self.uris.remove(uri) {
            return Vec::new();
        }
        if self.is_needed() {
            self.schedule_request(now);
            return Vec::new();
        }
        self.due_at = None;
        let current = self.current.take().map(|it| it.id);
        current.into_iter().chain(self.replaced.take()).collect()
    }

    /// Removes a resource that the server rejected, without a new request.
    pub(super) fn remove_uri(&mut self, uri: &str) {
        self.uris.remove(uri);
    }

    fn reset_failures_if_stable(&mut self, now: Instant, request: &ListenRequest) {
        let lasted = |at| now.saturating_duration_since(at) >= STABLE_AFTER;
        if request.acknowledged_at.is_some_and(lasted) {
            self.failures = 0;
        }
    }

    /// Schedules a request for a changed set.
    fn schedule_request(&mut self, now: Instant) {
        // A request that backs off after a failure will cover the change too.
        let backs_off = self.current.is_none() && self.failures > 0 && self.due_at.is_some();
        if self.unsupported || backs_off {
            return;
        }
        // Over HTTP each request is a stream, so keep at most two: an acknowledged one, and one
        // that the server has not acknowledged yet.
        let interval = match &self.current {
            Some(current) if current.acknowledged_at.is_none() => ACKNOWLEDGE_TIMEOUT,
            Some(_) | None => MIN_INTERVAL,
        };
        let earliest = self
            .last_sent_at
            .map_or(now, |last| now.max(last + interval));
        self.due_at = Some(self.due_at.map_or(earliest, |at| at.min(earliest)));
    }

    /// The listen request with this id, if it is in flight.
    pub(crate) fn find_request(&self, id: &RequestId) -> Option<CallId> {
        let current = self.current.as_ref().map(|it| it.id);
        let mut ids = current.into_iter().chain(self.replaced);
        ids.find(|known| request_id(*known) == *id)
    }

    /// Whether a notification belongs to a listen request in flight. One without a subscription id
    /// does: over HTTP it arrives on the stream of its request.
    pub(crate) fn accepts_notification(&self, meta: Option<&NotificationMetaObject>) -> bool {
        let id = meta.and_then(NotificationMetaObject::subscription_id);
        id.is_none_or(|id| self.find_request(&id).is_some())
    }

    /// Handles an acknowledgement. `None` if it is not for the newest request.
    pub(super) fn on_acknowledged(
        &mut self,
        now: Instant,
        id: Option<&RequestId>,
        accepted: &SubscriptionFilter,
    ) -> Option<Acknowledgement> {
        let current = self.current.as_mut()?;
        if id.is_some_and(|id| *id != request_id(current.id)) {
            return None;
        }
        let accepted = current.requested.intersection(accepted);
        let rejected = rejected(&current.requested, &accepted);
        current.accepted = Some(accepted);
        current.acknowledged_at.get_or_insert(now);
        if self.due_at.is_some() {
            // Changes in the meantime waited for this acknowledgement.
            self.schedule_request(now);
        }
        Some(Acknowledgement {
            replaced: self.replaced.take(),
            rejected,
            missed: if std::mem::take(&mut self.gap) {
                ListKind::ALL.to_vec()
            } else {
                Vec::new()
            },
        })
    }

    /// Whether the server acknowledged this resource.
    pub(super) fn is_accepted(&self, uri: &str) -> bool {
        let accepted = self.current.as_ref().and_then(|it| it.accepted.as_ref());
        accepted.is_some_and(|accepted| contains(accepted, uri))
    }

    /// A listen request ended. `unsupported`: the server does not know the method.
    pub(super) fn on_ended(&mut self, now: Instant, id: CallId, unsupported: bool) {
        if self.replaced == Some(id) {
            self.replaced = None;
            return;
        }
        let Some(current) = self.current.take_if(|current| current.id == id) else {
            return;
        };
        if unsupported {
            self.unsupported = true;
            self.due_at = None;
            return;
        }
        self.gap = true;
        self.reset_failures_if_stable(now, &current);
        if self.is_needed() {
            let delay = MIN_INTERVAL
                .saturating_mul(1 << self.failures.min(16))
                .min(MAX_BACKOFF);
            self.failures += 1;
            self.due_at = Some(now + delay);
        }
    }
}

/// What follows from an acknowledgement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// The older request, to be cancelled.
    pub(super) replaced: Option<CallId>,
    /// The requested subscriptions that the server did not accept.
    pub(super) rejected: Vec<String>,
    /// Lists that may have changed while no request was in flight.
    pub(super) missed: Vec<ListKind>,
}

fn contains(filter: &SubscriptionFilter, uri: &str) -> bool {
    let uris = filter.resource_subscriptions.as_ref();
    uris.is_some_and(|uris| uris.iter().any(|it| it == uri))
}

/// The names of the requested lists and resources that were not accepted.
fn rejected(requested: &SubscriptionFilter, accepted: &SubscriptionFilter) -> Vec<String> {
    let lists = list_flags(requested).into_iter().zip(list_flags(accepted));
    let lists = lists.filter(|((_, requested), (_, accepted))| *requested && !accepted);
    let uris = requested.resource_subscriptions.iter().flatten();
    let uris = uris.filter(|uri| !contains(accepted, uri)).cloned();
    let lists = lists.map(|((name, _), _)| name.to_owned());
    lists.chain(uris).collect()
}

fn list_flags(filter: &SubscriptionFilter) -> [(&'static str, bool); 3] {
    [
        ("tools", filter.tools_list_changed.is_some()),
        ("prompts", filter.prompts_list_changed.is_some()),
        ("resources", filter.resources_list_changed.is_some()),
    ]
}

#[cfg(test)]
mod tests;
