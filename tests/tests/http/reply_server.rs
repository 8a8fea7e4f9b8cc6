//! A small HTTP server that answers as a test tells it, byte by byte.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// One request as it was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Seen {
    /// What it asks for: the method of the message, or that of HTTP.
    pub fn asks(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub fn id(&self) -> Value {
        self.body["id"].clone()
    }
}

/// What is written for a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// These bytes, one part after the other, each after a pause.
    Parts(Vec<(Duration, String)>),
    /// These bytes, once the test says so.
    Held(watch::Receiver<bool>, String),
    /// Nothing, for ever.
    Hang,
    /// Nothing, and the connection is closed after these bytes.
    Close(String),
    /// These bytes, and once something is so, these; then the connection is closed.
    Until(String, Condition, String),
    /// The same, but the connection stays.
    Later(String, Condition, String),
}

/// What a reply waits for.
#[derive(Clone)]
pub struct Condition(Arc<dyn Fn() -> bool + Send + Sync>);

impl Condition {
    pub fn new(is_so: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_so))
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condition")
    }
}

impl Reply {
    pub fn status(line: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::raw(format!(
            "HTTP/1.1 {line}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        ))
    }

    /// The same, but not before the test says so.
    pub fn held(self, released: &watch::Receiver<bool>) -> Self {
        let Self::Parts(parts) = self else {
            unreachable!("only parts are held")
        };
        let text = parts.into_iter().map(|(_, part)| part).collect();
        Self::Held(released.clone(), text)
    }

    pub fn raw(text: String) -> Self {
        Self::Parts(vec![(Duration::ZERO, text)])
    }

    pub fn json(body: &Value) -> Self {
        Self::status(
            "200 OK",
            "content-type: application/json\r\n",
            &body.to_string(),
        )
    }

    /// A result, as JSON.
    pub fn result(seen: &Seen, result: &Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": seen.id(), "result": result}))
    }

    /// The head of a stream of events, and these events.
    pub fn events(events: &[String]) -> Self {
        let mut parts = vec![(Duration::ZERO, sse_head())];
        parts.extend(events.iter().map(|event| (Duration::ZERO, chunk(event))));
        parts.push((Duration::ZERO, "0\r\n\r\n".to_owned()));
        Self::Parts(parts)
    }
}

pub fn sse_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_owned()
}

pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

pub fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

type Handler = dyn Fn(&Seen) -> Reply + Send + Sync;

/// A running server. Dropped, it closes everything.
pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    accepted: Arc<AtomicUsize>,
    listening: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on(0, handler).await
    }

    pub async fn start_on(
        port: u16,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(port, usize::MAX, handler).await
    }

    /// Serves one connection, and the next one when that is closed.
    pub async fn one_at_a_time(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_as(0, 1, handler).await
    }

    async fn start_as(
        port: u16,
        at_once: usize,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], port).into()).unwrap();
        let listener: TcpListener = socket.listen(1024).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, count) = (Arc::clone(&seen), Arc::clone(&accepted));
        let (listening, mut listens) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = listens.wait_for(|listens| !listens) => break,
                };
                let Ok((stream, _)) = accepted else { break };
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connection(stream, Arc::clone(&log), Arc::clone(&handler)));
                while connections.len() >= at_once {
                    connections.join_next().await;
                }
            }
            drop(listener);
            while connections.join_next().await.is_some() {}
        });
        Self {
            port,
            seen,
            accepted,
            listening,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How often this was asked for.
    pub fn count(&self, asks: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.asks() == asks).count()
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Takes no connection any more; those that it has go on.
    pub fn refuse_others(&self) {
        self.listening.send_replace(false);
    }

    /// Stops at once: every socket is closed.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

async fn connection(mut stream: TcpStream, log: Arc<Mutex<Vec<Seen>>>, handler: Arc<Handler>) {
    let mut buffer = Vec::new();
    while let Some(seen) = request(&mut stream, &mut buffer).await {
        log.lock().unwrap().push(seen.clone());
        match handler(&seen) {
            Reply::Parts(parts) => {
                for (pause, part) in parts {
                    tokio::time::sleep(pause).await;
                    if stream.write_all(part.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
            Reply::Held(mut released, text) => {
                if released.wait_for(|released| *released).await.is_err()
                    || stream.write_all(text.as_bytes()).await.is_err()
                {
                    return;
                }
            }
            // Until the other side closes it.
            Reply::Hang => while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {},
            Reply::Close(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                return;
            }
            Reply::Later(first, Condition(is_so), last) => {
                let _ = stream.write_all(first.as_bytes()).await;
                while !is_so() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let _ = stream.write_all(last.as_bytes()).await;
            }
            Reply::Until(first, Condition(is_so), last) => {
                let _ = stream.write_all(first.as_bytes()).await;
                while !is_so() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let _ = stream.write_all(last.as_bytes()).await;
                return;
            }
        }
    }
}

async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
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
    let length = headers
        .get("content-length")
        .map_or(0, |text| text.parse().unwrap());
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap_or(Value::Null);
    buffer.drain(..end + 4 + length);
    Some(Seen {
        method,
        path,
        headers,
        body,
    })
}

/// The version that the server speaks.
pub const VERSION: &str = "2025-06-18";

/// The answer to `initialize`, with a session or without.
pub fn welcome(seen: &Seen, session: Option<&str>) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {
        "protocolVersion": VERSION,
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "small", "version": "1"},
    }});
    let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    let headers = format!("content-type: application/json\r\n{session}");
    Reply::status("200 OK", &headers, &body.to_string())
}

/// What a good server answers to everything but a call: a session, one tool, no stream of its own.
pub fn manners(seen: &Seen) -> Reply {
    match seen.asks() {
        "initialize" => welcome(seen, Some("session-1")),
        "tools/list" => Reply::result(seen, &tools()),
        "tools/call" => Reply::result(seen, &said("hello")),
        "ping" => Reply::result(seen, &json!({})),
        "GET" => Reply::status("405 Method Not Allowed", "", ""),
        "DELETE" => Reply::status("200 OK", "", ""),
        _ => Reply::status("202 Accepted", "", ""),
    }
}

pub fn tools() -> Value {
    json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
}

pub fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
