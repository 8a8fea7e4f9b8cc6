//! Encoding.

use super::*;

fn call(arguments: Option<rmcp::model::JsonObject>) -> CallToolRequest {
    let mut params = CallToolRequestParams::new("echo");
    params.arguments = arguments;
    CallToolRequest::new(params)
}

fn request(request: impl Into<ClientRequest>) -> ClientJsonRpcMessage {
    JsonRpcMessage::request(request.into(), NumberOrString::Number(41))
}

fn meta(token: i64) -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    meta.set_progress_token(ProgressToken(NumberOrString::Number(token)));
    meta
}

#[test]
fn every_message_is_encoded_as_rmcp_does_on_one_line() {
    let mut token_only = call(Some(rmcp::object!({"text": "a\nb", "n": [1, {"x": null}]})));
    token_only.extensions.insert(meta(41));
    let mut both = call(None);
    both.extensions.insert(meta(41));
    both.params.meta = Some(meta(3));
    let mut own = call(None);
    own.params.meta = Some(meta(3));
    let mut legacy = call(None);
    legacy
        .extensions
        .insert(MetaObject(rmcp::object!({"legacy": 1})));
    let mut custom = ClientRequest::from(CustomRequest::new("x/y", Some(json!({"a": 1}))));
    custom
        .get_meta_mut()
        .set_progress_token(ProgressToken(NumberOrString::Number(41)));
    let cancelled = CancelledNotificationParam::new(Some(RequestId::Number(41)), None);

    let messages = [
        request(call(None)),
        request(token_only),
        request(both),
        request(own),
        request(legacy),
        request(PingRequest::default()),
        request(ListToolsRequest::default()),
        request(ListToolsRequest::with_param(
            PaginatedRequestParams::default().with_cursor(Some("c".to_owned())),
        )),
        request(custom),
        JsonRpcMessage::notification(InitializedNotification::default().into()),
        JsonRpcMessage::notification(CancelledNotification::new(cancelled).into()),
        JsonRpcMessage::response(ClientResult::empty(()), RequestId::String("a".into())),
        JsonRpcMessage::error(
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no", None),
            Some(RequestId::Number(1)),
        ),
    ];
    for message in messages {
        let mut line = b"earlier\n".to_vec();
        encode(&message, &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        let line = line.strip_prefix("earlier\n").unwrap();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        let ours: Value = serde_json::from_str(line).expect(line);
        assert_eq!(ours, serde_json::to_value(&message).unwrap(), "{line}");
    }
}
