//! `mcpvisor-badserver --http` as a program: where it listens, and that its faults are armed.

#![allow(
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The program, which is killed when this is dropped.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcpvisor-badserver"))
            .args(["--http", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at http://").unwrap();
        let address = address.strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address }
    }

    /// What it answers to a message, as it comes.
    fn post(&self, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head =
            format!("POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}");
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const ECHO: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}"#;

fn session(answer: &str) -> String {
    let header = answer
        .lines()
        .find(|line| line.starts_with("mcp-session-id"));
    format!("{}\r\n", header.unwrap())
}

#[test]
fn it_says_where_it_listens_and_serves_sessions() {
    let program = Program::start(&[]);
    let welcome = program.post("", INITIALIZE);
    assert!(welcome.starts_with("HTTP/1.1 200"), "{welcome}");
    let answer = program.post(&session(&welcome), ECHO);
    assert!(
        answer.contains(r#""structuredContent":{"a":1}"#),
        "{answer}"
    );
    let nobody = program.post("mcp-session-id: nobody\r\n", ECHO);
    assert!(nobody.starts_with("HTTP/1.1 404"), "{nobody}");
}

#[test]
fn its_faults_strike_every_call() {
    let program = Program::start(&["--stateless", "--sse", "--fault", "http-503-after=7"]);
    let welcome = program.post("", INITIALIZE);
    assert!(welcome.contains("text/event-stream"), "{welcome}");
    for _ in 0..2 {
        let refused = program.post("", ECHO);
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("retry-after: 7"), "{refused}");
    }
}
