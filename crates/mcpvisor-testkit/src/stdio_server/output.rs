//! Writes whole lines to stdout and to files, never interleaved.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

/// Writes one line in one write. Exits the process if the client is gone, as any server would.
pub fn write_line(line: &str) {
    write_bytes(format!("{line}\n").as_bytes());
}

/// Writes bytes verbatim and flushes them. Exits the process if the client is gone.
pub fn write_bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Writes one message.
pub fn send(message: &Value) {
    write_line(&message.to_string());
}

/// Sends a notification; null means no parameters.
pub fn notify(method: &str, params: Value) {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if !params.is_null() {
        message["params"] = params;
    }
    send(&message);
}

/// Replies to a request.
pub fn answer(id: &Value, result: Value) {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

/// Replies to a request with an error.
pub fn refuse(id: &Value, code: i32, message: &str) {
    let error = json!({ "code": code, "message": message });
    send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
}

/// Appends one line in one write, so that several processes can share the file.
pub fn append_line(file: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
}
