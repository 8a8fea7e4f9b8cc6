//! The merged catalog of a fleet: names, filters, and isolation between servers (K6).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod fleet;

use fleet::*;
use mcpvisor::{CallError, Client, FleetCatalog, Known, ResultCheck, Runtime, ToolFilter};
use mcpvisor_testkit::scripted::{Behaviour, Listing, Script, ScriptedServer, tool};
use mcpvisor_testkit::{eventually, in_own_process};
use rmcp::model::{ErrorData, Prompt, Resource};
use serde_json::{Value, json};

fn script(tools: &[&str]) -> Script {
    let script = tools.iter().fold(Script::bare(), |script, name| {
        script.tool(name, Behaviour::answer())
    });
    script
        .prompts(Listing::of([Prompt::new("greet", None::<String>, None)]))
        .resources(Listing::of([Resource::new("test://one", "one")]))
}

fn exposed(catalog: &FleetCatalog) -> Vec<String> {
    catalog.tools().map(|it| it.exposed().to_owned()).collect()
}

/// Starts a fleet of scripted servers and waits until it is ready.
async fn start(servers: &[(&str, &ScriptedServer)]) -> Runtime {
    let mut builder = Runtime::builder();
    for (name, scripted_server) in servers {
        builder = builder.server(server(name, scripted(scripted_server)));
    }
    let runtime = builder.start().await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    runtime
}

#[tokio::test(start_paused = true)]
async fn the_catalog_of_a_fleet_has_what_all_servers_offer_under_names_of_its_own() {
    let git = ScriptedServer::new(script(&["search", "issues.list"]));
    let files = ScriptedServer::new(script(&["read"]));
    let runtime = start(&[("git", &git), ("files", &files)]).await;

    let catalog = runtime.catalog();
    let names = exposed(&catalog);
    assert_eq!(names[..2], ["files__read", "git__search"]);
    assert!(names[2].starts_with("git__issues_list_"), "{names:?}");
    let found = catalog.tool(&names[2]).unwrap();
    assert_eq!(
        (found.server().as_str(), found.name()),
        ("git", "issues.list")
    );
    assert_eq!(found.definition().name, "issues.list");
    assert_eq!(catalog.prompts().count(), 2);
    let (server, resource) = catalog.resources().next().unwrap();
    assert_eq!((server.as_str(), &*resource.uri), ("files", "test://one"));

    for name in names {
        let call = runtime.call(&name, json!({ "q": 1 })).unwrap();
        call.await.unwrap();
    }
    assert_eq!(git.record().received("tools/call").len(), 2);
    assert_eq!(files.record().received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_has_is_unknown_and_one_of_a_server_that_connects_waits_for_it() {
    let slow =
        ScriptedServer::new(script(&["read"]).on("initialize", Behaviour::answer().after(secs(5))));
    let runtime = Runtime::builder()
        .server(server("slow", scripted(&slow)))
        .start()
        .await
        .unwrap();
    for name in ["", "read", "slow", "fast__read", "slow_read", "slow__re.ad"] {
        let unknown = runtime.call(name, Value::Null).unwrap_err();
        assert_eq!(unknown.name, name);
    }
    let call = runtime.call("slow__read", Value::Null).unwrap();
    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_clashes_with_itself_and_one_that_cannot_list_spoil_nothing_for_others() {
    let twice = ScriptedServer::new(Script::bare().tools(Listing::of([
        tool("same").with_title("first"),
        tool("same").with_title("second"),
        tool("other"),
    ])));
    let broken = ScriptedServer::new(script(&["lost"]).on(
        "tools/list",
        Behaviour::error(ErrorData::internal_error("no list today", None)),
    ));
    let good = ScriptedServer::new(script(&["work"]));
    let runtime = Runtime::builder()
        .server(server("a_b", scripted(&twice)))
        .server(server("broken", scripted(&broken)))
        .server(server("good", scripted(&good)))
        // The same name after sanitizing.
        .server(server(
            "a b",
            scripted(&ScriptedServer::new(script(&["same"]))),
        ))
        .start()
        .await
        .unwrap();
    let names = eventually(DEADLINE, "what can be listed", || {
        let names = exposed(&runtime.catalog());
        if names.len() == 4 {
            Ok(names)
        } else {
            Err(names)
        }
    })
    .await;
    assert!(names[0].starts_with("a_b__same_"), "{names:?}");
    assert_eq!(names[1..], ["a_b__same", "a_b__other", "good__work"]);
    let catalog = runtime.catalog();
    let same = catalog.tool("a_b__same").unwrap().definition();
    assert_eq!(same.title.as_deref(), Some("first"));
    let findings: Vec<String> = catalog
        .findings()
        .map(|(server, finding)| format!("{server}: {finding}"))
        .collect();
    assert_eq!(findings, ["a_b: tools: \"same\" is listed twice"]);
    assert_eq!(runtime.server("a_b").unwrap().status().findings, 1);
    // The failed list affects neither the prompts of the same server nor other servers.
    assert_eq!(catalog.prompts().count(), 3);
    runtime
        .call("good__work", Value::Null)
        .unwrap()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_the_server_s_filter_hides_is_neither_seen_nor_called() {
    let git = ScriptedServer::new(script(&["search", "search_all", "delete_repo"]));
    let mut config = server("git", scripted(&git));
    config.tools = ToolFilter::new(["search*", "delete*"], ["delete*"]);
    let (runtime, handle) = ready(config).await;
    assert_eq!(
        exposed(&runtime.catalog()),
        ["git__search", "git__search_all"]
    );
    assert_eq!(handle.catalog().tools.len(), 2);
    assert_eq!(handle.status().tools, 2);

    let refused = handle
        .call_tool("delete_repo", Value::Null)
        .await
        .unwrap_err();
    assert!(matches!(refused, CallError::ToolHidden { .. }), "{refused}");
    assert_eq!(
        (refused.known(), refused.code()),
        (Known::NotSent, "tool_hidden")
    );
    assert!(
        refused
            .to_string()
            .contains("denied by the pattern \"delete*\""),
        "{refused}"
    );
    let by_name = runtime.call("git__delete_repo", Value::Null).unwrap();
    assert!(matches!(by_name.await, Err(CallError::ToolHidden { .. })));
    let unlisted = handle.call_tool("fork", Value::Null).await.unwrap_err();
    assert!(
        matches!(unlisted, CallError::ToolHidden { .. }),
        "{unlisted}"
    );
    handle.call_tool("search", Value::Null).await.unwrap();
    assert_eq!(git.record().received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_s_filter_is_its_own() {
    let git = ScriptedServer::new(script(&["search", "delete_repo"]));
    let files = ScriptedServer::new(script(&["read"]));
    let runtime = start(&[("git", &git), ("files", &files)]).await;
    let planner = runtime
        .client("planner")
        .tools(["git__*", "!git__delete_*"])
        .build();
    let plain = runtime.client("plain").build();
    assert_eq!(exposed(&planner.catalog()), ["git__search"]);
    assert_eq!(exposed(&plain.catalog()), exposed(&runtime.catalog()));
    assert_eq!(planner.server("git").unwrap().catalog().tools.len(), 1);

    for name in ["git__delete_repo", "files__read"] {
        let refused = planner.call(name, Value::Null).unwrap().await.unwrap_err();
        assert!(matches!(refused, CallError::ToolHidden { .. }), "{refused}");
        assert!(
            refused.to_string().contains("the filter of the client"),
            "{refused}"
        );
        plain.call(name, Value::Null).unwrap().await.unwrap();
    }
    let behind = planner
        .server("git")
        .unwrap()
        .call_tool("delete_repo", Value::Null);
    assert!(matches!(behind.await, Err(CallError::ToolHidden { .. })));
    planner
        .call("git__search", Value::Null)
        .unwrap()
        .await
        .unwrap();

    // Later changes pass the same filter, and readers see them as one revision.
    git.control().update(|script| {
        script.tools = Listing::of([tool("fork"), tool("delete_all")]);
    });
    git.control().tools_changed();
    let seen = |client: &Client| exposed(&client.catalog());
    eventually(DEADLINE, "the new tools", || {
        let (few, all) = (seen(&planner), seen(&plain));
        if all.iter().any(|it| it == "git__fork") {
            Ok(few)
        } else {
            Err(all)
        }
    })
    .await;
    assert_eq!(seen(&planner), ["git__fork"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_disabled_or_removed_leaves_the_catalog_of_the_fleet() {
    let one = ScriptedServer::new(script(&["x"]));
    let two = ScriptedServer::new(script(&["y"]));
    let runtime = start(&[("one", &one), ("two", &two)]).await;
    let before = runtime.catalog();
    runtime.disable("one").await.unwrap();
    assert_eq!(exposed(&runtime.catalog()), ["two__y"]);
    runtime.remove("two").await.unwrap();
    assert_eq!(runtime.catalog().tool_count(), 0);
    assert!(runtime.catalog().server("two").is_none());
    assert_eq!(
        exposed(&before),
        ["one__x", "two__y"],
        "a snapshot stays as it was"
    );
    runtime.enable("one").await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    assert_eq!(exposed(&runtime.catalog()), ["one__x"]);
}

#[tokio::test]
async fn arguments_that_do_not_fit_the_schema_are_not_sent() {
    let schema = json!({
        "type": "object",
        "properties": { "q": { "type": "string" }, "n": { "type": "integer" } },
        "required": ["q"]
    });
    let schema = schema.as_object().unwrap().clone();
    let search = rmcp::model::Tool::new("search", "finds", schema);
    let script = Script::bare()
        .tools(Listing::of([search]))
        .on_call("search", Behaviour::answer());
    let git = ScriptedServer::new(script);
    let mut config = server("git", scripted(&git));
    config.check_arguments = true;
    let (_runtime, handle) = ready(config.clone()).await;
    let refused = handle
        .call_tool("search", json!({ "q": 7, "n": "x" }))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.known(), refused.code()),
        (Known::NotSent, "invalid_arguments")
    );
    let said = refused.to_string();
    assert!(said.contains("/q: ") && said.contains("/n: "), "{said}");
    let missing = handle.call_tool("search", Value::Null).await.unwrap_err();
    assert!(
        missing.to_string().contains("\"q\" is a required property"),
        "{missing}"
    );
    assert_eq!(git.record().received("tools/call").len(), 0);
    handle
        .call_tool("search", json!({ "q": "x" }))
        .await
        .unwrap();

    config.check_arguments = false;
    let (_runtime, handle) = ready(config).await;
    handle.call_tool("search", json!({ "q": 7 })).await.unwrap();
}

/// A server whose tools return their arguments, as the schema `n: integer` demands or not.
async fn with_output_schema(mode: ResultCheck, schema: Value) -> (Runtime, mcpvisor::ServerHandle) {
    let schema = schema.as_object().unwrap().clone();
    let declared = |name: &'static str| {
        let mut tool = rmcp::model::Tool::new(name, "", rmcp::model::JsonObject::new());
        tool.output_schema = Some(std::sync::Arc::new(schema.clone()));
        tool
    };
    let tools = ["count", "bare", "failing"].map(declared);
    let bare = rmcp::model::CallToolResult::success(vec![rmcp::model::ContentBlock::text("7")]);
    let script = Script::bare()
        .tools(Listing::of(tools))
        .on_call("count", Behaviour::answer())
        .on_call("bare", Behaviour::answer_with(bare))
        .on_call("failing", Behaviour::tool_error("no"));
    let git = ScriptedServer::new(script);
    ready(server("git", scripted(&git)).check_results(mode)).await
}

fn integer_n() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] })
}

#[tokio::test]
async fn a_result_that_does_not_match_its_schema_fails_the_call_that_ran() {
    let (_runtime, handle) = with_output_schema(ResultCheck::Fail, integer_n()).await;
    let valid = handle.call_tool("count", json!({ "n": 1 })).await.unwrap();
    assert_eq!(valid.structured_content, Some(json!({ "n": 1 })));
    assert_eq!(handle.status().invalid_results, 0);

    let wrong = handle.call_tool("count", json!({ "n": "s3cret" })).await;
    let wrong = wrong.unwrap_err();
    assert_eq!(
        (wrong.known(), wrong.code()),
        (Known::Answered, "invalid_result")
    );
    let text = wrong.to_string();
    assert!(
        text.contains("count ran") && text.contains("/n: "),
        "{text}"
    );
    assert!(
        text.contains("checkResults") && !text.contains("s3cret"),
        "{text}"
    );
    let result = wrong.result().unwrap();
    assert_eq!(result.structured_content, Some(json!({ "n": "s3cret" })));

    let missing = handle.call_tool("bare", json!({})).await.unwrap_err();
    let text = missing.to_string();
    assert!(text.contains("structuredContent is missing"), "{text}");
    assert_eq!(missing.result().unwrap().content.len(), 1);
    assert_eq!(handle.status().invalid_results, 2);

    let failed = handle.call_tool("failing", json!({})).await.unwrap();
    assert_eq!(failed.is_error, Some(true));
    assert_eq!(handle.status().invalid_results, 2);
}

#[tokio::test]
async fn a_result_that_does_not_match_is_delivered_and_counted_or_not_checked() {
    for (mode, counted) in [(ResultCheck::Warn, 2), (ResultCheck::Off, 0)] {
        let (_runtime, handle) = with_output_schema(mode, integer_n()).await;
        let wrong = json!({ "n": "x", "more": [1, 2] });
        let result = handle.call_tool("count", wrong.clone()).await.unwrap();
        assert_eq!(result.structured_content, Some(wrong));
        let missing = handle.call_tool("bare", json!({})).await.unwrap();
        assert_eq!(missing.structured_content, None);
        assert_eq!(handle.status().invalid_results, counted, "{mode:?}");
        let status = serde_json::to_value(handle.status()).unwrap();
        let shown = (counted > 0).then(|| json!(counted));
        assert_eq!(status.get("invalid_results"), shown.as_ref());
    }
}

#[test]
fn a_result_is_delivered_if_its_check_never_ends() {
    let name = "a_result_is_delivered_if_its_check_never_ends";
    in_own_process(name, secs(60), async || {
        let endless = Value::Object(slow_schema(60));
        let (runtime, handle) = with_output_schema(ResultCheck::Fail, endless).await;
        let began = std::time::Instant::now();
        let late = handle.call_tool("count", json!({ "n": 1 }));
        let result = late.deadline(millis(300)).await.unwrap();
        assert_eq!(result.structured_content, Some(json!({ "n": 1 })));
        for n in 0..3 {
            let result = handle.call_tool("count", json!({ "n": n })).await.unwrap();
            assert_eq!(result.structured_content, Some(json!({ "n": n })));
        }
        assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
        runtime.shutdown(secs(5)).await;
    });
}

/// A schema whose check time doubles with its depth.
fn slow_schema(depth: usize) -> rmcp::model::JsonObject {
    let mut definitions = serde_json::Map::new();
    for level in 0..depth {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        definitions.insert(format!("d{level}"), json!({ "anyOf": [next, next] }));
    }
    definitions.insert(format!("d{depth}"), json!({ "type": "string" }));
    let schema = json!({ "$ref": "#/$defs/d0", "$defs": definitions });
    schema.as_object().unwrap().clone()
}

#[tokio::test]
async fn a_deadline_covers_the_check_of_the_arguments() {
    let script = ["one", "two", "three"]
        .into_iter()
        .fold(Script::bare(), |script, name| {
            script.on_call(name, Behaviour::answer())
        });
    let slow =
        ["one", "two", "three"].map(|name| rmcp::model::Tool::new(name, "", slow_schema(22)));
    let git = ScriptedServer::new(script.tools(Listing::of(slow)));
    let mut config = server("git", scripted(&git));
    config.check_arguments = true;
    let (_runtime, handle) = ready(config).await;
    let began = std::time::Instant::now();
    let calls = ["one", "two", "three"].map(|name| {
        let call = handle.call_tool(name, json!({})).deadline(millis(100));
        tokio::spawn(call.into_future())
    });
    for call in calls {
        let late = call.await.unwrap().unwrap_err();
        assert_eq!((late.known(), late.code()), (Known::NotSent, "deadline"));
    }
    // A single check may take a second, and the third waited for one of the others.
    let took = began.elapsed();
    assert!(took < millis(900), "{took:?}");
    assert_eq!(git.record().received("tools/call").len(), 0);
}

#[test]
fn a_schema_check_that_never_ends_does_not_keep_the_program_from_exiting() {
    let name = "a_schema_check_that_never_ends_does_not_keep_the_program_from_exiting";
    in_own_process(name, secs(60), async || {
        let endless = rmcp::model::Tool::new("endless", "", slow_schema(60));
        let script = Script::bare().tools(Listing::of([endless]));
        let git = ScriptedServer::new(script.on_call("endless", Behaviour::answer()));
        let mut config = server("git", scripted(&git));
        config.check_arguments = true;
        let (runtime, handle) = ready(config).await;
        // If the check times out, the server validates the arguments.
        handle.call_tool("endless", json!({})).await.unwrap();
        runtime.shutdown(secs(5)).await;
        // The tokio runtime is dropped here, and the process ends, while the check is still
        // running.
    });
}
