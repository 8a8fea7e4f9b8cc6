//! What goes with one message beside the headers of its session: what it asks for, and of what.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientRequest, GetExtensions as _, ProtocolVersion};

use crate::link::RequestHeaders;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What a value begins and ends with that is written in Base64.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// An id of a session is not longer.
const MAX_SESSION: usize = 4 * 1024;

/// Whether it can be the id of a session: characters that are seen, and not too many.
pub(super) fn is_session(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    let seen = id.iter().all(|byte| (0x21..=0x7E).contains(byte));
    !id.is_empty() && id.len() <= MAX_SESSION && seen
}

/// The headers of one request. Without sessions it says by itself what it is.
pub(super) fn of_request(
    request: &ClientRequest,
    modern: bool,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let probe = matches!(request, ClientRequest::DiscoverRequest(_));
    if modern || probe {
        headers.push((METHOD, value(request.method())?));
        if let Some(name) = name_of(request) {
            headers.push((NAME, value(name)?));
        }
    }
    if probe && !modern {
        headers.push((VERSION, value(ProtocolVersion::V_2026_07_28.as_str())?));
    }
    if let Some(RequestHeaders(extra)) = request.extensions().get() {
        for (name, text) in extra {
            let name = HeaderName::try_from(name.as_str());
            let name = name.map_err(|_| "a parameter's header has no valid name".to_owned())?;
            headers.push((name, value(text)?));
        }
    }
    Ok(headers)
}

/// What a request is about: a tool, a prompt, a resource or a task.
fn name_of(request: &ClientRequest) -> Option<&str> {
    match request {
        ClientRequest::CallToolRequest(request) => Some(&request.params.name),
        ClientRequest::GetPromptRequest(request) => Some(&request.params.name),
        ClientRequest::ReadResourceRequest(request) => Some(&request.params.uri),
        ClientRequest::SubscribeRequest(request) => Some(&request.params.uri),
        ClientRequest::UnsubscribeRequest(request) => Some(&request.params.uri),
        ClientRequest::GetTaskRequest(request) => Some(&request.params.task_id),
        ClientRequest::UpdateTaskRequest(request) => Some(&request.params.task_id),
        ClientRequest::CancelTaskRequest(request) => Some(&request.params.task_id),
        _ => None,
    }
}

/// A text as the value of a header: as it is, or in Base64 where that would not survive.
fn value(text: &str) -> Result<HeaderValue, String> {
    let (prefix, suffix) = ENCODED;
    let blank = |end: Option<char>| matches!(end, Some(' ' | '\t'));
    let lost = !text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        || blank(text.chars().next())
        || blank(text.chars().next_back())
        || text.starts_with(prefix) && text.ends_with(suffix);
    let value = if lost {
        HeaderValue::try_from(format!("{prefix}{}{suffix}", BASE64.encode(text)))
    } else {
        HeaderValue::from_str(text)
    };
    value.map_err(|_| "a value cannot stand in a header".to_owned())
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CallToolRequest, CallToolRequestParams, Extensions, PingRequest, ReadResourceRequest,
        ReadResourceRequestParams,
    };

    use super::*;

    fn call(name: &str) -> ClientRequest {
        ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new(
            name.to_owned(),
        )))
    }

    fn shown(request: &ClientRequest, modern: bool) -> Vec<(String, String)> {
        let headers = of_request(request, modern).unwrap();
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_request_without_a_session_says_what_it_is_and_of_what() {
        let method = pair("mcp-method", "tools/call");
        assert_eq!(
            shown(&call("echo"), true),
            [method, pair("mcp-name", "echo")]
        );
        let read = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(
            ReadResourceRequestParams::new("file:///a"),
        ));
        assert_eq!(shown(&read, true)[1], pair("mcp-name", "file:///a"));
        let ping = ClientRequest::PingRequest(PingRequest {
            method: Default::default(),
            extensions: Default::default(),
        });
        assert_eq!(shown(&ping, true), [pair("mcp-method", "ping")]);
    }

    #[test]
    fn with_a_session_nothing_is_said() {
        assert_eq!(shown(&call("echo"), false), []);
    }

    #[test]
    fn a_name_that_no_header_can_hold_is_written_in_base64() {
        for (name, written) in [
            ("größe", "=?base64?Z3LDtsOfZQ==?="),
            (" a", "=?base64?IGE=?="),
            ("a\n", "=?base64?YQo=?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
            ("a b", "a b"),
            ("", ""),
        ] {
            assert_eq!(shown(&call(name), true)[1].1, written, "{name:?}");
        }
    }

    #[test]
    fn headers_of_parameters_travel_in_the_extensions() {
        let mut extensions = Extensions::new();
        extensions.insert(RequestHeaders(vec![(
            "Mcp-Param-Region".to_owned(),
            "süd".to_owned(),
        )]));
        let mut request = call("echo");
        *rmcp::model::GetExtensions::extensions_mut(&mut request) = extensions;
        let last = shown(&request, true).pop().unwrap();
        assert_eq!(last, pair("mcp-param-region", "=?base64?c8O8ZA==?="));
    }
}
