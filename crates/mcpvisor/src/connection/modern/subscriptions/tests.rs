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

fn subscribed(now: Instant) -> Subscriptions {
    let mut subscriptions = Subscriptions::new(&capabilities(), BTreeSet::new(), now);
    assert_eq!(subscriptions.due(), Some(now));
    subscriptions.next_request(now, CallId(1));
    let accepted = SubscriptionFilter::builder().tools_list_changed().build();
    subscriptions.on_acknowledged(now, Some(&request_id(CallId(1))), &accepted);
    subscriptions
}

#[test]
fn a_server_that_announces_no_changes_gets_no_listen_request() {
    let none = ServerCapabilities::default();
    let subscriptions =
        Subscriptions::new(&none, BTreeSet::from(["x://y".to_owned()]), Instant::now());
    assert_eq!(subscriptions.due(), None);
}

#[test]
fn a_new_subscription_replaces_the_request_without_a_gap() {
    let now = Instant::now();
    let mut subscriptions = subscribed(now);
    assert_eq!(
        subscriptions.subscribe(now, "x://y"),
        SubscribeOutcome::Pending
    );
    assert_eq!(subscriptions.due(), Some(now + MIN_INTERVAL));
    let (ClientRequest::SubscriptionsListenRequest(request), None) =
        subscriptions.next_request(now + MIN_INTERVAL, CallId(2))
    else {
        panic!("not a subscriptions request");
    };
    let requested = &request.params.notifications;
    assert_eq!(
        requested.resource_subscriptions,
        Some(vec!["x://y".to_owned()])
    );
    assert!(
        subscriptions.find_request(&request_id(CallId(1))).is_some(),
        "it is still in flight"
    );
    assert_eq!(
        subscriptions.on_acknowledged(now, Some(&request_id(CallId(1))), requested),
        None
    );
    let acknowledged = subscriptions
        .on_acknowledged(now, Some(&request_id(CallId(2))), requested)
        .unwrap();
    assert_eq!(acknowledged.replaced, Some(CallId(1)));
    assert_eq!(acknowledged.missed, []);
    assert!(subscriptions.is_accepted("x://y"));
    assert_eq!(
        subscriptions.subscribe(now, "x://y"),
        SubscribeOutcome::Active
    );
}

/// Each unacknowledged request is a stream.
#[test]
fn an_unacknowledged_request_is_not_replaced_before_its_timeout() {
    let now = Instant::now();
    let mut subscriptions = subscribed(now);
    subscriptions.subscribe(now, "x://1");
    subscriptions.next_request(now + MIN_INTERVAL, CallId(2));
    assert_eq!(
        subscriptions.subscribe(now + MIN_INTERVAL, "x://2"),
        SubscribeOutcome::Pending
    );
    let slow = now + MIN_INTERVAL * 20;
    assert!(
        subscriptions.due().is_none_or(|due| due > slow),
        "it waits for the acknowledgement"
    );
    let accepted = SubscriptionFilter::builder().tools_list_changed().build();
    let id = request_id(CallId(2));
    subscriptions
        .on_acknowledged(slow, Some(&id), &accepted)
        .unwrap();
    assert_eq!(subscriptions.due(), Some(slow), "the next one is due");
}

#[test]
fn a_request_without_acknowledgement_is_cancelled_by_the_next_one() {
    let now = Instant::now();
    let mut subscriptions = subscribed(now);
    subscriptions.subscribe(now, "x://1");
    assert_eq!(
        subscriptions.next_request(now + MIN_INTERVAL, CallId(2)).1,
        None
    );
    subscriptions.subscribe(now + MIN_INTERVAL, "x://2");
    let due = now + MIN_INTERVAL + ACKNOWLEDGE_TIMEOUT;
    assert_eq!(subscriptions.due(), Some(due));
    assert_eq!(
        subscriptions.next_request(due, CallId(3)).1,
        Some(CallId(2))
    );
    assert_eq!(
        subscriptions.find_request(&request_id(CallId(1))),
        Some(CallId(1))
    );
    assert_eq!(subscriptions.find_request(&request_id(CallId(2))), None);
    assert_eq!(
        acknowledge(&mut subscriptions, due).replaced,
        Some(CallId(1))
    );
}

#[test]
fn the_listen_request_is_cancelled_with_the_last_subscription() {
    let now = Instant::now();
    let mut capabilities = capabilities();
    capabilities.tools = None;
    let mut subscriptions = Subscriptions::new(&capabilities, BTreeSet::new(), now);
    subscriptions.subscribe(now, "x://1");
    subscriptions.next_request(now, CallId(1));
    subscriptions.subscribe(now, "x://2");
    assert_eq!(subscriptions.unsubscribe(now, "x://1"), []);
    assert_eq!(subscriptions.unsubscribe(now, "x://2"), [CallId(1)]);
    assert_eq!(subscriptions.due(), None);
    assert_eq!(subscriptions.unsubscribe(now, "x://2"), []);
}

#[test]
fn rejected_subscriptions_are_named() {
    let now = Instant::now();
    let mut subscriptions = subscribed(now);
    subscriptions.subscribe(now, "x://y");
    subscriptions.next_request(now, CallId(2));
    let acknowledged = subscriptions
        .on_acknowledged(now, None, &SubscriptionFilter::default())
        .unwrap();
    assert_eq!(acknowledged.rejected, ["tools", "x://y"]);
    assert!(!subscriptions.is_accepted("x://y"));
}

#[test]
fn a_request_that_keeps_ending_backs_off_and_reports_missed_changes() {
    let mut now = Instant::now();
    let mut subscriptions = subscribed(now);
    let mut delays = Vec::new();
    for id in 1..12 {
        subscriptions.on_ended(now, CallId(id), false);
        let due = subscriptions.due().unwrap();
        delays.push((due - now).as_millis());
        now = due;
        subscriptions.next_request(now, CallId(id + 1));
    }
    assert_eq!(
        delays,
        [
            100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000
        ]
    );
    let accepted = SubscriptionFilter::builder().tools_list_changed().build();
    let acknowledged = subscriptions.on_acknowledged(now, None, &accepted).unwrap();
    assert_eq!(acknowledged.missed, ListKind::ALL);
    subscriptions.on_ended(now, CallId(12), true);
    assert_eq!(subscriptions.due(), None, "the method is unsupported");
    assert_eq!(
        subscriptions.subscribe(now, "x://y"),
        SubscribeOutcome::Unsupported
    );
}

/// Ends the current request and returns the delay until the next one.
fn delay_after_end(subscriptions: &mut Subscriptions, now: Instant) -> Duration {
    let id = subscriptions.current.as_ref().unwrap().id;
    subscriptions.on_ended(now, id, false);
    subscriptions.due().unwrap() - now
}

fn acknowledge(subscriptions: &mut Subscriptions, now: Instant) -> Acknowledgement {
    let accepted = SubscriptionFilter::builder().tools_list_changed().build();
    subscriptions.on_acknowledged(now, None, &accepted).unwrap()
}

#[test]
fn an_acknowledgement_alone_does_not_reset_the_backoff() {
    let mut now = Instant::now();
    let mut subscriptions = subscribed(now);
    let mut delays = Vec::new();
    for id in 2..8 {
        let delay = delay_after_end(&mut subscriptions, now);
        delays.push(delay.as_millis());
        now += delay;
        subscriptions.next_request(now, CallId(id));
        let acknowledged = acknowledge(&mut subscriptions, now);
        assert_eq!(acknowledged.missed, ListKind::ALL, "nothing is lost");
        now += STABLE_AFTER / 2;
    }
    assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200]);
    now += STABLE_AFTER / 2;
    assert_eq!(
        delay_after_end(&mut subscriptions, now),
        MIN_INTERVAL,
        "it was stable"
    );
}

#[test]
fn a_new_subscription_does_not_shorten_the_backoff() {
    let mut now = Instant::now();
    let mut subscriptions = subscribed(now);
    for id in 2..8 {
        now += delay_after_end(&mut subscriptions, now);
        let due = subscriptions.due();
        assert_eq!(
            subscriptions.subscribe(now - MIN_INTERVAL, "x://y"),
            SubscribeOutcome::Pending
        );
        assert_eq!(subscriptions.due(), due, "the next request covers it");
        subscriptions.next_request(now, CallId(id));
        acknowledge(&mut subscriptions, now);
        // This schedules a replacement of the live request, which then ends first.
        subscriptions.subscribe(now, &format!("x://{id}"));
        assert_eq!(subscriptions.due(), Some(now + MIN_INTERVAL));
    }
    assert_eq!(delay_after_end(&mut subscriptions, now), MIN_INTERVAL * 64);
}

#[test]
fn a_stable_request_resets_the_backoff_when_it_is_replaced() {
    let mut now = Instant::now();
    let mut subscriptions = subscribed(now);
    for id in 2..5 {
        now += delay_after_end(&mut subscriptions, now);
        subscriptions.next_request(now, CallId(id));
        acknowledge(&mut subscriptions, now);
    }
    now += STABLE_AFTER;
    subscriptions.subscribe(now, "x://y");
    subscriptions.next_request(now, CallId(9));
    assert_eq!(delay_after_end(&mut subscriptions, now), MIN_INTERVAL);
}
