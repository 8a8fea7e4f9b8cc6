//! What an exchange sends, and for which purpose.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request};
use http_body_util::Full;
use mcpvisor_core::CallId;
use tokio::time::Instant;

use super::proof::add_proof;
use super::sse::EventCursor;
use crate::auth::Nonce;
use crate::link::http::headers::LinkHeaders;
use crate::link::http::net::redial::RedialPolicy;
use crate::link::http::target::Target;

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A request of the client; the exchange carries its reply.
    Request(CallId),
    /// A request of the client; its reply comes on the stream of the session (HTTP+SSE).
    Post(CallId),
    /// The rest of an interrupted reply, with the number of attempts without a new event.
    Resume(CallId, u8),
    /// The `initialized` notification, which ends the handshake. Requests wait for it.
    Initialized,
    /// Another notification, or a reply of the client.
    Message,
    /// The GET stream for messages that the server sends unprompted.
    ServerStream,
    /// The GET stream that is the session and carries all messages of the server (HTTP+SSE).
    SessionStream,
    /// The DELETE that ends the session.
    DeleteSession,
}

impl Purpose {
    /// The request that the exchange sends, or whose reply it carries.
    pub(crate) fn request(self) -> Option<CallId> {
        match self {
            Self::Request(id) | Self::Post(id) | Self::Resume(id, _) => Some(id),
            Self::Initialized
            | Self::Message
            | Self::ServerStream
            | Self::SessionStream
            | Self::DeleteSession => None,
        }
    }

    /// Whether the messages in the response matter.
    pub(super) fn reads_response(self) -> bool {
        match self {
            Self::Request(_) | Self::Resume(..) | Self::ServerStream | Self::SessionStream => true,
            Self::Post(_) | Self::Initialized | Self::Message | Self::DeleteSession => false,
        }
    }
}

/// An HTTP request to send.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// The headers of the session, shared by all its requests.
    pub(crate) headers: Arc<LinkHeaders>,
    /// The headers of this request alone.
    pub(crate) extra_headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    /// Earliest time to send it. The connection is opened at once.
    pub(crate) not_before: Option<Instant>,
    /// Time for the whole exchange.
    pub(crate) timeout: Option<Duration>,
    pub(crate) redial: RedialPolicy,
    /// The head of a successful response is reported.
    pub(crate) reports_head: bool,
    /// The stream that the response resumes, until it begins.
    pub(crate) resume_from: Option<EventCursor>,
}

impl Outgoing {
    pub(crate) fn new(method: Method, headers: &Arc<LinkHeaders>, body: Vec<u8>) -> Self {
        Self {
            method,
            headers: Arc::clone(headers),
            extra_headers: Vec::new(),
            body: Bytes::from(body),
            not_before: None,
            timeout: None,
            redial: RedialPolicy::Request,
            reports_head: false,
            resume_from: None,
        }
    }

    /// The request to send. Every way to send it ends here, so here it is signed.
    pub(super) fn to_request(
        &self,
        target: &Target,
        path: &PathAndQuery,
        nonce: Option<&Nonce>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target.request_uri(path);
        let mut headers = self.headers.map.clone();
        headers.reserve(self.extra_headers.len());
        for (name, value) in &self.extra_headers {
            headers.insert(name.clone(), value.clone());
        }
        if self.method != Method::POST {
            headers.remove(CONTENT_TYPE);
        }
        *request.headers_mut() = headers;
        if let Some(signer) = &self.headers.signer {
            add_proof(&mut request, signer, target, path, nonce);
        }
        request
    }
}
