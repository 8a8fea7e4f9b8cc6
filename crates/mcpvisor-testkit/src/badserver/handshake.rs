//! Faults of the handshake.

use serde_json::json;

use super::deaths;
use super::fault::{Fault, Kind};
use super::fault_injector::AfterFault;
use crate::stdio_server::{Request, Server};

pub(super) fn inject(fault: Fault, server: &Server, request: &Request) -> AfterFault {
    match fault.kind {
        Kind::ExitOnInitialize => deaths::exit(fault.amount),
        Kind::SigstopOnInitialize => return deaths::stop(),
        Kind::MuteInitialize => {}
        Kind::WrongVersion => {
            let mut result = server.welcome(&request.params);
            result["protocolVersion"] = json!("1999-01-01");
            server.answer(request, result);
        }
        _ => return AfterFault::Serve,
    }
    AfterFault::Stop
}
