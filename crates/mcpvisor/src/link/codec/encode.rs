//! Writes one message as one line.
//!
//! rmcp flattens the request into its envelope and copies the parameters into a JSON tree on the
//! way. Here the parts are serialised one behind the other into the same buffer instead.

use mcpvisor_core::CallId;
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, MetaObject, RequestId, RequestMetaObject,
};
use serde::Serialize;

use crate::link::request_id;

/// Appends the message and its line end; on an error the buffer is as before.
pub(crate) fn encode(message: &ClientJsonRpcMessage, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = out.len();
    let written = match message {
        ClientJsonRpcMessage::Request(request) => write_request(&request.id, &request.request, out),
        ClientJsonRpcMessage::Notification(notification) => {
            out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
            append_members(&notification.notification, out)
        }
        // Nothing is flattened in these.
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
            serde_json::to_writer(&mut *out, message)
        }
    };
    end_line(start, written, out)
}

/// Appends a request of ours and its line end; on an error the buffer is as before.
pub(crate) fn encode_request(
    id: CallId,
    request: &ClientRequest,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let start = out.len();
    let written = write_request(&request_id(id), request, out);
    end_line(start, written, out)
}

fn end_line(
    start: usize,
    written: serde_json::Result<()>,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    match written {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(start),
    }
    written
}

fn write_request(
    id: &RequestId,
    request: &ClientRequest,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    serde_json::to_writer(&mut *out, id)?;
    match request {
        ClientRequest::CallToolRequest(call) => encode_call(call, out),
        other => append_members(other, out),
    }
}

/// The request of the hot path. What its extensions say in `_meta` is written as rmcp writes it.
fn encode_call(call: &CallToolRequest, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let meta = call.extensions.get::<RequestMetaObject>();
    let merging = meta.is_some() && call.params.meta.is_some();
    if merging || call.extensions.get::<MetaObject>().is_some() {
        return append_members(call, out);
    }
    out.extend_from_slice(br#","method":"tools/call","params":"#);
    if let Some(meta) = meta {
        out.extend_from_slice(br#"{"_meta":"#);
        serde_json::to_writer(&mut *out, meta)?;
        append_members(&call.params, out)?;
    } else {
        serde_json::to_writer(&mut *out, &call.params)?;
    }
    out.push(b'}');
    Ok(())
}

/// Adds the members of a value that serialises as an object, never an empty one, to an object that
/// is still open and has members already, and closes it.
fn append_members(value: &impl Serialize, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let brace = out.len();
    serde_json::to_writer(&mut *out, value)?;
    debug_assert_eq!(out.get(brace), Some(&b'{'));
    out[brace] = b',';
    Ok(())
}
