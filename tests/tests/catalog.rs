//! What a server offers, as readers see it: K1 to K5 and K7.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![expect(
    deprecated,
    reason = "subscriptions and log levels of the protocol's older eras, which servers still speak"
)]

mod fleet;

use std::sync::Arc;

use fleet::*;
use mcpvisor::{EventKind, ListKind, RetryWish, Runtime, ServerCatalog, ServerHandle, StateName};
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

/// The names of the tools that readers see.
fn tools(handle: &ServerHandle) -> Vec<String> {
    let catalog = handle.catalog();
    catalog.tools.iter().map(|it| it.name.to_string()).collect()
}

/// How often each list was asked for.
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

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
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

/// Every way in which a refresh can fail.
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
    // What comes of it later is for nobody.
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
                // Between the two looks the teardown at the end may have begun.
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

// K4

#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_is_few_refreshes_and_the_last_change_is_in() {
    let (scripted, _runtime, handle) = start(full()).await;
    assert_eq!(listings(&scripted), [1, 1, 1, 1]);
    for number in 1..=100 {
        scripted.control().update(|script| {
            script.tools = Listing::of([tool(format!("tool_{number}"))]);
        });
        scripted.control().tools_changed();
        tokio::task::yield_now().await;
    }
    catalog_with(&handle, "the last change", |it| {
        it.tool("tool_100").is_some() && !it.stale
    })
    .await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(tools(&handle), ["tool_100"]);
    let [of_tools, others @ ..] = listings(&scripted);
    assert!(of_tools <= 3, "{of_tools} listings for one burst");
    assert_eq!(others, [1, 1, 1], "only the list that changed");
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_refresh_leads_to_another() {
    let old = ListToolsResult::with_all_items(vec![tool("old")]);
    let second_is_slow = Behaviour::choose(move |incoming| match incoming.nth {
        2 => Behaviour::answer_with(old.clone()).held(),
        _ => Behaviour::answer(),
    });
    let (scripted, _runtime, handle) = start(full().on("tools/list", second_is_slow)).await;
    let control = scripted.control();
    control.tools_changed();
    let asked_twice =
        |record: &mcpvisor_testkit::scripted::Record| record.received("tools/list").len() == 2;
    scripted
        .record()
        .until(DEADLINE, "the refresh", asked_twice)
        .await;

    control.update(|script| script.tools = Listing::of([tool("news")]));
    control.tools_changed();
    // The answer that is under way knows nothing of the news.
    tokio::time::sleep(secs(1)).await;
    control.release("tools/list", 1);
    catalog_with(&handle, "the news", |it| it.tool("news").is_some()).await;
    assert_eq!(listings(&scripted), [3, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_change_refreshes_its_own_lists() {
    let (scripted, _runtime, handle) = start(full()).await;
    let control = scripted.control();
    control.update(|script| {
        script.prompts = Listing::of([Prompt::new("part", None::<String>, None)]);
        script.resources = Listing::of([Resource::new("test://two", "two")]);
        script.templates = Listing::of([ResourceTemplate::new("test://{other}", "other")]);
    });
    control.prompts_changed();
    catalog_with(&handle, "the prompt", |it| it.prompt("part").is_some()).await;
    assert_eq!(listings(&scripted), [1, 2, 1, 1]);
    control.resources_changed();
    catalog_with(&handle, "the resources", |it| {
        it.resources[0].uri == "test://two"
            && it.resource_templates[0].uri_template == "test://{other}"
    })
    .await;
    assert_eq!(listings(&scripted), [1, 2, 2, 2]);
}

#[tokio::test]
async fn a_burst_from_a_real_child_is_coalesced_too() {
    let marker = Marker::new("burst");
    let log = std::env::temp_dir().join(marker.value());
    let flags = [
        "--list-changed-burst",
        "200",
        "--received",
        log.to_str().unwrap(),
    ];
    let (runtime, handle) = ready(server("one", fixture(&marker, &flags))).await;
    catalog_with(&handle, "the news of the burst", |it| {
        it.tool("after_burst").is_some() && !it.stale
    })
    .await;
    runtime.shutdown(secs(5)).await;
    let received = std::fs::read_to_string(&log).unwrap();
    let listings = received.matches(" tools/list").count();
    assert!((1..=4).contains(&listings), "{received}");
    std::fs::remove_file(log).unwrap();
}

// K5

/// Settings under which nothing is listed a second time while a test looks.
fn listed_once() -> mcpvisor::ServerSettings {
    settings(|settings| {
        settings.listing.refresh_retry = secs(3_600);
        settings.listing.max_refresh_retry = secs(3_600);
    })
}

fn pages(sizes: &[usize]) -> Listing<Tool> {
    let mut number = 0;
    let mut next = || {
        number += 1;
        tool(format!("tool_{number}"))
    };
    let page = |size: &usize| (0..*size).map(|_| next()).collect();
    Listing::Pages(sizes.iter().map(page).collect())
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_followed_to_its_last_page() {
    let (scripted, _runtime, handle) = start(full().tools(pages(&[2, 0, 3, 1]))).await;
    let wanted: Vec<_> = (1..=6).map(|number| format!("tool_{number}")).collect();
    assert_eq!(tools(&handle), wanted);
    let cursors: Vec<Value> = scripted
        .record()
        .received("tools/list")
        .into_iter()
        .map(|incoming| incoming.params["cursor"].clone())
        .collect();
    let wanted = [
        Value::Null,
        json!("page-1"),
        json!("page-2"),
        json!("page-3"),
    ];
    assert_eq!(cursors, wanted);
}

/// Starts a server whose tools cannot be listed, and says how many pages were asked for.
async fn pages_of_a_failed_listing(
    listing: Listing<Tool>,
    change: impl FnOnce(&mut mcpvisor::ServerSettings),
) -> usize {
    let scripted_server = ScriptedServer::new(full().tools(listing));
    let mut settings = listed_once();
    change(&mut settings);
    let config = server("one", scripted(&scripted_server)).settings(settings);
    let runtime = fleet([config]).await;
    let handle = runtime.server("one").unwrap();
    catalog_with(&handle, "the other lists", |it| {
        !it.prompts.is_empty() && !it.resources.is_empty() && !it.resource_templates.is_empty()
    })
    .await;
    tokio::time::sleep(secs(600)).await;
    assert!(handle.catalog().tools.is_empty());
    assert!(handle.catalog().stale);
    assert_eq!(handle.status().state, StateName::Connected);
    handle.ping().await.unwrap();
    let [of_tools, others @ ..] = listings(&scripted_server);
    assert_eq!(others, [1, 1, 1]);
    of_tools
}

#[tokio::test(start_paused = true)]
async fn a_listing_without_an_end_stops_at_the_cap_of_pages() {
    let endless = Listing::Endless(|number| tool(format!("tool_{number}")));
    let asked = pages_of_a_failed_listing(endless, |settings| settings.listing.max_pages = 7).await;
    assert_eq!(asked, 7);
}

#[tokio::test(start_paused = true)]
async fn a_listing_stops_at_the_cap_of_items() {
    let listing = pages(&[4, 4, 4, 4]);
    let asked =
        pages_of_a_failed_listing(listing, |settings| settings.listing.max_items = 10).await;
    assert_eq!(asked, 3);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_repeats_ends_the_listing() {
    let repeating = Listing::Repeating(vec![tool("again")]);
    assert_eq!(pages_of_a_failed_listing(repeating, |_| {}).await, 2);
}

// K7

/// What a connection was told to keep doing: the log levels and the subscriptions, in order.
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

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_retried_is_restored_all_the_same() {
    let (scripted, _runtime, handle) = start(full()).await;
    for uri in ["test://a", "test://b"] {
        let subscribe = handle.subscribe(uri).retry(RetryWish::Never);
        subscribe.await.unwrap();
    }
    let set_level = handle.set_log_level(LoggingLevel::Debug);
    set_level.retry(RetryWish::Never).await.unwrap();
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
    // The wishes are restored beside the calls, so the first calls may be ahead of them.
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
