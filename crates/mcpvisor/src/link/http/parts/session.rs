//! The session at the server, and the headers that carry it.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue};
use mcpvisor_core::Era;
use rmcp::model::ProtocolVersion;

use crate::auth::Authorization;
use crate::link::Inbound;
use crate::link::http::exchange::event::HttpRefusal;
use crate::link::http::headers::LinkHeaders;
use crate::link::http::{headers, refusal};

/// The session, from the handshake to its loss.
#[derive(Debug)]
pub(crate) struct HttpSession {
    /// Sent with every request.
    pub(crate) headers: Arc<LinkHeaders>,
    state: State,
    /// Set by the handshake. A server of the legacy era may open a session; in the modern era there
    /// are none.
    era: Option<Era>,
    /// A loss that is reported once no request is in flight.
    pub(crate) deferred_loss: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    None,
    Active,
    Lost,
}

impl HttpSession {
    pub(crate) fn new(map: HeaderMap, authorization: &Authorization) -> Self {
        let mut headers = LinkHeaders {
            map,
            ..LinkHeaders::default()
        };
        apply(&mut headers, authorization);
        Self {
            headers: Arc::new(headers),
            state: State::None,
            era: None,
            deferred_loss: None,
        }
    }

    /// Replaces the headers of the endpoint; those of the session stay.
    pub(crate) fn replace_headers(&mut self, mut fresh: HeaderMap, authorization: &Authorization) {
        for name in [headers::SESSION_ID, headers::PROTOCOL_VERSION] {
            if let Some(value) = self.headers.get(&name) {
                fresh.insert(name, value.clone());
            }
        }
        let mut headers = LinkHeaders {
            map: fresh,
            ..LinkHeaders::default()
        };
        apply(&mut headers, authorization);
        self.headers = Arc::new(headers);
    }

    /// Replaces the credential.
    pub(crate) fn authorize(&mut self, before: &Authorization, after: &Authorization) {
        let headers = Arc::make_mut(&mut self.headers);
        for (name, _) in &before.headers {
            headers.remove(name);
        }
        apply(headers, after);
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.era == Some(Era::Modern)
    }

    pub(crate) fn is_negotiated(&self) -> bool {
        self.era.is_some()
    }

    /// Sets the negotiated version. A server of both eras may have opened a session that the modern
    /// era does not use: returns the headers for deleting it.
    pub(crate) fn set_version(&mut self, version: &ProtocolVersion) -> Option<Arc<LinkHeaders>> {
        let mut unused = None;
        if version.has_initialize() {
            self.era = Some(Era::Legacy);
        } else {
            self.era = Some(Era::Modern);
            if std::mem::replace(&mut self.state, State::None) == State::Active {
                unused = Some(Arc::clone(&self.headers));
            }
            Arc::make_mut(&mut self.headers).remove(headers::SESSION_ID);
        }
        if let Ok(value) = HeaderValue::from_str(version.as_str()) {
            Arc::make_mut(&mut self.headers).insert(headers::PROTOCOL_VERSION, value);
        }
        unused
    }

    /// Takes the session id of a response.
    pub(crate) fn start(&mut self, id: Option<HeaderValue>) {
        if let Some(id) = id.filter(headers::is_valid_session_id)
            && !self.is_modern()
        {
            Arc::make_mut(&mut self.headers).insert(headers::SESSION_ID, id);
            self.state = State::Active;
        }
    }

    /// A session begins whose id is part of the address, not of the headers (HTTP+SSE).
    pub(crate) fn start_at_endpoint(&mut self) {
        self.state = State::Active;
    }

    /// Whether requests carry a session id, whether or not the session is lost.
    pub(crate) fn has_id(&self) -> bool {
        self.state != State::None
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == State::Active
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Whether a refusal means that the session is lost.
    pub(crate) fn is_lost_by(&self, refusal: &HttpRefusal) -> bool {
        refusal::is_session_lost(refusal, self.has_id())
    }

    /// Marks the session as lost. Returns whether it was active.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::replace(&mut self.state, State::Lost) == State::Active
    }

    /// Reports the loss of the session, once.
    pub(crate) fn report_loss(&mut self, message: String) -> Option<Inbound> {
        self.end().then_some(Inbound::SessionGone { message })
    }

    /// Reports the deferred loss.
    pub(crate) fn report_deferred_loss(&mut self) -> Option<Inbound> {
        let message = self.deferred_loss.take()?;
        self.report_loss(message)
    }

    /// Marks an error in a successful reply that may mean that the session is lost. The session
    /// stays active: a server that replies may still know it, and gets a DELETE when it is closed.
    pub(crate) fn flag_possible_loss(&self, inbound: Inbound) -> Inbound {
        match inbound {
            Inbound::Response {
                id,
                result: Err(error),
            } if self.has_id() && refusal::may_mean_lost_session(&error) => {
                Inbound::PossibleSessionLoss { id, error }
            }
            other => other,
        }
    }
}

fn apply(headers: &mut LinkHeaders, authorization: &Authorization) {
    headers.credential = authorization.revision;
    headers.signer = authorization.signer.clone();
    for (name, value) in &authorization.headers {
        headers.insert(name.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor_core::CallId;
    use rmcp::ErrorData;

    use super::*;

    fn id(text: &'static str) -> Option<HeaderValue> {
        Some(HeaderValue::from_static(text))
    }

    fn active() -> HttpSession {
        let mut session = HttpSession::new(HeaderMap::new(), &Authorization::default());
        session.start(id("s1"));
        session
    }

    #[test]
    fn a_session_starts_with_a_valid_id() {
        let mut session = HttpSession::new(HeaderMap::new(), &Authorization::default());
        session.start(None);
        session.start(id("not visible"));
        assert!(!session.has_id());
        session.start(id("s1"));
        assert!(session.is_active() && !session.is_lost());
        assert_eq!(session.headers[headers::SESSION_ID], "s1");
    }

    #[test]
    fn the_modern_era_ends_a_session_and_starts_none() {
        let mut session = active();
        let unused = session.set_version(&ProtocolVersion::V_2026_07_28).unwrap();
        assert_eq!(unused[headers::SESSION_ID], "s1");
        assert!(!session.headers.contains_key(headers::SESSION_ID));
        session.start(id("s2"));
        assert!(!session.has_id() && session.is_modern() && session.is_negotiated());
    }

    #[test]
    fn new_headers_keep_the_session_and_the_version() {
        let mut session = active();
        assert!(
            session
                .set_version(&ProtocolVersion::V_2025_06_18)
                .is_none()
        );
        let fresh = HeaderMap::from_iter([(http::header::USER_AGENT, id("new").unwrap())]);
        session.replace_headers(fresh, &Authorization::default());
        let headers = &session.headers;
        assert_eq!(headers[headers::SESSION_ID], "s1");
        assert_eq!(headers[headers::PROTOCOL_VERSION], "2025-06-18");
        assert_eq!(headers["user-agent"], "new");
    }

    #[test]
    fn a_loss_is_reported_once() {
        let mut session = active();
        session.deferred_loss = Some("later".to_owned());
        assert!(session.deferred_loss.is_some() && !session.is_lost());
        let reported = session.report_deferred_loss();
        assert!(matches!(reported, Some(Inbound::SessionGone { message }) if message == "later"));
        assert!(session.is_lost() && session.has_id());
        assert!(session.report_loss("again".to_owned()).is_none());
        assert!(session.report_deferred_loss().is_none());
    }

    #[test]
    fn a_cancelled_deferred_loss_is_not_reported() {
        let mut session = active();
        session.deferred_loss = Some("later".to_owned());
        session.deferred_loss = None;
        assert!(session.report_deferred_loss().is_none());
        assert!(!session.is_lost());
    }

    #[test]
    fn an_error_may_mean_a_loss_only_where_there_is_a_session() {
        let reply = || Inbound::Response {
            id: CallId(1),
            result: Err(ErrorData::internal_error("Session not found", None)),
        };
        let flagged = active().flag_possible_loss(reply());
        assert!(matches!(flagged, Inbound::PossibleSessionLoss { .. }));
        let unflagged = HttpSession::new(HeaderMap::new(), &Authorization::default())
            .flag_possible_loss(reply());
        assert!(matches!(unflagged, Inbound::Response { .. }));
    }
}
