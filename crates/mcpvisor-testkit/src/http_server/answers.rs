//! The replies of a well-behaved server: the handshake of both eras, lists, and a few tools.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::HttpEra;
use super::control::Shared;
use super::exchange::{Reply, RpcRequest};
use super::modern;
use super::wire::Wire;
use crate::stdio_server::output::append_line;
use crate::stdio_server::tools::{ask, definition, structured};
use crate::stdio_server::{contents, greeting, prompt, resource, template};
use crate::task_book::{Refusal, TaskBook};

/// JSON-RPC: method not found.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: invalid parameters.
const INVALID_PARAMS: i32 = -32602;

/// Each tool: its name, its parameters and effect, and whether it is read-only.
const TOOLS: &[(&str, &str, bool)] = &[
    ("echo", "gives back its arguments", true),
    ("sleep", "{ms}: answers after that time", true),
    (
        "progress",
        "{steps, ms}: reports progress after each ms",
        true,
    ),
    (
        "run",
        "{key, ms?}: a side effect that is counted, then an answer after ms",
        false,
    ),
    ("append", "{file, text}: appends a line", false),
    ("fail", "{text}: a result that is an error", true),
    ("error", "{text}: an error of JSON-RPC with this text", true),
    ("pid", "the id of this process", true),
    (
        "misbehave",
        "{fault: NAME[=NUMBER]}: lets a fault strike this call",
        false,
    ),
];

pub(super) async fn answer(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let options = shared.options();
    if rpc.method == "subscriptions/listen" && rpc.modern {
        return modern::listen(wire, shared, rpc).await;
    }
    let special = ["initialize", "server/discover", "tools/call"];
    let of_task = options.tasks && rpc.method.starts_with("tasks/");
    let is_known = of_task || special.contains(&rpc.method.as_str()) || plain(rpc).is_some();
    if rpc.modern && !is_known {
        return refuse_with(wire, 404, rpc, METHOD_NOT_FOUND, "no such method").await;
    }
    let mut reply = Reply::new(wire, options.reply);
    if options.resumable {
        reply.resumable(shared.fresh("event"));
    }
    if rpc.method == "initialize" && options.era != HttpEra::Modern && options.sessions {
        reply.session(shared.open_session());
    }
    respond(reply, shared, rpc).await
}

/// Answers a request of a client.
pub(super) async fn respond(
    reply: Reply<'_>,
    shared: &Arc<Shared>,
    rpc: &RpcRequest,
) -> io::Result<()> {
    let era = shared.options().era;
    if shared.options().tasks
        && let Some(done) = task_answer(shared, rpc)
    {
        return match done {
            Ok(result) => reply.result(&rpc.id, result).await,
            Err((code, text)) => reply.refuse(&rpc.id, code, &text).await,
        };
    }
    let mut result = match rpc.method.as_str() {
        "initialize" if era != HttpEra::Modern => welcome(&rpc.params),
        "server/discover" if era != HttpEra::Legacy => discovered(),
        "tools/call" => return call(reply, shared, rpc).await,
        "prompts/get" if rpc.params["name"] != "greet" => {
            return reply
                .refuse(&rpc.id, INVALID_PARAMS, "no such prompt")
                .await;
        }
        _ => match plain(rpc) {
            Some(result) => result,
            None => return unknown(reply, rpc).await,
        },
    };
    if shared.options().tasks {
        add_tasks(rpc, &mut result);
    }
    if rpc.modern {
        modern::add_modern_fields(shared, rpc, &mut result);
    }
    reply.result(&rpc.id, result).await
}

/// The reply to a call of a tool that runs as a task, or to a request about one.
fn task_answer(shared: &Shared, rpc: &RpcRequest) -> Option<Result<Value, Refusal>> {
    match rpc.method.as_str() {
        "tools/call" => shared.book.call(rpc.modern, &rpc.params),
        method => shared.book.answer(rpc.modern, method, &rpc.params),
    }
}

/// Announces tasks, and lists their tools.
fn add_tasks(rpc: &RpcRequest, result: &mut Value) {
    match rpc.method.as_str() {
        "initialize" => result["capabilities"]["tasks"] = TaskBook::legacy_capability(),
        "server/discover" => {
            result["capabilities"]["extensions"] = TaskBook::modern_extensions();
        }
        "tools/list" => {
            if let Some(tools) = result["tools"].as_array_mut() {
                tools.extend(TaskBook::tools());
            }
        }
        _ => {}
    }
}

/// The replies that all servers of this kit have in common.
fn plain(rpc: &RpcRequest) -> Option<Value> {
    let params = &rpc.params;
    Some(match rpc.method.as_str() {
        "ping" if !rpc.modern => json!({}),
        "tools/list" => {
            let tools = TOOLS.iter();
            let tools: Vec<Value> = tools
                .map(|(name, line, reads)| definition(name, line, *reads))
                .collect();
            json!({ "tools": tools })
        }
        "prompts/list" => json!({ "prompts": [prompt()] }),
        "prompts/get" => greeting(params),
        "resources/list" => json!({ "resources": [resource()] }),
        "resources/templates/list" => json!({ "resourceTemplates": [template()] }),
        "resources/read" => contents(params),
        "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" if !rpc.modern => {
            json!({})
        }
        "completion/complete" => {
            let value = params["argument"]["value"].as_str().unwrap_or_default();
            json!({ "completion": { "values": [format!("{value}…")] } })
        }
        _ => return None,
    })
}

async fn unknown(reply: Reply<'_>, rpc: &RpcRequest) -> io::Result<()> {
    reply
        .refuse(&rpc.id, METHOD_NOT_FOUND, "no such method")
        .await
}

/// Refuses a request with an HTTP status and an error under its id.
pub(super) async fn refuse_with(
    wire: &mut Wire,
    status: u16,
    rpc: &RpcRequest,
    code: i32,
    text: &str,
) -> io::Result<()> {
    let error = json!({ "code": code, "message": text });
    let body = json!({ "jsonrpc": "2.0", "id": rpc.id, "error": error }).to_string();
    let json = [("content-type", "application/json")];
    wire.answer(status, &json, body.as_bytes()).await
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": {},
        "resources": { "subscribe": true, "listChanged": true },
        "logging": {},
        "completions": {},
    })
}

fn me() -> Value {
    json!({ "name": "mcpvisor-badserver", "version": env!("CARGO_PKG_VERSION") })
}

fn welcome(params: &Value) -> Value {
    json!({
        "protocolVersion": params["protocolVersion"],
        "capabilities": capabilities(),
        "serverInfo": me(),
    })
}

fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": capabilities(),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": me() },
    })
}

/// Runs a tool without replying. Returns its result or an error.
pub(super) fn perform(shared: &Shared, rpc: &RpcRequest) -> Result<Value, String> {
    let arguments = rpc.arguments();
    let text = |name: &str| arguments[name].as_str().unwrap_or_default();
    let result = match rpc.tool() {
        "echo" | "sleep" | "progress" => structured(arguments.clone()),
        "run" => {
            let mut record = shared.record();
            let runs = record.runs.entry(text("key").to_owned()).or_default();
            *runs += 1;
            structured(json!({ "key": text("key"), "runs": *runs }))
        }
        "ask" => ask(&rpc.params),
        modern::HEADER_TOOL => {
            *shared
                .record()
                .runs
                .entry(modern::HEADER_TOOL.to_owned())
                .or_default() += 1;
            structured(arguments.clone())
        }
        "append" => {
            let appended = append_line(Path::new(text("file")), text("text"));
            appended.map_err(|problem| format!("{}: {problem}", text("file")))?;
            structured(json!({}))
        }
        "fail" => {
            let mut result = structured(arguments.clone());
            result["isError"] = json!(true);
            result
        }
        "error" => return Err(text("text").to_owned()),
        "pid" => structured(json!({ "pid": std::process::id() })),
        other => return Err(format!("no tool {other}")),
    };
    Ok(result)
}

async fn call(mut reply: Reply<'_>, shared: &Arc<Shared>, rpc: &RpcRequest) -> io::Result<()> {
    let result = match perform(shared, rpc) {
        Ok(result) => result,
        Err(problem) => return reply.refuse(&rpc.id, INVALID_PARAMS, &problem).await,
    };
    reply.begin().await?;
    let arguments = rpc.arguments();
    let time = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0));
    let token = &rpc.params["_meta"]["progressToken"];
    let steps = match rpc.tool() {
        "progress" => arguments["steps"].as_u64().unwrap_or(1),
        _ => 1,
    };
    for step in 1..=steps {
        if !waited(&mut reply, shared, rpc, time).await? {
            return reply.nothing().await;
        }
        if rpc.tool() == "progress" && !token.is_null() {
            let params = json!({ "progressToken": token, "progress": step, "total": steps });
            reply.notify("notifications/progress", params).await?;
        }
    }
    reply.result(&rpc.id, result).await
}

/// Delays a call. Returns false if it was cancelled meanwhile, and an error if the client
/// disconnected.
async fn waited(
    reply: &mut Reply<'_>,
    shared: &Shared,
    rpc: &RpcRequest,
    time: Duration,
) -> io::Result<bool> {
    if time.is_zero() {
        return Ok(true);
    }
    let over = tokio::time::sleep(time);
    tokio::pin!(over);
    loop {
        let cancellation = shared.cancellation.notified();
        if shared.is_cancelled(&rpc.id) {
            return Ok(false);
        }
        tokio::select! {
            () = &mut over => return Ok(true),
            () = reply.client_closed() => {
                shared.record().abandoned_calls += 1;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            () = cancellation => {}
        }
    }
}
