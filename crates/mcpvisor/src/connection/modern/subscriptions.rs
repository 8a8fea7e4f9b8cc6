//! The one long request by which a modern server tells of changes.
//!
//! It asks for the lists that the server says may change, and for the resources that callers
//! subscribed to. When it ends, or when the set changes, it is issued anew, at a bounded pace.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{
    ClientRequest, NotificationMetaObject, RequestId, ServerCapabilities, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};

use crate::link::request_id;

/// The least time between two such requests.
const PACE: Duration = Duration::from_millis(100);

/// A request that is not acknowledged for so long is replaced, if another set is wanted.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// The longest time between two, where the server keeps ending them.
const SLOWEST: Duration = Duration::from_secs(30);

/// A request that was acknowledged for so long works: when it ends, the next follows soon.
const SETTLED: Duration = Duration::from_secs(10);

/// What is listened for, and how.
#[derive(Debug)]
pub(in crate::connection) struct Listen {
    /// The lists that the server says may change.
    lists: SubscriptionFilter,
    /// Whether it tells of resources at all.
    pub(in crate::connection) offers_resources: bool,
    uris: BTreeSet<String>,
    /// The request that counts now.
    current: Option<Issued>,
    /// The last one that was acknowledged, if it was replaced: it is heard until the new one is
    /// acknowledged too.
    replaced: Option<CallId>,
    issue_at: Option<Instant>,
    last: Option<Instant>,
    /// How often it ended in a row without being acknowledged for a while.
    failures: u32,
    /// The server knows no such request.
    absent: bool,
    /// Nobody listened for a while.
    gap: bool,
}

#[derive(Debug)]
struct Issued {
    id: CallId,
    asked: SubscriptionFilter,
    accepted: Option<SubscriptionFilter>,
    acknowledged_at: Option<Instant>,
}

impl Issued {
    /// Whether it has been listening for a while.
    fn is_settled(&self, now: Instant) -> bool {
        self.acknowledged_at
            .is_some_and(|at| now.saturating_duration_since(at) >= SETTLED)
    }
}

/// What became of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Wish {
    /// It is listened for.
    Granted,
    /// It will be known when the server acknowledges.
    Pending,
    /// The server has nothing of the kind.
    Impossible,
}

impl Listen {
    /// Listens for what the server offers, and for what was subscribed to before.
    pub(in crate::connection) fn new(
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
        let mut listen = Self {
            lists: all.supported_by(capabilities),
            offers_resources: resources.is_some_and(|it| it.subscribe == Some(true)),
            uris,
            current: None,
            replaced: None,
            issue_at: None,
            last: None,
            failures: 0,
            absent: false,
            gap: false,
        };
        if listen.wants_anything() {
            listen.issue_at = Some(now);
        }
        listen
    }

    fn wants_anything(&self) -> bool {
        self.lists != SubscriptionFilter::default()
            || self.offers_resources && !self.uris.is_empty()
    }

    /// When the next request is due.
    pub(in crate::connection) fn due(&self) -> Option<Instant> {
        self.issue_at
    }

    /// The next request, which goes out under this id, and an older one that is over.
    pub(in crate::connection) fn issue(
        &mut self,
        now: Instant,
        id: CallId,
    ) -> (ClientRequest, Option<CallId>) {
        let mut asked = self.lists.clone();
        if self.offers_resources && !self.uris.is_empty() {
            asked.resource_subscriptions = Some(self.uris.iter().cloned().collect());
        }
        self.issue_at = None;
        self.last = Some(now);
        let mut over = None;
        if let Some(old) = self.current.take() {
            self.note(now, &old);
            match old.acknowledged_at {
                Some(_) => over = self.replaced.replace(old.id),
                None => over = Some(old.id),
            }
        }
        self.current = Some(Issued {
            id,
            asked: asked.clone(),
            accepted: None,
            acknowledged_at: None,
        });
        let params = SubscriptionsListenRequestParams::new(asked);
        let request = SubscriptionsListenRequest::new(params);
        (ClientRequest::SubscriptionsListenRequest(request), over)
    }

    /// A caller wants to hear of a resource.
    pub(in crate::connection) fn subscribe(&mut self, now: Instant, uri: &str) -> Wish {
        if !self.offers_resources || self.absent {
            return Wish::Impossible;
        }
        self.uris.insert(uri.to_owned());
        let accepted = self.current.as_ref().and_then(|it| it.accepted.as_ref());
        let accepted = accepted.and_then(|it| it.resource_subscriptions.as_ref());
        if accepted.is_some_and(|uris| uris.iter().any(|it| it == uri)) {
            return Wish::Granted;
        }
        let asked = self
            .current
            .as_ref()
            .and_then(|it| it.asked.resource_subscriptions.as_ref());
        if !asked.is_some_and(|uris| uris.iter().any(|it| it == uri)) {
            self.reissue(now);
        }
        Wish::Pending
    }

    /// A caller no longer wants to hear of a resource. Says which requests are over, because nothing
    /// is left to listen for.
    pub(in crate::connection) fn unsubscribe(&mut self, now: Instant, uri: &str) -> Vec<CallId> {
        if !self.uris.remove(uri) {
            return Vec::new();
        }
        if self.wants_anything() {
            self.reissue(now);
            return Vec::new();
        }
        self.issue_at = None;
        let current = self.current.take().map(|it| it.id);
        current.into_iter().chain(self.replaced.take()).collect()
    }

    /// A resource that the server does not tell of is not asked for again.
    pub(in crate::connection) fn forget(&mut self, uri: &str) {
        self.uris.remove(uri);
    }

    /// The failures before a request that has been listening for a while are forgotten.
    fn note(&mut self, now: Instant, issued: &Issued) {
        if issued.is_settled(now) {
            self.failures = 0;
        }
    }

    fn reissue(&mut self, now: Instant) {
        // After one that failed, the next comes in its time, and asks for everything.
        let backs_off = self.current.is_none() && self.failures > 0 && self.issue_at.is_some();
        if self.absent || backs_off {
            return;
        }
        // Each is a stream of its own, so there are two at most: one that is heard, and one that the
        // server has not acknowledged yet.
        let is_under_way = |it: &Issued| it.acknowledged_at.is_none();
        let pace = match &self.current {
            Some(current) if is_under_way(current) => UNACKNOWLEDGED,
            Some(_) | None => PACE,
        };
        let soonest = self.last.map_or(now, |last| now.max(last + pace));
        self.issue_at = Some(self.issue_at.map_or(soonest, |at| at.min(soonest)));
    }

    /// Whether this is a request that listens.
    pub(in crate::connection) fn is(&self, id: &RequestId) -> Option<CallId> {
        let current = self.current.as_ref().map(|it| it.id);
        let mut ids = current.into_iter().chain(self.replaced);
        ids.find(|known| request_id(*known) == *id)
    }

    /// Whether a notification belongs to something that is listened for. One without a name does:
    /// over HTTP it comes on the stream of its request.
    pub(in crate::connection) fn hears(&self, meta: Option<&NotificationMetaObject>) -> bool {
        let named = meta.and_then(NotificationMetaObject::subscription_id);
        named.is_none_or(|id| self.is(&id).is_some())
    }

    /// The server acknowledged the newest request. Says which older request is over, and which
    /// lists may have changed unheard.
    pub(in crate::connection) fn acknowledged(
        &mut self,
        now: Instant,
        named: Option<&RequestId>,
        accepted: &SubscriptionFilter,
    ) -> Option<Acknowledged> {
        let current = self.current.as_mut()?;
        if named.is_some_and(|id| *id != request_id(current.id)) {
            return None;
        }
        let accepted = current.asked.intersection(accepted);
        let missing = missing(&current.asked, &accepted);
        current.accepted = Some(accepted);
        current.acknowledged_at.get_or_insert(now);
        if self.issue_at.is_some() {
            // What came meanwhile waited for this.
            self.reissue(now);
        }
        Some(Acknowledged {
            over: self.replaced.take(),
            missing,
            unheard: if std::mem::take(&mut self.gap) {
                ListKind::ALL.to_vec()
            } else {
                Vec::new()
            },
        })
    }

    /// Whether the server acknowledged this resource.
    pub(in crate::connection) fn accepts(&self, uri: &str) -> bool {
        let accepted = self.current.as_ref().and_then(|it| it.accepted.as_ref());
        let uris = accepted.and_then(|it| it.resource_subscriptions.as_ref());
        uris.is_some_and(|uris| uris.iter().any(|it| it == uri))
    }

    /// A request that listens ended. `unknown`: the server has no such method.
    pub(in crate::connection) fn ended(&mut self, now: Instant, id: CallId, unknown: bool) {
        if self.replaced == Some(id) {
            self.replaced = None;
            return;
        }
        let Some(current) = self.current.take_if(|current| current.id == id) else {
            return;
        };
        if unknown {
            self.absent = true;
            self.issue_at = None;
            return;
        }
        self.gap = true;
        self.note(now, &current);
        if self.wants_anything() {
            let delay = PACE.saturating_mul(1 << self.failures.min(16)).min(SLOWEST);
            self.failures += 1;
            self.issue_at = Some(now + delay);
        }
    }
}

/// What an acknowledgement says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) struct Acknowledged {
    /// The older request, which is over.
    pub(in crate::connection) over: Option<CallId>,
    /// What was asked for and is not told.
    pub(in crate::connection) missing: Vec<String>,
    /// What may have changed while nobody listened.
    pub(in crate::connection) unheard: Vec<ListKind>,
}

fn missing(asked: &SubscriptionFilter, accepted: &SubscriptionFilter) -> Vec<String> {
    let lists = [
        (
            "tools",
            asked.tools_list_changed,
            accepted.tools_list_changed,
        ),
        (
            "prompts",
            asked.prompts_list_changed,
            accepted.prompts_list_changed,
        ),
        (
            "resources",
            asked.resources_list_changed,
            accepted.resources_list_changed,
        ),
    ];
    let lists = lists
        .into_iter()
        .filter(|(_, asked, told)| asked.is_some() && told.is_none());
    let told = accepted
        .resource_subscriptions
        .as_deref()
        .unwrap_or_default();
    let asked = asked.resource_subscriptions.as_deref().unwrap_or_default();
    let uris = asked.iter().filter(|uri| !told.contains(uri)).cloned();
    lists
        .map(|(name, ..)| name.to_owned())
        .chain(uris)
        .collect()
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ResourcesCapability, ToolsCapability};

    use super::*;

    fn capabilities() -> ServerCapabilities {
        let mut capabilities = ServerCapabilities::default();
        let mut tools = ToolsCapability::default();
        tools.list_changed = Some(true);
        capabilities.tools = Some(tools);
        let mut resources = ResourcesCapability::default();
        resources.subscribe = Some(true);
        capabilities.resources = Some(resources);
        capabilities
    }

    fn listening(now: Instant) -> Listen {
        let mut listen = Listen::new(&capabilities(), BTreeSet::new(), now);
        assert_eq!(listen.due(), Some(now));
        listen.issue(now, CallId(1));
        let accepted = SubscriptionFilter::builder().tools_list_changed().build();
        listen.acknowledged(now, Some(&request_id(CallId(1))), &accepted);
        listen
    }

    #[test]
    fn a_server_whose_lists_never_change_is_not_listened_to() {
        let none = ServerCapabilities::default();
        let listen = Listen::new(&none, BTreeSet::from(["x://y".to_owned()]), Instant::now());
        assert_eq!(listen.due(), None);
    }

    #[test]
    fn a_new_subscription_replaces_the_request_without_a_gap() {
        let now = Instant::now();
        let mut listen = listening(now);
        assert_eq!(listen.subscribe(now, "x://y"), Wish::Pending);
        assert_eq!(listen.due(), Some(now + PACE));
        let (ClientRequest::SubscriptionsListenRequest(request), None) =
            listen.issue(now + PACE, CallId(2))
        else {
            panic!("another request");
        };
        let asked = &request.params.notifications;
        assert_eq!(asked.resource_subscriptions, Some(vec!["x://y".to_owned()]));
        assert!(
            listen.is(&request_id(CallId(1))).is_some(),
            "it still counts"
        );
        assert_eq!(
            listen.acknowledged(now, Some(&request_id(CallId(1))), asked),
            None
        );
        let acknowledged = listen
            .acknowledged(now, Some(&request_id(CallId(2))), asked)
            .unwrap();
        assert_eq!(acknowledged.over, Some(CallId(1)));
        assert_eq!(acknowledged.unheard, []);
        assert!(listen.accepts("x://y"));
        assert_eq!(listen.subscribe(now, "x://y"), Wish::Granted);
    }

    /// Each that is under way is a stream of its own.
    #[test]
    fn a_request_that_is_not_acknowledged_yet_is_not_replaced_by_the_next_one() {
        let now = Instant::now();
        let mut listen = listening(now);
        listen.subscribe(now, "x://1");
        listen.issue(now + PACE, CallId(2));
        assert_eq!(listen.subscribe(now + PACE, "x://2"), Wish::Pending);
        let slow = now + PACE * 20;
        assert!(listen.due().is_none_or(|due| due > slow), "it is under way");
        let accepted = SubscriptionFilter::builder().tools_list_changed().build();
        let named = request_id(CallId(2));
        listen.acknowledged(slow, Some(&named), &accepted).unwrap();
        assert_eq!(listen.due(), Some(slow), "and now it is time for the next");
    }

    #[test]
    fn a_request_that_nobody_acknowledges_is_over_when_the_next_is_issued() {
        let now = Instant::now();
        let mut listen = listening(now);
        listen.subscribe(now, "x://1");
        assert_eq!(listen.issue(now + PACE, CallId(2)).1, None);
        listen.subscribe(now + PACE, "x://2");
        let due = now + PACE + UNACKNOWLEDGED;
        assert_eq!(listen.due(), Some(due));
        assert_eq!(listen.issue(due, CallId(3)).1, Some(CallId(2)));
        assert_eq!(listen.is(&request_id(CallId(1))), Some(CallId(1)));
        assert_eq!(listen.is(&request_id(CallId(2))), None);
        assert_eq!(acknowledge(&mut listen, due).over, Some(CallId(1)));
    }

    #[test]
    fn nothing_is_listened_for_once_the_last_resource_is_unsubscribed() {
        let now = Instant::now();
        let mut capabilities = capabilities();
        capabilities.tools = None;
        let mut listen = Listen::new(&capabilities, BTreeSet::new(), now);
        listen.subscribe(now, "x://1");
        listen.issue(now, CallId(1));
        listen.subscribe(now, "x://2");
        assert_eq!(listen.unsubscribe(now, "x://1"), []);
        assert_eq!(listen.unsubscribe(now, "x://2"), [CallId(1)]);
        assert_eq!(listen.due(), None);
        assert_eq!(listen.unsubscribe(now, "x://2"), []);
    }

    #[test]
    fn what_the_server_does_not_acknowledge_is_named() {
        let now = Instant::now();
        let mut listen = listening(now);
        listen.subscribe(now, "x://y");
        listen.issue(now, CallId(2));
        let acknowledged = listen
            .acknowledged(now, None, &SubscriptionFilter::default())
            .unwrap();
        assert_eq!(acknowledged.missing, ["tools", "x://y"]);
        assert!(!listen.accepts("x://y"));
    }

    #[test]
    fn a_request_that_keeps_ending_is_issued_ever_more_slowly_and_tells_of_the_gap() {
        let mut now = Instant::now();
        let mut listen = listening(now);
        let mut waits = Vec::new();
        for id in 1..12 {
            listen.ended(now, CallId(id), false);
            let due = listen.due().unwrap();
            waits.push((due - now).as_millis());
            now = due;
            listen.issue(now, CallId(id + 1));
        }
        assert_eq!(
            waits,
            [
                100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000
            ]
        );
        let accepted = SubscriptionFilter::builder().tools_list_changed().build();
        let acknowledged = listen.acknowledged(now, None, &accepted).unwrap();
        assert_eq!(acknowledged.unheard, ListKind::ALL);
        listen.ended(now, CallId(12), true);
        assert_eq!(listen.due(), None, "the server has no such request");
        assert_eq!(listen.subscribe(now, "x://y"), Wish::Impossible);
    }

    /// Ends the current request, and says how long it takes until the next.
    fn next_after(listen: &mut Listen, now: Instant) -> Duration {
        let id = listen.current.as_ref().unwrap().id;
        listen.ended(now, id, false);
        listen.due().unwrap() - now
    }

    fn acknowledge(listen: &mut Listen, now: Instant) -> Acknowledged {
        let accepted = SubscriptionFilter::builder().tools_list_changed().build();
        listen.acknowledged(now, None, &accepted).unwrap()
    }

    #[test]
    fn an_acknowledgement_alone_does_not_make_the_next_come_sooner() {
        let mut now = Instant::now();
        let mut listen = listening(now);
        let mut waits = Vec::new();
        for id in 2..8 {
            let wait = next_after(&mut listen, now);
            waits.push(wait.as_millis());
            now += wait;
            listen.issue(now, CallId(id));
            let acknowledged = acknowledge(&mut listen, now);
            assert_eq!(acknowledged.unheard, ListKind::ALL, "nothing is lost");
            now += SETTLED / 2;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200]);
        now += SETTLED / 2;
        assert_eq!(next_after(&mut listen, now), PACE, "it listened for long");
    }

    #[test]
    fn a_subscription_waits_for_the_next_request_of_a_server_that_keeps_ending_them() {
        let mut now = Instant::now();
        let mut listen = listening(now);
        for id in 2..8 {
            now += next_after(&mut listen, now);
            let due = listen.due();
            assert_eq!(listen.subscribe(now - PACE, "x://y"), Wish::Pending);
            assert_eq!(listen.due(), due, "it is in the next one");
            listen.issue(now, CallId(id));
            acknowledge(&mut listen, now);
            // One that comes now would replace a request that lives, but that one ends.
            listen.subscribe(now, &format!("x://{id}"));
            assert_eq!(listen.due(), Some(now + PACE));
        }
        assert_eq!(next_after(&mut listen, now), PACE * 64);
    }

    #[test]
    fn one_that_listened_for_long_and_is_replaced_proves_the_server_too() {
        let mut now = Instant::now();
        let mut listen = listening(now);
        for id in 2..5 {
            now += next_after(&mut listen, now);
            listen.issue(now, CallId(id));
            acknowledge(&mut listen, now);
        }
        now += SETTLED;
        listen.subscribe(now, "x://y");
        listen.issue(now, CallId(9));
        assert_eq!(next_after(&mut listen, now), PACE);
    }
}
