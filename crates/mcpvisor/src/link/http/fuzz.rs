//! Fuzz tests: nearly valid streams, headers, addresses and bodies of HTTP servers.

use http::{HeaderValue, StatusCode};
use mcpvisor_core::CallId;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::endpoint::HttpEndpoint;
use super::exchange::event::HttpRefusal;
use super::exchange::sse::SseEvent;
use super::exchange::sse::tests::{read, read_session};
use super::redirect::resolve_redirect;
use super::refusal;
use super::sse_link::endpoint_event::resolve_endpoint;
use super::target::Target;
use crate::fuzz::{budget, bytes, text};
use crate::link::Inbound;
use crate::link::codec::partial_message::MAX_SKIPPED_FACTOR;
use crate::secret::percent_decode;

const STREAMS: &[&str] = &[
    "id: 1\nretry: 250\ndata:\n\n: comment\nevent: message\ndata: {\"jsonrpc\":\"2.0\"}\n\n",
    "data: a\r\n\r\nid: \0\r\ndata: b\r\ndata: c\r\n\r\n",
    "retry: 99999999999999999999\rid\rdata\r\r",
];

const SESSIONS: &[&str] = &[
    "event: endpoint\ndata: /messages?session=1\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1}\n\n",
    "data: {\ndata: \"id\":1,\ndata: \"x\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}\n\n",
    ": ping - 2026-11-18\r\n\r\nevent: endpoint\rdata: http://evil.example/\r\r",
];

const LOCATIONS: &[&str] = &[
    "/other?x=1",
    "//evil.example/x",
    "http://example.com/other",
    "http://EXAMPLE.com:80/other#part",
    "http://user:pass@example.com/x",
    "http://example.com@evil.example/x",
    "https://example.com/x",
    "http://[::1]:80/x",
    "\\\\evil.example/x",
];

const WAITS: &[&str] = &[
    "120",
    "18446744073709551615",
    "-1",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
];

const BODIES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Session not found"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"unknown session","data":{}}}"#,
    r#"{"error":"invalid_token"}"#,
    "<html><body>404</body></html>",
];

const ADDRESSES: &[&str] = &[
    "http://user:pass@example.com:8080/mcp?key=1",
    "https://user@[::1]/mcp",
    "ftp://example.com/",
    "http:///mcp",
];

/// Whether a location is a path or a query, or begins with `http://example.com` in any spelling.
fn is_same_origin(location: &str) -> bool {
    if location.starts_with('/') {
        return !location.starts_with("//");
    }
    if location.starts_with('?') {
        return true;
    }
    let first = location.split(['/', '?']).next().unwrap_or_default();
    if !first.is_empty() && !first.contains([':', '\\']) {
        return true;
    }
    let lower = location.to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix("http://example.com") else {
        return false;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].strip_prefix(':') {
        Some(port) => port.is_empty() || port.parse() == Ok(80),
        None => end == 0,
    }
}

/// The `Debug` and `Display` of an address, or of the error.
fn shown(url: &str) -> String {
    match Target::new(&HttpEndpoint::new(url), |_| None) {
        Ok(target) => format!("{target:?} {target}"),
        Err(failure) => format!("{failure:?}"),
    }
}

proptest! {
    #![proptest_config(budget(300))]

    #[test]
    fn chunk_boundaries_of_a_stream_make_no_difference(
        bytes in bytes(STREAMS),
        cuts in vec(any::<Index>(), 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let (whole, at_once) = read(&[&bytes]);
        let (cut, in_parts) = read(&parts);
        prop_assert_eq!(whole, cut);
        prop_assert_eq!(at_once.cursor, in_parts.cursor);
    }

    #[test]
    fn the_stream_of_a_session_is_bounded_and_has_one_endpoint(
        bytes in bytes(SESSIONS),
        step in 1..40_usize,
        limit in 1..60_usize,
    ) {
        let chunks: Vec<&[u8]> = bytes.chunks(step).collect();
        let events = read_session(&chunks, limit);
        let endpoints = events.iter().filter(|it| matches!(it, Some(SseEvent::Endpoint(_))));
        prop_assert!(endpoints.count() <= 1);
        for event in events.iter().flatten() {
            let length = match event {
                SseEvent::Message(data) | SseEvent::Endpoint(data) => data.len(),
                SseEvent::Oversized(line) => line.head.len().max(line.tail.len()) / MAX_SKIPPED_FACTOR,
            };
            prop_assert!(length <= limit + step, "{event:?}");
        }
        // Without a limit, the boundaries of chunks make no difference.
        prop_assert_eq!(read_session(&chunks, 1_000_000), read_session(&[&bytes], 1_000_000));
    }

    #[test]
    fn no_endpoint_leads_to_another_origin(address in text(LOCATIONS)) {
        let target = Target::new(&HttpEndpoint::new("http://example.com/sse"), |_| None).unwrap();
        match resolve_endpoint(&target, address.as_bytes()) {
            Ok(path) => prop_assert!(is_same_origin(address.trim()), "{address:?}: {path}"),
            Err(problem) => prop_assert!(problem.len() < 300, "{problem}"),
        }
    }

    #[test]
    fn no_location_leads_to_another_origin(location in text(LOCATIONS)) {
        let target = Target::new(&HttpEndpoint::new("http://example.com/mcp"), |_| None).unwrap();
        if let Some(path) = resolve_redirect(&target, &target.path, &location) {
            prop_assert!(is_same_origin(&location), "{location:?}: {path}");
        }
    }

    #[test]
    fn retry_after_is_a_duration_or_nothing(value in bytes(WAITS)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let wait = refusal::parse_retry_after(&value);
            let seconds = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            if let Some(seconds) = seconds {
                prop_assert_eq!(wait.map(|wait| wait.as_secs()), Some(seconds));
            }
        }
    }

    #[test]
    fn every_refusal_gives_its_request_an_outcome(
        number in 100..1000_u16,
        body in bytes(BODIES),
        in_session: bool,
        modern: bool,
    ) {
        let refusal = HttpRefusal {
            credential: mcpvisor_core::CredentialRevision::NONE,
            challenge: None,
            proof: None,
            status: StatusCode::from_u16(number).unwrap(),
            retry_after: None,
            redirect: None,
            body,
        };
        let is_lost = refusal::is_session_lost(&refusal, in_session);
        prop_assert!(in_session || !is_lost);
        match refusal::to_inbound(CallId(1), &refusal, is_lost, modern) {
            Inbound::Failed { id, failed } => prop_assert_eq!((id, failed.status), (CallId(1), Some(number))),
            Inbound::Response { id, result } => prop_assert!(id == CallId(1) && result.is_err()),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets(secret in "[a-zA-Z0-9%!$]{6,20}") {
        let url = format!("http://user:{secret}@example.com/mcp?key={secret}");
        let shown = shown(&url);
        prop_assert!(!shown.contains(&secret), "{shown}");
    }

    #[test]
    fn parsing_an_address_never_panics(url in text(ADDRESSES)) {
        shown(&url);
    }

    #[test]
    fn percent_decoding_only_shortens_a_text(text in text(&["a%40b%3A%zz%", "%%41", "100%"])) {
        let decoded = percent_decode(&text);
        prop_assert!(decoded.len() <= text.len());
        prop_assert!(text.contains('%') || decoded == text.as_bytes());
    }
}
