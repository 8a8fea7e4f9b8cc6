//! Subscriptions and the log level survive a reconnect. (K7)

use super::*;

/// The state that a connection was asked to restore: log levels and subscriptions, in order.
fn restored(scripted: &ScriptedServer, generation: u64) -> (Vec<Value>, Vec<Value>) {
    let of = |method: &str, param: &str| {
        let received = scripted.record().received(method);
        let here = received.iter().filter(|it| it.generation == generation);
        here.map(|it| it.params[param].clone()).collect()
    };
    (
        of("logging/setLevel", "level"),
        of("resources/subscribe", "uri"),
    )
}

async fn is_restored(scripted: &ScriptedServer, generation: u64) {
    let wanted = (
        vec![json!("debug")],
        vec![json!("test://a"), json!("test://b")],
    );
    let what = format!("the wishes on generation {generation}");
    scripted
        .record()
        .until(DEADLINE, what, |_| {
            let seen = restored(scripted, generation);
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn subscriptions_and_the_log_level_are_restored_on_every_new_connection() {
    let (scripted, runtime, handle) = start(full()).await;
    for uri in ["test://b", "test://a", "test://gone"] {
        handle.subscribe(uri).await.unwrap();
    }
    handle.unsubscribe("test://gone").await.unwrap();
    handle.set_log_level(LoggingLevel::Error).await.unwrap();
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();

    scripted.control().end();
    ready_after(&handle, 1).await;
    is_restored(&scripted, 2).await;
    handle.crash_actor();
    ready_after(&handle, 2).await;
    is_restored(&scripted, 3).await;
    runtime.disable("one").await.unwrap();
    runtime.enable("one").await.unwrap();
    ready_after(&handle, 3).await;
    is_restored(&scripted, 4).await;

    let mut events = runtime.events();
    scripted.control().resource_updated("test://a");
    let uri = next_event(&mut events, |event| match &event.kind {
        EventKind::ResourceUpdated { uri } => Some(uri.clone()),
        _ => None,
    })
    .await;
    assert_eq!(uri, "test://a");
}

/// A request that the server confirmed is restored, even if the connection was closing.
#[tokio::test(start_paused = true)]
async fn what_is_confirmed_while_the_connection_drains_is_restored_too() {
    let (scripted, runtime, handle) = start(full()).await;
    handle.subscribe("test://b").await.unwrap();
    handle.subscribe("test://gone").await.unwrap();
    let slow = || Behaviour::answer().after(millis(300));
    scripted.control().update(|script| {
        *script = full()
            .on("resources/subscribe", slow())
            .on("resources/unsubscribe", slow())
            .on("logging/setLevel", slow());
    });
    let wishes = tokio::spawn({
        let handle = handle.clone();
        async move {
            tokio::try_join!(
                handle.subscribe("test://a").into_future(),
                handle.unsubscribe("test://gone").into_future(),
                handle.set_log_level(LoggingLevel::Debug).into_future(),
            )
        }
    });
    let record = scripted.record();
    let sent = |_: &_| match record.received("logging/setLevel").len() {
        0 => Err("not sent"),
        _ => Ok(()),
    };
    record.until(DEADLINE, "the wishes are sent", sent).await;
    runtime.reconnect("one").await.unwrap();
    assert_eq!(handle.status().state, mcpvisor::StateName::Reconnecting);
    wishes.await.unwrap().unwrap();
    ready_after(&handle, 1).await;
    is_restored(&scripted, 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_retried_is_restored_all_the_same() {
    let (scripted, _runtime, handle) = start(full()).await;
    for uri in ["test://a", "test://b"] {
        let subscribe = handle.subscribe(uri).retry(RetryPolicy::Never);
        subscribe.await.unwrap();
    }
    let set_level = handle.set_log_level(LoggingLevel::Debug);
    set_level.retry(RetryPolicy::Never).await.unwrap();
    scripted.control().end();
    ready_after(&handle, 1).await;
    is_restored(&scripted, 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refused_is_not_restored() {
    let refusing = full().on(
        "resources/subscribe",
        Behaviour::error(ErrorData::invalid_params("no such resource", None)),
    );
    let (scripted, _runtime, handle) = start(refusing).await;
    handle.subscribe("test://a").await.unwrap_err();
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();
    scripted.control().end();
    ready_after(&handle, 1).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(restored(&scripted, 2), (vec![json!("debug")], vec![]));
}

#[tokio::test]
async fn a_killed_child_reports_changes_and_logs_again_after_its_restart() {
    let marker = Marker::new("restore");
    let config = server("one", fixture(&marker, &[])).settings(eager());
    let (runtime, handle) = ready(config).await;
    handle.subscribe("fixture://one").await.unwrap();
    handle.set_log_level(LoggingLevel::Debug).await.unwrap();
    processes::kill(pid(&handle).await);
    ready_after(&handle, 1).await;

    let mut events = runtime.events();
    let mut seen = (false, false);
    // State is restored concurrently with calls, so the first calls may overtake it.
    eventually::eventually_async(DEADLINE, "the update and the log", async || {
        let touched = handle.call_tool("touch", json!({ "uri": "fixture://one" }));
        touched.await.unwrap();
        let logged = json!({ "level": "debug", "text": "again" });
        handle.call_tool("log", logged).await.unwrap();
        while let Some(event) = events.try_recv().unwrap() {
            match &event.kind {
                EventKind::ResourceUpdated { uri } => seen.0 |= uri == "fixture://one",
                EventKind::Log(log) => seen.1 |= log.data == json!("again"),
                _ => {}
            }
        }
        if seen == (true, true) {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    runtime.shutdown(secs(5)).await;
}

/// A request made without a connection takes precedence over the remembered state.
#[tokio::test(start_paused = true)]
async fn what_callers_wait_to_change_is_not_restored_over_them() {
    let (scripted, _runtime, handle) = start(full()).await;
    for uri in ["test://a", "test://gone"] {
        handle.subscribe(uri).await.unwrap();
    }
    handle.set_log_level(LoggingLevel::Error).await.unwrap();
    scripted.control().update(|script| {
        *script = full().on("initialize", Behaviour::answer().after(millis(300)));
    });
    scripted.control().end();
    reaches(&handle, StateName::Reconnecting).await;
    tokio::try_join!(
        handle.set_log_level(LoggingLevel::Debug).into_future(),
        handle.unsubscribe("test://gone").into_future(),
        handle.subscribe("test://b").into_future(),
    )
    .unwrap();
    // By then, everything has been restored.
    tokio::time::sleep(secs(60)).await;
    let (levels, mut subscribed) = restored(&scripted, 2);
    subscribed.sort_by_key(Value::to_string);
    assert_eq!(levels, ["debug"]);
    assert_eq!(subscribed, ["test://a", "test://b"]);
}
