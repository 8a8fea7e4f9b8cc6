//! An HTTP server without built-in behaviour: a handler of the test returns the bytes of each
//! reply.
//!
//! [`crate::http_server`] is an MCP server with named faults. This one is for replies that no
//! server should send: parts with pauses between them, wrong lengths, held replies, and connections
//! that close in the middle. [`default_reply`] handles the other requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The protocol version that [`initialize_reply`] announces.
pub const VERSION: &str = "2025-06-18";

/// Pending connections that the system accepts for a server.
const BACKLOG: u32 = 1024;

/// How often a paused reply checks its condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// One request as it was received.
#[derive(Debug, Clone)]
pub struct StubRequest {
    /// POST, GET or DELETE.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// All headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON-RPC message; null if there is none.
    pub body: Value,
}

impl StubRequest {
    /// The method of the JSON-RPC message, or of HTTP if there is no message.
    pub fn operation(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The id of the JSON-RPC message; null if there is none.
    pub fn id(&self) -> Value {
        self.body["id"].clone()
    }
}

/// The bytes that are written for a request.
#[derive(Debug, Clone)]
pub enum StubReply {
    /// Each part after its pause.
    Parts(Vec<(Duration, String)>),
    /// The whole reply, once the test releases it.
    Held(watch::Receiver<bool>, String),
    /// Nothing, until the client closes the connection.
    Hang,
    /// These bytes, then the connection is closed.
    Close(String),
    /// The first text, then the second once the condition holds.
    Paused(String, Condition, String),
    /// As [`StubReply::Paused`], then the connection is closed.
    PausedThenClose(String, Condition, String),
}

/// The condition that a paused reply waits for.
#[derive(Clone)]
pub struct Condition(Arc<dyn Fn() -> bool + Send + Sync>);

impl Condition {
    /// A condition that is checked every few milliseconds.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    async fn wait(&self) {
        while !(self.0)() {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condition")
    }
}

impl StubReply {
    /// A complete reply: the status with its reason, header lines that end in `\r\n`, and the body.
    pub fn status(line: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::raw(format!(
            "HTTP/1.1 {line}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        ))
    }

    /// The same reply, held back until the test releases it.
    ///
    /// # Panics
    ///
    /// When the reply does not consist of parts.
    #[must_use]
    pub fn held(self, released: &watch::Receiver<bool>) -> Self {
        let Self::Parts(parts) = self else {
            panic!("only a reply of parts can be held")
        };
        let text = parts.into_iter().map(|(_, part)| part).collect();
        Self::Held(released.clone(), text)
    }

    /// These bytes, immediately.
    pub fn raw(text: String) -> Self {
        Self::Parts(vec![(Duration::ZERO, text)])
    }

    /// 200 with this JSON body.
    pub fn json(body: &Value) -> Self {
        Self::status(
            "200 OK",
            "content-type: application/json\r\n",
            &body.to_string(),
        )
    }

    /// The JSON-RPC result of a request, as a JSON body.
    pub fn result(request: &StubRequest, result: &Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": request.id(), "result": result}))
    }

    /// A complete stream of these events.
    pub fn events(events: &[String]) -> Self {
        let mut parts = vec![(Duration::ZERO, sse_head())];
        parts.extend(events.iter().map(|event| (Duration::ZERO, chunk(event))));
        parts.push((Duration::ZERO, "0\r\n\r\n".to_owned()));
        Self::Parts(parts)
    }
}

/// The head of a chunked event stream.
pub fn sse_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_owned()
}

/// One chunk of a chunked body.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// One event with a message.
pub fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

type Handler = dyn Fn(&StubRequest) -> StubReply + Send + Sync;

/// A running server on loopback. Dropping it closes all its sockets.
#[derive(Debug)]
pub struct StubServer {
    /// The port it listens on.
    pub port: u16,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    accepted: Arc<AtomicUsize>,
    listening: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StubServer {
    /// Starts a server on a free port.
    pub async fn start(
        handler: impl Fn(&StubRequest) -> StubReply + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(0, handler).await
    }

    /// Starts a server on this port.
    pub async fn start_on(
        port: u16,
        handler: impl Fn(&StubRequest) -> StubReply + Send + Sync + 'static,
    ) -> Self {
        Self::serve(port, usize::MAX, Arc::new(handler))
    }

    /// Starts a server that accepts the next connection once the previous one is closed.
    pub async fn one_at_a_time(
        handler: impl Fn(&StubRequest) -> StubReply + Send + Sync + 'static,
    ) -> Self {
        Self::serve(0, 1, Arc::new(handler))
    }

    fn serve(port: u16, max_connections: usize, handler: Arc<Handler>) -> Self {
        let (listener, port) = listen(port).unwrap_or_else(|problem| {
            panic!("cannot listen on port {port} of loopback: {problem}");
        });
        let requests = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (log, count) = (Arc::clone(&requests), Arc::clone(&accepted));
        let (listening, mut is_listening) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = is_listening.wait_for(|listening| !listening) => break,
                };
                let Ok((stream, _)) = accepted else { break };
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connection(stream, Arc::clone(&log), Arc::clone(&handler)));
                while connections.len() >= max_connections {
                    connections.join_next().await;
                }
            }
            drop(listener);
            while connections.join_next().await.is_some() {}
        });
        Self {
            port,
            requests,
            accepted,
            listening,
            task,
        }
    }

    /// The URL of its MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<StubRequest> {
        lock(&self.requests).clone()
    }

    /// The number of requests for this operation.
    pub fn count(&self, operation: &str) -> usize {
        let requests = lock(&self.requests);
        let matching = requests.iter().filter(|it| it.operation() == operation);
        matching.count()
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closes its port and keeps its connections.
    pub fn stop_listening(&self) {
        self.listening.send_replace(false);
    }

    /// Closes its port and all connections.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

fn listen(port: u16) -> std::io::Result<(TcpListener, u16)> {
    let socket = TcpSocket::new_v4()?;
    // Lets the port of a stopped server be reused immediately.
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    let listener = socket.listen(BACKLOG)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connection(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<StubRequest>>>,
    handler: Arc<Handler>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        lock(&log).push(request.clone());
        let reply = handler(&request);
        if write_reply(&mut stream, reply).await.is_none() {
            return;
        }
    }
}

/// Writes a reply. Returns `None` when the connection is to be closed.
async fn write_reply(stream: &mut TcpStream, reply: StubReply) -> Option<()> {
    match reply {
        StubReply::Parts(parts) => {
            for (pause, part) in parts {
                tokio::time::sleep(pause).await;
                stream.write_all(part.as_bytes()).await.ok()?;
            }
        }
        StubReply::Held(mut released, text) => {
            released.wait_for(|released| *released).await.ok()?;
            stream.write_all(text.as_bytes()).await.ok()?;
        }
        StubReply::Hang => while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {},
        StubReply::Close(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            return None;
        }
        StubReply::Paused(first, condition, last) => {
            paused(stream, &first, &condition, &last).await;
        }
        StubReply::PausedThenClose(first, condition, last) => {
            paused(stream, &first, &condition, &last).await;
            return None;
        }
    }
    Some(())
}

async fn paused(stream: &mut TcpStream, first: &str, condition: &Condition, last: &str) {
    let _ = stream.write_all(first.as_bytes()).await;
    condition.wait().await;
    let _ = stream.write_all(last.as_bytes()).await;
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<StubRequest> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|part| part == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |text| {
        let length = text.parse::<usize>();
        length.unwrap_or_else(|_| panic!("the client sent the length {text:?}"))
    });
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap_or(Value::Null);
    buffer.drain(..end + 4 + length);
    Some(StubRequest {
        method,
        path,
        headers,
        body,
    })
}

/// The reply to `initialize`, with a session id or without.
pub fn initialize_reply(request: &StubRequest, session: Option<&str>) -> StubReply {
    let body = json!({"jsonrpc": "2.0", "id": request.id(), "result": {
        "protocolVersion": VERSION,
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "small", "version": "1"},
    }});
    let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    let headers = format!("content-type: application/json\r\n{session}");
    StubReply::status("200 OK", &headers, &body.to_string())
}

/// The replies of a well-behaved server with a session, one tool, and no server stream.
pub fn default_reply(request: &StubRequest) -> StubReply {
    match request.operation() {
        "initialize" => initialize_reply(request, Some("session-1")),
        "tools/list" => StubReply::result(request, &one_tool()),
        "tools/call" => StubReply::result(request, &text_result("hello")),
        "ping" => StubReply::result(request, &json!({})),
        "GET" => StubReply::status("405 Method Not Allowed", "", ""),
        "DELETE" => StubReply::status("200 OK", "", ""),
        _ => StubReply::status("202 Accepted", "", ""),
    }
}

/// A list with the tool `echo`.
pub fn one_tool() -> Value {
    json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
}

/// The result of a tool with this text.
pub fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
