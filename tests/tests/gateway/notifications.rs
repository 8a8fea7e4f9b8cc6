//! What each client reads of the notifications of servers.

use std::sync::Arc;

use futures_util::StreamExt as _;
use mcpvisor::rmcp::model::LoggingLevel::{Debug, Error};
use mcpvisor::{
    Client, ConnectionScope, NOTIFICATION_BUFFER, Notification, NotificationKind, Notifications,
    Received, Runtime, Transport,
};
use mcpvisor_testkit::stub_server::{StubReply, StubServer, default_reply, event};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fleet::{DEADLINE, ready_after, secs, server, settings};
use crate::peer::{Answer, Peer, plain};
use crate::started;

/// The last notification that a server sends, so that a reader knows that it has all.
const LAST: &str = "com.example/last";

async fn next(reader: &mut Notifications) -> Option<Received> {
    timeout(DEADLINE, reader.recv()).await.unwrap()
}

/// What a notification says, in short.
fn said(notification: &Notification) -> String {
    assert_eq!(notification.server.as_str(), "a");
    match &notification.kind {
        NotificationKind::Log(log) => format!("log {}", log.data.as_str().unwrap()),
        NotificationKind::ResourceUpdated(updated) => format!("updated {}", updated.uri),
        NotificationKind::Progress(progress) => format!("progress {}", progress.progress),
        NotificationKind::Custom(custom) => custom.method.clone(),
        NotificationKind::ListChanged(list) => format!("list {list:?}"),
        other => panic!("{other:?}"),
    }
}

/// Everything up to the last notification.
async fn all(reader: &mut Notifications) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let Some(Received::Notification(notification)) = next(reader).await else {
            panic!("it ended or missed some after {all:?}");
        };
        match said(&notification) {
            text if text == LAST => return all,
            text => all.push(text),
        }
    }
}

/// Reports progress of every call.
fn progressing(peer: &Peer, method: &str, params: &Value) -> Answer {
    if method == "tools/call" {
        let token = &params["_meta"]["progressToken"];
        let step = &params["arguments"]["step"];
        let progress = json!({ "progressToken": token, "progress": step });
        peer.notify("notifications/progress", progress);
    }
    Answer::Default
}

fn client(runtime: &Runtime, name: &str) -> (Client, Notifications) {
    let client = runtime.client(name).build();
    let notifications = client.notifications();
    (client, notifications)
}

fn send_one_of_each(peer: &Peer) {
    let log = |level: &str| json!({ "level": level, "data": level });
    peer.notify("notifications/message", log("debug"));
    peer.notify("notifications/message", log("error"));
    for uri in ["a:x", "a:y", "a:z"] {
        peer.notify("notifications/resources/updated", json!({ "uri": uri }));
    }
    peer.notify("com.example/any", json!({ "b": 1 }));
    peer.notify(LAST, json!({}));
}

#[tokio::test]
async fn each_client_reads_what_is_for_it() {
    for peer in [Peer::legacy(progressing), Peer::modern(progressing)] {
        let (runtime, own) = started(&peer).await;
        let (first, mut of_first) = client(&runtime, "first");
        let (second, mut of_second) = client(&runtime, "second");
        let mut of_none = runtime.notifications();
        let (a, b) = (first.server("a").unwrap(), second.server("a").unwrap());
        a.subscribe("a:x").deadline(DEADLINE).await.unwrap();
        b.subscribe("a:y").deadline(DEADLINE).await.unwrap();
        a.set_log_level(Debug).await.unwrap();
        b.set_log_level(Error).await.unwrap();
        let call = a.call_tool("echo", json!({ "step": 1 }));
        let key = call.key();
        call.await.unwrap();
        own.call_tool("echo", json!({ "step": 2 })).await.unwrap();
        let Some(Received::Notification(progress)) = next(&mut of_first).await else {
            panic!("no progress");
        };
        assert_eq!(said(&progress), "progress 1");
        assert_eq!(progress.cause, key);
        send_one_of_each(&peer);
        let of_first = all(&mut of_first).await;
        let logs = ["log debug", "log error"];
        assert_eq!(
            of_first,
            [logs[0], logs[1], "updated a:x", "com.example/any"]
        );
        let of_second = all(&mut of_second).await;
        assert_eq!(of_second, [logs[1], "updated a:y", "com.example/any"]);
        let of_none = all(&mut of_none).await;
        assert_eq!(of_none, ["progress 2", "com.example/any"]);
    }
}

#[tokio::test]
async fn without_levels_all_clients_read_the_log_and_it_goes_on_after_a_reconnect() {
    let peer = Peer::legacy(plain);
    let (runtime, own) = started(&peer).await;
    let (first, mut of_first) = client(&runtime, "first");
    let (_second, mut of_second) = client(&runtime, "second");
    let a = first.server("a").unwrap();
    a.subscribe("a:x").await.unwrap();
    peer.disconnect();
    ready_after(&own, 1).await;
    peer.expect("resources/subscribe", 2).await;
    send_one_of_each(&peer);
    let read = all(&mut of_first).await;
    assert_eq!(
        read,
        ["log debug", "log error", "updated a:x", "com.example/any"]
    );
    let read = all(&mut of_second).await;
    assert_eq!(read, ["log debug", "log error", "com.example/any"]);
}

#[tokio::test]
async fn a_slow_reader_loses_the_oldest_and_learns_how_many() {
    let peer = Peer::legacy(plain);
    let (runtime, own) = started(&peer).await;
    let (_first, mut slow) = client(&runtime, "first");
    let mut other = runtime.notifications();
    let sent = NOTIFICATION_BUFFER + 7;
    for number in 0..sent {
        peer.notify("com.example/any", json!({ "number": number }));
        // In step, so that no limit of the connection drops any.
        if number % 50 == 49 {
            own.ping().await.unwrap();
        }
        if number == 0 {
            next(&mut other).await.unwrap();
        }
    }
    own.ping().await.unwrap();
    let number = |received: Option<Received>| match received {
        Some(Received::Notification(it)) => match &it.kind {
            NotificationKind::Custom(custom) => custom.params.clone().unwrap()["number"].clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let first = next(&mut slow).await;
    assert!(matches!(first, Some(Received::Missed(7))), "{first:?}");
    assert_eq!(slow.missed(), 7);
    for expected in 7..sent {
        assert_eq!(number(next(&mut slow).await), expected);
    }
    assert_eq!(slow.missed(), 7);
    assert_eq!(other.missed(), 6, "each reader has its own buffer");
}

#[tokio::test]
async fn a_change_of_lists_reaches_the_clients_that_see_it() {
    let tools = Arc::new(std::sync::Mutex::new(vec!["echo"]));
    let listed = Arc::clone(&tools);
    let peer = Peer::legacy(move |_, method, _| match method {
        "tools/list" => {
            let tools = listed.lock().unwrap().clone().into_iter();
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            Answer::Result(json!({ "tools": tools.map(tool).collect::<Vec<_>>() }))
        }
        _ => Answer::Default,
    });
    let (runtime, _own) = started(&peer).await;
    let seeing = runtime.client("seeing").build();
    let blind = runtime.client("blind").tools(["!a__new"]).build();
    let (mut of_seeing, mut of_blind) = (seeing.notifications(), blind.notifications());
    tools.lock().unwrap().push("new");
    peer.notify("notifications/tools/list_changed", json!({}));
    let Some(Received::Notification(changed)) = next(&mut of_seeing).await else {
        panic!("nothing");
    };
    assert_eq!(said(&changed), "list Tools");
    assert!(
        seeing.catalog().tool("a__new").is_some(),
        "it is there already"
    );
    peer.notify(LAST, json!({}));
    assert_eq!(all(&mut of_blind).await, [""; 0]);
}

#[tokio::test]
async fn a_reader_ends_with_its_client_and_with_the_runtime() {
    let peer = Peer::legacy(plain);
    let (runtime, _own) = started(&peer).await;
    let (closed, mut of_closed) = client(&runtime, "closed");
    let (dropped, mut of_dropped) = client(&runtime, "dropped");
    let (living, mut of_living) = client(&runtime, "living");
    peer.notify(LAST, json!({}));
    for reader in [&mut of_closed, &mut of_dropped, &mut of_living] {
        assert_eq!(all(reader).await, [""; 0]);
    }
    closed.close();
    assert!(next(&mut of_closed).await.is_none());
    assert!(next(&mut closed.notifications()).await.is_none());
    drop(dropped);
    assert!(next(&mut of_dropped).await.is_none());
    runtime.shutdown(secs(10)).await;
    // As a stream.
    assert!(timeout(DEADLINE, of_living.next()).await.unwrap().is_none());
    assert!(next(&mut living.notifications()).await.is_none());
}

#[tokio::test]
async fn what_comes_in_the_response_of_a_call_is_for_its_client_alone() {
    let stub = StubServer::start(|request| match request.operation() {
        "tools/call" => {
            let message = |method: &str, params: Value| {
                event(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            };
            let result =
                json!({ "jsonrpc": "2.0", "id": request.id(), "result": { "content": [] } });
            StubReply::events(&[
                message(
                    "notifications/message",
                    json!({ "level": "info", "data": "info" }),
                ),
                message("com.example/any", json!({})),
                event(&result),
            ])
        }
        _ => default_reply(request),
    })
    .await;
    let config = server("a", Transport::http(stub.url()));
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    // After the events of the first lists.
    runtime.server("a").unwrap().ping().await.unwrap();
    let (caller, mut of_caller) = client(&runtime, "caller");
    let (_other, mut of_other) = client(&runtime, "other");
    let call = caller.server("a").unwrap().call_tool("echo", Value::Null);
    let key = call.key();
    call.deadline(DEADLINE).await.unwrap();
    for text in ["log info", "com.example/any"] {
        let Some(Received::Notification(notification)) = next(&mut of_caller).await else {
            panic!("nothing");
        };
        assert_eq!(said(&notification), text);
        assert_eq!(notification.cause, key);
    }
    let none = timeout(std::time::Duration::ZERO, of_other.recv()).await;
    assert!(none.is_err(), "{none:?}");
}

/// Nothing that comes on the connection of one client reaches another.
#[tokio::test]
async fn what_comes_on_a_connection_of_one_client_is_for_it_alone() {
    let peer = Peer::legacy(plain);
    let settings = settings(|it| it.connections.scope = ConnectionScope::Client);
    let config = peer.config("a").settings(settings);
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let (_other, mut of_other) = client(&runtime, "other");
    let (owner, mut of_owner) = client(&runtime, "owner");
    let a = owner.server("a").unwrap();
    a.subscribe("a:x").deadline(DEADLINE).await.unwrap();
    a.set_log_level(Debug).deadline(DEADLINE).await.unwrap();
    // The last connection is that of the client.
    send_one_of_each(&peer);
    let mut read = all(&mut of_owner).await;
    read.retain(|it| !it.starts_with("list"));
    assert_eq!(
        read,
        ["log debug", "log error", "updated a:x", "com.example/any"]
    );
    a.ping().deadline(DEADLINE).await.unwrap();
    while let Ok(Some(Received::Notification(other))) =
        timeout(std::time::Duration::ZERO, of_other.recv()).await
    {
        assert!(
            matches!(other.kind, NotificationKind::ListChanged(_)),
            "{other:?}"
        );
    }
}
