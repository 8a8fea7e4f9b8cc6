//! Faults of the reply to a call.

use std::time::Duration;

use serde_json::{Value, json};

use super::fault::{Fault, Kind};
use super::fault_injector::AfterFault;
use crate::stdio_server::output::{answer, send, write_bytes, write_line};
use crate::stdio_server::tools::structured;
use crate::stdio_server::{Request, Server};

/// A request id that no client reaches by counting.
const NOBODYS_ID: u64 = 4_000_000_007;

pub(super) fn inject(fault: Fault, _: &Server, request: &Request) -> Option<AfterFault> {
    let id = &request.id;
    let good = line(id, &structured(json!({ "fine": true })).to_string());
    let amount = usize::try_from(fault.amount).unwrap_or(usize::MAX);
    match fault.kind {
        Kind::Garbage => write_line("%% Segmentation fault (core dumped) \u{1b}[31m%%"),
        Kind::TruncatedJson => write_line(&good[..good.len() / 2]),
        Kind::HalfAnswerExit => {
            write_bytes(&good.as_bytes()[..good.len() / 2]);
            std::process::exit(1);
        }
        Kind::WrongId => answer(&json!(NOBODYS_ID), structured(json!({}))),
        Kind::ForeignId => send(&json!({
            "jsonrpc": "2.0",
            "id": "server-error",
            "error": { "code": -32603, "message": "which request was that?" },
        })),
        Kind::WrongShape => answer(id, json!({ "content": 5, "isError": "maybe" })),
        Kind::BadUtf8 => bad_utf8(id),
        Kind::Nesting => {
            let nested = format!("{}{}", "[".repeat(amount), "]".repeat(amount));
            write_line(&line(id, &result_with(&nested)));
        }
        Kind::Line => {
            let text = json!({ "type": "text", "text": "x".repeat(amount) });
            answer(id, json!({ "content": [text] }));
        }
        Kind::Values => {
            let ones = vec!["1"; amount].join(",");
            write_line(&line(id, &result_with(&format!("[{ones}]"))));
        }
        Kind::SlowDrip => drip(&good, Duration::from_millis(fault.amount)),
        Kind::LateAnswer => {
            let late = Duration::from_millis(fault.amount);
            std::thread::spawn(move || {
                std::thread::sleep(late);
                write_line(&good);
            });
        }
        Kind::DuplicateAnswers => (0..amount).for_each(|_| write_line(&good)),
        _ => return None,
    }
    Some(AfterFault::Stop)
}

/// The line of a reply, with the result verbatim.
fn line(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A tool result that contains this JSON verbatim.
fn result_with(value: &str) -> String {
    format!(r#"{{"content":[],"structuredContent":{{"value":{value}}}}}"#)
}

fn bad_utf8(id: &Value) {
    let good = line(id, r#"{"content":[{"type":"text","text":"caf?"}]}"#);
    let mut bytes = good.replace('?', "\u{1}").into_bytes();
    for byte in &mut bytes {
        if *byte == 1 {
            // `é` in Latin-1.
            *byte = 0xe9;
        }
    }
    bytes.push(b'\n');
    write_bytes(&bytes);
}

fn drip(line: &str, pause: Duration) {
    for byte in line.bytes().chain([b'\n']) {
        write_bytes(&[byte]);
        std::thread::sleep(pause);
    }
}
