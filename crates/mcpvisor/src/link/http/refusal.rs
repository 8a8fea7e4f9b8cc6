//! What a refusal by HTTP status means for the request.
//!
//! [`SessionEvidence`] decides how strongly a reply indicates a lost session. This file extracts
//! the status and the text for it, and only where there is a session.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, StatusCode};
use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::session_evidence::{MAX_SEARCHED_TEXT, SessionEvidence, mentions_lost_session};
use rmcp::model::{ErrorCode, ErrorData};

use super::exchange::event::HttpRefusal;
use super::exchange::proof::ProofRefusal;
use super::redirect::RedirectRefusal;
use crate::link::codec::decode::decode_error_body;
use crate::link::{FailedRequest, Inbound};

/// Whether an error in a successful reply may mean that the session is lost. Call it only if there
/// is a session.
pub(super) fn may_mean_lost_session(error: &ErrorData) -> bool {
    SessionEvidence::of(StatusCode::OK.as_u16(), Some(&error.message)) == SessionEvidence::Doubtful
}

/// Whether a refusal means that the session is lost. `in_session`: the request carried a session
/// id.
pub(super) fn is_session_lost(refusal: &HttpRefusal, in_session: bool) -> bool {
    let text = text_of(refusal);
    in_session
        && SessionEvidence::of(refusal.status.as_u16(), text.as_deref()) == SessionEvidence::Certain
}

/// Whether the refusal of a message to the endpoint of a session (HTTP+SSE) means that the session is
/// lost.
pub(super) fn is_endpoint_lost(refusal: &HttpRefusal) -> bool {
    let text = text_of(refusal);
    SessionEvidence::of_endpoint(refusal.status.as_u16(), text.as_deref())
        == SessionEvidence::Certain
}

/// Whether the text of a refusal names a lost session, whatever else its status may mean.
pub(super) fn names_lost_session(refusal: &HttpRefusal) -> bool {
    let is_session_status = matches!(
        refusal.status,
        StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::NOT_FOUND
    );
    is_session_status && text_of(refusal).is_some_and(|text| mentions_lost_session(&text))
}

/// The error message in a refusal, or else its body if that is short.
fn text_of(refusal: &HttpRefusal) -> Option<Cow<'_, str>> {
    match decode_error_body(&refusal.body, true) {
        Some(error) => Some(error.message),
        None if refusal.body.len() > MAX_SEARCHED_TEXT => None,
        None => Some(String::from_utf8_lossy(&refusal.body)),
    }
}

/// The outcome of a refused request. `is_session_lost`: the refusal says so. `modern`: the protocol
/// has no sessions.
pub(super) fn to_inbound(
    id: CallId,
    refusal: &HttpRefusal,
    is_session_lost: bool,
    modern: bool,
) -> Inbound {
    let status = refusal.status;
    let error = decode_error_body(&refusal.body, true);
    let reply = |error| {
        let result = Err(error);
        Inbound::Response { id, result }
    };
    let failed = |failure, message: String| Inbound::Failed {
        id,
        failed: FailedRequest {
            failure,
            status: Some(status.as_u16()),
            error: error.clone(),
            message,
            scopes: missing_scopes(refusal),
        },
    };
    if is_session_lost {
        return failed(RequestFailure::SessionLost, lost_session_message(refusal));
    }
    let summary = summarize(refusal, error.as_ref());
    if let Some(redirect) = refusal.redirect {
        let reason = describe_redirect(redirect);
        let action = "configure the address that it leads to";
        return failed(
            RequestFailure::Denied,
            format!("{summary}: {reason}; {action}"),
        );
    }
    if let Some(proof) = refusal.proof {
        let problem = describe_proof_refusal(proof, refusal);
        return failed(RequestFailure::Denied, format!("{summary}: {problem}"));
    }
    match status {
        StatusCode::UNAUTHORIZED => failed(
            RequestFailure::Unauthorized {
                credential: refusal.credential,
            },
            summary,
        ),
        StatusCode::FORBIDDEN if needs_step_up(refusal) => {
            let scopes = match missing_scopes(refusal) {
                scopes if scopes.is_empty() => "needs more scopes".to_owned(),
                scopes => format!("needs the scopes {}", scopes.join(" ")),
            };
            failed(RequestFailure::ScopeNeeded, format!("{summary}: {scopes}"))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let retry_after = refusal.retry_after;
            failed(
                RequestFailure::Busy { retry_after },
                format!("{summary}: the server is busy"),
            )
        }
        _ => match error.clone() {
            Some(error) => reply(error),
            None if status == StatusCode::NOT_FOUND && modern => {
                reply(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, summary, None))
            }
            // For 408 and 504 a gateway gave up; the request may still be running.
            None if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
                failed(RequestFailure::ServerFault, summary)
            }
            None => failed(RequestFailure::Denied, summary),
        },
    }
}

fn needs_step_up(refusal: &HttpRefusal) -> bool {
    let challenge = refusal.challenge.as_ref();
    challenge.is_some_and(|challenge| challenge.needs_step_up())
}

/// The scopes that a refused request lacked, as far as the server names them.
fn missing_scopes(refusal: &HttpRefusal) -> Vec<String> {
    let challenge = refusal.challenge.as_ref();
    let scopes = challenge.and_then(|challenge| challenge.scopes.clone());
    scopes.unwrap_or_default()
}

/// The message for a refusal, whatever it means.
pub(super) fn describe(refusal: &HttpRefusal) -> String {
    let error = decode_error_body(&refusal.body, true);
    summarize(refusal, error.as_ref())
}

/// The message for a lost session.
pub(super) fn lost_session_message(refusal: &HttpRefusal) -> String {
    let error = decode_error_body(&refusal.body, true);
    let summary = summarize(refusal, error.as_ref());
    format!("{summary}: the server no longer knows the session")
}

fn describe_redirect(refusal: RedirectRefusal) -> &'static str {
    match refusal {
        RedirectRefusal::OtherOrigin => {
            "redirects to another origin are not followed, and nothing was sent there"
        }
        RedirectRefusal::TooMany => "at most 3 redirects are followed",
        RedirectRefusal::Status => {
            "only the redirects 307 and 308 are followed, because others may change the method"
        }
    }
}

/// Why the proof of a request was refused. Another token would not help.
fn describe_proof_refusal(proof: ProofRefusal, refusal: &HttpRefusal) -> String {
    let challenge = refusal.challenge.as_ref();
    let reason = challenge.and_then(|challenge| challenge.error_description.as_deref());
    let reason = reason.map(|reason| format!(" ({reason})"));
    let reason = reason.unwrap_or_default();
    match proof {
        ProofRefusal::Nonce => {
            format!("the server refuses the DPoP nonce that it just sent{reason}")
        }
        ProofRefusal::Invalid => format!(
            "the server refuses the DPoP proof{reason}; check the clock and the URL of the server"
        ),
    }
}

fn summarize(refusal: &HttpRefusal, error: Option<&ErrorData>) -> String {
    let status = refusal.status;
    match error {
        Some(error) => format!("HTTP {status} ({})", error.message),
        None => format!("HTTP {status}"),
    }
}

/// The delay in a `Retry-After` header: in seconds, or until a date.
pub(super) fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::CredentialRevision;

    use super::*;

    fn unauthorized() -> RequestFailure {
        let credential = CredentialRevision::NONE;
        RequestFailure::Unauthorized { credential }
    }

    fn refusal(status: u16, body: &str) -> HttpRefusal {
        HttpRefusal {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            redirect: None,
            credential: CredentialRevision::NONE,
            challenge: None,
            proof: None,
            body: body.as_bytes().to_vec(),
        }
    }

    fn error_body(message: &str) -> String {
        serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": message}}).to_string()
    }

    /// The failure of a refused request, or `None` if it counts as answered.
    fn failure_of(status: u16, body: &str, in_session: bool) -> Option<RequestFailure> {
        let refusal = refusal(status, body);
        let is_lost = is_session_lost(&refusal, in_session);
        match to_inbound(CallId(1), &refusal, is_lost, false) {
            Inbound::Failed { failed, .. } => Some(failed.failure),
            Inbound::Response { result: Err(_), .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_is_lost_by_status_or_by_known_texts() {
        let lost = Some(RequestFailure::SessionLost);
        assert_eq!(failure_of(404, "", true), lost);
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
                    failure_of(status, &error_body(text), true),
                    lost,
                    "{status} {text}"
                );
            }
        }
    }

    #[test]
    fn nothing_else_counts_as_a_lost_session() {
        assert_eq!(
            failure_of(404, "", false),
            Some(RequestFailure::Denied),
            "there was none"
        );
        assert_eq!(failure_of(400, &error_body("session expired"), false), None);
        assert_eq!(
            failure_of(400, &error_body("the argument is missing"), true),
            None
        );
        assert_eq!(failure_of(500, &error_body("session expired"), true), None);
        assert_eq!(
            failure_of(401, &error_body("session expired"), true),
            Some(unauthorized())
        );
        let page = format!("<p>session expired</p>{}", " ".repeat(MAX_SEARCHED_TEXT));
        assert_eq!(
            failure_of(400, &page, true),
            Some(RequestFailure::Denied),
            "a page is about something else"
        );
    }

    #[test]
    fn each_status_means_what_the_table_says() {
        let busy = Some(RequestFailure::Busy { retry_after: None });
        for (status, expected) in [
            (401, Some(unauthorized())),
            (403, Some(RequestFailure::Denied)),
            (405, Some(RequestFailure::Denied)),
            (408, Some(RequestFailure::ServerFault)),
            (429, busy),
            (503, busy),
            (500, Some(RequestFailure::ServerFault)),
            (502, Some(RequestFailure::ServerFault)),
        ] {
            assert_eq!(failure_of(status, "<html>", true), expected, "{status}");
        }
        assert_eq!(
            failure_of(500, &error_body("broken"), true),
            None,
            "it answered"
        );
        let modern = to_inbound(CallId(1), &refusal(404, ""), false, true);
        let Inbound::Response {
            result: Err(error), ..
        } = modern
        else {
            panic!("{modern:?}");
        };
        assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
    }

    #[test]
    fn a_refused_proof_is_no_refused_credential() {
        for (proof, text) in [
            (ProofRefusal::Nonce, "refuses the DPoP nonce"),
            (ProofRefusal::Invalid, "check the clock and the URL"),
        ] {
            let mut refusal = refusal(401, "");
            refusal.proof = Some(proof);
            let is_lost = is_session_lost(&refusal, true);
            let Inbound::Failed { failed, .. } = to_inbound(CallId(1), &refusal, is_lost, false)
            else {
                panic!("answered");
            };
            assert_eq!(failed.failure, RequestFailure::Denied);
            assert!(failed.message.contains(text), "{}", failed.message);
        }
    }

    #[test]
    fn retry_after_is_parsed_in_seconds_and_as_a_date() {
        let read = |text: &str| parse_retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(read(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let soon = read(&soon).unwrap();
        assert!(soon > Duration::from_secs(50) && soon <= Duration::from_secs(60));
        assert_eq!(read("later"), None);
    }
}
