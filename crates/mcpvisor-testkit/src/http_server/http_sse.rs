//! HTTP+SSE, the transport of 2024-11-05: a stream that is the session, and an endpoint for messages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, mpsc};

use super::answers;
use super::control::{Shared, StreamCommand};
use super::exchange::{Reply, RpcRequest, event, reject_lost_session};
use super::fault::{HttpFault, Kind};
use super::inject::{self, Flood};
use super::streams::EVENTS;
use super::wire::{Request, Wire};

/// The path of the stream.
pub(super) const STREAM_PATH: &str = "/sse";

/// The path of the endpoint, up to the session.
const ENDPOINT: &str = "/messages?session_id=";

/// Pieces of a stream that wait to be written.
const QUEUED_PIECES: usize = 4;

/// Bytes per write of an endless event.
const PIECE: usize = 64 * 1024;

/// The stream of one session, as its requests see it.
#[derive(Debug)]
pub(super) struct SessionStream {
    pieces: mpsc::Sender<Piece>,
    /// Held while an event is written in several pieces.
    turn: Mutex<()>,
}

/// What happens next on a stream.
#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// Nothing more is written; the connection stays open.
    Stall,
    /// The stream ends.
    End,
    /// The connection is closed.
    Cut,
}

impl SessionStream {
    /// Writes an event.
    pub(super) async fn send(&self, message: &str) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        self.piece(Piece::Bytes(event(message).into_bytes())).await
    }

    /// Waits until the stream is closed.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }

    async fn piece(&self, piece: Piece) -> io::Result<()> {
        let sent = self.pieces.send(piece).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.piece(Piece::Bytes(bytes.to_vec())).await
    }
}

/// Answers one request of a client. An error ends the connection.
pub(super) async fn serve(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    request: &Request,
    mut message: Value,
) -> io::Result<()> {
    if request.method == "GET" {
        return open(wire, shared).await;
    }
    let session = request.path.strip_prefix(ENDPOINT);
    let (Some(session), "POST") = (session, request.method.as_str()) else {
        return wire
            .answer(405, &[("allow", "GET")], b"Method Not Allowed")
            .await;
    };
    let Some(stream) = shared.session_stream(session) else {
        let lost = shared.options().lost;
        return reject_lost_session(wire, lost, &message["id"]).await;
    };
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    if method.is_empty() || message.get("id").is_none() {
        if let Some(fault) = shared.take_fault(&method) {
            return inject::plain(wire, shared, fault).await;
        }
        if method == "notifications/cancelled" {
            shared.cancel(&message["params"]["requestId"]);
        }
        return wire.answer(202, &[], b"Accepted").await;
    }
    let rpc = RpcRequest {
        id: message["id"].take(),
        method,
        params: message["params"].take(),
        modern: false,
        head: format!("{} {:?}", request.path, request.headers),
    };
    let fault = match rpc.tool() {
        "misbehave" => rpc.arguments()["fault"]
            .as_str()
            .unwrap_or_default()
            .parse()
            .ok(),
        _ => shared.take_fault(&rpc.method),
    };
    match fault {
        Some(fault) if strikes_post(fault.kind) => inject::inject(wire, shared, fault, &rpc).await,
        fault => accept(wire, shared, stream, fault, rpc).await,
    }
}

/// Accepts a request. It is answered on the stream, while this connection serves the next one.
async fn accept(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    stream: Arc<SessionStream>,
    fault: Option<HttpFault>,
    rpc: RpcRequest,
) -> io::Result<()> {
    let never_ends = fault.is_some_and(|fault| fault.kind == Kind::EndlessAcceptance);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // A client that is gone misses the answer.
        let _ = match fault {
            Some(fault) => misbehave(&stream, &shared, fault, &rpc).await,
            None => answers::respond(Reply::on(stream), &shared, &rpc).await,
        };
    });
    if !never_ends {
        return wire.answer(202, &[], b"Accepted").await;
    }
    wire.begin(202, &[]).await?;
    loop {
        wire.chunk(b"x").await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether a fault affects the response to the POST, not the stream.
fn strikes_post(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::StallBody
            | Kind::SlowDrip
            | Kind::Drop
            | Kind::EmptyStream
            | Kind::Resume
            | Kind::EndlessBody
            | Kind::EndlessEvent
            | Kind::BadJson
            | Kind::BadEvent
            | Kind::ContentType
            | Kind::RunThenSessionError
            | Kind::SessionError
            | Kind::Body
            | Kind::Values
            | Kind::Nesting
            | Kind::WrongId
            | Kind::Flood
            | Kind::FloodRequests
            | Kind::EndlessAcceptance
    )
}

/// Injects a fault into the answer on the stream.
async fn misbehave(
    stream: &Arc<SessionStream>,
    shared: &Arc<Shared>,
    fault: HttpFault,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let good = inject::good(rpc);
    let whole = event(&good).into_bytes();
    let (half, _) = whole.split_at(whole.len() / 2);
    let _turn = stream.turn.lock().await;
    match fault.kind {
        Kind::StallBody => {
            stream.bytes(half).await?;
            stream.piece(Piece::Stall).await
        }
        Kind::Drop => {
            stream.bytes(half).await?;
            stream.piece(Piece::Cut).await
        }
        Kind::EmptyStream => stream.piece(Piece::End).await,
        Kind::SlowDrip => {
            for byte in &whole {
                stream.bytes(&[*byte]).await?;
                tokio::time::sleep(Duration::from_millis(fault.amount)).await;
            }
            Ok(())
        }
        Kind::EndlessBody | Kind::EndlessEvent => {
            stream
                .bytes(b"data: {\"jsonrpc\":\"2.0\",\"filling\":\"")
                .await?;
            let piece = "x".repeat(PIECE);
            loop {
                stream.bytes(piece.as_bytes()).await?;
            }
        }
        Kind::BadJson => {
            let half = event(&good[..good.len() / 2]);
            stream.bytes(half.as_bytes()).await
        }
        Kind::BadEvent => {
            stream
                .bytes(event("%% Segmentation fault %%").as_bytes())
                .await
        }
        Kind::Body | Kind::Values => large(stream, fault, rpc).await,
        Kind::Nesting | Kind::WrongId => {
            stream
                .bytes(event(&inject::odd(fault, rpc)).as_bytes())
                .await
        }
        Kind::Flood | Kind::FloodRequests => {
            for piece in Flood::new(fault) {
                stream.bytes(piece.as_bytes()).await?;
            }
            stream.bytes(&whole).await
        }
        Kind::RunThenSessionError => {
            let _ = answers::perform(shared, rpc);
            let error = json!({ "code": -32001, "message": "Session not found: browser-7", "data": { "browser": 7 } });
            let message = json!({ "jsonrpc": "2.0", "id": rpc.id, "error": error });
            stream.bytes(event(&message.to_string()).as_bytes()).await
        }
        Kind::SessionError => {
            let error = json!({ "code": -32000, "message": "Session not found" });
            let message = json!({ "jsonrpc": "2.0", "id": rpc.id, "error": error });
            stream.bytes(event(&message.to_string()).as_bytes()).await
        }
        _ => stream.bytes(&whole).await,
    }
}

/// A large answer, in pieces: the server must not hold it in memory.
async fn large(stream: &SessionStream, fault: HttpFault, rpc: &RpcRequest) -> io::Result<()> {
    let (opening, filling, closing) = inject::large_parts(fault, rpc);
    stream
        .bytes(format!("event: message\ndata: {opening}").as_bytes())
        .await?;
    let piece = filling.repeat(PIECE);
    let mut left = usize::try_from(fault.amount).unwrap_or(usize::MAX / 2);
    while left > 0 {
        let now = left.min(PIECE);
        stream
            .bytes(&piece.as_bytes()[..now * filling.len()])
            .await?;
        left -= now;
    }
    stream.bytes(format!("{closing}\n\n").as_bytes()).await
}

/// Opens the stream of a session, and serves it until it ends.
async fn open(wire: &mut Wire, shared: &Arc<Shared>) -> io::Result<()> {
    let fault = shared.take_fault("GET");
    if let Some(fault) = fault.filter(|fault| !strikes_stream(fault.kind)) {
        return inject::plain(wire, shared, fault).await;
    }
    let mut commands = shared.streams();
    let (sender, mut pieces) = mpsc::channel(QUEUED_PIECES);
    let stream = SessionStream {
        pieces: sender,
        turn: Mutex::default(),
    };
    let session = OpenSession::new(shared, stream);
    wire.begin(200, EVENTS).await?;
    for endpoint in endpoints(shared, fault, &session.id) {
        let first = format!("event: endpoint\ndata: {endpoint}\n\n");
        wire.chunk(first.as_bytes()).await?;
    }
    if fault.is_some_and(|fault| fault.kind == Kind::EndlessComments) {
        let comments = ": still here\n\n".repeat(PIECE / 14);
        loop {
            wire.chunk(comments.as_bytes()).await?;
        }
    }
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            piece = pieces.recv() => match piece {
                Some(Piece::Bytes(bytes)) => {
                    wire.chunk(&bytes).await?;
                    continue;
                }
                Some(Piece::Stall) => {
                    wire.client_closed().await;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Some(Piece::End) | None => return wire.end().await,
                Some(Piece::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
            },
            () = wire.client_closed() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        match command {
            Ok(StreamCommand::Message(message)) => wire.chunk(event(&message).as_bytes()).await?,
            Err(RecvError::Lagged(_)) => {}
            Ok(StreamCommand::End) | Err(RecvError::Closed) => return wire.end().await,
            Ok(StreamCommand::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Whether a fault affects the beginning of a stream, not the response as a whole.
fn strikes_stream(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NoEndpoint
            | Kind::EndlessComments
            | Kind::EndpointElsewhere
            | Kind::EndpointJavascript
            | Kind::EndpointHuge
            | Kind::TwoEndpoints
    )
}

/// The endpoints that a stream begins with.
fn endpoints(shared: &Shared, fault: Option<HttpFault>, session: &str) -> Vec<String> {
    let own = format!("{ENDPOINT}{session}");
    let Some(fault) = fault else {
        return vec![own];
    };
    match fault.kind {
        Kind::NoEndpoint | Kind::EndlessComments => Vec::new(),
        Kind::EndpointElsewhere => {
            let other = shared.other_origin.get().into_iter();
            other.map(|other| format!("http://{other}{own}")).collect()
        }
        Kind::EndpointJavascript => vec!["javascript:alert(1)".to_owned()],
        Kind::EndpointHuge => {
            let length = usize::try_from(fault.amount).unwrap_or(usize::MAX / 2);
            vec![format!("/{}", "x".repeat(length))]
        }
        Kind::TwoEndpoints => vec![own, format!("{ENDPOINT}another")],
        _ => vec![own],
    }
}

/// A session, forgotten when its stream ends.
struct OpenSession<'a> {
    shared: &'a Shared,
    id: String,
}

impl<'a> OpenSession<'a> {
    fn new(shared: &'a Shared, stream: SessionStream) -> Self {
        let id = shared.open_session();
        shared.set_session_stream(&id, stream);
        Self { shared, id }
    }
}

impl Drop for OpenSession<'_> {
    fn drop(&mut self) {
        self.shared.end_session(&self.id);
    }
}
