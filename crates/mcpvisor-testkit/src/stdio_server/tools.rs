//! The tools: echoes, side effects, slow calls and deaths.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

use super::output::{append_line, notify, write_line};
use super::pending_calls::Cancelled;
use super::process::spawn_lingering;
use super::server::{Request, Server, text};

/// Each tool: its name, its parameters and effect, and whether it is read-only.
const TOOLS: &[(&str, &str, bool)] = &[
    ("echo", "gives back its arguments", true),
    ("sleep", "{ms}: answers after that time", true),
    (
        "progress",
        "{steps, ms}: reports progress after each ms, then answers",
        true,
    ),
    (
        "append",
        "{file, text, ms?}: appends a line, then answers after ms",
        false,
    ),
    (
        "count",
        "the calls that this process received, this one included",
        true,
    ),
    ("pid", "the id of this process", true),
    ("env", "{name}: the value of a variable, or null", true),
    ("fail", "{text}: a result that is an error", true),
    ("garble", "an answer that is no JSON", true),
    ("crash", "{code}: exits without an answer", false),
    ("kill_self", "dies of SIGKILL without an answer", false),
    ("log", "{level, text}: logs, if that level is wanted", false),
    (
        "touch",
        "{uri}: says that a resource changed, if it is subscribed to",
        false,
    ),
    (
        "spawn_grandchild",
        "{hold_stdout?}: starts a process that stays; its id",
        false,
    ),
];

/// The built-in tools.
pub(super) fn list() -> Vec<Value> {
    let tools = TOOLS.iter();
    tools
        .map(|(name, description, reads)| definition(name, description, *reads))
        .collect()
}

/// The definition of a tool.
pub fn definition(name: &str, description: &str, only_reads: bool) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": only_reads },
    })
}

/// The result of `ask {rounds}` in the era of 2026-07-28: an input form for this many rounds, then
/// the answers.
pub fn ask(params: &Value) -> Value {
    let rounds = params["arguments"]["rounds"].as_u64().unwrap_or(1);
    let state = params["requestState"].as_str();
    let round: u64 = state
        .and_then(|state| state.strip_prefix("Runde\u{a0}"))
        .and_then(|round| round.parse().ok())
        .unwrap_or(0);
    if round == rounds {
        return structured(json!({ "state": state, "inputs": params["inputResponses"] }));
    }
    let name = json!({ "type": "string", "default": format!("name {round}") });
    let schema = json!({ "type": "object", "properties": { "name": name } });
    let params = json!({ "mode": "form", "message": "who?", "requestedSchema": schema });
    let question = json!({ "method": "elicitation/create", "params": params });
    json!({
        "resultType": "input_required",
        "requestState": format!("Runde\u{a0}{}", round + 1),
        "inputRequests": { "who": question },
    })
}

/// Runs a call: inline and in order if possible, in its own thread if it takes time.
pub(super) fn call(server: &Server, request: &Request) {
    let arguments = request.arguments();
    let answer = |result: Value| server.answer(request, result);
    match request.tool() {
        "echo" => answer(structured(arguments.clone())),
        "count" => {
            let count = server.calls_received();
            answer(structured(json!({ "count": count })));
        }
        "garble" => {
            let broken = r#""result":{"content":[}"#;
            write_line(&format!(
                r#"{{"jsonrpc":"2.0","id":{},{broken}}}"#,
                request.id
            ));
        }
        "pid" => answer(structured(json!({ "pid": std::process::id() }))),
        "env" => {
            let value = std::env::var(text(arguments, "name")).ok();
            answer(structured(json!({ "value": value })));
        }
        "fail" => {
            let mut result = structured(arguments.clone());
            result["isError"] = json!(true);
            answer(result);
        }
        "crash" => {
            let code = arguments["code"].as_i64().and_then(|it| it.try_into().ok());
            std::process::exit(code.unwrap_or(1));
        }
        "kill_self" => {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        "log" => {
            let level = text(arguments, "level");
            if server.logs(&level) {
                let params = json!({ "level": level, "data": arguments["text"] });
                notify("notifications/message", params);
            }
            answer(structured(json!({})));
        }
        "touch" => {
            let uri = text(arguments, "uri");
            if server.is_subscribed(&uri) {
                notify("notifications/resources/updated", json!({ "uri": uri }));
            }
            answer(structured(json!({})));
        }
        "spawn_grandchild" => match spawn_grandchild(arguments) {
            Ok(pid) => answer(structured(json!({ "pid": pid }))),
            Err(error) => server.refuse(request, &error.to_string()),
        },
        "append" => append(server, request),
        "sleep" => {
            let time = milliseconds(arguments);
            let slept = structured(arguments.clone());
            later(server, request, move |server, id| {
                server.pending_calls().wait(id, time)?;
                Ok(slept)
            });
        }
        "progress" => progress(server, request),
        unknown => server.refuse(request, &format!("no tool {unknown}")),
    }
}

fn append(server: &Server, request: &Request) {
    let arguments = request.arguments();
    let file = PathBuf::from(text(arguments, "file"));
    if let Err(error) = append_line(&file, &text(arguments, "text")) {
        return server.refuse(request, &format!("{}: {error}", file.display()));
    }
    let result = structured(json!({}));
    match milliseconds(arguments) {
        Duration::ZERO => server.answer(request, result),
        time => later(server, request, move |server, id| {
            server.pending_calls().wait(id, time)?;
            Ok(result)
        }),
    }
}

fn progress(server: &Server, request: &Request) {
    let arguments = request.arguments();
    let steps = arguments["steps"].as_u64().unwrap_or(1);
    let time = milliseconds(arguments);
    let token = request.params["_meta"]["progressToken"].clone();
    later(server, request, move |server, id| {
        for step in 1..=steps {
            server.pending_calls().wait(id, time)?;
            if !token.is_null() {
                let params = json!({ "progressToken": token, "progress": step, "total": steps });
                notify("notifications/progress", params);
            }
        }
        Ok(structured(json!({ "steps": steps })))
    });
}

/// Runs a call in its own thread. A cancelled call gets no reply.
fn later(
    server: &Server,
    request: &Request,
    work: impl FnOnce(&Server, &Value) -> Result<Value, Cancelled> + Send + 'static,
) {
    let (server, request) = (server.clone(), request.clone());
    std::thread::spawn(move || {
        if let Ok(result) = work(&server, &request.id) {
            server.answer(&request, result);
        }
    });
}

fn spawn_grandchild(arguments: &Value) -> std::io::Result<u32> {
    let hold_stdout = arguments["hold_stdout"] == true;
    let stdout = if hold_stdout {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    spawn_lingering(stdout).map(|child| child.id())
}

fn milliseconds(arguments: &Value) -> Duration {
    Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))
}

/// A result in both forms: structured, and as text for clients that read only text.
pub fn structured(value: Value) -> Value {
    let value = if value.is_null() { json!({}) } else { value };
    let text = json!({ "type": "text", "text": value.to_string() });
    json!({ "content": [text], "structuredContent": value, "isError": false })
}
