//! Floods.

use std::io::{self, Write};

use serde_json::json;

use super::fault::{Fault, Kind};
use super::fault_injector::AfterFault;
use crate::stdio_server::output::write_bytes;
use crate::stdio_server::{Request, Server};

/// Bytes per write.
const PIECE: usize = 64 * 1024;

pub(super) fn inject(fault: Fault, _: &Server, _: &Request) -> Option<AfterFault> {
    match fault.kind {
        Kind::Flood => {
            let params = json!({ "level": "error", "data": "one of very many" });
            let method = "notifications/message";
            let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            flood(fault.amount, |_| line.to_string());
        }
        Kind::FloodRequests => flood(fault.amount, |number| {
            let method = ["ping", "roots/list", "sampling/createMessage"][(number % 3) as usize];
            json!({ "jsonrpc": "2.0", "id": format!("flood-{number}"), "method": method })
                .to_string()
        }),
        Kind::StderrFlood => scream(fault.amount),
        _ => return None,
    }
    Some(AfterFault::Serve)
}

fn flood(amount: u64, line: impl Fn(u64) -> String) {
    let mut piece = String::with_capacity(PIECE + 1024);
    for number in 0..amount {
        piece.push_str(&line(number));
        piece.push('\n');
        if piece.len() >= PIECE {
            write_bytes(piece.as_bytes());
            piece.clear();
        }
    }
    write_bytes(piece.as_bytes());
}

fn scream(bytes: u64) {
    let piece = "aaargh! ".repeat(PIECE / 8);
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let length = left.min(PIECE);
        if io::stderr().write_all(&piece.as_bytes()[..length]).is_err() {
            return;
        }
        left -= length;
    }
}
