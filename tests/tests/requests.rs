//! Every kind of request and event, end to end: over the pipes of a real child, and to rmcp's own
//! in-process server.

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

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fleet::*;
use mcpvisor::{
    CallError, EVENT_BUFFER, EventKind, Events, EventsError, Runtime, ServerHandle, StateName,
    Transport,
};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, EntryKind, Listing, Script, ScriptedServer, tool};
use rmcp::model::{
    ArgumentInfo, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, CompletionInfo, ContentBlock, ErrorCode, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListRootsRequest, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, Prompt, PromptArgument, PromptMessage, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Reference, RequestMetaObject, Resource,
    ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam, Role, ServerCapabilities,
    ServerConfig, ServerJsonRpcMessage, SetLevelRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

// The same server twice: the fixture in a process, and this one on rmcp's server side.

#[derive(Clone, Default)]
struct Gallery {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    subscriptions: BTreeSet<String>,
    debug: bool,
}

type Answer<T> = Result<T, ErrorData>;
type Context = RequestContext<RoleServer>;

impl Gallery {
    /// Sends a resource update, if the client subscribed to the resource.
    async fn touch(&self, uri: &str, context: &Context) {
        let subscribed = self.kept.lock().unwrap().subscriptions.contains(uri);
        if subscribed {
            let update = ResourceUpdatedNotificationParam::new(uri);
            context.peer.notify_resource_updated(update).await.unwrap();
        }
    }

    /// Sends a log message of the lowest level, if enabled.
    async fn log(&self, data: Value, context: &Context) {
        let wanted = self.kept.lock().unwrap().debug;
        if wanted {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Debug, data);
            context.peer.notify_logging_message(message).await.unwrap();
        }
    }

    async fn progress(&self, steps: u64, context: &Context) {
        let token = context.meta.get_progress_token().unwrap();
        for step in 1..=steps {
            let progress =
                ProgressNotificationParam::new(token.clone(), step as f64).with_total(steps as f64);
            context.peer.notify_progress(progress).await.unwrap();
        }
    }
}

impl ServerHandler for Gallery {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Answer<ListToolsResult> {
        let names = ["echo", "touch", "log", "progress", "fail"];
        Ok(ListToolsResult::with_all_items(names.map(tool).to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Answer<CallToolResponse> {
        let arguments = Value::from(request.arguments.unwrap_or_default());
        match request.name.as_ref() {
            "echo" => {}
            "touch" => {
                self.touch(arguments["uri"].as_str().unwrap(), &context)
                    .await
            }
            "log" => self.log(arguments["text"].clone(), &context).await,
            "progress" => {
                self.progress(arguments["steps"].as_u64().unwrap(), &context)
                    .await;
            }
            "fail" => {
                let text = ContentBlock::text(arguments.to_string());
                return Ok(CallToolResult::error(vec![text]).into());
            }
            name => return Err(ErrorData::invalid_params(format!("no tool {name}"), None)),
        }
        Ok(CallToolResult::structured(arguments).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Answer<ListPromptsResult> {
        let name = PromptArgument::new("name").with_required(true);
        let greet = Prompt::new("greet", None::<String>, Some(vec![name]));
        Ok(ListPromptsResult::with_all_items(vec![greet]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Answer<GetPromptResponse> {
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let text = format!("Hello, {}!", arguments["name"].as_str().unwrap_or_default());
        let message = PromptMessage::new_text(Role::User, text);
        Ok(GetPromptResult::new(vec![message]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Answer<ListResourcesResult> {
        let one = Resource::new("fixture://one", "one");
        Ok(ListResourcesResult::with_all_items(vec![one]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Answer<ListResourceTemplatesResult> {
        let any = ResourceTemplate::new("fixture://{name}", "any");
        Ok(ListResourceTemplatesResult::with_all_items(vec![any]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Answer<ReadResourceResponse> {
        let text = format!("contents of {}", request.uri);
        let contents = ResourceContents::text(text, request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn complete(&self, request: CompleteRequestParams, _: Context) -> Answer<CompleteResult> {
        let mut completion = CompletionInfo::default();
        completion.values = vec![format!("{}…", request.argument.value)];
        Ok(CompleteResult::new(completion))
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: Context) -> Answer<()> {
        self.kept.lock().unwrap().subscriptions.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, _: Context) -> Answer<()> {
        self.kept.lock().unwrap().subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: Context) -> Answer<()> {
        self.kept.lock().unwrap().debug = request.level == LoggingLevel::Debug;
        Ok(())
    }
}

/// Runs the same test with both servers.
async fn both(test: impl AsyncFn(&Runtime, &ServerHandle)) {
    let marker = Marker::new("requests");
    let transports: [(&str, Transport); 2] = [
        ("stdio", fixture(&marker, &[]).into()),
        ("in_process", Transport::in_process(Gallery::default())),
    ];
    for (label, transport) in transports {
        let (runtime, handle) = ready(server(label, transport)).await;
        assert_eq!(handle.status().transport, label);
        let test = tokio::time::timeout(DEADLINE, test(&runtime, &handle));
        assert!(test.await.is_ok(), "{label} hangs");
        assert!(runtime.shutdown(secs(5)).await.is_clean(), "{label}");
    }
    assert_eq!(marker.processes(), []);
}

#[tokio::test]
async fn tools_are_listed_and_called() {
    both(async |_, handle| {
        let page = handle.list_tools(None).await.unwrap();
        assert_eq!(page.next_cursor, None);
        assert!(page.tools.iter().any(|tool| tool.name == "echo"));
        assert_eq!(page.tools[..], handle.catalog().tools[..]);

        let arguments = json!({ "text": "ä\u{2028}\n\"", "list": [1, 2.5, null, { "a": true }] });
        let answer = handle.call_tool("echo", arguments.clone()).await;
        assert_eq!(structured(answer), arguments);
        let echo = handle.tool("echo");
        assert_eq!(echo.definition().unwrap().name, "echo");
        let answer = echo.call(arguments.as_object().unwrap().clone()).await;
        assert_eq!(structured(answer), arguments);
        handle.call_tool("echo", Value::Null).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_a_server_says_of_a_failure_is_told() {
    both(async |_, handle| {
        let result = handle.call_tool("fail", json!({ "text": "no" })).await;
        assert_eq!(
            result.unwrap().is_error,
            Some(true),
            "a result all the same"
        );
        match handle.call_tool("nonsense", json!({})).await {
            Err(CallError::Answered { error, .. }) => {
                assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
                assert!(error.message.contains("no tool nonsense"), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn prompts_are_listed_and_got() {
    both(async |_, handle| {
        let page = handle.list_prompts(None).await.unwrap();
        assert_eq!(page.prompts[0].name, "greet");
        assert_eq!(page.prompts[..], handle.catalog().prompts[..]);
        let prompt = handle.get_prompt("greet", json!({ "name": "Ada" }));
        let message = &prompt.await.unwrap().messages[0];
        assert_eq!(message.role, Role::User);
        assert_eq!(message.content.as_text().unwrap().text, "Hello, Ada!");
    })
    .await;
}

#[tokio::test]
async fn resources_and_templates_are_listed_and_read() {
    both(async |_, handle| {
        let page = handle.list_resources(None).await.unwrap();
        assert_eq!(page.resources[0].uri, "fixture://one");
        assert_eq!(page.resources[..], handle.catalog().resources[..]);
        let page = handle.list_resource_templates(None).await.unwrap();
        assert_eq!(page.resource_templates[0].uri_template, "fixture://{name}");
        let catalog = handle.catalog();
        assert_eq!(page.resource_templates[..], catalog.resource_templates[..]);

        let read = handle.read_resource("fixture://two").await.unwrap();
        match &read.contents[0] {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                assert_eq!(uri, "fixture://two");
                assert_eq!(text, "contents of fixture://two");
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn arguments_are_completed() {
    both(async |_, handle| {
        for reference in [
            Reference::for_prompt("greet"),
            Reference::for_resource("fixture://{name}"),
        ] {
            let argument = ArgumentInfo::new("name", "A");
            let params = CompleteRequestParams::new(reference, argument);
            let completed = handle.complete(params).await.unwrap();
            assert_eq!(completed.completion.values, ["A…"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_ping_is_answered() {
    both(async |_, handle| handle.ping().await.unwrap()).await;
}

/// The resource updates and log messages reported before this mark.
async fn reported(events: &mut Events, handle: &ServerHandle) -> Vec<String> {
    // Messages of a connection are ordered, so this one arrives after all earlier ones.
    let mark = json!({ "steps": 1, "ms": 0 });
    handle.call_tool("progress", mark).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let event = events.recv().await.unwrap();
        match &event.kind {
            EventKind::ResourceUpdated { uri } => seen.push(uri.clone()),
            EventKind::Log(log) => seen.push(log.data.as_str().unwrap().to_owned()),
            EventKind::Progress(_) => return seen,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_subscription_reports_changes_until_it_is_taken_back() {
    both(async |runtime, handle| {
        let mut events = runtime.events();
        let touch = async || {
            for uri in ["fixture://one", "fixture://two"] {
                let touched = handle.call_tool("touch", json!({ "uri": uri }));
                touched.await.unwrap();
            }
        };
        touch().await;
        assert_eq!(reported(&mut events, handle).await, [""; 0]);
        handle.subscribe("fixture://one").await.unwrap();
        touch().await;
        assert_eq!(reported(&mut events, handle).await, ["fixture://one"]);
        handle.unsubscribe("fixture://one").await.unwrap();
        touch().await;
        assert_eq!(reported(&mut events, handle).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn the_log_level_decides_what_is_reported() {
    both(async |runtime, handle| {
        let mut events = runtime.events();
        let log = async |text| {
            let logged = json!({ "level": "debug", "text": text });
            handle.call_tool("log", logged).await.unwrap();
        };
        log("too quiet").await;
        assert_eq!(reported(&mut events, handle).await, [""; 0]);
        handle.set_log_level(LoggingLevel::Debug).await.unwrap();
        log("loud enough").await;
        assert_eq!(reported(&mut events, handle).await, ["loud enough"]);
        handle.set_log_level(LoggingLevel::Error).await.unwrap();
        log("too quiet again").await;
        assert_eq!(reported(&mut events, handle).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn progress_reaches_the_sink_of_its_caller_and_the_events() {
    both(async |runtime, handle| {
        let mut events = runtime.events();
        let (sink, mut progress) = mpsc::channel(16);
        let (other_sink, mut others) = mpsc::channel(16);
        let steps = json!({ "steps": 3, "ms": 1 });
        let call = handle.call_tool("progress", steps).on_progress(sink);
        let other = handle.call_tool("echo", json!({})).on_progress(other_sink);
        let (call, other) = tokio::join!(call.into_future(), other.into_future());
        call.unwrap();
        other.unwrap();

        let mut seen = Vec::new();
        while let Some(step) = progress.recv().await {
            assert_eq!(step.total, Some(3.0));
            seen.push(step.progress);
        }
        assert_eq!(seen, [1.0, 2.0, 3.0]);
        assert!(others.recv().await.is_none(), "somebody else's progress");
        for wanted in [1.0, 2.0, 3.0] {
            let step = next_event(&mut events, |event| match &event.kind {
                EventKind::Progress(step) => Some(step.progress),
                _ => None,
            });
            assert_eq!(step.await, wanted);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_nobody_empties_holds_up_nothing() {
    let chatty = Behaviour::answer().with_progress(100, millis(1));
    let scripted_server = ScriptedServer::new(Script::new().tool("chatty", chatty));
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let (sink, mut progress) = mpsc::channel(2);
    let call = handle.call_tool("chatty", json!({})).on_progress(sink);
    call.deadline(secs(1)).await.unwrap();
    assert_eq!(progress.recv().await.unwrap().progress, 1.0);
    assert_eq!(progress.recv().await.unwrap().progress, 2.0);
    assert!(progress.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_is_asked_for_by_its_cursor() {
    let pages = Listing::Pages(vec![vec![tool("a")], vec![tool("b")]]);
    let scripted_server = ScriptedServer::new(Script::bare().tools(pages));
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let first = handle.list_tools(None).await.unwrap();
    assert_eq!(first.tools[0].name, "a");
    let second = handle.list_tools(first.next_cursor).await.unwrap();
    assert_eq!(
        (second.tools[0].name.as_ref(), second.next_cursor),
        ("b", None)
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_travels_beside_the_progress_token() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let trace = json!({ "traceparent": "00-1-2-01" });
    let meta: RequestMetaObject = serde_json::from_value(trace).unwrap();
    let call = handle.call_tool("echo", json!({ "a": 1 })).meta(meta);
    assert_eq!(structured(call.await), json!({ "a": 1 }));
    let received = scripted_server.record().received("tools/call");
    let meta = &received[0].params["_meta"];
    assert_eq!(meta["traceparent"], "00-1-2-01");
    assert!(meta["progressToken"].is_number(), "{meta}");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_of_us_is_answered_or_declined() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (_runtime, _handle) = ready(server("one", scripted(&scripted_server))).await;
    let control = scripted_server.control();
    let ping = control.request(PingRequest::default());
    let roots = control.request(ListRootsRequest::default());
    let (pong, declined) = scripted_server
        .record()
        .until(DEADLINE, "both answers", |record| {
            let entries = record.entries();
            let pong = entries
                .iter()
                .any(|entry| matches!(&entry.what, EntryKind::Answered { id, .. } if *id == ping));
            let declined = entries.iter().find_map(|entry| match &entry.what {
                EntryKind::Refused { id, error } if *id == Some(roots.clone()) => Some(error.code),
                _ => None,
            });
            pong.then_some((pong, declined?))
        })
        .await;
    assert!(pong);
    assert_eq!(declined, ErrorCode::METHOD_NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_another_kind_is_unreadable_and_the_next_call_works() {
    let wrong = Behaviour::answer_with(ListToolsResult::with_all_items(vec![]));
    let script = Script::new().on_call("echo", Behaviour::first(1, wrong, Behaviour::answer()));
    let scripted_server = ScriptedServer::new(script);
    let (_runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let error = handle.call_tool("echo", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Unreadable { .. }), "{error:?}");
    handle.call_tool("echo", json!({})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_events_is_told_how_many_it_missed_and_reads_on() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("one", scripted(&scripted_server))).await;
    let mut events = runtime.events();
    let mut quick = runtime.events();
    let surplus = 100;
    for number in 0..EVENT_BUFFER + surplus {
        let data = json!(number.to_string());
        let log = LoggingMessageNotificationParam::new(LoggingLevel::Info, data);
        let log = rmcp::model::Notification::new(log);
        let log = rmcp::model::ServerNotification::LoggingMessageNotification(log);
        scripted_server
            .control()
            .send(ServerJsonRpcMessage::notification(log));
        let seen = quick.recv().await.unwrap();
        let expected = json!(number.to_string());
        assert!(matches!(&seen.kind, EventKind::Log(log) if log.data == expected));
    }
    assert_eq!(
        events.recv().await.unwrap_err(),
        EventsError::Lagged(surplus as u64)
    );
    let mut versions = Vec::new();
    while let Some(event) = events.try_recv().unwrap() {
        versions.push(event.version);
    }
    assert_eq!(versions.len(), EVENT_BUFFER);
    assert!(versions.windows(2).all(|pair| pair[1] == pair[0] + 1));
    // The runtime kept working meanwhile.
    handle.call_tool("echo", json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hears_of_a_change_finds_it_in_the_status() {
    const ROUNDS: usize = 300;
    let server_a = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted(&server_a))).await;
    let mut events = runtime.events();
    let (heard, mut hears) = mpsc::unbounded_channel();
    // A separate thread that never blocks, so that it sees every event as soon as possible.
    let reader = std::thread::spawn(move || {
        let mut left = ROUNDS;
        while left > 0 {
            let Some(event) = events.try_recv().unwrap() else {
                std::hint::spin_loop();
                continue;
            };
            if let EventKind::StateChanged { to, .. } = event.kind
                && to == StateName::Disabled
            {
                heard.send((to, handle.status().state)).unwrap();
                left -= 1;
            }
        }
    });
    for round in 0..ROUNDS {
        runtime.disable("a").await.unwrap();
        let (told, seen) = hears.recv().await.unwrap();
        assert_eq!(told, seen, "in round {round}");
        runtime.enable("a").await.unwrap();
    }
    reader.join().unwrap();
    runtime.shutdown(DEADLINE).await;
}
