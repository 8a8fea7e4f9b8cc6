//! C3: the runtime runs nothing with side effects twice.

use mcpvisor::rmcp::model::{
    ArgumentInfo, CompleteRequestParams, Reference, Tool, ToolAnnotations,
};
use mcpvisor::{CallError, Known, RetryPolicy, Runtime};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Behaviour, Listing, Script, ScriptedServer, tool};
use serde_json::{Value, json};

use crate::fleet::{DEADLINE, eager, ready, ready_after, server, settings, structured};
use crate::{losing, received, spawn, started};

/// Annotates the tool `look`.
fn looking(script: Script, annotations: ToolAnnotations) -> Script {
    let look = tool("look").with_annotations(annotations);
    script.tools(Listing::of([tool("echo"), tool("charge"), look]))
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_that_was_sent_and_lost_is_never_repeated() {
    let (scripted, _runtime, handle) = started(losing(1), eager()).await;
    let lost = handle.call_tool("charge", json!({})).await.unwrap_err();
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    ready_after(&handle, 1).await;
    assert_eq!(scripted.record().calls("charge").len(), 1);
    // Nor because an untrusted server declares it safe.
    let read_only = ToolAnnotations::new().read_only(true).idempotent(true);
    let script = looking(losing(1), read_only);
    let (scripted, _runtime, handle) = started(script, eager()).await;
    handle.call_tool("look", json!({})).await.unwrap_err();
    ready_after(&handle, 1).await;
    assert_eq!(scripted.record().calls("look").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_the_config_trusts_is_repeated_once() {
    let mut trusted = eager();
    trusted.retry.trusted = true;
    let mut named = eager();
    named.retry.idempotent_tools = vec!["look".to_owned()];
    let (none, read_only) = (
        ToolAnnotations::new(),
        ToolAnnotations::new().read_only(true),
    );
    let idempotent = ToolAnnotations::new().idempotent(true);
    for (case, settings, annotations) in [
        ("read-only, trusted", &trusted, read_only),
        ("idempotent, trusted", &trusted, idempotent),
        ("by name", &named, none),
    ] {
        let script = looking(losing(1), annotations);
        let (scripted, _runtime, handle) = started(script, settings.clone()).await;
        let look = handle.call_tool("look", json!({ "n": 1 })).await;
        assert_eq!(structured(look), json!({ "n": 1 }), "{case}");
        let calls = scripted.record().calls("look");
        let generations: Vec<u64> = calls.iter().map(|call| call.generation).collect();
        assert_eq!(generations, [1, 2], "{case}");
        // Other tools of the same server are not retried.
        handle.call_tool("charge", json!({})).await.unwrap_err();
        assert_eq!(scripted.record().calls("charge").len(), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_reads_is_repeated_once() {
    let (scripted, _runtime, handle) = started(losing(1), eager()).await;
    handle.read_resource("file:///a").await.unwrap();
    handle.get_prompt("greet", Value::Null).await.unwrap();
    let reference = Reference::for_prompt("greet");
    let argument = ArgumentInfo::new("name", "a");
    handle
        .complete(CompleteRequestParams::new(reference, argument))
        .await
        .unwrap();
    handle.subscribe("file:///a").await.unwrap();
    handle.unsubscribe("file:///a").await.unwrap();
    handle.ping().await.unwrap();
    let record = scripted.record();
    for method in [
        "resources/read",
        "prompts/get",
        "completion/complete",
        "resources/unsubscribe",
        "ping",
    ] {
        assert_eq!(record.received(method).len(), 2, "{method}");
    }
    assert_eq!(handle.status().generation.get(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_lost_is_repeated_once() {
    // The first of each is the runtime's own, the second the caller's.
    let lost = || {
        Behaviour::choose(|call| match call.nth {
            2 => Behaviour::end(),
            _ => Behaviour::answer(),
        })
    };
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let (scripted, _runtime, handle) = started(Script::new().on(method, lost()), eager()).await;
        let answered = match method {
            "tools/list" => handle.list_tools(None).await.map(drop),
            "prompts/list" => handle.list_prompts(None).await.map(drop),
            "resources/list" => handle.list_resources(None).await.map(drop),
            _ => handle.list_resource_templates(None).await.map(drop),
        };
        answered.unwrap_or_else(|error| panic!("{method}: {error}"));
        ready_after(&handle, 1).await;
        // For each connection, one for the catalog and one for the caller.
        assert_eq!(scripted.record().received(method).len(), 4, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_one_retry_in_total() {
    let (scripted, _runtime, handle) = started(losing(usize::MAX), eager()).await;
    let lost = handle.read_resource("file:///a").await.unwrap_err();
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    let look = handle.call_tool("look", json!({}));
    look.retry(RetryPolicy::Always).await.unwrap_err();
    ready_after(&handle, 4).await;
    assert_eq!(scripted.record().received("resources/read").len(), 2);
    assert_eq!(scripted.record().calls("look").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_caller_has_the_last_word_about_retries() {
    let (scripted, _runtime, handle) = started(losing(1), eager()).await;
    let charge = handle.call_tool("charge", json!({ "n": 1 }));
    let charge = charge.retry(RetryPolicy::Always).await;
    assert_eq!(structured(charge), json!({ "n": 1 }));
    let read = handle.read_resource("file:///a").retry(RetryPolicy::Never);
    let lost = read.await.unwrap_err();
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    ready_after(&handle, 2).await;
    assert_eq!(scripted.record().calls("charge").len(), 2);
    assert_eq!(scripted.record().received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_changed_or_is_gone_is_not_repeated() {
    let other = |tool: Tool| Listing::of([tool]);
    let changed = losing(1).tools(other(tool("charge").with_title("Charge twice")));
    let gone = losing(1).tools(other(tool("discharge")));
    for (second, code) in [(changed, "tool_changed"), (gone, "tool_gone")] {
        let scripted = ScriptedServer::new(losing(1)).on_generation(2, second);
        let (_runtime, handle) = ready(server("a", scripted.transport()).settings(eager())).await;
        let charge = handle.call_tool("charge", json!({}));
        let refused = charge.retry(RetryPolicy::Always).await.unwrap_err();
        assert_eq!((refused.code(), refused.known()), (code, Known::Unknown));
        assert!(refused.to_string().contains("charge"), "{refused}");
        assert_eq!(scripted.record().calls("charge").len(), 1);
    }
}

/// A call sent before the first tool list: nothing was known, so nothing changed.
#[tokio::test(start_paused = true)]
async fn a_tool_that_was_not_known_when_it_was_called_is_repeated() {
    let unlisted = losing(1).on("tools/list", Behaviour::silence());
    let scripted = ScriptedServer::new(unlisted)
        .on_generation(2, Script::new().tool("charge", Behaviour::answer()));
    let config = server("a", scripted.transport()).settings(eager());
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let handle = runtime.server("a").unwrap();
    let charge = handle.call_tool("charge", json!({}));
    structured(charge.retry(RetryPolicy::Always).await);
    let calls = scripted.record().calls("charge");
    assert_eq!(
        calls.iter().map(|it| it.generation).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_is_sent_whatever_its_kind() {
    let script = Script::new().tool("slow", Behaviour::silence());
    let one = settings(|settings| settings.admission.in_flight = 1);
    let (scripted, _runtime, handle) = started(script, one).await;
    let slow = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    // Queued behind a call that is lost with the connection.
    let unsent = handle
        .call_tool("echo", json!({}))
        .retry(RetryPolicy::Never);
    let unsent = spawn(unsent);
    eventually(DEADLINE, "it waits", || handle.status().waiting == 1).await;
    scripted.control().end();
    slow.await.unwrap().unwrap_err();
    structured(unsent.await.unwrap());
    let calls = scripted.record().calls("echo");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].generation, 2);
}
