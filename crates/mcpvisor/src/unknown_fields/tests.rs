//! What is kept of definitions and results.

use rmcp::model::ListToolsResult;
use serde_json::json;

use super::*;

#[test]
fn a_raw_definition_has_all_members_and_only_the_servers_own_metadata() {
    let kept = json!({ "execution": {}, "annotations": { "cost": 3 }, "name": "other" });
    let tool = json!({
        "name": "a",
        "inputSchema": {},
        "annotations": { "readOnlyHint": true },
        "_meta": { "ui": 1, UNKNOWN_FIELDS: kept },
    });
    let tool: Tool = serde_json::from_value(tool).unwrap();
    let expected = json!({
        "name": "a",
        "inputSchema": {},
        "annotations": { "readOnlyHint": true, "cost": 3 },
        "_meta": { "ui": 1 },
        "execution": {},
    });
    assert_eq!(raw_definition(&tool), expected);
    let plain = json!({ "name": "a", "inputSchema": {}, "_meta": {} });
    let tool: Tool = serde_json::from_value(plain.clone()).unwrap();
    assert_eq!(raw_definition(&tool), plain);
}

fn decoded(page: &Value) -> ListToolsResult {
    from_text(&page.to_string()).unwrap()
}

#[test]
fn unknown_members_stay_with_their_tool() {
    let tools = json!([
        { "name": "plain", "inputSchema": { "type": "object" } },
        {
            "name": "long",
            "inputSchema": { "type": "object", "x-any": 1 },
            "execution": { "taskSupport": "required" },
            "annotations": { "title": "Long", "cost": [1, 2] },
        },
        { "name": "null", "inputSchema": {}, "annotations": null, "vendor": null },
    ]);
    let page = decoded(&json!({ "nextCursor": "a", "tools": tools, "more": {} }));
    assert_eq!(page.tools[0].meta, None);
    for (number, tool) in page.tools.iter().enumerate().take(2) {
        assert_eq!(raw_definition(tool), tools[number], "as the server sent it");
    }
    assert_eq!(raw_definition(&page.tools[2])["vendor"], Value::Null);
}

#[test]
fn a_server_cannot_pass_off_members_as_unknown_ones() {
    let meta = json!({ UNKNOWN_FIELDS: { "execution": { "taskSupport": "required" } } });
    let tool = json!({ "name": "a", "inputSchema": {}, "_meta": meta });
    let page = decoded(&json!({ "tools": [tool] }));
    assert_eq!(kept(page.tools[0].meta.as_ref()), None);
}

#[test]
fn unknown_capabilities_are_kept() {
    let text = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "tools": {}, "tasks": { "list": {} } },
        "serverInfo": { "name": "a", "version": "1" },
    })
    .to_string();
    let info: InitializeResult = from_text(&text).unwrap();
    let unknown = kept(info.meta.as_ref()).unwrap();
    assert_eq!(
        Value::Object(unknown.clone()),
        json!({ "capabilities": { "tasks": { "list": {} } } })
    );
}

/// Decodes a result, as text and as a value.
fn results<R: Whole + serde::Serialize + PartialEq + std::fmt::Debug>(result: &Value) -> R {
    let decoded: R = from_text(&result.to_string()).unwrap();
    assert_eq!(from_value::<R>(result.clone()).unwrap(), decoded);
    decoded
}

fn annotations() -> Value {
    json!({ "audience": ["user"], "priority": 0.9, "lastModified": "2026-11-18", "mood": 1 })
}

#[test]
fn every_kind_of_content_is_returned_as_the_server_sent_it() {
    let icons = json!([{ "src": "a" }, { "src": "b", "theme": "dark", "depth": 24 }]);
    let text = json!({ "uri": "a://b", "mimeType": "text/plain", "text": "x", "_meta": { "m": 1 }, "rev": 7 });
    let blob = json!({ "uri": "a://c", "blob": "AAEC", "etag": "e" });
    let content = json!([
        { "type": "text", "text": "x", "annotations": annotations(), "_meta": { "m": 1 }, "lang": "de" },
        { "type": "image", "data": "AA==", "mimeType": "image/png", "annotations": annotations(), "uri": "x" },
        { "data": "AA==", "width": 3, "annotations": annotations(), "type": "audio", "mimeType": "audio/wav", "ms": 12 },
        { "type": "resource_link", "uri": "a://b", "name": "b", "size": 3, "icons": icons, "annotations": annotations(), "_meta": {}, "hash": null },
        { "type": "resource", "resource": text, "annotations": { "priority": 0.123456789 }, "more": [1] },
        { "type": "resource", "resource": blob },
    ]);
    let result = json!({
        "content": content,
        "structuredContent": { "_meta": { "own": 1 }, "n": 0.1 },
        "isError": false,
        "_meta": { "trace": "t" },
        "cost": { "type": "eur", "n": 2 },
    });
    let decoded: CallToolResult = results(&result);
    assert_eq!(decoded.content.len(), 6);
    assert_eq!(raw_definition(&decoded), result);

    let read = json!({ "contents": [text, blob], "next": "n" });
    assert_eq!(raw_definition(&results::<ReadResourceResult>(&read)), read);

    let messages = content.as_array().unwrap().iter();
    let messages = messages.map(|it| json!({ "role": "user", "content": it, "id": 1 }));
    let prompt = json!({ "messages": messages.collect::<Vec<_>>(), "more": true });
    assert_eq!(raw_definition(&results::<GetPromptResult>(&prompt)), prompt);
}

#[test]
fn a_text_stands_in_for_content_of_an_unknown_kind() {
    let video = json!({ "type": "video", "data": "AA==", "text": [1], "_meta": { "m": 1 } });
    let plain = json!({ "type": "text", "text": "x", "lang": "de" });
    let result = json!({ "content": [plain, video, { "type": 7 }], "isError": true });
    let decoded: CallToolResult = results(&result);
    let texts = decoded
        .content
        .iter()
        .map(|it| &*it.as_text().unwrap().text);
    let expected = [
        "x",
        "[unsupported content: video]",
        "[unsupported content: 7]",
    ];
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    assert_eq!(decoded.is_error, Some(true));
    assert_eq!(raw_definition(&decoded), result);

    let prompt = json!({ "messages": [{ "role": "user", "content": video }] });
    let decoded: GetPromptResult = results(&prompt);
    assert_eq!(decoded.messages.len(), 1);
    assert_eq!(raw_definition(&decoded), prompt);
}

#[test]
fn an_invalid_block_of_a_known_kind_stays_an_error() {
    for block in [json!({ "type": "text" }), json!({ "text": "x" }), json!(7)] {
        let video = json!({ "type": "video" });
        for content in [vec![block.clone()], vec![video, block.clone()]] {
            let result = json!({ "content": content, "type": "x" });
            assert!(from_text::<CallToolResult>(&result.to_string()).is_err());
            assert!(from_value::<CallToolResult>(result).is_err());
        }
    }
}
