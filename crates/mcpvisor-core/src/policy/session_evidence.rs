//! Whether a reply says that the session is lost, and how strong that evidence is.
//!
//! Tools have sessions too (browsers, shells, databases), so a text in a successful reply proves nothing:
//! the connection sends one ping to find out. The machine learns only of losses that are certain.

/// Texts of servers about a session that they do not know.
const LOST: [&str; 7] = [
    "invalid or expired session",
    "session expired",
    "expired session",
    "session not found",
    "unknown session",
    "session terminated",
    "no valid session id",
];

/// Bytes of the longest text that is searched. A longer one is about something else.
pub const MAX_SEARCHED_TEXT: usize = 200;

/// How strongly the reply to a request that carried a session says that the session is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionEvidence {
    /// Not at all.
    None,
    /// Only by a text in a successful reply: the error may come from the tool.
    Doubtful,
    /// By its status.
    Certain,
}

impl SessionEvidence {
    /// The evidence of a reply with this HTTP status. `text` is that of its error, or else its body.
    ///
    /// ```
    /// use mcpvisor_core::session_evidence::SessionEvidence;
    ///
    /// let text = Some("Session not found");
    /// assert_eq!(SessionEvidence::of(404, None), SessionEvidence::Certain);
    /// assert_eq!(SessionEvidence::of(400, text), SessionEvidence::Certain);
    /// assert_eq!(SessionEvidence::of(200, text), SessionEvidence::Doubtful);
    /// ```
    pub fn of(status: u16, text: Option<&str>) -> Self {
        match status {
            404 => Self::Certain,
            400 | 410 if text.is_some_and(mentions_lost_session) => Self::Certain,
            200..=299 if text.is_some_and(mentions_lost_session) => Self::Doubtful,
            _ => Self::None,
        }
    }

    /// The evidence of the reply to a message that was sent to the endpoint of a session (HTTP+SSE), whose
    /// address is the session. Replies to requests come on another way, so the text of a refusal is never a
    /// tool's.
    ///
    /// ```
    /// use mcpvisor_core::session_evidence::SessionEvidence;
    ///
    /// let text = Some("No transport found for sessionId");
    /// assert_eq!(SessionEvidence::of_endpoint(400, text), SessionEvidence::Certain);
    /// assert_eq!(SessionEvidence::of_endpoint(400, Some("Parse error")), SessionEvidence::None);
    /// ```
    pub fn of_endpoint(status: u16, text: Option<&str>) -> Self {
        let mentions_session = |text: &str| {
            text.len() <= MAX_SEARCHED_TEXT && text.to_ascii_lowercase().contains("session")
        };
        match status {
            404 | 410 => Self::Certain,
            400 if text.is_some_and(mentions_session) => Self::Certain,
            _ => Self::None,
        }
    }

    /// Whether the reply to a ping with this evidence confirms the loss. A ping runs no tool, so a text is
    /// enough.
    pub fn confirms_loss(self) -> bool {
        match self {
            Self::Certain | Self::Doubtful => true,
            Self::None => false,
        }
    }
}

/// Whether a text says that a session is lost, of the connection or of a tool.
pub fn mentions_lost_session(text: &str) -> bool {
    if text.len() > MAX_SEARCHED_TEXT {
        return false;
    }
    let text = text.to_ascii_lowercase();
    LOST.iter().any(|lost| text.contains(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 7] = [
        "Bad Request: No valid session ID provided",
        "SESSION EXPIRED",
        "Session not found: browser-7",
        "unknown session x",
        "Invalid or expired session",
        "expired session",
        "Session terminated",
    ];

    #[test]
    fn a_text_is_certain_with_an_error_status_and_doubtful_with_a_success() {
        for text in TEXTS {
            for (status, evidence) in [
                (404, SessionEvidence::Certain),
                (400, SessionEvidence::Certain),
                (410, SessionEvidence::Certain),
                (200, SessionEvidence::Doubtful),
                (202, SessionEvidence::Doubtful),
                (401, SessionEvidence::None),
                (403, SessionEvidence::None),
                (429, SessionEvidence::None),
                (500, SessionEvidence::None),
                (502, SessionEvidence::None),
            ] {
                assert_eq!(
                    SessionEvidence::of(status, Some(text)),
                    evidence,
                    "{status} {text}"
                );
            }
        }
    }

    #[test]
    fn without_a_known_text_only_404_is_evidence() {
        let long = format!("session expired{}", "!".repeat(MAX_SEARCHED_TEXT));
        let others = [
            None,
            Some("the sessions table is locked"),
            Some("expired"),
            Some(&*long),
        ];
        for text in others {
            for status in [200, 400, 401, 403, 410, 500] {
                assert_eq!(
                    SessionEvidence::of(status, text),
                    SessionEvidence::None,
                    "{status}"
                );
            }
            assert_eq!(SessionEvidence::of(404, text), SessionEvidence::Certain);
        }
    }

    #[test]
    fn an_endpoint_that_is_gone_is_a_lost_session() {
        use SessionEvidence::{Certain, None as No};
        for (status, text, evidence) in [
            (404, Some("Could not find session"), Certain),
            (404, None, Certain),
            (410, None, Certain),
            (400, Some("Invalid session ID"), Certain),
            (400, Some("No transport found for sessionId"), Certain),
            (400, Some("Could not parse message"), No),
            (400, None, No),
            (202, Some("Session not found"), No),
            (401, Some("session expired"), No),
            (500, Some("session expired"), No),
        ] {
            let found = SessionEvidence::of_endpoint(status, text);
            assert_eq!(found, evidence, "{status} {text:?}");
        }
        let long = format!("session{}", "!".repeat(MAX_SEARCHED_TEXT));
        assert_eq!(SessionEvidence::of_endpoint(400, Some(&long)), No);
    }

    #[test]
    fn either_evidence_of_a_ping_confirms_the_loss() {
        assert!(SessionEvidence::Certain.confirms_loss());
        assert!(SessionEvidence::Doubtful.confirms_loss());
        assert!(!SessionEvidence::None.confirms_loss());
    }
}
