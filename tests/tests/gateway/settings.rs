//! Subscriptions and log levels, counted per client.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use mcpvisor::rmcp::model::LoggingLevel::{Debug, Error, Warning};
use mcpvisor::{Client, Runtime, ServerHandle};
use serde_json::{Value, json};

use crate::fleet::{DEADLINE, ready_after};
use crate::peer::{Answer, Peer, plain};
use crate::started;

const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";
const SET_LEVEL: &str = "logging/setLevel";

fn client(runtime: &Runtime, name: &str) -> (Client, ServerHandle) {
    let client = runtime.client(name).build();
    let handle = client.server("a").unwrap();
    (client, handle)
}

/// How often the server was asked for a change, once everything before has been sent.
async fn count(handle: &ServerHandle, peer: &Peer, method: &str) -> usize {
    handle.ping().deadline(DEADLINE).await.unwrap();
    peer.received(method).len()
}

#[tokio::test]
async fn the_server_sees_the_first_subscriber_and_the_last() {
    let peer = Peer::legacy(plain);
    let (runtime, own) = started(&peer).await;
    let (first, a) = client(&runtime, "first");
    let (second, b) = client(&runtime, "second");
    let (_third, c) = client(&runtime, "third");
    // At once: all but one wait for its answer.
    let all = [&a, &b, &c].map(|it| it.subscribe("a:x").deadline(DEADLINE));
    for subscribed in join_all(all).await {
        subscribed.unwrap();
    }
    a.subscribe("a:x").await.unwrap();
    c.subscribe("a:y").await.unwrap();
    let uris = peer.params(SUBSCRIBE).into_iter();
    let uris: Vec<Value> = uris.map(|it| it["uri"].clone()).collect();
    assert_eq!(uris, ["a:x", "a:y"]);
    // A client that has none changes nothing.
    own.unsubscribe("a:x").await.unwrap();
    first.close();
    drop((second, b));
    assert_eq!(count(&own, &peer, UNSUBSCRIBE).await, 0);
    c.unsubscribe("a:x").await.unwrap();
    assert_eq!(peer.expect(UNSUBSCRIBE, 1).await[0]["uri"], "a:x");
    drop((_third, c));
    assert_eq!(count(&own, &peer, UNSUBSCRIBE).await, 2);
    // From now on it is the first one again.
    own.subscribe("a:x").await.unwrap();
    peer.expect(SUBSCRIBE, 3).await;
}

#[tokio::test]
async fn a_refused_subscription_is_tried_for_the_next_client() {
    let refused = AtomicBool::new(false);
    let peer = Peer::legacy(move |_, method, _| match method {
        SUBSCRIBE if !refused.swap(true, Ordering::SeqCst) => {
            Answer::Error(json!({ "code": -32602, "message": "not yet" }))
        }
        _ => Answer::Default,
    });
    let (runtime, _own) = started(&peer).await;
    let (first, a) = client(&runtime, "first");
    let (_second, b) = client(&runtime, "second");
    let all = [&a, &b].map(|it| it.subscribe("a:x").deadline(DEADLINE));
    let answers = join_all(all).await;
    assert_eq!(answers.iter().filter(|it| it.is_err()).count(), 1);
    peer.expect(SUBSCRIBE, 2).await;
    // The one that was refused has no subscription to end.
    drop((first, a));
    assert_eq!(
        count(&b, &peer, UNSUBSCRIBE).await,
        usize::from(answers[1].is_err())
    );
}

#[tokio::test]
async fn a_subscription_that_its_caller_gives_up_is_taken_back() {
    let peer = Peer::legacy(|_, method, _| match method {
        SUBSCRIBE => Answer::Silence,
        _ => Answer::Default,
    });
    let (_runtime, own) = started(&peer).await;
    let subscribe = tokio::spawn(own.subscribe("a:x").into_future());
    peer.expect(SUBSCRIBE, 1).await;
    subscribe.abort();
    assert_eq!(peer.expect(UNSUBSCRIBE, 1).await[0]["uri"], "a:x");
    assert_eq!(own.status().in_flight, 0);
}

#[tokio::test]
async fn the_server_gets_the_most_verbose_level() {
    let peer = Peer::legacy(plain);
    let (runtime, own) = started(&peer).await;
    let (first, a) = client(&runtime, "first");
    let (_second, b) = client(&runtime, "second");
    a.set_log_level(Error).await.unwrap();
    b.set_log_level(Warning).await.unwrap();
    a.set_log_level(Debug).await.unwrap();
    b.set_log_level(Error).await.unwrap();
    own.set_log_level(Error).await.unwrap();
    let levels = || {
        let sent = peer.params(SET_LEVEL).into_iter();
        sent.map(|it| it["level"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(levels(), ["error", "warning", "debug"]);
    first.close();
    assert_eq!(count(&own, &peer, SET_LEVEL).await, 4);
    assert_eq!(levels()[3], "error");
}

#[tokio::test]
async fn a_level_that_the_server_refuses_does_not_count() {
    let peer = Peer::legacy(|_, method, params| match method {
        SET_LEVEL if params["level"] == "debug" => {
            Answer::Error(json!({ "code": -32602, "message": "too much" }))
        }
        _ => Answer::Default,
    });
    let (runtime, own) = started(&peer).await;
    let (_first, a) = client(&runtime, "first");
    a.set_log_level(Error).await.unwrap();
    own.set_log_level(Debug).await.unwrap_err();
    a.set_log_level(Warning).await.unwrap();
    let sent = peer.expect(SET_LEVEL, 3).await;
    assert_eq!(sent[2]["level"], "warning");
}

#[tokio::test]
async fn what_clients_want_survives_reconnects_and_crashes() {
    crate::fleet::without_reports_of_panics();
    let peer = Peer::legacy(plain);
    let (runtime, own) = started(&peer).await;
    let (first, a) = client(&runtime, "first");
    let (_second, b) = client(&runtime, "second");
    for handle in [&a, &b] {
        handle.subscribe("a:x").await.unwrap();
    }
    a.subscribe("a:y").await.unwrap();
    a.set_log_level(Debug).await.unwrap();
    b.set_log_level(Error).await.unwrap();
    peer.disconnect();
    ready_after(&own, 1).await;
    // One of each, the most verbose level among them.
    peer.expect(SUBSCRIBE, 4).await;
    assert_eq!(peer.expect(SET_LEVEL, 2).await[1]["level"], "debug");
    own.crash_actor();
    // While there is no actor, or while it restores the rest.
    first.close();
    ready_after(&own, 2).await;
    let wanted = |from: usize| {
        let uris = peer.params(SUBSCRIBE).split_off(from).into_iter();
        uris.map(|it| it["uri"].clone()).collect::<Vec<_>>()
    };
    mcpvisor_testkit::eventually(DEADLINE, "a:x again", || wanted(4).contains(&json!("a:x"))).await;
    peer.disconnect();
    ready_after(&own, 3).await;
    mcpvisor_testkit::eventually(DEADLINE, "the rest", || {
        wanted(4).iter().filter(|it| **it == json!("a:x")).count() == 2
    })
    .await;
    let levels = peer.params(SET_LEVEL);
    assert_eq!(levels.last().unwrap()["level"], "error");
    b.unsubscribe("a:x").await.unwrap();
    assert_eq!(peer.params(UNSUBSCRIBE).last().unwrap()["uri"], "a:x");
}

const LEVEL: &str = "io.modelcontextprotocol/logLevel";

#[tokio::test]
async fn in_2026_07_28_the_listen_request_and_the_requests_of_each_client_carry_it() {
    let peer = Peer::modern(plain);
    let (runtime, own) = started(&peer).await;
    let (first, a) = client(&runtime, "first");
    let (_second, b) = client(&runtime, "second");
    let all = [&a, &b].map(|it| it.subscribe("a:x").deadline(DEADLINE));
    for subscribed in join_all(all).await {
        subscribed.unwrap();
    }
    b.subscribe("a:y").deadline(DEADLINE).await.unwrap();
    let listened = || {
        let listen = peer.params("subscriptions/listen").pop().unwrap();
        listen["notifications"]["resourceSubscriptions"].clone()
    };
    assert_eq!(listened(), json!(["a:x", "a:y"]));
    a.unsubscribe("a:x").await.unwrap();
    a.subscribe("a:x").await.unwrap();
    let sent = peer.received("subscriptions/listen").len();
    b.unsubscribe("a:x").await.unwrap();
    own.unsubscribe("a:y").await.unwrap();
    assert_eq!(count(&own, &peer, "subscriptions/listen").await, sent);
    first.close();
    mcpvisor_testkit::eventually(DEADLINE, "a:x is gone", || listened() == json!(["a:y"])).await;

    b.set_log_level(Warning).await.unwrap();
    for handle in [&own, &b] {
        handle.call_tool("echo", Value::Null).await.unwrap();
    }
    let levels = peer.params("tools/call").into_iter();
    let levels: Vec<Value> = levels.map(|it| it["_meta"][LEVEL].clone()).collect();
    assert_eq!(levels, [Value::Null, json!("warning")]);
    peer.disconnect();
    ready_after(&own, 1).await;
    mcpvisor_testkit::eventually(DEADLINE, "a:y again", || listened() == json!(["a:y"])).await;
    b.call_tool("echo", Value::Null).await.unwrap();
    assert_eq!(peer.params("tools/call")[2]["_meta"][LEVEL], "warning");
}
