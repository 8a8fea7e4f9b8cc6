//! What a server offers, as seen by readers: K1 to K5 and K7.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![expect(
    deprecated,
    reason = "subscriptions and log levels of the protocol's older eras, which servers still speak"
)]

#[path = "../fleet/mod.rs"]
mod fleet;
mod listings;
mod restore;

use std::sync::Arc;

use fleet::*;
use mcpvisor::{
    EventKind, ListKind, ListState, RetryPolicy, Runtime, ServerCatalog, ServerHandle, StateName,
};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{self, Marker};
use mcpvisor_testkit::scripted::{Behaviour, Listing, Record, Script, ScriptedServer, tool};
use rmcp::model::{
    ErrorData, ListPromptsResult, ListToolsResult, LoggingLevel, Prompt, Resource,
    ResourceTemplate, Tool,
};
use serde_json::{Value, json};

const LISTS: [&str; 4] = [
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
];

/// One item in every list.
fn full() -> Script {
    Script::new()
        .prompts(Listing::of([Prompt::new("greet", None::<String>, None)]))
        .resources(Listing::of([Resource::new("test://one", "one")]))
        .templates(Listing::of([ResourceTemplate::new("test://{name}", "any")]))
}

/// The names of the visible tools.
fn tools(handle: &ServerHandle) -> Vec<String> {
    let catalog = handle.catalog();
    catalog.tools.iter().map(|it| it.name.to_string()).collect()
}

/// How often each list was requested.
fn listings(server: &ScriptedServer) -> [usize; 4] {
    LISTS.map(|method| server.record().received(method).len())
}

/// Waits for a catalog.
async fn catalog_with(
    handle: &ServerHandle,
    what: &str,
    look: impl Fn(&ServerCatalog) -> bool,
) -> Arc<ServerCatalog> {
    eventually(DEADLINE, what, || {
        let catalog = handle.catalog();
        if look(&catalog) {
            Ok(catalog)
        } else {
            Err(catalog)
        }
    })
    .await
}

async fn start(script: Script) -> (ScriptedServer, Runtime, ServerHandle) {
    let scripted_server = ScriptedServer::new(script);
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    (scripted_server, runtime, handle)
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

// K1

#[tokio::test(start_paused = true)]
async fn a_catalog_is_an_immutable_snapshot_with_a_revision_and_its_generation() {
    let (scripted, runtime, handle) = start(full()).await;
    let mut events = runtime.events();
    let first = handle.catalog();
    let kept = ServerCatalog::clone(&first);
    assert_eq!((first.generation.get(), first.stale), (1, false));
    assert_eq!(first.tools.len(), 1);
    assert_eq!(first.prompt("greet").unwrap().name, "greet");
    assert_eq!(first.resources[0].uri, "test://one");
    assert_eq!(first.resource_templates[0].uri_template, "test://{name}");

    scripted.control().update(|script| {
        script.tools = Listing::of([tool("new")]);
    });
    scripted.control().tools_changed();
    let second = catalog_with(&handle, "the new tool", |it| it.tool("new").is_some()).await;

    assert_eq!(*first, kept, "who holds a snapshot keeps what it saw");
    assert_eq!(second.revision, first.revision + 1);
    assert!(second.tool("echo").is_none());
    assert_eq!(second.prompts, first.prompts);
    let (list, diff, revision) = next_event(&mut events, |event| match &event.kind {
        EventKind::CatalogChanged {
            list,
            diff,
            revision,
        } => Some((*list, diff.clone(), *revision)),
        _ => None,
    })
    .await;
    assert_eq!((list, revision), (ListKind::Tools, second.revision));
    assert_eq!(
        (diff.added, diff.removed),
        (names(["new"]), names(["echo"]))
    );
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_did_not_change_keeps_its_revision_on_the_next_generation() {
    let (scripted, _runtime, handle) = start(full()).await;
    let first = handle.catalog();
    scripted.control().end();
    ready_after(&handle, 1).await;
    let second = handle.catalog();
    assert_eq!(second.generation.get(), 2);
    assert_eq!(second.revision, first.revision);
    assert_eq!(second.tools, first.tools);
}

// K2

#[tokio::test(start_paused = true)]
async fn a_reconnect_keeps_the_last_good_catalog_and_says_that_it_is_stale() {
    let slow = full()
        .on("initialize", Behaviour::answer().held())
        .on("tools/list", Behaviour::answer().held());
    let scripted_server = ScriptedServer::new(full()).on_generation(2, slow);
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let good = handle.catalog();
    let mut stale = ServerCatalog::clone(&good);
    stale.stale = true;
    let control = scripted_server.control();

    control.end();
    reaches(&handle, StateName::Reconnecting).await;
    assert_eq!(*handle.catalog(), stale);
    assert_eq!((handle.status().tools, handle.status().stale), (1, true));

    control.release("initialize", 1);
    reaches(&handle, StateName::Connected).await;
    let record = scripted_server.record();
    record
        .until(DEADLINE, "the listing of generation 2", |record| {
            record.received("tools/list").len() == 2
        })
        .await;
    let catalog = handle.catalog();
    assert_eq!(catalog.tools, good.tools);
    assert!(catalog.stale, "the tools are not confirmed yet");
    assert!(handle.status().stale);

    control.release("tools/list", 1);
    ready_after(&handle, 1).await;
    let confirmed = handle.catalog();
    assert_eq!((confirmed.generation.get(), confirmed.stale), (2, false));
    assert_eq!(confirmed.tools, good.tools);
}

/// All ways in which a refresh can fail.
fn failures() -> Vec<(&'static str, Script)> {
    let full_with = |behaviour| full().on("tools/list", behaviour);
    let another_kind = ListPromptsResult::with_all_items(vec![]);
    vec![
        (
            "an error",
            full_with(Behaviour::error(ErrorData::internal_error("no", None))),
        ),
        ("no answer", full_with(Behaviour::silence())),
        (
            "an answer of another kind",
            full_with(Behaviour::answer_with(another_kind)),
        ),
        (
            "a cursor that repeats",
            full().tools(Listing::Repeating(vec![tool("loop")])),
        ),
        (
            "no end",
            full().tools(Listing::Endless(|number| tool(format!("tool_{number}")))),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_keeps_the_last_good_catalog_until_one_succeeds() {
    for (how, failing) in failures() {
        let scripted_server = ScriptedServer::new(full());
        let impatient = settings(|settings| settings.timeouts.listing = secs(1));
        let config = server("one", scripted(&scripted_server)).settings(impatient);
        let (_runtime, handle) = ready(config).await;
        let control = scripted_server.control();
        let good = handle.catalog();
        control.set_script(failing);
        control.tools_changed();
        let stale = catalog_with(&handle, how, |it| it.stale).await;
        assert_eq!(stale.tools, good.tools, "{how}");
        assert_eq!(stale.revision, good.revision, "{how}");
        assert_eq!(handle.status().state, StateName::Connected, "{how}");
        structured(handle.call_tool("echo", json!({ "a": 1 })).await);

        control.set_script(full().tools(Listing::of([tool("healed")])));
        let fresh = catalog_with(&handle, "a fresh catalog", |it| !it.stale).await;
        assert_eq!(fresh.tools.len(), 1, "{how}");
        assert!(fresh.tool("healed").is_some(), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_nobody_waits_for_any_more_is_cancelled_at_the_server() {
    let scripted_server = ScriptedServer::new(full());
    let impatient = settings(|settings| settings.timeouts.listing = secs(1));
    let config = server("one", scripted(&scripted_server)).settings(impatient);
    let (_runtime, handle) = ready(config).await;
    let (control, record) = (scripted_server.control(), scripted_server.record());
    control.set_script(full().on("tools/list", Behaviour::silence()));
    control.tools_changed();
    let cancelled = |record: &Record| record.cancelled().len() == 2;
    record.until(DEADLINE, "two given up", cancelled).await;
    let listings = record.received("tools/list");
    let ids: Vec<Value> = listings.iter().map(|it| json!(it.id)).collect();
    assert_eq!(record.cancelled(), ids[1..3], "each by its own id");
    // Its late result is dropped.
    let late = ListToolsResult::with_all_items(vec![tool("late")]);
    control.answer(listings[1].id.clone().unwrap(), Ok(late.into()));
    eventually(DEADLINE, "a stray", || handle.status().strays == 1).await;
    assert!(handle.catalog().tool("late").is_none());
}

#[tokio::test]
async fn a_reader_never_sees_the_tools_vanish_whatever_breaks() {
    let marker = Marker::new("vanish");
    let config = server("one", fixture(&marker, &[])).settings(eager());
    let (runtime, handle) = ready(config).await;
    let tools_of_one = handle.catalog().tools.len();
    let mut status = handle.watch();
    let reader = tokio::spawn({
        let handle = handle.clone();
        async move {
            let mut stale_seen = 0_u32;
            while status.changed().await.is_ok() {
                let seen = status.borrow_and_update().clone();
                if seen.state == StateName::Disabling {
                    break;
                }
                let catalog = handle.catalog();
                // The final teardown may have started between the two reads.
                if handle.status().state == StateName::Disabling {
                    break;
                }
                assert_eq!(catalog.tools.len(), tools_of_one, "{seen:?}");
                assert_eq!(seen.tools, tools_of_one, "{seen:?}");
                stale_seen += u32::from(catalog.stale);
            }
            stale_seen
        }
    });
    for round in 0..6 {
        let generation = handle.status().generation.get();
        match round % 3 {
            0 => processes::kill(pid(&handle).await),
            1 => handle.crash_actor(),
            _ => runtime.reconnect("one").await.unwrap(),
        }
        ready_after(&handle, generation).await;
    }
    runtime.shutdown(secs(5)).await;
    assert!(reader.await.unwrap() > 0, "no reconnect was ever seen");
}

// K3

#[tokio::test(start_paused = true)]
async fn a_server_that_is_switched_off_publishes_nothing_until_it_is_on_again() {
    let first = full().tool("slow", Behaviour::answer().held());
    let later = full().on("initialize", Behaviour::answer().held());
    let scripted_server = ScriptedServer::new(later).on_generation(1, first);
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let good = handle.catalog();
    assert!(!good.is_empty());
    let in_flight = tokio::spawn(handle.call_tool("slow", json!({})).into_future());
    let record = scripted_server.record();
    record
        .until(DEADLINE, "the call", |record| {
            !record.calls("slow").is_empty()
        })
        .await;

    let disabling = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.disable("one").await }
    });
    reaches(&handle, StateName::Disabling).await;
    assert!(handle.catalog().is_empty(), "disabling");
    assert_eq!(handle.status().tools, 0);
    scripted_server.control().release("slow", 1);
    disabling.await.unwrap().unwrap();
    in_flight.await.unwrap().unwrap();
    assert_eq!(handle.status().state, StateName::Disabled);
    assert!(handle.catalog().is_empty(), "disabled");
    let status = handle.status();
    let shown = (
        status.tools,
        status.prompts,
        status.resources,
        status.templates,
    );
    assert_eq!(shown, (0, 0, 0, 0));

    runtime.enable("one").await.unwrap();
    reaches(&handle, StateName::Connecting).await;
    let earlier = handle.catalog();
    assert_eq!(
        earlier.prompts, good.prompts,
        "connecting, with an earlier one"
    );
    assert!(earlier.stale);
    scripted_server.control().release("initialize", 1);
    ready_after(&handle, 1).await;
    assert!(!handle.catalog().is_empty(), "connected");
}

#[tokio::test(start_paused = true)]
async fn a_parked_server_still_publishes_its_last_good_catalog() {
    let scripted_server = ScriptedServer::new(full());
    let one_connect = settings(|settings| settings.budget.attempts = 1);
    let config = server("one", scripted(&scripted_server)).settings(one_connect);
    let (_runtime, handle) = ready(config).await;
    let good = handle.catalog();
    scripted_server.control().end();
    reaches(&handle, StateName::Disconnected).await;
    let parked = handle.catalog();
    assert_eq!((&parked.tools, parked.stale), (&good.tools, true));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_failed_for_good_publishes_nothing() {
    let scripted_server =
        ScriptedServer::new(full()).on_generation(2, full().protocol("1999-01-01"));
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    assert!(!handle.catalog().is_empty());
    scripted_server.control().end();
    reaches(&handle, StateName::PermanentlyFailed).await;
    assert!(handle.catalog().is_empty());
    assert_eq!(handle.status().tools, 0);
}
