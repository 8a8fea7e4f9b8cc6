//! A stdio server that floods its client, starting with the first call of its tool `flood`.
//!
//! The only argument is the kind of flood.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => answer(
                id,
                &json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "flood", "version": "1" },
                }),
            ),
            Some("tools/list") => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                answer(id, &json!({ "tools": [tool("flood"), tool("echo")] }));
            }
            Some("tools/call") if message["params"]["name"] == "flood" => {
                let kind = kind.clone();
                std::thread::spawn(move || flood(&kind));
            }
            Some("tools/call") => answer(id, &json!({ "content": [] })),
            Some(_) if !id.is_null() => send(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } })
                    .to_string()
                    .as_bytes(),
            ),
            _ => {}
        }
    }
}

fn answer(id: &Value, result: &Value) {
    let line = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    send(line.to_string().as_bytes());
}

/// Writes a line in one write, so that concurrent lines do not interleave.
fn send(line: &[u8]) {
    let mut line = line.to_vec();
    line.push(b'\n');
    write(&line);
}

fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn flood(kind: &str) {
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let request = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#;
    let piece = match kind {
        "messages" => format!("{notification}\n").repeat(500),
        "requests" => format!("{request}\n").repeat(500),
        "noise" => "x\n".repeat(20_000),
        "blanks" | "trickle" => "\n".repeat(32 * 1024),
        other => panic!("there is no flood {other:?}"),
    };
    loop {
        if kind == "trickle" {
            for byte in piece.as_bytes() {
                write(&[*byte]);
            }
        } else {
            write(piece.as_bytes());
        }
        // Leaves room for replies.
        std::thread::sleep(Duration::from_micros(100));
    }
}
