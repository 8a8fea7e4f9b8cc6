//! A client on plain pipes, to inspect the bytes of a server process.
//!
//! It is blocking and has no timeouts.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

/// A running server and the pipes to it. The server is killed on drop.
#[derive(Debug)]
pub struct RawClient {
    /// The process.
    pub child: Child,
    /// `None` once it is closed.
    pub stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl RawClient {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            next_id: 0,
        }
    }

    /// Sends one message.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn send(&mut self, message: Value) {
        writeln!(self.stdin.as_ref().unwrap(), "{message}").unwrap();
    }

    /// Sends a request and returns its id.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Calls a tool and returns the request id.
    pub fn call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The next line verbatim, including its line end; `None` at the end of the output.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        let read = self.stdout.read_until(b'\n', &mut line).unwrap();
        (read > 0).then_some(line)
    }

    /// The next line.
    ///
    /// # Panics
    ///
    /// When it is not UTF-8.
    pub fn line(&mut self) -> Option<String> {
        let line = String::from_utf8(self.bytes()?).unwrap();
        Some(line.trim_end().to_owned())
    }

    /// The next message.
    ///
    /// # Panics
    ///
    /// When there is none, or it is not JSON.
    pub fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().unwrap()).unwrap()
    }

    /// Calls a tool whose reply is the next message, and returns the result.
    ///
    /// # Panics
    ///
    /// When another message comes first.
    pub fn result_of(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.call(tool, arguments);
        let answer = self.message();
        assert_eq!(answer["id"], id);
        answer["result"]["structuredContent"].clone()
    }

    /// Closes the server's input and waits for it to exit.
    ///
    /// # Panics
    ///
    /// When waiting fails.
    pub fn end(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.child.wait().unwrap()
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
