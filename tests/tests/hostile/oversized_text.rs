//! Descriptions and errors from a server are truncated before they are stored or shown.

use std::time::Duration;

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{CallError, FaultClass, Known, Runtime, ServerHandle};
use serde_json::json;

use crate::shell_server::*;

/// How the script of a good server answers `initialize`.
const WELCOME: &str = r#"answer "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}'"#;

/// How the script of a good server answers `tools/list`.
const TOOLS: &str = r#"answer "$id" '{"tools":[{"name":"'"tool-$((lists += 1))"'","inputSchema":{"type":"object"}}]}'"#;

/// The script of a good server with one part replaced.
fn instead(of: &str, what: &str) -> String {
    let decent = script("", "");
    assert!(decent.contains(of));
    decent.replace(of, what)
}

/// Prints a line with 15 MiB of text between these two parts.
fn long(before: &str, after: &str) -> String {
    format!(
        r#"printf '{{"jsonrpc":"2.0","id":%s,{before}' "$id"; mib 15 x; printf '%s\n' '{after}}}'"#
    )
}

async fn runtime(script: &str) -> (Runtime, ServerHandle) {
    let config = server("hostile", sh(script));
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let hostile = runtime.server("hostile").unwrap();
    (runtime, hostile)
}

#[tokio::test]
async fn a_huge_refusal_is_truncated_in_the_status_and_for_every_caller() {
    let refuse = long(r#""error":{"code":-32000,"message":""#, r#""}"#);
    let mut config = server("hostile", sh(&instead(WELCOME, &refuse)));
    // Only this version is tried, so the refusal is final.
    config.protocol = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let hostile = runtime.server("hostile").unwrap();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let call = hostile.call_tool("any", json!({}));
            tokio::spawn(call.deadline(Duration::from_secs(5)).into_future())
        })
        .collect();
    let mut status = hostile.watch();
    let failed = status.wait_for(|status| status.last_error.is_some());
    let fault = tokio::time::timeout(DEADLINE, failed).await.unwrap();
    let fault = fault.unwrap().last_error.clone().unwrap();
    assert_eq!(fault.class, FaultClass::Refused);
    assert!(
        fault.message.contains("refused the handshake: xxx"),
        "{fault}"
    );
    assert!(fault.message.contains('…'), "{fault}");
    assert!(fault.message.len() < 4096, "{}", fault.message.len());
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.known(), Known::NotSent, "{error}");
        assert!(error.to_string().len() < 8192);
    }
    runtime.shutdown(BUSY).await;
}

#[tokio::test]
async fn the_description_of_a_server_is_truncated() {
    let words = long(
        r#""result":{"protocolVersion":"2025-11-25","capabilities":{},"instructions":"#,
        r#"","serverInfo":{"name":"sh","version":"1"}}"#,
    )
    .replace("mib 15 x", "printf '\"'; mib 1 x");
    let name = long(
        r#""result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"version":"1","name":""#,
        r#"","title":"é","icons":[{"src":"data:image/png;base64,AAAA"}]}}"#,
    );
    let (fleet, hostile) = runtime(&instead(WELCOME, &words)).await;
    fleet.ready(DEADLINE).await.unwrap();
    let info = hostile.info().unwrap();
    let instructions = info.instructions.as_ref().unwrap();
    assert_eq!(instructions.len(), 64 * 1024, "with the mark of the cut");
    assert!(instructions.ends_with("x…"));
    fleet.shutdown(BUSY).await;

    let (fleet, hostile) = runtime(&instead(WELCOME, &name)).await;
    fleet.ready(DEADLINE).await.unwrap();
    let said = hostile.status().server.unwrap();
    assert_eq!(said.name.len(), 1024);
    assert!(said.name.ends_with("x…"));
    assert_eq!(
        (said.title.as_deref(), said.version.as_str()),
        (Some("é"), "1")
    );
    assert_eq!(said.icons.unwrap().len(), 1);
    fleet.shutdown(BUSY).await;
}

#[tokio::test]
async fn a_listing_of_huge_pages_stops_at_the_bound_and_the_last_good_one_stays() {
    // The first listing is good, the later ones are not.
    let page = long(
        r#""result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"description":""#,
        r#""}],"nextCursor":"'"$((lists += 1))"'"}"#,
    );
    let listing = format!(r#"if [ "$lists" ]; then {page}; else {TOOLS}; fi"#);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let tell = format!(r#"say '{changed}'; answer "$id" '{{"content":[]}}'"#);
    let script = script(&tell, "").replace(TOOLS, &listing);
    let (fleet, hostile) = runtime(&script).await;
    fleet.ready(DEADLINE).await.unwrap();
    let good = hostile.catalog();
    hostile.call_tool("any", json!({})).await.unwrap();
    let mut status = hostile.watch();
    let failed = status.wait_for(|status| status.last_error.is_some());
    let fault = tokio::time::timeout(DEADLINE, failed).await.unwrap();
    let fault = fault.unwrap().last_error.clone().unwrap();
    assert_eq!(fault.class, FaultClass::Discovery);
    assert!(fault.message.contains("more than 128 MiB"), "{fault}");
    assert_eq!(hostile.catalog().tools, good.tools);
    assert!(hostile.catalog().stale);
    fleet.shutdown(BUSY).await;
}

#[tokio::test]
async fn a_call_beyond_the_write_buffer_is_reported_as_not_sent() {
    // Larger than the pipe and the queue behind it.
    let fleet = Fleet::start("sleep 100").await;
    let text = "x".repeat(4 * 1024 * 1024);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let call = fleet.hostile.call_tool("worst", json!({ "text": text }));
            tokio::spawn(call.deadline(PATIENCE * 5).into_future())
        })
        .collect();
    let mut unsent = 0;
    for call in calls {
        match call.await.unwrap().unwrap_err() {
            error @ CallError::NotSent { .. } => {
                assert!(error.to_string().contains("does not read"), "{error}");
                unsent += 1;
            }
            CallError::Deadline { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(unsent > 0);
    fleet.end().await;
}
