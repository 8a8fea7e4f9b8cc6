//! Whether a reply says that the session is lost, and how strong that evidence is.
//!
//! Tools have sessions of their own (browsers, shells, databases), so a text alone proves nothing
//! when it comes in a successful reply: the connection settles that doubt with one ping. The machine
//! hears only of losses that are certain.

/// What servers say about a session that they do not know.
const LOST: [&str; 7] = [
    "invalid or expired session",
    "session expired",
    "expired session",
    "session not found",
    "unknown session",
    "session terminated",
    "no valid session id",
];

/// Longest text that is searched, in bytes. A longer one is about something else.
pub const MAX_SEARCHED_TEXT: usize = 200;

/// How strongly the reply to a request that carried a session says that the session is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionEvidence {
    /// Not at all.
    None,
    /// In words alone, in a successful reply: the error may be the tool's own.
    Doubtful,
    /// By its status.
    Certain,
}

impl SessionEvidence {
    /// The evidence of a reply with this HTTP status whose error, or else whose body, has this text.
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

    /// Whether a ping with this evidence confirms the doubt about its session. A ping runs no tool,
    /// so words are enough.
    pub fn confirms_loss(self) -> bool {
        match self {
            Self::Certain | Self::Doubtful => true,
            Self::None => false,
        }
    }
}

/// Whether a text says that a session is lost, whosever it is.
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
    fn a_status_makes_a_text_certain_and_a_success_makes_it_doubtful() {
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
    fn without_one_of_the_texts_only_404_says_it() {
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
    fn a_ping_confirms_a_loss_by_either_evidence() {
        assert!(SessionEvidence::Certain.confirms_loss());
        assert!(SessionEvidence::Doubtful.confirms_loss());
        assert!(!SessionEvidence::None.confirms_loss());
    }
}
