//! Tasks of a server, in the shapes of 2025-11-25 and 2026-07-28.
//!
//! A task ends a given time after its start. With a file the tasks survive the process, as in a
//! server with a database.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::stdio_server::tools::{definition, structured};

/// JSON-RPC: invalid parameters, which an unknown task is.
const INVALID_PARAMS: i32 = -32602;

/// The error of a failed task.
const TASK_ERROR: i32 = -32050;

/// A refusal: the code and the text of a JSON-RPC error.
pub type Refusal = (i32, String);

/// The tasks of one server.
#[derive(Debug, Default)]
pub struct TaskBook {
    file: Option<PathBuf>,
    tasks: Mutex<Map<String, Value>>,
}

impl TaskBook {
    /// Tasks that are kept in a file, with those of an earlier process.
    pub fn in_file(file: PathBuf) -> Self {
        let stored = std::fs::read(&file).ok();
        let tasks = stored.and_then(|it| serde_json::from_slice(&it).ok());
        Self {
            file: Some(file),
            tasks: Mutex::new(tasks.unwrap_or_default()),
        }
    }

    /// The tools: `work` may be a task, `must` has to be one, `plain` is none.
    ///
    /// Arguments of both: `ms` (how long it takes), `poll` (the suggested interval), `error` (fails
    /// with this text), `ask` (needs the input of a form).
    pub fn tools() -> Vec<Value> {
        let tool = |name: &str, support: Option<&str>| {
            let mut tool = definition(name, "{ms, poll, error, ask}: a task", false);
            if let Some(support) = support {
                tool["execution"] = json!({ "taskSupport": support });
            }
            tool
        };
        vec![
            tool("work", Some("optional")),
            tool("must", Some("required")),
            tool("plain", None),
        ]
    }

    /// The capability of 2025-11-25.
    pub fn legacy_capability() -> Value {
        json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } })
    }

    /// The extensions of 2026-07-28.
    pub fn modern_extensions() -> Value {
        json!({ "io.modelcontextprotocol/tasks": {} })
    }

    /// Whether a client of 2026-07-28 accepts tasks.
    pub fn is_accepted(params: &Value) -> bool {
        let capabilities = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        capabilities["extensions"]["io.modelcontextprotocol/tasks"].is_object()
    }

    /// Answers a tool call. `None` if it is to be answered as an ordinary call.
    pub fn call(&self, modern: bool, params: &Value) -> Option<Result<Value, Refusal>> {
        let tool = params["name"].as_str().unwrap_or_default();
        let as_task = match modern {
            true => Self::is_accepted(params),
            false => params["task"].is_object(),
        };
        match (tool, as_task) {
            ("work" | "must", true) => {}
            ("must", false) => {
                let text = "Tool must requires task augmentation".to_owned();
                return Some(Err((-32601, text)));
            }
            ("work" | "plain", _) => {
                return Some(Ok(structured(params["arguments"].clone())));
            }
            _ => return None,
        }
        let id = self.create(&params["arguments"]);
        let mut created = self.task(&id, modern)?;
        Some(Ok(match modern {
            true => {
                created["resultType"] = json!("task");
                created
            }
            // With metadata it resembles a result.
            false => json!({ "task": created, "_meta": { "hint": "it runs" } }),
        }))
    }

    fn create(&self, arguments: &Value) -> String {
        let id = format!(
            "task-{}-{}",
            std::process::id(),
            now_ms() + self.lock().len() as u64
        );
        let task = json!({ "arguments": arguments, "created": now_ms() });
        self.edit(|tasks| drop(tasks.insert(id.clone(), task)));
        id
    }

    /// Answers a request about a task. `None` if it is another request.
    pub fn answer(
        &self,
        modern: bool,
        method: &str,
        params: &Value,
    ) -> Option<Result<Value, Refusal>> {
        let id = params["taskId"].as_str().unwrap_or_default();
        if !matches!(
            method,
            "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result"
        ) {
            return None;
        }
        let Some(status) = self.status(id) else {
            let text = format!("Failed to retrieve task: {id} not found");
            return Some(Err((INVALID_PARAMS, text)));
        };
        let is_over = matches!(status, "completed" | "failed" | "cancelled");
        Some(match method {
            "tasks/get" => self.task(id, modern).ok_or((INVALID_PARAMS, String::new())),
            "tasks/update" if modern => {
                self.set(id, "input", params["inputResponses"].clone());
                Ok(json!({ "resultType": "complete" }))
            }
            "tasks/cancel" if !modern && is_over => Err((
                INVALID_PARAMS,
                "Cannot cancel task in terminal status".to_owned(),
            )),
            "tasks/cancel" => {
                if !is_over {
                    self.set(id, "cancelled", json!(true));
                }
                match modern {
                    true => Ok(json!({ "resultType": "complete" })),
                    false => self.task(id, false).ok_or((INVALID_PARAMS, String::new())),
                }
            }
            "tasks/result" if !modern => self.outcome(id),
            _ => Err((-32601, "no such method".to_owned())),
        })
    }

    /// The status of a task; `None` if there is no such task.
    pub fn status(&self, id: &str) -> Option<&'static str> {
        let tasks = self.lock();
        let task = tasks.get(id)?;
        let arguments = &task["arguments"];
        let ends = task["created"].as_u64()? + arguments["ms"].as_u64().unwrap_or(0);
        Some(if task["cancelled"] == true {
            "cancelled"
        } else if arguments["ask"] == true && task["input"].is_null() {
            "input_required"
        } else if now_ms() < ends {
            "working"
        } else if arguments["error"].is_string() {
            "failed"
        } else {
            "completed"
        })
    }

    /// Stores the input of a task.
    pub fn give_input(&self, id: &str, input: Value) {
        self.set(id, "input", input);
    }

    /// The form that a task needs.
    pub fn form() -> Value {
        let name = json!({ "type": "string" });
        let schema = json!({ "type": "object", "properties": { "name": name } });
        json!({ "mode": "form", "message": "who?", "requestedSchema": schema })
    }

    /// Forgets all tasks.
    pub fn forget_all(&self) {
        self.edit(Map::clear);
    }

    fn task(&self, id: &str, modern: bool) -> Option<Value> {
        let status = self.status(id)?;
        let task = self.lock().get(id)?.clone();
        let poll = task["arguments"]["poll"].as_u64().unwrap_or(100);
        let (ttl_name, poll_name) = match modern {
            true => ("ttlMs", "pollIntervalMs"),
            false => ("ttl", "pollInterval"),
        };
        let mut state = json!({
            "taskId": id,
            "status": status,
            "statusMessage": format!("it is {status}"),
            "createdAt": "2026-07-28T10:00:00Z",
            "lastUpdatedAt": "2026-07-28T10:00:00Z",
            ttl_name: 600_000,
            poll_name: poll,
        });
        if modern {
            state["resultType"] = json!("complete");
            match (status, self.outcome(id)) {
                ("completed", Ok(result)) => state["result"] = result,
                ("failed", Err((code, message))) => {
                    state["error"] = json!({ "code": code, "message": message });
                }
                ("input_required", _) => {
                    let form = json!({ "method": "elicitation/create", "params": Self::form() });
                    state["inputRequests"] = json!({ "who": form });
                }
                _ => {}
            }
        }
        Some(state)
    }

    /// The result of the call, or its error.
    fn outcome(&self, id: &str) -> Result<Value, Refusal> {
        let tasks = self.lock();
        let task = &tasks[id];
        if let Some(text) = task["arguments"]["error"].as_str() {
            return Err((TASK_ERROR, text.to_owned()));
        }
        let done = json!({ "arguments": task["arguments"], "input": task["input"] });
        Ok(structured(done))
    }

    fn set(&self, id: &str, name: &str, value: Value) {
        self.edit(|tasks| {
            if let Some(task) = tasks.get_mut(id) {
                task[name] = value;
            }
        });
    }

    fn edit(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut tasks = self.lock();
        change(&mut tasks);
        if let Some(file) = &self.file {
            let temp = file.with_extension("new");
            let written = std::fs::write(&temp, Value::Object(tasks.clone()).to_string());
            let _ = written.and_then(|()| std::fs::rename(&temp, file));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map<String, Value>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
