//! Header names of the protocol, and the headers of a single request.

use std::ops::{Deref, DerefMut};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use mcpvisor_core::CredentialRevision;
use rmcp::model::{ClientRequest, GetExtensions as _, ProtocolVersion};

use crate::auth::RequestSigner;
use crate::link::{RequestHeaders, TOOL_CALL};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Prefix and suffix of a value in Base64.
const BASE64_MARKERS: (&str, &str) = ("=?base64?", "?=");

/// Bytes of a session id.
const MAX_SESSION_ID: usize = 4 * 1024;

/// The headers that all requests of a link carry, and the credential among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkHeaders {
    pub(super) map: HeaderMap,
    pub(super) credential: CredentialRevision,
    /// Signs each request, if the credential is bound to a key.
    pub(super) signer: Option<RequestSigner>,
}

impl Deref for LinkHeaders {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        &self.map
    }
}

impl DerefMut for LinkHeaders {
    fn deref_mut(&mut self) -> &mut HeaderMap {
        &mut self.map
    }
}

/// A session id is visible ASCII of limited length.
pub(super) fn is_valid_session_id(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    let visible = id.iter().all(|byte| (0x21..=0x7E).contains(byte));
    !id.is_empty() && id.len() <= MAX_SESSION_ID && visible
}

/// The headers of one request, in addition to those of its session. In the modern era a request
/// names its method and subject.
pub(super) fn request_headers(
    request: &ClientRequest,
    modern: bool,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let probe = matches!(request, ClientRequest::DiscoverRequest(_));
    if modern || probe {
        headers.push((METHOD, encode_value(request.method())?));
        if let Some(name) = subject_of(request) {
            headers.push((NAME, encode_value(name)?));
        }
    }
    if probe && !modern {
        headers.push((
            PROTOCOL_VERSION,
            encode_value(ProtocolVersion::V_2026_07_28.as_str())?,
        ));
    }
    if let Some(RequestHeaders(extra)) = request.extensions().get() {
        for (name, text) in extra {
            let name = HeaderName::try_from(name.as_str());
            let name = name.map_err(|_| "a parameter's header name is not valid".to_owned())?;
            headers.push((name, encode_value(text)?));
        }
    }
    Ok(headers)
}

/// The tool, prompt, resource or task that a request is about.
fn subject_of(request: &ClientRequest) -> Option<&str> {
    match request {
        ClientRequest::CallToolRequest(request) => Some(&request.params.name),
        ClientRequest::GetPromptRequest(request) => Some(&request.params.name),
        ClientRequest::ReadResourceRequest(request) => Some(&request.params.uri),
        ClientRequest::SubscribeRequest(request) => Some(&request.params.uri),
        ClientRequest::UnsubscribeRequest(request) => Some(&request.params.uri),
        ClientRequest::GetTaskRequest(request) => Some(&request.params.task_id),
        ClientRequest::UpdateTaskRequest(request) => Some(&request.params.task_id),
        ClientRequest::CancelTaskRequest(request) => Some(&request.params.task_id),
        ClientRequest::CustomRequest(request) => {
            let member = match request.method.as_str() {
                TOOL_CALL | "prompts/get" => "name",
                "resources/read" => "uri",
                "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
                _ => return None,
            };
            request.params.as_ref()?.get(member)?.as_str()
        }
        _ => None,
    }
}

/// A text as a header value: verbatim, or in Base64 if a header would not preserve it.
fn encode_value(text: &str) -> Result<HeaderValue, String> {
    let (prefix, suffix) = BASE64_MARKERS;
    let blank = |end: Option<char>| matches!(end, Some(' ' | '\t'));
    let needs_base64 = !text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        || blank(text.chars().next())
        || blank(text.chars().next_back())
        || text.starts_with(prefix) && text.ends_with(suffix);
    let value = if needs_base64 {
        HeaderValue::try_from(format!("{prefix}{}{suffix}", BASE64.encode(text)))
    } else {
        HeaderValue::from_str(text)
    };
    value.map_err(|_| "a parameter is not a valid header value".to_owned())
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
        let headers = request_headers(request, modern).unwrap();
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_modern_request_names_its_method_and_subject() {
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
    fn a_request_of_a_session_has_no_headers_of_its_own() {
        assert_eq!(shown(&call("echo"), false), []);
    }

    #[test]
    fn a_name_that_a_header_cannot_preserve_is_sent_in_base64() {
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
