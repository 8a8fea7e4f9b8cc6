//! Faults of the handshake.

use serde_json::json;

use super::armed::Then;
use super::deaths;
use super::fault::{Fault, Kind};
use crate::stdio_server::{Request, Server};

pub(super) fn strike(fault: Fault, server: &Server, request: &Request) -> Then {
    match fault.kind {
        Kind::ExitOnInitialize => deaths::exit(fault.amount),
        Kind::SigstopOnInitialize => return deaths::stop(),
        Kind::MuteInitialize => {}
        Kind::WrongVersion => {
            let mut result = server.welcome(&request.params);
            result["protocolVersion"] = json!("1999-01-01");
            server.answer(request, result);
        }
        _ => return Then::Serve,
    }
    Then::Stop
}
