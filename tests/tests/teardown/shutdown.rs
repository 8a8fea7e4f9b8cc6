//! Shutdown and removal: bounded, concurrent, and without leftovers. (D3)

use super::*;

#[test]
fn a_shutdown_runs_all_servers_at_once_and_leaves_nothing() {
    let name = "shutdown::a_shutdown_runs_all_servers_at_once_and_leaves_nothing";
    isolated(name, async || {
        let before = warmed_up().await;

        let marker = Marker::new("at-once");
        let step = millis(500);
        let names: Vec<String> = (0..8).map(|number| format!("server-{number}")).collect();
        let runtime = fleet(names.iter().map(|name| {
            server(name, fixture(&marker, &STUBBORN)).settings(close_within(step, step))
        }))
        .await;
        runtime.ready(DEADLINE).await.unwrap();
        let grandchild = runtime.server("server-0").unwrap();
        structured(grandchild.call_tool("spawn_grandchild", json!({})).await);
        // Until exec, they carry no marker.
        eventually(DEADLINE, "eight children and a grandchild", || {
            marker.processes().len() == 9
        })
        .await;

        let begin = Instant::now();
        let report = runtime.shutdown(secs(20)).await;
        let took = begin.elapsed();
        assert_eq!(marker.processes(), [], "not one process, at once");
        assert!(took >= 2 * step, "{took:?}");
        assert!(took < 8 * step, "one after the other: {took:?}");
        assert_eq!(report.servers.len(), 8);
        for closed in &report.servers {
            assert!(
                matches!(&closed.how, CloseOutcome::Problem(how) if how.contains("killed")),
                "{closed:?}"
            );
        }
        drop((runtime, grandchild));
        assert_returns_to(&before, Slack::NONE, DEADLINE).await;
    });
}

#[tokio::test]
async fn a_short_limit_shrinks_every_step() {
    let marker = Marker::new("short");
    let (runtime, handle) = ready(server("one", fixture(&marker, &STUBBORN))).await;
    // The default steps add up to nine seconds, five of them for the calls in flight.
    let request = handle.call_tool("sleep", json!({ "ms": 600_000 }));
    let call = tokio::spawn(request.into_future());
    eventually(DEADLINE, "the call", || handle.status().in_flight == 1).await;
    let begin = Instant::now();
    let report = runtime.shutdown(secs(2)).await;
    let took = begin.elapsed();
    assert_eq!(marker.processes(), []);
    assert!(took < secs(2) + SLACK, "{took:?}");
    assert!(
        took >= millis(1_800),
        "every step was given its share: {took:?}"
    );
    let how = &report.servers[0].how;
    let killed = matches!(how, CloseOutcome::Problem(how) if how.contains("killed"));
    assert!(killed, "by its own steps, not from above: {how:?}");
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.known(), Known::Unknown, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_calls_in_flight_finish_and_refuses_the_others() {
    let scripted_server = ScriptedServer::new(slow_tool());
    let one_at_a_time = settings(|settings| settings.admission.in_flight = 1);
    let config = server("one", scripted(&scripted_server)).settings(one_at_a_time);
    let (runtime, handle) = ready(config).await;
    let call = in_flight(&scripted_server, &handle).await;
    let waiting = tokio::spawn(handle.call_tool("echo", json!({})).into_future());
    eventually(DEADLINE, "the waiting call", || {
        handle.status().waiting == 1
    })
    .await;
    let mut events = runtime.events();
    let ending = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(secs(30)).await }
    });
    assert_eq!(not_sent(waiting.await.unwrap()), NotSentReason::Stopping);
    assert_eq!(
        not_sent(handle.call_tool("echo", json!({})).await),
        NotSentReason::Stopping
    );
    scripted_server.control().release("slow", 1);
    call.await.unwrap().unwrap();
    assert!(ending.await.unwrap().is_clean());
    // A reader sees the final states, and then the end of the stream.
    let mut states = Vec::new();
    let end = loop {
        match events.recv().await {
            Ok(event) => states.extend(match event.kind {
                EventKind::StateChanged { to, .. } => Some(to),
                _ => None,
            }),
            Err(end) => break end,
        }
    };
    assert_eq!(states, [StateName::Disabling, StateName::Disabled]);
    assert_eq!(end, EventsError::Closed);

    let gone = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(matches!(gone, CallError::RuntimeGone { .. }), "{gone:?}");
    let gone = runtime.enable("one").await.unwrap_err();
    assert!(matches!(gone, ControlError::RuntimeGone), "{gone:?}");
    let late = server("late", scripted(&scripted_server));
    let gone = runtime.add(late).await.unwrap_err();
    assert!(matches!(gone, ControlError::RuntimeGone), "{gone:?}");
    assert_eq!(scripted_server.record().opened(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_wins_over_reconnects_in_every_stage() {
    let flaky = || ScriptedServer::new(Script::new());
    let opening = flaky().on_generation(2, Script::new().on("initialize", Behaviour::silence()));
    let waiting = flaky().on_generation(2, Script::new().on("initialize", Behaviour::end()));
    let closing = flaky();
    let servers = [
        server("opening", scripted(&opening)),
        server("waiting", scripted(&waiting)),
        server("closing", clinging(&closing)).settings(close_within(secs(100), secs(100))),
    ];
    let runtime = fleet(servers).await;
    runtime.ready(DEADLINE).await.unwrap();
    let handles = ["opening", "waiting"].map(|name| runtime.server(name).unwrap());
    let mut callers = Vec::new();
    for (scripted_server, handle) in [&opening, &waiting].into_iter().zip(&handles) {
        scripted_server.control().end();
        reaches(handle, StateName::Reconnecting).await;
        callers.push(tokio::spawn(
            handle.call_tool("echo", json!({})).into_future(),
        ));
    }
    runtime.reconnect("closing").await.unwrap();
    opening
        .record()
        .until(DEADLINE, "its second connect", |record| {
            record.opened() == [1, 2]
        })
        .await;
    eventually(DEADLINE, "the backoff", || {
        handles[1].status().retry_at.is_some()
    })
    .await;

    let begin = Instant::now();
    let report = runtime.shutdown(secs(9)).await;
    assert!(begin.elapsed() <= secs(9), "{:?}", begin.elapsed());
    assert_eq!(report.servers.len(), 3);
    for caller in callers {
        assert_eq!(not_sent(caller.await.unwrap()), NotSentReason::Stopping);
    }
    let connects = || [&opening, &waiting, &closing].map(|it| it.record().opened().len());
    let at_the_end = connects();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(connects(), at_the_end, "nobody connects any more");
    assert_eq!(opening.control().live(), [0; 0]);
}

#[tokio::test]
async fn a_shutdown_ends_what_a_crashed_actor_left_behind() {
    let marker = Marker::new("orphan");
    // By default, the connection of the crashed actor would take 40 s to close.
    let patient = close_within(secs(20), secs(20));
    let config = server("one", fixture(&marker, &STUBBORN)).settings(patient);
    let (runtime, handle) = ready(config).await;
    handle.crash_actor();
    eventually(DEADLINE, "the restart", || handle.status().restarts == 1).await;
    let begin = Instant::now();
    runtime.shutdown(secs(2)).await;
    assert_eq!(marker.processes(), []);
    assert!(begin.elapsed() < secs(2) + SLACK, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_later_shutdown_with_a_longer_deadline_does_not_prolong_the_first() {
    let marker = Marker::new("twice");
    let patient = close_within(secs(20), secs(20));
    let config = server("one", fixture(&marker, &STUBBORN)).settings(patient);
    let (runtime, handle) = ready(config).await;
    let begin = Instant::now();
    let first = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(secs(2)).await }
    });
    reaches(&handle, StateName::Disabling).await;
    runtime.shutdown(secs(60)).await;
    first.await.unwrap();
    assert!(begin.elapsed() < secs(2) + SLACK, "{:?}", begin.elapsed());
    assert_eq!(marker.processes(), []);
}

#[tokio::test]
async fn a_later_shutdown_with_a_shorter_deadline_shortens_the_first() {
    let marker = Marker::new("hurry");
    let patient = close_within(secs(20), secs(20));
    let config = server("one", fixture(&marker, &STUBBORN)).settings(patient);
    let (runtime, handle) = ready(config).await;
    let begin = Instant::now();
    let first = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(secs(60)).await }
    });
    reaches(&handle, StateName::Disabling).await;
    runtime.shutdown(secs(2)).await;
    assert_eq!(marker.processes(), []);
    first.await.unwrap();
    assert!(begin.elapsed() < secs(2) + SLACK, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn in_process_servers_that_cling_are_ended_within_the_limit() {
    let scripted_server = ScriptedServer::new(Script::new());
    let clinging = |number| server(&format!("server-{number}"), clinging(&scripted_server));
    let runtime = fleet((0..20).map(clinging)).await;
    runtime.ready(DEADLINE).await.unwrap();
    let begin = Instant::now();
    let report = runtime.shutdown(millis(900)).await;
    assert_eq!(report.servers.len(), 20);
    assert!(begin.elapsed() <= millis(900), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_removed_server_is_closed_and_forgotten() {
    let marker = Marker::new("remove");
    let config = || server("one", fixture(&marker, &[]));
    let (runtime, handle) = ready(config()).await;
    let mut events = runtime.events();
    runtime.remove("one").await.unwrap();
    assert_eq!(marker.processes(), []);
    assert!(runtime.server("one").is_err());
    assert!(runtime.servers().is_empty());
    let removed = |event: &mcpvisor::Event| matches!(event.kind, EventKind::Removed).then_some(());
    next_event(&mut events, removed).await;
    assert_eq!(
        not_sent(handle.call_tool("echo", json!({})).await),
        NotSentReason::Removed
    );
    let unknown = runtime.remove("one").await.unwrap_err();
    assert!(matches!(unknown, ControlError::Unknown(_)), "{unknown:?}");

    runtime.add(config()).await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    pid(&runtime.server("one").unwrap()).await;
    runtime.shutdown(secs(5)).await;
    assert_eq!(marker.processes(), []);
}
