//! One HTTP request and its reply, without faults.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::control::Shared;
use super::guard::RequestGuard;
use super::http_sse::{self, SessionStream};
use super::record::Received;
use super::wire::{Request, Wire};
use super::{HttpEra, LostSession, ReplyKind, answers, inject, modern, streams};

/// The session id header.
pub(super) const SESSION: &str = "mcp-session-id";

/// The revision without sessions.
const MODERN: &str = "2026-07-28";

/// A JSON-RPC request and its session.
#[derive(Debug, Clone)]
pub(super) struct RpcRequest {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Value,
    /// Whether it uses 2026-07-28.
    pub(super) modern: bool,
    /// The path and all headers of the request, as text.
    pub(super) head: String,
}

impl RpcRequest {
    /// The called tool; empty if it is not a call.
    pub(super) fn tool(&self) -> &str {
        match self.method.as_str() {
            "tools/call" => self.params["name"].as_str().unwrap_or_default(),
            _ => "",
        }
    }

    pub(super) fn arguments(&self) -> &Value {
        &self.params["arguments"]
    }
}

/// Answers one request. An error ends the connection.
pub(super) async fn serve(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    request: Request,
) -> io::Result<()> {
    let mut message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let received = Received {
        http_method: request.method.clone(),
        path: request.path.clone(),
        method: method.clone(),
        id: message["id"].clone(),
        headers: request.headers.clone(),
        at_ms: shared.at_ms(),
    };
    let guard = shared.guard();
    let intercepted = guard.and_then(|guard| guard.intercept(&received, &message));
    wire.extra = guard.map_or_else(Vec::new, RequestGuard::response_headers);
    shared.record().received.push(received);
    if let Some(reply) = intercepted {
        return reply.send(wire).await;
    }
    if shared.options().reply == ReplyKind::Session {
        return http_sse::serve(wire, shared, &request, message).await;
    }
    match request.method.as_str() {
        "POST" if method.is_empty() && message["jsonrpc"] != "2.0" => {
            wire.answer(400, &[], b"this is no JSON-RPC").await
        }
        "POST" if method.is_empty() || message.get("id").is_none() => {
            notified(wire, shared, &request, &method, &message["params"]).await
        }
        "POST" => {
            let rpc = RpcRequest {
                id: message["id"].take(),
                method,
                params: message["params"].take(),
                modern: request.header("mcp-protocol-version") == Some(MODERN),
                head: format!("{} {:?}", request.path, request.headers),
            };
            post(wire, shared, &request, &rpc).await
        }
        "GET" => streams::open(wire, shared, &request).await,
        "DELETE" => delete(wire, shared, &request).await,
        _ => wire.answer(405, &[], b"").await,
    }
}

/// Handles a notification, or a reply from the client.
async fn notified(
    wire: &mut Wire,
    shared: &Shared,
    request: &Request,
    method: &str,
    params: &Value,
) -> io::Result<()> {
    if let Some(lost) = lost(shared, request, method) {
        return reject_lost_session(wire, lost, &Value::Null).await;
    }
    if let Some(fault) = shared.take_fault(method) {
        return inject::plain(wire, shared, fault).await;
    }
    if method == "notifications/cancelled" {
        shared.cancel(&params["requestId"]);
    }
    wire.answer(202, &[], b"").await
}

async fn post(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    request: &Request,
    rpc: &RpcRequest,
) -> io::Result<()> {
    if !rpc.modern
        && let Some(lost) = lost(shared, request, &rpc.method)
    {
        return reject_lost_session(wire, lost, &rpc.id).await;
    }
    if rpc.modern
        && let Some((code, text)) = modern::complaint(shared, request, rpc)
    {
        shared.record().complaints.push(text.clone());
        return answers::refuse_with(wire, 400, rpc, code, &text).await;
    }
    if rpc.tool() == "misbehave" {
        return inject::misbehave(wire, shared, rpc).await;
    }
    if let Some(fault) = shared.take_fault(&rpc.method) {
        return inject::inject(wire, shared, fault, rpc).await;
    }
    answers::answer(wire, shared, rpc).await
}

async fn delete(wire: &mut Wire, shared: &Shared, request: &Request) -> io::Result<()> {
    if let Some(fault) = shared.take_fault("DELETE") {
        return inject::plain(wire, shared, fault).await;
    }
    let session = request.header(SESSION).unwrap_or_default();
    let status = if shared.delete_session(session) {
        200
    } else {
        404
    };
    wire.answer(status, &[], b"").await
}

/// How to reject a request with an unknown session; `None` if the session is known.
pub(super) fn lost(shared: &Shared, request: &Request, method: &str) -> Option<LostSession> {
    let options = shared.options();
    if !options.sessions || method == "initialize" || options.era == HttpEra::Modern {
        return None;
    }
    match request.header(SESSION) {
        Some(session) if shared.knows_session(session) => None,
        Some(_) => Some(options.lost),
        // A client without a session id has not lost a session.
        None => Some(LostSession::BadRequest),
    }
}

pub(super) async fn reject_lost_session(
    wire: &mut Wire,
    lost: LostSession,
    id: &Value,
) -> io::Result<()> {
    let text = "Bad Request: No valid session ID provided";
    let error = |id: &Value, message: &str| {
        let error = json!({ "code": -32000, "message": message });
        json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
    };
    let json = [("content-type", "application/json")];
    match lost {
        LostSession::NotFound => wire.answer(404, &[], b"Not Found: Session not found").await,
        LostSession::BadRequest => {
            let body = error(&Value::Null, text);
            wire.answer(400, &json, body.as_bytes()).await
        }
        LostSession::Gone => {
            let body = error(&Value::Null, "Your session expired");
            wire.answer(410, &json, body.as_bytes()).await
        }
        LostSession::Answer => {
            let body = error(id, "Unknown session");
            wire.answer(200, &json, body.as_bytes()).await
        }
    }
}

/// The reply to a request: a single body, a stream that has already started, or an event on the stream
/// of the session.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    to: ReplyTo<'a>,
    kind: ReplyKind,
    began: bool,
    session: Option<String>,
    /// The event id that the stream starts with.
    resume_from: Option<String>,
}

/// Where a reply goes.
#[derive(Debug)]
enum ReplyTo<'a> {
    Response(&'a mut Wire),
    Session(Arc<SessionStream>),
}

impl<'a> Reply<'a> {
    pub(super) fn new(wire: &'a mut Wire, kind: ReplyKind) -> Self {
        Self::to(ReplyTo::Response(wire), kind)
    }

    /// A reply on the stream of a session.
    pub(super) fn on(stream: Arc<SessionStream>) -> Self {
        Self::to(ReplyTo::Session(stream), ReplyKind::Session)
    }

    fn to(to: ReplyTo<'a>, kind: ReplyKind) -> Self {
        Self {
            to,
            kind,
            began: false,
            session: None,
            resume_from: None,
        }
    }

    /// Starts the stream with an event id, from which it can be resumed.
    pub(super) fn resumable(&mut self, id: String) {
        self.resume_from = Some(id);
    }

    /// Adds a new session id to the head.
    pub(super) fn session(&mut self, session: String) {
        self.session = Some(session);
    }

    /// Starts the stream, if the reply is one.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        let ReplyTo::Response(wire) = &mut self.to else {
            return Ok(());
        };
        if self.kind == ReplyKind::Json || self.began {
            return Ok(());
        }
        self.began = true;
        let mut headers = vec![("content-type", "text/event-stream")];
        let session = self.session.clone();
        headers.extend(session.as_deref().map(|session| (SESSION, session)));
        wire.begin(200, &headers).await?;
        if let Some(id) = &self.resume_from {
            let first = format!("id: {id}\nretry: 100\ndata: \n\n");
            wire.chunk(first.as_bytes()).await?;
        }
        Ok(())
    }

    /// Sends a notification before the reply, which turns the reply into a stream.
    pub(super) async fn notify(&mut self, method: &str, params: Value) -> io::Result<()> {
        self.kind = ReplyKind::Sse;
        self.begin().await?;
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        match &mut self.to {
            ReplyTo::Response(wire) => wire.chunk(event(&message).as_bytes()).await,
            ReplyTo::Session(stream) => stream.send(&message).await,
        }
    }

    pub(super) async fn result(self, id: &Value, result: Value) -> io::Result<()> {
        self.message(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await
    }

    pub(super) async fn refuse(self, id: &Value, code: i32, text: &str) -> io::Result<()> {
        let error = json!({ "code": code, "message": text });
        self.message(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            .await
    }

    async fn message(mut self, message: Value) -> io::Result<()> {
        self.body(&message.to_string()).await
    }

    /// Sends a message as the whole reply, or as the last event of the stream.
    pub(super) async fn body(&mut self, text: &str) -> io::Result<()> {
        self.begin().await?;
        let wire = match &mut self.to {
            ReplyTo::Response(wire) => wire,
            ReplyTo::Session(stream) => return stream.send(text).await,
        };
        if self.began {
            return wire.last_chunk(event(text).as_bytes()).await;
        }
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(self.session.as_deref().map(|session| (SESSION, session)));
        wire.answer(200, &headers, text.as_bytes()).await
    }

    /// Ends without a reply.
    pub(super) async fn nothing(mut self) -> io::Result<()> {
        self.kind = ReplyKind::Sse;
        self.begin().await?;
        match &mut self.to {
            ReplyTo::Response(wire) => wire.end().await,
            ReplyTo::Session(_) => Ok(()),
        }
    }

    /// Waits until the client disconnects.
    pub(super) async fn client_closed(&mut self) {
        match &mut self.to {
            ReplyTo::Response(wire) => wire.client_closed().await,
            ReplyTo::Session(stream) => stream.closed().await,
        }
    }
}

/// One event of a stream.
pub(super) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}
