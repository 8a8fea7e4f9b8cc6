//! Classifies a response by its head.

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

use super::outgoing::Purpose;

/// What the body of a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// One JSON message or batch.
    Json,
    /// A stream of events.
    Events,
    /// Nothing that matters.
    Ignored,
    /// An error.
    Refusal,
}

/// Classifies a response. The error says why it cannot be read.
pub(super) fn classify(
    purpose: Purpose,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<ResponseKind, String> {
    if !status.is_success() {
        return Ok(ResponseKind::Refusal);
    }
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(ResponseKind::Ignored);
    }
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && purpose.reads_response()
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(format!(
            "HTTP {status} with the content encoding {coding:?}, which was not requested"
        ));
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match purpose {
        Purpose::Post(_) => Ok(ResponseKind::Ignored),
        _ if essence.eq_ignore_ascii_case("text/event-stream") => Ok(ResponseKind::Events),
        _ if !purpose.reads_response() => Ok(ResponseKind::Ignored),
        Purpose::Request(_) if essence.eq_ignore_ascii_case("application/json") => {
            Ok(ResponseKind::Json)
        }
        Purpose::SessionStream => Err(format!(
            "HTTP {status} with the content type {content_type:?}, which is not an event stream"
        )),
        _ => Err(format!(
            "HTTP {status} with the content type {content_type:?}, which is neither JSON nor an \
             event stream"
        )),
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::CallId;

    use super::*;

    fn kind(purpose: Purpose, status: u16, headers: &[(&'static str, &'static str)]) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        let pairs = headers.iter();
        let headers = pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        match classify(purpose, status, &headers.collect()) {
            Ok(kind) => format!("{kind:?}"),
            Err(_) => "unreadable".to_owned(),
        }
    }

    #[test]
    fn a_response_is_classified_by_purpose_status_and_content_type() {
        let request = Purpose::Request(CallId(1));
        let json = ("content-type", "Application/JSON; charset=utf-8");
        let events = ("content-type", "text/event-stream");
        let html = ("content-type", "text/html");
        let gzip = ("content-encoding", "gzip");
        for (purpose, status, headers, expected) in [
            (request, 200, &[json][..], "Json"),
            (request, 200, &[events], "Events"),
            (request, 200, &[html], "unreadable"),
            (request, 200, &[json, gzip], "unreadable"),
            (request, 200, &[], "unreadable"),
            (request, 202, &[], "Ignored"),
            (request, 404, &[json], "Refusal"),
            (Purpose::Resume(CallId(1), 1), 200, &[json], "unreadable"),
            (Purpose::ServerStream, 200, &[json], "unreadable"),
            (Purpose::ServerStream, 200, &[events], "Events"),
            (Purpose::SessionStream, 200, &[events], "Events"),
            (Purpose::SessionStream, 200, &[html], "unreadable"),
            (Purpose::Post(CallId(1)), 200, &[events], "Ignored"),
            (Purpose::Post(CallId(1)), 200, &[json, gzip], "Ignored"),
            (Purpose::Post(CallId(1)), 400, &[json], "Refusal"),
            (Purpose::Message, 200, &[html, gzip], "Ignored"),
            (Purpose::DeleteSession, 405, &[], "Refusal"),
        ] {
            let found = kind(purpose, status, headers);
            assert_eq!(found, expected, "{purpose:?} {status} {headers:?}");
        }
    }
}
