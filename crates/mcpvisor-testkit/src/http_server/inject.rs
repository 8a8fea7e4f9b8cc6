//! Injects the faults.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::ReplyKind;
use super::answers::{METHOD_NOT_FOUND, perform, refuse_with};
use super::control::Shared;
use super::exchange::{Reply, RpcRequest, SESSION, event};
use super::fault::{HttpFault, Kind};
use super::modern::HEADER_MISMATCH;
use super::wire::Wire;
use crate::stdio_server::tools::structured;

/// A request id that no client reaches by counting.
const NOBODYS_ID: u64 = 4_000_000_007;

/// Bytes per write of an endless body.
const PIECE: usize = 64 * 1024;

const JSON: (&str, &str) = ("content-type", "application/json");
const EVENTS: (&str, &str) = ("content-type", "text/event-stream");

/// Ends the connection.
fn over() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Runs the tool `misbehave`: injects a fault into this call.
pub(super) async fn misbehave(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let wanted = rpc.arguments()["fault"].as_str().unwrap_or_default();
    match wanted.parse() {
        Ok(fault) => inject(wire, shared, fault, rpc).await,
        Err(problem) => {
            let problem: String = problem;
            let reply = Reply::new(wire, shared.options().reply);
            reply.refuse(&rpc.id, -32602, &problem).await
        }
    }
}

/// Injects a fault into a request.
pub(super) async fn inject(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    fault: HttpFault,
    rpc: &RpcRequest,
) -> io::Result<()> {
    match fault.kind {
        Kind::StallBody
        | Kind::SlowDrip
        | Kind::Drop
        | Kind::EmptyStream
        | Kind::Resume
        | Kind::EndlessBody
        | Kind::EndlessEvent
        | Kind::BadJson
        | Kind::BadEvent => broken(wire, shared, fault, rpc).await,
        Kind::RunThenNotFound => {
            let _ = perform(shared, rpc);
            wire.answer(404, &[], b"Not Found: Session not found").await
        }
        Kind::Repeat => {
            let status = u16::try_from(fault.amount).unwrap_or(500);
            let text = format!("what is this: {}", rpc.head);
            wire.answer(status, &[], text.as_bytes()).await
        }
        Kind::RepeatError => {
            let status = u16::try_from(fault.amount).unwrap_or(400);
            let body = error(&format!("what is this: {}", rpc.head));
            wire.answer(status, &[JSON], body.as_bytes()).await
        }
        Kind::RepeatAnswer | Kind::RepeatSessionError => {
            let text = match fault.kind {
                // A long text is no evidence of a lost session.
                Kind::RepeatSessionError => {
                    let (_, authorization) =
                        rpc.head.split_once("authorization").unwrap_or_default();
                    let begin: String = authorization.chars().take(150).collect();
                    format!("Session not found: {begin}")
                }
                _ => format!("what is this: {}", rpc.head),
            };
            let data = json!({ "sent": { "head": rpc.head } });
            let error = json!({ "code": -32000, "message": text, "data": data });
            let message = json!({ "jsonrpc": "2.0", "id": rpc.id, "error": error });
            let mut reply = Reply::new(wire, shared.options().reply);
            reply.body(&message.to_string()).await
        }
        Kind::RunThenSessionError => {
            let _ = perform(shared, rpc);
            let mut reply = Reply::new(wire, shared.options().reply);
            let error = json!({ "code": -32001, "message": "Session not found: browser-7", "data": { "browser": 7 } });
            let message = json!({ "jsonrpc": "2.0", "id": rpc.id, "error": error });
            reply.body(&message.to_string()).await
        }
        Kind::SessionError => {
            let reply = Reply::new(wire, shared.options().reply);
            reply.refuse(&rpc.id, -32000, "Session not found").await
        }
        Kind::NoSuchMethod => {
            let text = "no such method";
            refuse_with(wire, 404, rpc, METHOD_NOT_FOUND, text).await
        }
        Kind::HeaderMismatch => {
            let text = "the headers are not what the body says";
            refuse_with(wire, 400, rpc, HEADER_MISMATCH, text).await
        }
        Kind::Body | Kind::Values => large(wire, shared, fault, rpc).await,
        Kind::Nesting | Kind::WrongId => {
            let mut reply = Reply::new(wire, shared.options().reply);
            reply.body(&odd(fault, rpc)).await
        }
        Kind::Flood | Kind::FloodRequests => flood(wire, fault, rpc).await,
        _ => plain(wire, shared, fault).await,
    }
}

/// Injects a fault that does not depend on the request.
pub(super) async fn plain(wire: &mut Wire, shared: &Shared, fault: HttpFault) -> io::Result<()> {
    let seconds = fault.amount.to_string();
    let after = [("retry-after", seconds.as_str())];
    match fault.kind {
        Kind::StallHeaders => {
            wire.client_closed().await;
            over()
        }
        Kind::HalfOpen => {
            shared.frozen().send_replace(true);
            shared.thawed().await;
            over()
        }
        Kind::Accepted => wire.answer(202, &[], b"").await,
        Kind::Close => over(),
        Kind::NotFound | Kind::RunThenNotFound => {
            wire.answer(404, &[], b"Not Found: Session not found").await
        }
        Kind::SessionBadRequest => {
            let body = error("Bad Request: No valid session ID provided");
            wire.answer(400, &[JSON], body.as_bytes()).await
        }
        Kind::SessionGone => {
            let body = error("Your session expired");
            wire.answer(410, &[JSON], body.as_bytes()).await
        }
        Kind::NullId => {
            let body = error("Invalid request parameters");
            wire.answer(400, &[JSON], body.as_bytes()).await
        }
        Kind::ForeignSession => {
            let session = shared.fresh("foreign");
            let body = error("Missing header");
            let headers = [JSON, (SESSION, session.as_str())];
            wire.answer(400, &headers, body.as_bytes()).await
        }
        Kind::Unauthorized => {
            let challenge = ("www-authenticate", "Bearer realm=\"mcp\"");
            wire.answer(401, &[challenge], b"who are you?").await
        }
        Kind::Busy => wire.answer(429, &[], b"slow down").await,
        Kind::BusyAfter => wire.answer(429, &after, b"slow down").await,
        Kind::Unavailable => wire.answer(503, &[], b"maintenance").await,
        Kind::UnavailableAfter => wire.answer(503, &after, b"maintenance").await,
        Kind::Redirect => {
            let other_origin = shared.other_origin.get();
            let other_origin =
                other_origin.map_or_else(String::new, |at| format!("http://{at}/mcp"));
            wire.answer(307, &[("location", &other_origin)], b"").await
        }
        Kind::RedirectHere => wire.answer(307, &[("location", "/moved")], b"").await,
        Kind::ContentType => {
            let page = b"<!doctype html><title>Sign in</title>";
            wire.answer(200, &[("content-type", "text/html")], page)
                .await
        }
        Kind::Status => {
            let status = u16::try_from(fault.amount).unwrap_or(500);
            wire.answer(status, &[], b"something is wrong here").await
        }
        // The other faults need a request to answer.
        _ => wire.answer(500, &[], b"this fault needs a request").await,
    }
}

fn error(message: &str) -> String {
    let error = json!({ "code": -32000, "message": message });
    json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string()
}

/// The correct reply to a request with an injected fault.
pub(super) fn good(rpc: &RpcRequest) -> String {
    let result = structured(json!({ "fine": true }));
    json!({ "jsonrpc": "2.0", "id": rpc.id, "result": result }).to_string()
}

/// A complete but unusual reply.
pub(super) fn odd(fault: HttpFault, rpc: &RpcRequest) -> String {
    let amount = usize::try_from(fault.amount).unwrap_or(usize::MAX);
    let with = |value: &str| {
        let result = format!(r#"{{"content":[],"structuredContent":{{"value":{value}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, rpc.id)
    };
    match fault.kind {
        Kind::Nesting => with(&format!("{}{}", "[".repeat(amount), "]".repeat(amount))),
        _ => {
            let result = structured(json!({}));
            json!({ "jsonrpc": "2.0", "id": NOBODYS_ID, "result": result }).to_string()
        }
    }
}

/// The beginning, the repeated part and the end of a large reply.
pub(super) fn large_parts(fault: HttpFault, rpc: &RpcRequest) -> (String, &'static str, String) {
    let (opening, filling, closing) = match fault.kind {
        Kind::Values => (
            r#"{"content":[],"structuredContent":{"value":[1"#,
            ",1",
            "]}}",
        ),
        _ => (r#"{"content":[{"type":"text","text":""#, "x", r#""}]}"#),
    };
    let id = &rpc.id;
    let opening = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{opening}"#);
    (opening, filling, format!("{closing}}}"))
}

/// A large reply, written in pieces. The server must not hold it in memory, because tests measure
/// the memory of this process.
async fn large(
    wire: &mut Wire,
    shared: &Shared,
    fault: HttpFault,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let (opening, filling, closing) = large_parts(fault, rpc);
    let (kind, before, after) = match shared.options().reply {
        ReplyKind::Json => (JSON, "", ""),
        ReplyKind::Sse | ReplyKind::Session => (EVENTS, "event: message\ndata: ", "\n\n"),
    };
    let (opening, closing) = (format!("{before}{opening}"), format!("{closing}{after}"));
    let amount = usize::try_from(fault.amount).unwrap_or(usize::MAX / 2);
    let length = opening.len() + amount * filling.len() + closing.len();
    wire.announce(200, &[kind], length).await?;
    wire.write(opening.as_bytes()).await?;
    let piece = filling.repeat(PIECE);
    let mut left = amount;
    while left > 0 {
        let now = left.min(PIECE);
        wire.write(&piece.as_bytes()[..now * filling.len()]).await?;
        left -= now;
    }
    wire.write(closing.as_bytes()).await
}

/// A reply that breaks off, or never ends.
async fn broken(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    fault: HttpFault,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let sse = shared.options().reply == ReplyKind::Sse;
    let good = good(rpc);
    let (whole, kind) = if sse {
        (event(&good), EVENTS)
    } else {
        (good.clone(), JSON)
    };
    let half = &whole.as_bytes()[..whole.len() / 2];
    match fault.kind {
        Kind::StallBody => {
            wire.announce(200, &[kind], whole.len()).await?;
            wire.write(half).await?;
            wire.client_closed().await;
            over()
        }
        Kind::Drop => {
            wire.announce(200, &[kind], whole.len()).await?;
            wire.write(half).await?;
            over()
        }
        Kind::SlowDrip => {
            wire.announce(200, &[kind], whole.len()).await?;
            for byte in whole.as_bytes() {
                wire.write(&[*byte]).await?;
                tokio::time::sleep(Duration::from_millis(fault.amount)).await;
            }
            Ok(())
        }
        Kind::EmptyStream => {
            wire.begin(200, &[EVENTS]).await?;
            wire.end().await
        }
        Kind::Resume => {
            let id = shared.fresh("event");
            let fine = |_| structured(json!({ "fine": true }));
            let result = perform(shared, rpc).unwrap_or_else(fine);
            let answer = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": result });
            shared.park(&id, answer.to_string());
            wire.begin(200, &[EVENTS]).await?;
            let priming = format!("id: {id}\nretry: {}\ndata: \n\n", fault.amount);
            wire.chunk(priming.as_bytes()).await?;
            wire.end().await
        }
        Kind::BadJson => {
            wire.answer(200, &[JSON], &good.as_bytes()[..good.len() / 2])
                .await
        }
        Kind::BadEvent => {
            wire.begin(200, &[EVENTS]).await?;
            wire.chunk(event("%% Segmentation fault %%").as_bytes())
                .await?;
            wire.end().await
        }
        Kind::EndlessEvent => endless(wire, EVENTS, "data: ").await,
        _ => endless(wire, JSON, "").await,
    }
}

/// Writes the beginning of a reply, then more of it for as long as the client reads.
async fn endless(wire: &mut Wire, kind: (&str, &str), prefix: &str) -> io::Result<()> {
    wire.begin(200, &[kind]).await?;
    wire.chunk(format!(r#"{prefix}{{"jsonrpc":"2.0","filling":""#).as_bytes())
        .await?;
    let piece = "x".repeat(PIECE);
    loop {
        wire.chunk(piece.as_bytes()).await?;
    }
}

/// A flood of unsolicited messages, then the reply.
async fn flood(wire: &mut Wire, fault: HttpFault, rpc: &RpcRequest) -> io::Result<()> {
    wire.begin(200, &[EVENTS]).await?;
    for piece in Flood::new(fault) {
        wire.chunk(piece.as_bytes()).await?;
    }
    wire.chunk(event(&good(rpc)).as_bytes()).await?;
    wire.end().await
}

/// The events of a flood, in large pieces.
pub(super) struct Flood {
    fault: HttpFault,
    sent: u64,
}

impl Flood {
    pub(super) fn new(fault: HttpFault) -> Self {
        Self { fault, sent: 0 }
    }
}

impl Iterator for Flood {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = String::with_capacity(PIECE + 1024);
        while piece.len() < PIECE && self.sent < self.fault.amount {
            let number = self.sent;
            self.sent += 1;
            let message = match self.fault.kind {
                Kind::FloodRequests => {
                    let method = ["ping", "roots/list"][(number % 2) as usize];
                    json!({ "jsonrpc": "2.0", "id": format!("flood-{number}"), "method": method })
                }
                _ => {
                    let params = json!({ "level": "error", "data": "one of very many" });
                    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params })
                }
            };
            piece.push_str(&event(&message.to_string()));
        }
        (!piece.is_empty()).then_some(piece)
    }
}
