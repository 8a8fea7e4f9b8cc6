//! Faults of the tool list.

use serde_json::{Value, json};

use super::fault::{Fault, Kind};
use super::fault_injector::AfterFault;
use crate::stdio_server::tools::definition;
use crate::stdio_server::{Request, Server};

/// Injects a fault into the listing with this number.
pub(super) fn inject(fault: Fault, server: &Server, request: &Request, number: u64) -> AfterFault {
    let result = match fault.kind {
        Kind::EndlessCursor => page(number, format!("page {number}")),
        Kind::RepeatingCursor => page(number, "again".to_owned()),
        Kind::HugeToolList => {
            let mut tools = server.tools();
            tools.extend((0..fault.amount).map(tool));
            json!({ "tools": tools })
        }
        Kind::ChangeTools => {
            let mut tools = server.tools();
            for tool in &mut tools {
                let old = tool["description"].as_str().unwrap_or_default();
                let version = format!("{}.{number}", std::process::id());
                tool["description"] = json!(format!("{old} (version {version})"));
            }
            json!({ "tools": tools })
        }
        _ => return AfterFault::Serve,
    };
    server.answer(request, result);
    AfterFault::Stop
}

/// A page with one unique tool and the cursor of the next page.
fn page(number: u64, next: String) -> Value {
    json!({ "tools": [tool(number)], "nextCursor": next })
}

fn tool(number: u64) -> Value {
    definition(&format!("tool_{number}"), "one of very many", true)
}
