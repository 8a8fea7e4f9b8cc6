//! Encodes one message as one line.
//!
//! rmcp flattens the request into its envelope, which copies the parameters into a JSON tree. Here
//! the parts are serialised one after the other into the same buffer instead.

use mcpvisor_core::CallId;
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, MetaObject, RequestId, RequestMetaObject,
};
use serde::Serialize;

use crate::link::{TaskParam, request_id};

/// Appends a message and a newline. An error leaves the buffer unchanged.
pub(crate) fn encode(message: &ClientJsonRpcMessage, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = out.len();
    let written = match message {
        ClientJsonRpcMessage::Request(request) => write_request(&request.id, &request.request, out),
        ClientJsonRpcMessage::Notification(notification) => {
            out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
            append_members(&notification.notification, out)
        }
        // rmcp flattens nothing in these.
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
            serde_json::to_writer(&mut *out, message)
        }
    };
    end_line(start, written, out)
}

/// Appends a request and a newline. An error leaves the buffer unchanged.
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

/// Writes a tool call, the hot path. `_meta` in its extensions is written as rmcp writes it.
fn encode_call(call: &CallToolRequest, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let meta = call.extensions.get::<RequestMetaObject>();
    let task = call.extensions.get::<TaskParam>();
    let merging = meta.is_some() && call.params.meta.is_some();
    if merging || call.extensions.get::<MetaObject>().is_some() {
        append_members(call, out)?;
        return append_task(task, 2, out);
    }
    out.extend_from_slice(br#","method":"tools/call","params":"#);
    if let Some(meta) = meta {
        out.extend_from_slice(br#"{"_meta":"#);
        serde_json::to_writer(&mut *out, meta)?;
        append_members(&call.params, out)?;
    } else {
        serde_json::to_writer(&mut *out, &call.params)?;
    }
    append_task(task, 1, out)?;
    out.push(b'}');
    Ok(())
}

/// Adds the member `task` to the parameters, which end this many braces before the end.
fn append_task(
    task: Option<&TaskParam>,
    braces: usize,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let Some(task) = task else {
        return Ok(());
    };
    out.truncate(out.len() - braces);
    out.extend_from_slice(br#","task":"#);
    serde_json::to_writer(&mut *out, task)?;
    out.extend(std::iter::repeat_n(b'}', braces));
    Ok(())
}

/// Appends the members of a value to an open, non-empty object, and closes it. The value must
/// serialise as a non-empty object.
fn append_members(value: &impl Serialize, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let brace = out.len();
    serde_json::to_writer(&mut *out, value)?;
    debug_assert_eq!(out.get(brace), Some(&b'{'));
    out[brace] = b',';
    Ok(())
}
