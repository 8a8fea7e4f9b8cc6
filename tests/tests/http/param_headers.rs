//! Calls whose headers a modern server rejects, because its tools changed since they were listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{Known, Transport};
use serde_json::{Value, json};

use crate::era_change::{error, modern};
use crate::harness::{LONG, started_with};
use mcpvisor_testkit::stub_server::{StubReply, StubServer};

fn tool(name: &str, description: &str, mark: &str) -> Value {
    let region = json!({"type": "string", "x-mcp-header": mark});
    let schema = json!({"type": "object", "properties": {"region": region}});
    json!({"name": name, "description": description, "inputSchema": schema})
}

/// Adds the fields that every result has in this era.
fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    result
}

/// Makes a call whose first attempt is rejected by a server that has this tool from then on.
/// Returns how often the call was sent, and what is known about it in the end.
async fn calls(pin: bool, now: Value) -> (usize, Result<(), Known>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let server = StubServer::start(move |request| match request.operation() {
        "tools/list" => {
            let tool = match count.load(Ordering::SeqCst) {
                0 => tool("echo", "says it", "Region"),
                _ => now.clone(),
            };
            StubReply::result(request, &complete(json!({"tools": [tool]})))
        }
        "tools/call" if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            let differ = json!({"code": -32020, "message": "headers and body differ"});
            error(request, "400 Bad Request", &differ)
        }
        _ => modern(request),
    })
    .await;
    let (runtime, web) = started_with(Transport::http(server.url()), |config| {
        config.protocol = Some(ProtocolVersion::V_2026_07_28);
        config.pin = pin;
    })
    .await;
    runtime.ready(LONG).await.unwrap();
    let call = web.call_tool("echo", json!({"region": "south"}));
    let outcome = call.deadline(LONG).await;
    let outcome = outcome.map(drop).map_err(|error| error.known());
    let sent = server.count("tools/call");
    runtime.shutdown(LONG).await;
    (sent, outcome)
}

#[tokio::test]
async fn a_call_whose_headers_were_wrong_is_sent_again_only_to_the_tool_that_was_meant() {
    let same = || tool("echo", "says it", "Region");
    let marked = || tool("echo", "says it", "Zone");
    let again = (2, Ok(()));
    assert_eq!(calls(false, same()).await, again);
    assert_eq!(calls(false, marked()).await, again, "the mark is followed");
    assert_eq!(calls(true, same()).await, again, "it is the approved one");
    let once = (1, Err(Known::Answered));
    let other = tool("echo", "says it to everybody", "Region");
    assert_eq!(calls(false, other).await, once, "another tool");
    let gone = tool("other", "says it", "Region");
    assert_eq!(calls(false, gone).await, once, "it is gone");
    assert_eq!(calls(true, marked()).await, once, "nobody approved that");
}
