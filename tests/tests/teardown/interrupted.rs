//! An interrupted connect, start or runtime leaves nothing behind. (D4, D5)

use super::*;

#[test]
fn a_connect_that_fails_half_way_leaves_nothing_behind() {
    let name = "interrupted::a_connect_that_fails_half_way_leaves_nothing_behind";
    isolated(name, async || {
        let warm_up = Marker::new("warm-up");
        let (runtime, _) = ready(server("one", fixture(&warm_up, &[]))).await;
        let impatient = |silent: bool| {
            settings(|settings| {
                // The other servers have enough time to finish.
                if silent {
                    settings.timeouts.connect = millis(300);
                }
                settings.close.stdin = millis(100);
                settings.close.terminate = millis(100);
                settings.backoff.initial = millis(10);
                settings.budget.attempts = 2;
                settings.budget.first_probe = secs(3_600);
            })
        };
        let before = Snapshot::take();

        let marker = Marker::new("half-way");
        let failing: [(&str, &[&str], StateName); 4] = [
            ("silent", &["--mute-initialize"], StateName::Disconnected),
            (
                "stubborn",
                &["--mute-initialize", "--ignore-eof", "--ignore-sigterm"],
                StateName::Disconnected,
            ),
            ("exits", &["--exit-at-once", "3"], StateName::Disconnected),
            (
                "foreign",
                &["--protocol", "1999-01-01", "--ignore-eof"],
                StateName::PermanentlyFailed,
            ),
        ];
        for (name, flags, _) in failing {
            let silent = flags.contains(&"--mute-initialize");
            let config = server(name, fixture(&marker, flags)).settings(impatient(silent));
            runtime.add(config).await.unwrap();
        }
        let mut handles = Vec::new();
        for (name, _, state) in failing {
            let handle = runtime.server(name).unwrap();
            reaches(&handle, state).await;
            handles.push(handle);
        }
        // The last close may still be in progress. Only the four idle servers and the timers of
        // three probes remain.
        marker.assert_none_left(DEADLINE).await;
        let at_rest = Slack {
            tasks: 4 + 3,
            ..Slack::NONE
        };
        assert_returns_to(&before, at_rest, DEADLINE).await;
        let generations: Vec<u64> = handles
            .iter()
            .map(|handle| handle.status().generation.get())
            .collect();
        // The server that exits got one more attempt, in case it exited because of
        // `server/discover`.
        assert_eq!(generations, [2, 2, 3, 1]);
        runtime.shutdown(secs(5)).await;
    });
}

#[tokio::test(start_paused = true)]
async fn an_in_process_connect_that_fails_half_way_is_ended() {
    let silent = ScriptedServer::new(Script::new().on("initialize", Behaviour::silence()));
    let impatient = settings(|settings| settings.budget.attempts = 3);
    let config = server("one", scripted(&silent)).settings(impatient);
    let runtime = fleet([config]).await;
    let handle = runtime.server("one").unwrap();
    let mut status = handle.watch();
    let parked = status.wait_for(|status| status.state == StateName::Disconnected);
    tokio::time::timeout(secs(600), parked)
        .await
        .unwrap()
        .unwrap();
    silent
        .record()
        .until(DEADLINE, "every connection ended", |record| {
            record.ended().len() == 3
        })
        .await;
    assert_eq!(silent.control().live(), [0; 0]);
    assert_eq!(silent.record().most_open_at_once(), 1);
}

#[test]
fn a_shutdown_at_any_moment_of_a_start_leaves_nobody_behind() {
    let name = "interrupted::a_shutdown_at_any_moment_of_a_start_leaves_nobody_behind";
    isolated(name, async || {
        let marker = Marker::new("starting");
        for moment in 0..40 {
            let config = |number| {
                server(&format!("server-{number}"), fixture(&marker, &STUBBORN))
                    .settings(close_within(millis(10), millis(10)))
            };
            let runtime = fleet((0..3).map(config)).await;
            tokio::time::sleep(Duration::from_micros(100 * moment)).await;
            runtime.shutdown(secs(5)).await;
            // Neither a child before exec nor a zombie carries a marker.
            assert_eq!(processes::descendants(), [], "after {moment} × 100 µs");
        }
    });
}

// D5, as far as it applies

#[test]
fn the_last_handle_that_is_dropped_asks_for_the_shutdown() {
    let name = "interrupted::the_last_handle_that_is_dropped_asks_for_the_shutdown";
    isolated(name, async || {
        let before = warmed_up().await;

        let marker = Marker::new("last-handle");
        let (runtime, handle) = ready(server("one", fixture(&marker, &[]))).await;
        let mut events = runtime.events();
        drop(runtime);
        // A server handle keeps the runtime alive.
        pid(&handle).await;
        let tool = handle.tool("echo");
        drop(handle);
        tool.call(Default::default()).await.unwrap();
        assert_eq!(marker.processes().len(), 1);

        drop(tool);
        marker.assert_none_left(DEADLINE).await;
        let last = async {
            loop {
                match events.recv().await {
                    Ok(_) | Err(EventsError::Lagged(_)) => {}
                    Err(error) => return error,
                }
            }
        };
        let last = tokio::time::timeout(DEADLINE, last).await.unwrap();
        assert_eq!(last, EventsError::Closed);
        drop(events);
        assert_returns_to(&before, Slack::NONE, DEADLINE).await;
    });
}

#[test]
fn a_dropped_tokio_runtime_kills_the_groups() {
    let marker = Marker::new("dropped");
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (fleet, grandchild) = host.block_on(async {
        let (runtime, handle) = ready(server("one", fixture(&marker, &STUBBORN))).await;
        let answer = structured(handle.call_tool("spawn_grandchild", json!({})).await);
        (runtime, answer["pid"].as_u64().unwrap() as u32)
    });
    let watcher = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    watcher.block_on(async {
        // Until exec, the grandchild carries no marker.
        eventually(DEADLINE, "the child and the grandchild", || {
            marker.processes().len() == 2
        })
        .await;
    });
    drop(host);
    watcher.block_on(async {
        marker.assert_none_left(DEADLINE).await;
        // An exiting process has no environment, but exists for a moment longer.
        eventually(DEADLINE, "the grandchild's end", || {
            processes::Process::read(grandchild).is_none_or(|it| it.is_zombie())
        })
        .await;
    });
    drop(fleet);
}
