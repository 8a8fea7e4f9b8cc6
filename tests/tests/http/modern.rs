//! Servers that speak 2026-07-28 over HTTP: no handshake, no session, and metadata in every
//! request. The meaning of a reply and the cancellation of a call differ too.

use mcpvisor::{
    CallError, Callbacks, Config, EventKind, FaultClass, Known, Runtime, StateName, Transport,
};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::eventually::eventually_in;
use mcpvisor_testkit::http_server::{HttpEra, HttpOptions, HttpServer};
use rmcp::model::{ElicitResult, ElicitationAction};
use serde_json::json;

use crate::arena::*;
use crate::fleet::*;

/// The methods that a server received, in order; the HTTP method if there is no message.
fn asked(server: &HttpServer) -> Vec<String> {
    let received = server.received().into_iter();
    received
        .map(|it| match it.method.is_empty() {
            true => it.http_method,
            false => it.method,
        })
        .collect()
}

/// Starts a server that is connected, listed and listened to.
async fn listening(options: HttpOptions) -> Arena {
    let arena = Arena::new(options).await;
    eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
    arena
}

#[tokio::test]
async fn a_modern_server_is_met_without_a_handshake_and_without_a_session() {
    for options in [
        HttpOptions::modern(),
        HttpOptions {
            reply: HttpOptions::sse().reply,
            ..HttpOptions::modern()
        },
    ] {
        let arena = Arena::new(options).await;
        assert_eq!(arena.handle.status().protocol.unwrap(), "2026-07-28");
        for kind in KINDS {
            arena.ask(kind).await.unwrap();
        }
        arena.handle.ping().await.unwrap();
        arena.recovers(1).await;
        let server = arena.server.clone();
        let report = arena.end().await;
        assert!(report.is_clean(), "{report:?}");
        // It checks the metadata and the headers of every request.
        assert_eq!(server.complaints(), Vec::<String>::new());
        let asked = asked(&server);
        assert_eq!(asked[0], "server/discover");
        assert_eq!(server.requests("server/discover"), 2, "a ping is one too");
        for never in [
            "initialize",
            "notifications/initialized",
            "ping",
            "GET",
            "DELETE",
        ] {
            assert!(!asked.contains(&never.to_owned()), "{never}: {asked:?}");
        }
    }
}

#[tokio::test]
async fn a_server_of_both_eras_is_met_in_the_newer_one() {
    let options = HttpOptions {
        era: HttpEra::Both,
        ..HttpOptions::default()
    };
    let arena = Arena::new(options).await;
    assert_eq!(arena.handle.status().protocol.unwrap(), "2026-07-28");
    arena.recovers(1).await;
    assert_eq!(arena.server.sessions_opened(), 0);
    assert_eq!(arena.server.complaints(), Vec::<String>::new());
    arena.end().await;
}

#[tokio::test]
async fn the_era_is_remembered_so_that_the_next_connect_asks_nothing_needless() {
    for (options, first) in [
        (HttpOptions::default(), "initialize"),
        (HttpOptions::modern(), "server/discover"),
    ] {
        let arena = Arena::new(options).await;
        let before = asked(&arena.server).len();
        assert_eq!(arena.server.requests("server/discover"), 1, "the question");
        arena.runtime.reconnect("web").await.unwrap();
        ready_after(&arena.handle, 1).await;
        let asked = asked(&arena.server);
        let again = asked[before..].iter().find(|it| *it != "DELETE").unwrap();
        assert_eq!(again, first);
        let questions = asked.iter().filter(|it| *it == first).count();
        assert_eq!(questions, 2, "{asked:?}");
        arena.end().await;
    }
}

#[tokio::test]
async fn the_era_is_remembered_from_one_run_to_the_next() {
    let folder = std::env::temp_dir().join(format!("mcpvisor-http-era-{}", std::process::id()));
    // Left over from a killed process with the same pid.
    let _ = std::fs::remove_dir_all(&folder);
    let server = HttpServer::start(HttpOptions::default()).await;
    for questions in [1, 1] {
        let web = crate::fleet::server("web", Transport::http(server.url()));
        let builder = Runtime::builder().server(web).state_dir(&folder);
        let runtime = builder.start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        runtime.shutdown(DEADLINE).await;
        assert_eq!(server.requests("server/discover"), questions);
        // The era is stored in the background.
        let kept = || std::fs::read_dir(folder.join("eras")).is_ok_and(|it| it.count() == 1);
        eventually(DEADLINE, "the era is kept", kept).await;
    }
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(server.sessions_opened(), 2);
}

#[tokio::test]
async fn a_list_that_changed_is_told_on_the_stream_and_fetched() {
    let arena = listening(HttpOptions::modern()).await;
    let before = arena.server.requests("tools/list");
    let changed = "notifications/tools/list_changed";
    assert_eq!(arena.server.notify(changed, json!({})), 1);
    let listed = || arena.server.requests("tools/list") > before;
    eventually(DEADLINE, "the new list", listed).await;
    assert_eq!(arena.server.requests("subscriptions/listen"), 1);
    arena.end().await;
}

#[tokio::test]
async fn a_stream_that_ends_is_asked_for_again_and_lists_are_fetched_for_what_was_missed() {
    let arena = listening(HttpOptions::modern()).await;
    let before = arena.server.requests("tools/list");
    arena.server.end_streams();
    let again = || arena.server.requests("subscriptions/listen") == 2;
    eventually(DEADLINE, "the next request that listens", again).await;
    let listed = || arena.server.requests("tools/list") > before;
    eventually(DEADLINE, "what changed meanwhile", listed).await;
    // Nothing is resumed in this era: it is a new request.
    let received = arena.server.received();
    assert!(
        received
            .iter()
            .all(|it| it.header("last-event-id").is_none())
    );
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn subscriptions_are_listened_for_and_survive_a_restart() {
    let arena = listening(HttpOptions::modern()).await;
    arena.handle.subscribe("fixture://one").await.unwrap();
    let mut events = arena.runtime.events();
    let updated = json!({ "uri": "fixture://one" });
    for restarts in [false, true] {
        if restarts {
            arena.server.restart().await;
        }
        eventually(DEADLINE, "the stream", || arena.server.open_streams() == 1).await;
        arena
            .server
            .notify("notifications/resources/updated", updated.clone());
        let heard = next_event(&mut events, |event| match &event.kind {
            EventKind::ResourceUpdated { uri } => Some(uri.clone()),
            _ => None,
        });
        assert_eq!(heard.await, "fixture://one");
    }
    assert_eq!(arena.server.requests("resources/subscribe"), 0);
    assert_eq!(arena.server.complaints(), Vec::<String>::new());
    arena.end().await;
}

#[tokio::test]
async fn a_list_is_fetched_again_when_it_is_read_after_its_time() {
    let server = HttpServer::start(HttpOptions::modern()).await;
    server.set_time_to_live(millis(300));
    let arena = Arena::start(server, quick()).await;
    arena.runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(arena.server.requests("tools/list"), 1);
    tokio::time::sleep(millis(900)).await;
    assert_eq!(arena.server.requests("tools/list"), 1, "nobody read it");
    let read = || {
        arena.handle.catalog();
        arena.server.requests("tools/list") > 1
    };
    eventually(DEADLINE, "the list once more", read).await;
    arena.end().await;
}

#[tokio::test]
async fn input_rounds_are_limited() {
    let server = HttpServer::start(HttpOptions::modern()).await;
    let accepting = Callbacks::new().elicitation_form(|ask| async move {
        let content = ask.params.with_defaults(Default::default());
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
    });
    let web = crate::fleet::server("web", Transport::http(server.url()));
    let runtime = Runtime::builder().server(web).callbacks(accepting);
    let runtime = runtime.start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    for rounds in [1, 3, 8] {
        let call = handle.call_tool("ask", json!({ "rounds": rounds }));
        let answer = structured(call.deadline(DEADLINE).await);
        let name = format!("name {}", rounds - 1);
        assert_eq!(answer["state"], format!("Runde\u{a0}{rounds}"));
        assert_eq!(answer["inputs"]["who"]["content"]["name"], name);
    }
    let before = server.requests("tools/call");
    let call = handle.call_tool("ask", json!({ "rounds": 9 }));
    let error = call.deadline(DEADLINE).await.unwrap_err();
    assert!(matches!(error, CallError::InputRequired { .. }), "{error}");
    assert_eq!(server.requests("tools/call") - before, 9);
    assert_eq!(server.complaints(), Vec::<String>::new());
    let mut ids: Vec<String> = server
        .received()
        .iter()
        .map(|it| it.id.to_string())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "every round has an id of its own");
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_404_is_an_answer_and_no_lost_session() {
    let arena = Arena::new(HttpOptions::modern()).await;
    for (calls, fault) in (1..).zip(["http-404-method", "http-404"]) {
        let error = arena.at_once(fault).await;
        assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
        says(&error, &["-32601"]);
        assert_eq!(arena.server.requests("tools/call"), calls, "sent once");
    }
    arena.recovers(1).await;
    assert_eq!(arena.handle.status().state, StateName::Connected);
    arena.end().await;
}

#[tokio::test]
async fn an_argument_is_a_header_too_and_follows_the_tools_new_definition() {
    let arena = Arena::new(HttpOptions::modern()).await;
    let header = |name: &str| {
        let received = arena.server.received();
        let last = received.iter().rfind(|it| it.method == "tools/call");
        last.unwrap().header(name).map(str::to_owned)
    };
    let call = async || {
        let call = arena
            .handle
            .call_tool("with_header", json!({ "region": "south" }));
        call.deadline(DEADLINE).await.unwrap();
    };
    call().await;
    assert_eq!(header("mcp-param-region").as_deref(), Some("south"));
    let lists = arena.server.requests("tools/list");
    arena.server.rename_param_header("Zone");
    call().await;
    assert_eq!(header("mcp-param-zone").as_deref(), Some("south"));
    assert_eq!(header("mcp-param-region"), None);
    assert_eq!(arena.server.runs("with_header"), 2, "refused before it ran");
    assert!(arena.server.requests("tools/list") > lists, "listed again");
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn headers_that_stay_wrong_are_tried_once_more_and_then_the_callers() {
    let arena = Arena::new(HttpOptions::modern()).await;
    arena.server.fault("http-400-headers").for_ever();
    let error = arena.run("never").await.unwrap_err();
    assert!(matches!(error, CallError::Answered { .. }), "{error:?}");
    says(&error, &["-32020"]);
    assert_eq!(arena.server.requests("tools/call"), 2);
    // A list that cannot be fetched delays no call.
    arena
        .server
        .fault("http-status=500")
        .on("tools/list")
        .for_ever();
    let (outcome, took) = timed(arena.run("never")).await;
    let error = outcome.unwrap_err();
    says(&error, &["-32020"]);
    assert!(took < DEADLINE, "{took:?}");
    assert_eq!(arena.server.runs("never"), 0);
    arena.server.disarm();
    arena.recovers(1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_call_is_given_up_by_closing_its_stream() {
    for reply in [HttpOptions::default().reply, HttpOptions::sse().reply] {
        let arena = Arena::new(HttpOptions {
            reply,
            ..HttpOptions::modern()
        })
        .await;
        let slow = json!({ "key": "slow", "ms": 60_000 });
        let call = arena.handle.call_tool("run", slow.clone());
        call.deadline(SHORT).await.unwrap_err();
        eventually(DEADLINE, "the closed stream", || {
            arena.server.abandoned_calls() == 1
        })
        .await;
        let call = arena.handle.call_tool("run", slow).into_future();
        let call = tokio::spawn(call);
        eventually(DEADLINE, "the call at work", || {
            arena.server.runs("slow") == 2
        })
        .await;
        call.abort();
        eventually(DEADLINE, "the closed stream", || {
            arena.server.abandoned_calls() == 2
        })
        .await;
        arena.recovers(1).await;
        assert_eq!(arena.server.requests("notifications/cancelled"), 0);
        arena.end().await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_checked_by_a_discovery_and_one_that_fails_is_replaced() {
    let mut settings = quick();
    settings.health.keepalive = millis(100);
    settings.health.keepalive_timeout = secs(2);
    let arena = Arena::with(HttpOptions::modern(), settings).await;
    let checked = || arena.server.requests("server/discover") >= 4;
    eventually(DEADLINE, "three checks", checked).await;
    assert_eq!(arena.generation(), 1);
    assert_eq!(arena.server.requests("ping"), 0);
    arena
        .server
        .fault("http-stall-headers")
        .on("server/discover")
        .once();
    ready_after(&arena.handle, 1).await;
    arena.end().await;
}

#[tokio::test]
async fn calls_in_flight_when_a_modern_server_dies_are_unknown_and_reads_are_repeated() {
    let arena = listening(HttpOptions::modern()).await;
    let call = arena.run_for("lost", 60_000);
    let died = async {
        eventually(DEADLINE, "the call at work", || {
            arena.server.runs("lost") == 1
        })
        .await;
        arena.server.restart().await;
    };
    let (outcome, ()) = tokio::join!(call, died);
    assert_eq!(outcome.unwrap_err().known(), Known::Unknown);
    arena.server.fault("http-drop").on("resources/read").once();
    arena.ask("resources/read").await.unwrap();
    assert_eq!(arena.server.requests("resources/read"), 2);
    assert_eq!(arena.server.runs("lost"), 1, "nothing ran twice");
    // There is no session to lose, so there is no reconnect.
    arena.recovers(1).await;
    arena.server.stop().await;
    reaches(&arena.handle, StateName::Reconnecting).await;
    arena.server.resume().await;
    ready_after(&arena.handle, 1).await;
    arena.end().await;
}

#[tokio::test]
async fn a_server_that_could_not_be_reached_is_asked_in_the_modern_era_once_it_is_there() {
    let server = HttpServer::start(HttpOptions {
        era: HttpEra::Both,
        ..HttpOptions::default()
    })
    .await;
    server.stop().await;
    let arena = Arena::start(server, quick()).await;
    let refused = |status: &mcpvisor::ServerStatus| status.attempts_used >= 3;
    eventually_in(
        DEADLINE,
        "it is not there",
        &mut arena.handle.watch(),
        refused,
    )
    .await;
    arena.server.resume().await;
    arena.runtime.ready(DEADLINE).await.unwrap();
    let status = arena.handle.status();
    assert_eq!(status.protocol.unwrap(), "2026-07-28");
    assert_eq!(
        status.generation.get(),
        u64::from(status.attempts_used),
        "every connect was counted"
    );
    arena.end().await;
}

#[tokio::test]
async fn what_is_known_of_the_era_of_one_server_is_not_taken_for_another() {
    let arena = Arena::new(HttpOptions::default()).await;
    assert_eq!(arena.handle.status().protocol.unwrap(), "2025-11-25");
    let both = HttpServer::start(HttpOptions {
        era: HttpEra::Both,
        ..HttpOptions::default()
    })
    .await;
    let other = server("web", Transport::http(both.url())).settings(quick());
    let reloaded = arena.runtime.reload(Config::new().server(other)).await;
    assert!(!reloaded.unwrap().is_unchanged());
    ready_after(&arena.handle, 1).await;
    assert_eq!(arena.handle.status().protocol.unwrap(), "2026-07-28");
    arena.end().await;
}

#[tokio::test]
async fn a_server_that_fails_on_the_question_for_the_modern_era_is_asked_for_the_other() {
    let server = HttpServer::start(HttpOptions::default()).await;
    server
        .fault("http-status=500")
        .on("server/discover")
        .for_ever();
    let arena = Arena::start(server, quick()).await;
    arena.runtime.ready(DEADLINE).await.unwrap();
    let status = arena.handle.status();
    assert_eq!(status.protocol.unwrap(), "2025-11-25");
    assert_eq!(status.generation.get(), 1, "on the same connection");
    arena.end().await;
}

#[tokio::test]
async fn a_modern_server_that_fails_for_a_while_is_said_to_fail_and_comes_back() {
    let server = HttpServer::start(HttpOptions::modern()).await;
    server
        .fault("http-status=500")
        .on("server/discover")
        .times(3);
    let arena = Arena::start(server, quick()).await;
    arena.runtime.ready(DEADLINE).await.unwrap();
    let status = arena.handle.status();
    assert_eq!(status.protocol.unwrap(), "2026-07-28");
    let error = status.last_error.unwrap();
    assert_eq!(error.class, FaultClass::ConnectFailed);
    assert!(error.message.contains("500"), "{}", error.message);
    assert_eq!(status.generation.get(), 4, "each failure is one");
    arena.end().await;
}
