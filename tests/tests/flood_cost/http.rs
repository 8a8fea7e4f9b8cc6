//! An HTTP server that floods its client, on its own threads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const MESSAGE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#;
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n";

/// Where the flood is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the server's own stream.
    Listening,
    /// In the reply to a call of the tool `flood`.
    Call,
    /// On the stream of the session (HTTP+SSE), once the tool `flood` is called.
    Session,
}

pub(crate) struct FloodServer {
    pub(crate) url: String,
    /// CPU time of all its threads, in nanoseconds.
    cpu: Arc<AtomicU64>,
}

impl FloodServer {
    pub(crate) fn start(place: Place, kind: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let cpu = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cpu);
        let session = Session::default();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let meter = Meter::new(Arc::clone(&counted));
                let session = session.clone();
                std::thread::spawn(move || match place {
                    Place::Session => serve_session(&stream, &session, kind, meter),
                    Place::Listening | Place::Call => serve(&stream, place, kind, meter),
                });
            }
        });
        Self { url, cpu }
    }

    /// CPU time of the server so far, in nanoseconds.
    pub(crate) fn cpu(&self) -> u64 {
        self.cpu.load(Ordering::Relaxed)
    }
}

/// Counts the CPU time of one thread.
struct Meter {
    cpu: Arc<AtomicU64>,
    counted: u64,
}

impl Meter {
    fn new(cpu: Arc<AtomicU64>) -> Self {
        Self { cpu, counted: 0 }
    }

    fn count(&mut self) {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.cpu.fetch_add(now - self.counted, Ordering::Relaxed);
        self.counted = now;
    }
}

fn serve(stream: &TcpStream, place: Place, kind: &'static str, mut meter: Meter) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some((method, body)) = request(&mut reader) {
        meter.count();
        let floods = match method.as_str() {
            "GET" => place == Place::Listening,
            _ => place == Place::Call && body["params"]["name"] == "flood",
        };
        let done = if floods {
            flood(stream, kind, true, &mut meter)
        } else {
            answer(stream, &method, &body)
        };
        meter.count();
        if done.is_err() {
            return;
        }
    }
}

/// The stream of the only session.
type Session = Arc<Mutex<Option<TcpStream>>>;

/// Serves one connection of HTTP+SSE: the stream of the session, or requests that are answered there.
fn serve_session(stream: &TcpStream, session: &Session, kind: &'static str, mut meter: Meter) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some((method, body)) = request(&mut reader) {
        meter.count();
        let mut stream = stream;
        if method == "GET" {
            let endpoint = "event: endpoint\ndata: /messages\n\n";
            let head = format!("{EVENTS}{CHUNKED}{:x}\r\n{endpoint}\r\n", endpoint.len());
            stream.write_all(head.as_bytes()).unwrap();
            *session.lock().unwrap() = Some(stream.try_clone().unwrap());
            continue;
        }
        let accepted = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        if stream.write_all(accepted.as_bytes()).is_err() {
            return;
        }
        let events = session.lock().unwrap();
        let Some(mut events) = events.as_ref() else {
            return;
        };
        let done = match body["params"]["name"] == "flood" {
            true => flood(events, kind, false, &mut meter),
            false => match reply(&body) {
                Some(reply) => {
                    let event = format!("data: {reply}\n\n");
                    write!(events, "{:x}\r\n{event}\r\n", event.len())
                }
                None => Ok(()),
            },
        };
        meter.count();
        if done.is_err() {
            return;
        }
    }
}

/// The method and the body of the next request.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Value)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let method = head.first()?.split(' ').next()?.to_owned();
    Some((method, serde_json::from_slice(&body).unwrap_or_default()))
}

fn answer(mut stream: &TcpStream, method: &str, message: &Value) -> std::io::Result<()> {
    match reply(message) {
        Some(reply) => respond(stream, &reply),
        None => {
            let status = match method {
                "GET" => "405 Method Not Allowed",
                _ => "202 Accepted",
            };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
        }
    }
}

/// The reply to a message, if it is a request.
fn reply(message: &Value) -> Option<String> {
    let id = &message["id"];
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "flood", "version": "1" },
        }),
        Some("tools/list") => {
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            json!({ "tools": [tool("flood"), tool("echo")] })
        }
        Some("tools/call") => json!({ "content": [] }),
        Some("ping") => json!({}),
        Some(_) if !id.is_null() => {
            let error = json!({ "code": -32601, "message": "no" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
        _ => return None,
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}

fn respond(mut stream: &TcpStream, body: &str) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
    stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes())
}

/// Floods until the client closes the connection. `begins`: with the head of a response.
fn flood(
    mut stream: &TcpStream,
    kind: &str,
    begins: bool,
    meter: &mut Meter,
) -> std::io::Result<()> {
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let event = |text: &str| format!("data: {text}\n\n");
    let (head, piece) = match kind {
        "messages" => (
            format!("{EVENTS}{CHUNKED}"),
            chunk(&event(MESSAGE).repeat(500)),
        ),
        "requests" => (
            format!("{EVENTS}{CHUNKED}"),
            chunk(&event(QUESTION).repeat(500)),
        ),
        "heavy" => {
            let values = "[0,1],".repeat(100_000);
            let params = format!(r#"{{"level":"info","data":[{values}0]}}"#);
            let message = MESSAGE.replace(r#"{"level":"info","data":"x"}"#, &params);
            (format!("{EVENTS}{CHUNKED}"), chunk(&event(&message)))
        }
        "comments" => (
            format!("{EVENTS}{CHUNKED}"),
            chunk(&": ping\n\n".repeat(4_000)),
        ),
        "blanks" => (format!("{EVENTS}{CHUNKED}"), chunk(&"\n".repeat(32 * 1024))),
        "unknown" => (
            format!("{EVENTS}{CHUNKED}"),
            chunk(&"event: x\ndata: {}\n\n".repeat(2_000)),
        ),
        "endless" => (
            format!("{EVENTS}{CHUNKED}"),
            chunk(&"data: aaaaaaa\n".repeat(2_000)),
        ),
        "chunks" => (format!("{EVENTS}{CHUNKED}"), chunk(":").repeat(8_000)),
        "zeros" => (format!("{EVENTS}{CHUNKED}"), "0".repeat(32 * 1024)),
        "hints" => (
            String::new(),
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000),
        ),
        "trickle" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            (format!("{head}: 15000000\r\n\r\n"), " ".repeat(1_000))
        }
        other => panic!("there is no flood {other:?}"),
    };
    if begins {
        stream.write_all(head.as_bytes())?;
    }
    loop {
        meter.count();
        if kind == "trickle" {
            for byte in piece.as_bytes() {
                stream.write_all(&[*byte])?;
            }
        } else {
            stream.write_all(piece.as_bytes())?;
        }
    }
}
