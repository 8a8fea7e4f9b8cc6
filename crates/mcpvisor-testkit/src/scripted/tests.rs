//! The scripted server follows its script.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientCapabilities, ClientRequest, ClientResult, ErrorData,
    Implementation, InitializeRequest, InitializeRequestParams, ListToolsRequest, NumberOrString,
    PaginatedRequestParams, PingRequest, ProgressToken, ProtocolVersion, RequestMetaObject,
    ServerResult,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The client's side of one connection.
struct Client {
    to: mpsc::UnboundedSender<ClientJsonRpcMessage>,
    from: mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
    served: JoinHandle<()>,
}

impl Client {
    fn connect(server: &ScriptedServer, generation: u64) -> Self {
        let (to, incoming) = mpsc::unbounded_channel();
        let (outgoing, from) = mpsc::unbounded_channel();
        let served = tokio::spawn(server.clone().serve(incoming, outgoing, generation));
        Self { to, from, served }
    }

    fn ask(&self, id: i64, request: impl Into<ClientRequest>) {
        let id = NumberOrString::Number(id);
        let message = ClientJsonRpcMessage::request(request.into(), id);
        self.to.send(message).unwrap();
    }

    fn call(&self, id: i64, tool: &'static str) {
        self.ask(
            id,
            CallToolRequest::new(
                CallToolRequestParams::new(tool)
                    .with_arguments(serde_json::Map::from_iter([("id".to_owned(), json!(id))])),
            ),
        );
    }

    fn cancel(&self, id: i64) {
        let params = CancelledNotificationParam::new(Some(NumberOrString::Number(id)), None);
        let message = ClientJsonRpcMessage::notification(CancelledNotification::new(params).into());
        self.to.send(message).unwrap();
    }

    async fn next(&mut self) -> Option<serde_json::Value> {
        let message = self.from.recv().await?;
        Some(serde_json::to_value(message).unwrap())
    }

    async fn next_answer(&mut self) -> (i64, Result<ServerResult, ErrorData>) {
        let message = self.from.recv().await.unwrap();
        match message.into_result().unwrap() {
            (answer, Some(NumberOrString::Number(id))) => (id, answer),
            other => panic!("{other:?}"),
        }
    }
}

fn echoed(id: i64) -> CallToolResult {
    CallToolResult::structured(json!({ "id": id }))
}

#[tokio::test(start_paused = true)]
async fn initialize_is_answered_in_the_clients_version_unless_the_script_names_one() {
    let server =
        ScriptedServer::new(Script::new()).on_generation(2, Script::new().protocol("1999-01-01"));
    for (generation, version) in [(1, "2025-06-18"), (2, "1999-01-01")] {
        let mut client = Client::connect(&server, generation);
        let me = Implementation::new("test", "1");
        let params = InitializeRequestParams::new(ClientCapabilities::default(), me)
            .with_protocol_version(ProtocolVersion::V_2025_06_18);
        client.ask(1, InitializeRequest::new(params));
        let answer = client.next().await.unwrap();
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "scripted");
        assert_eq!(
            answer["result"]["capabilities"]["tools"],
            json!({ "listChanged": true })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_followed_by_their_cursors() {
    let pages = Listing::Pages(vec![vec![tool("a"), tool("b")], vec![tool("c")]]);
    let server = ScriptedServer::new(Script::bare().tools(pages));
    let mut client = Client::connect(&server, 1);
    let mut cursor = None;
    let mut names = Vec::new();
    for id in 1..=2 {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        client.ask(id, ListToolsRequest::with_param(params));
        let (_, Ok(ServerResult::ListToolsResult(page))) = client.next_answer().await else {
            panic!("no page");
        };
        names.extend(page.tools.into_iter().map(|tool| tool.name));
        cursor = page.next_cursor;
    }
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(cursor, None);
}

#[tokio::test(start_paused = true)]
async fn behaviours_come_in_the_order_and_at_the_time_they_say() {
    let script = Script::new()
        .tool("slow", Behaviour::answer().after(SECOND))
        .tool("failing", Behaviour::tool_error("no"))
        .tool(
            "broken",
            Behaviour::error(ErrorData::internal_error("x", None)),
        )
        .tool("mute", Behaviour::silence());
    let server = ScriptedServer::new(script);
    let mut client = Client::connect(&server, 1);
    let started = Instant::now();
    for (id, tool) in [
        (1, "slow"),
        (2, "mute"),
        (3, "failing"),
        (4, "broken"),
        (5, "echo"),
    ] {
        client.call(id, tool);
    }
    let (id, failed) = client.next_answer().await;
    let Ok(ServerResult::CallToolResult(failed)) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!((id, failed.is_error), (3, Some(true)));
    let (id, broken) = client.next_answer().await;
    assert_eq!((id, broken.unwrap_err().message.as_ref()), (4, "x"));
    assert_eq!(client.next_answer().await.0, 5);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(client.next_answer().await.0, 1);
    assert_eq!(started.elapsed(), SECOND);
    assert!(timeout(60 * SECOND, client.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn progress_goes_to_the_token_of_the_request_before_the_answer() {
    let behaviour = Behaviour::answer().with_progress(2, SECOND);
    let server = ScriptedServer::new(Script::bare().tool("work", behaviour));
    let mut client = Client::connect(&server, 1);
    let mut params = CallToolRequestParams::new("work");
    let token = ProgressToken(NumberOrString::Number(7));
    params.meta = Some(RequestMetaObject::with_progress_token(token));
    client.ask(1, CallToolRequest::new(params));
    for progress in [1.0, 2.0] {
        let sent = client.next().await.unwrap();
        assert_eq!(
            sent["params"],
            json!({ "progressToken": 7, "progress": progress })
        );
    }
    assert_eq!(client.next_answer().await.0, 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_before_the_answer_gives_none_and_an_end_after_it_gives_it() {
    let script = Script::bare()
        .tool("die", Behaviour::end())
        .tool("last", Behaviour::answer().then_end());
    let server = ScriptedServer::new(script);
    let mut client = Client::connect(&server, 1);
    client.call(1, "die");
    assert_eq!(client.next().await, None);

    let mut client = Client::connect(&server, 2);
    client.call(2, "last");
    assert_eq!(client.next_answer().await.0, 2);
    assert_eq!(client.next().await, None);
    client.served.await.unwrap();
    let ended = server.record().ended();
    assert_eq!(ended, [(1, Ending::ByScript), (2, Ending::ByScript)]);
}

#[tokio::test(start_paused = true)]
async fn a_choice_sees_how_often_and_on_which_generation() {
    let behaviour = Behaviour::first(1, Behaviour::end(), Behaviour::answer());
    let server = ScriptedServer::new(Script::bare().tool("once", behaviour));
    let mut client = Client::connect(&server, 1);
    client.call(1, "once");
    assert_eq!(client.next().await, None);
    let mut client = Client::connect(&server, 2);
    client.call(2, "once");
    assert_eq!(client.next_answer().await.0, 2);
    let calls = server.record().calls("once");
    assert_eq!(
        calls,
        [1, 2].map(|generation| ToolCall {
            generation,
            arguments: json!({ "id": generation }),
        })
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_held_waits_for_its_release() {
    let server = ScriptedServer::new(Script::bare().tool("held", Behaviour::answer().held()));
    let mut client = Client::connect(&server, 1);
    client.call(1, "held");
    client.call(2, "held");
    assert!(timeout(SECOND, client.next()).await.is_err());
    server.control().release("held", 1);
    assert_eq!(client.next_answer().await.0, 1);
    assert!(timeout(SECOND, client.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_not_answered_unless_the_script_ignores_it() {
    let slow = Script::bare().tool("slow", Behaviour::answer().after(SECOND));
    let server = ScriptedServer::new(slow.clone()).on_generation(2, slow.ignoring_cancellation());
    for (generation, answered) in [(1, false), (2, true)] {
        let mut client = Client::connect(&server, generation);
        client.call(1, "slow");
        client.cancel(1);
        let answer = timeout(2 * SECOND, client.next()).await;
        assert_eq!(answer.is_ok(), answered);
    }
    assert_eq!(server.record().cancelled(), [json!(1), json!(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_can_be_given_under_any_id() {
    let server = ScriptedServer::new(Script::new());
    let mut client = Client::connect(&server, 2);
    client.ask(1, PingRequest::default());
    assert_eq!(client.next_answer().await.0, 1);
    let late = NumberOrString::Number(99);
    server.control().answer(late, Ok(echoed(99).into()));
    assert_eq!(client.next_answer().await.0, 99);

    let behaviour = Behaviour::answer()
        .under_id(NumberOrString::Number(5))
        .twice();
    server
        .control()
        .set_script(Script::bare().tool("odd", behaviour));
    client.call(6, "odd");
    for _ in 0..2 {
        assert_eq!(client.next_answer().await.0, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn the_control_notifies_asks_and_ends() {
    let server = ScriptedServer::new(Script::new());
    let (control, record) = (server.control(), server.record());
    let mut client = Client::connect(&server, 1);
    record
        .until(SECOND, "a connection", |r| r.opened() == [1])
        .await;

    control.tools_changed();
    let sent = client.next().await.unwrap();
    assert_eq!(sent["method"], "notifications/tools/list_changed");

    let id = control.request(PingRequest::default());
    assert_eq!(client.next().await.unwrap()["method"], "ping");
    let answer = ClientJsonRpcMessage::response(ClientResult::empty(()), id.clone());
    client.to.send(answer).unwrap();
    let result = json!({});
    let wanted = EntryKind::Answered { id, result };
    record
        .until(SECOND, "the answer", |r| {
            r.entries().iter().any(|entry| entry.what == wanted)
        })
        .await;

    control.end();
    assert_eq!(client.next().await, None);
    client.served.await.unwrap();
    assert_eq!(record.ended(), [(1, Ending::ByControl)]);
    assert_eq!(control.live(), [] as [u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_record_knows_who_ended_a_connection_and_how_many_were_open() {
    let server = ScriptedServer::new(Script::new());
    let record = server.record();
    let first = Client::connect(&server, 1);
    drop(first.to);
    first.served.await.unwrap();
    let second = Client::connect(&server, 2);
    record
        .until(SECOND, "a second", |r| r.opened() == [1, 2])
        .await;
    assert_eq!(record.most_open_at_once(), 1);
    second.served.abort();
    let wanted = [(1, Ending::ByClient), (2, Ending::Dropped)];
    record
        .until(SECOND, "both ends", |r| r.ended() == wanted)
        .await;
}
