//! What an answer that is no success means for the request.
//!
//! What says that a session is gone, and how strongly, is [`SessionEvidence`]'s business; here a reply is
//! read for it, and only where a session is held.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, StatusCode};
use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::session_evidence::{MAX_SEARCHED_TEXT, SessionEvidence, mentions_lost_session};
use rmcp::model::{ErrorCode, ErrorData};

use super::exchange::{Refusal, Unfollowed};
use crate::link::Inbound;
use crate::link::codec::decode_error_body;

/// Whether an error in a successful reply may mean that the session is lost. Ask only where a
/// session is held.
pub(super) fn is_doubtful(error: &ErrorData) -> bool {
    SessionEvidence::of(StatusCode::OK.as_u16(), Some(&error.message)) == SessionEvidence::Doubtful
}

/// Whether a refusal says that the session is gone, which the refused request carried or not.
pub(super) fn is_gone(refusal: &Refusal, held: bool) -> bool {
    let text = text_of(refusal);
    held && SessionEvidence::of(refusal.status.as_u16(), text.as_deref())
        == SessionEvidence::Certain
}

/// Whether a refusal says so in words, whatever its status may mean beside that.
pub(super) fn is_gone_in_words(refusal: &Refusal) -> bool {
    let may_say_so = matches!(
        refusal.status,
        StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::NOT_FOUND
    );
    may_say_so && text_of(refusal).is_some_and(|text| mentions_lost_session(&text))
}

/// What a refusal says: the message of its error, or else its body, if that is short.
fn text_of(refusal: &Refusal) -> Option<Cow<'_, str>> {
    match decode_error_body(&refusal.body) {
        Some(error) => Some(error.message),
        None if refusal.body.len() > MAX_SEARCHED_TEXT => None,
        None => Some(String::from_utf8_lossy(&refusal.body)),
    }
}

/// What a refused request comes to. `held`: it carried a session. `modern`: there are no sessions.
pub(super) fn failed(id: CallId, refusal: &Refusal, held: bool, modern: bool) -> Inbound {
    let status = refusal.status;
    let error = decode_error_body(&refusal.body);
    let fails = |trouble, message: String| Inbound::Failed {
        id,
        trouble,
        status: Some(status.as_u16()),
        error: error.clone(),
        message,
    };
    if is_gone(refusal, held) {
        return fails(RequestFailure::SessionLost, gone(refusal));
    }
    let said = in_words(refusal, error.as_ref());
    if let Some(unfollowed) = refusal.unfollowed {
        let refused = not_followed(unfollowed);
        let todo = "use the address that it leads to";
        return fails(RequestFailure::Denied, format!("{said}: {refused}; {todo}"));
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            let todo = "the server wants authorization; check the token or headers of its entry";
            fails(RequestFailure::Unauthorized, format!("{said}: {todo}"))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let retry_after = refusal.retry_after;
            fails(
                RequestFailure::Busy { retry_after },
                format!("{said}: the server is busy"),
            )
        }
        _ => match error.clone() {
            Some(error) => Inbound::Response {
                id,
                result: Err(error),
            },
            None if status == StatusCode::NOT_FOUND && modern => Inbound::Response {
                id,
                result: Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, said, None)),
            },
            // Whoever waits for the answer gave up, not whoever runs the request.
            None if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
                fails(RequestFailure::ServerFault, said)
            }
            None => fails(RequestFailure::Denied, said),
        },
    }
}

/// A session that is gone, for people.
pub(super) fn gone(refusal: &Refusal) -> String {
    let error = decode_error_body(&refusal.body);
    let said = in_words(refusal, error.as_ref());
    format!("{said}: the server does not know the session any more")
}

fn not_followed(why: Unfollowed) -> &'static str {
    match why {
        Unfollowed::Elsewhere => {
            "redirects are followed only on their own origin, and nothing was sent to another"
        }
        Unfollowed::TooOften => "redirects are not followed more than 3 times",
        Unfollowed::Kind => {
            "only redirects with 307 and 308 are followed, because others may make another request of it"
        }
    }
}

fn in_words(refusal: &Refusal, error: Option<&ErrorData>) -> String {
    let said = format!("answered with HTTP {}", refusal.status);
    match error {
        Some(error) => format!("{said} ({})", error.message),
        None => said,
    }
}

/// How long a server wants us to wait: in seconds, or until a date.
pub(super) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> Refusal {
        Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            unfollowed: None,
            body: body.as_bytes().to_vec(),
        }
    }

    fn error_body(message: &str) -> String {
        serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": message}}).to_string()
    }

    /// The trouble of a refused request; nothing if it counts as answered.
    fn trouble(status: u16, body: &str, held: bool) -> Option<RequestFailure> {
        match failed(CallId(1), &refusal(status, body), held, false) {
            Inbound::Failed { trouble, .. } => Some(trouble),
            Inbound::Response { result: Err(_), .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_is_gone_by_status_or_by_a_short_list_of_texts() {
        let gone = Some(RequestFailure::SessionLost);
        assert_eq!(trouble(404, "", true), gone);
        for text in [
            "Bad Request: No valid session ID provided",
            "SESSION EXPIRED",
            "Session not found",
            "unknown session x",
            "Invalid or expired session",
            "expired session",
            "Session terminated",
        ] {
            for status in [400, 410, 404] {
                assert_eq!(
                    trouble(status, &error_body(text), true),
                    gone,
                    "{status} {text}"
                );
            }
        }
    }

    #[test]
    fn nothing_else_is_taken_for_a_session_that_is_gone() {
        assert_eq!(
            trouble(404, "", false),
            Some(RequestFailure::Denied),
            "there was none"
        );
        assert_eq!(trouble(400, &error_body("session expired"), false), None);
        assert_eq!(
            trouble(400, &error_body("the argument is missing"), true),
            None
        );
        assert_eq!(trouble(500, &error_body("session expired"), true), None);
        assert_eq!(
            trouble(401, &error_body("session expired"), true),
            Some(RequestFailure::Unauthorized)
        );
        let page = format!("<p>session expired</p>{}", " ".repeat(MAX_SEARCHED_TEXT));
        assert_eq!(
            trouble(400, &page, true),
            Some(RequestFailure::Denied),
            "a page is about something else"
        );
    }

    #[test]
    fn each_status_means_what_the_table_says() {
        let busy = Some(RequestFailure::Busy { retry_after: None });
        for (status, expected) in [
            (401, Some(RequestFailure::Unauthorized)),
            (403, Some(RequestFailure::Denied)),
            (405, Some(RequestFailure::Denied)),
            (408, Some(RequestFailure::ServerFault)),
            (429, busy),
            (503, busy),
            (500, Some(RequestFailure::ServerFault)),
            (502, Some(RequestFailure::ServerFault)),
        ] {
            assert_eq!(trouble(status, "<html>", true), expected, "{status}");
        }
        assert_eq!(
            trouble(500, &error_body("broken"), true),
            None,
            "it answered"
        );
        let modern = failed(CallId(1), &refusal(404, ""), false, true);
        let Inbound::Response {
            result: Err(error), ..
        } = modern
        else {
            panic!("{modern:?}");
        };
        assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
    }

    #[test]
    fn a_wish_to_wait_is_read_in_seconds_and_as_a_date() {
        let read = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(read(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let soon = read(&soon).unwrap();
        assert!(soon > Duration::from_secs(50) && soon <= Duration::from_secs(60));
        assert_eq!(read("later"), None);
    }
}
