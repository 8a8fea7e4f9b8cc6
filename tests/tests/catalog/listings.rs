//! Lists are refreshed when they change, and read to their last page, within limits. (K4, K5)

use super::*;

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_says_nothing_of_the_others() {
    let broken = Behaviour::error(ErrorData::internal_error("no", None));
    let script = full().on("prompts/list", broken);
    let script = script.on("resources/list", Behaviour::silence());
    let scripted_server = ScriptedServer::new(script);
    let runtime = fleet([server("one", scripted(&scripted_server))]).await;
    let handle = runtime.server("one").unwrap();
    eventually(DEADLINE, "the prompts to fail", || {
        handle.status().list(ListKind::Prompts).is_settled()
    })
    .await;
    let status = handle.status();
    assert!(!status.is_ready());
    assert_eq!(*status.list(ListKind::Tools), ListState::Fresh);
    assert_eq!(*status.list(ListKind::Resources), ListState::Pending);
    let ListState::Failed(fault) = status.list(ListKind::Prompts) else {
        panic!("{status:?}");
    };
    assert!(fault.message.contains("prompts"), "{fault}");
    scripted_server.control().set_script(full());
    eventually(DEADLINE, "the prompts", || {
        *handle.status().list(ListKind::Prompts) == ListState::Fresh
    })
    .await;
    runtime.disable("one").await.unwrap();
    assert_eq!(*handle.status().list(ListKind::Tools), ListState::Unlisted);
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
    // The reply in flight does not include the change.
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

/// Settings that prevent a second listing during a test.
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

/// Starts a server whose tools cannot be listed. Returns the number of requested pages.
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

/// The list is processed off the actor, while rules and other lists may change.
#[tokio::test]
async fn a_large_list_is_seen_whole_and_by_the_rules_that_hold_in_the_end() {
    let long = |name: &str, length: usize| {
        let mut tool = tool(name.to_owned());
        tool.description = Some("x".repeat(length).into());
        tool
    };
    let (scripted, runtime, handle) = start(full()).await;
    let mut config = server("one", fleet::scripted(&scripted));
    for round in 1..=5_usize {
        let length = 2 * 1024 * 1024 + round;
        let prompt = Prompt::new(format!("greet{round}"), None::<String>, None);
        scripted.control().update(|script| {
            script.tools = Listing::of([long("new", length), long("hidden", length)]);
            script.prompts = Listing::of([prompt]);
        });
        scripted.control().tools_changed();
        scripted.control().prompts_changed();
        config.tools.deny = vec![if round % 2 == 0 { "new" } else { "hidden" }.to_owned()];
        let reloaded = mcpvisor::Config::new().server(config.clone());
        runtime.reload(reloaded).await.unwrap();
        let shown = if round % 2 == 0 { "hidden" } else { "new" };
        let seen = catalog_with(&handle, "all that changed", |it| {
            let description = it.tool(shown).and_then(|it| it.description.as_ref());
            description.is_some_and(|it| it.len() == length)
                && it.prompt(&format!("greet{round}")).is_some()
        })
        .await;
        assert_eq!(seen.tools.len(), 1);
    }
    let revision = handle.catalog().revision;
    let before = handle.catalog();
    scripted.control().tools_changed();
    let asked = listings(&scripted)[0];
    let again = |_: &Record| listings(&scripted)[0] > asked;
    let record = scripted.record();
    record.until(DEADLINE, "it is listed again", again).await;
    let after = catalog_with(&handle, "it is fresh", |it| !it.stale).await;
    assert_eq!(after.revision, revision);
    assert!(Arc::ptr_eq(&before.tools, &after.tools), "nothing changed");
}
