//! A server over stdio whose tools run as tasks: `task-server ERA STORE LOG`.
//!
//! `ERA` is `legacy` (2025-11-25) or `modern` (2026-07-28). Tasks are kept in the file `STORE`, so a
//! new process knows those of the one before. Every received method is a line of the file `LOG`.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::stdio_server::output::{answer, append_line, refuse, send};
use crate::task_book::TaskBook;

/// Prefix of the ids of requests that a task sends.
const QUESTION: &str = "question of ";

/// How often a request for a result checks whether the task has ended.
const CHECK: Duration = Duration::from_millis(10);

/// The program.
pub fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [era, store, log] = words.as_slice() else {
        return Err(io::Error::other("usage: task-server ERA STORE LOG"));
    };
    let server = Server {
        modern: era == "modern",
        book: Arc::new(TaskBook::in_file(PathBuf::from(store))),
    };
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        server.receive(&message, Path::new(log))?;
    }
    Ok(())
}

struct Server {
    modern: bool,
    book: Arc<TaskBook>,
}

impl Server {
    fn receive(&self, message: &Value, log: &Path) -> io::Result<()> {
        let (id, params) = (&message["id"], &message["params"]);
        let Some(method) = message["method"].as_str() else {
            // The answer to a question of a task.
            let task = id.as_str().and_then(|id| id.strip_prefix(QUESTION));
            if let Some(task) = task {
                self.book.give_input(task, message["result"].clone());
            }
            return Ok(());
        };
        let task = params["taskId"].as_str().unwrap_or_default();
        append_line(log, format!("{method} {task}").trim())?;
        if id.is_null() {
            return Ok(());
        }
        if method == "tasks/result" && !self.modern && self.book.status(task).is_some() {
            self.result_later(id.clone(), task.to_owned());
            return Ok(());
        }
        let done = match method {
            "tools/call" => self.book.call(self.modern, params),
            _ => self.book.answer(self.modern, method, params),
        };
        match done.unwrap_or_else(|| self.other(method, params)) {
            Ok(result) => answer(id, result),
            Err((code, text)) => refuse(id, code, &text),
        }
        Ok(())
    }

    /// Answers when the task has ended. Asks its question first.
    fn result_later(&self, id: Value, task: String) {
        let book = Arc::clone(&self.book);
        if book.status(&task) == Some("input_required") {
            let meta = json!({ "io.modelcontextprotocol/related-task": { "taskId": task } });
            let mut params = TaskBook::form();
            params["_meta"] = meta;
            let id = format!("{QUESTION}{task}");
            send(
                &json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params }),
            );
        }
        std::thread::spawn(move || {
            while matches!(book.status(&task), Some("working" | "input_required")) {
                std::thread::sleep(CHECK);
            }
            let params = json!({ "taskId": task });
            match book.answer(false, "tasks/result", &params) {
                Some(Ok(result)) => answer(&id, result),
                Some(Err((code, text))) => refuse(&id, code, &text),
                None => {}
            }
        });
    }

    fn other(&self, method: &str, params: &Value) -> Result<Value, (i32, String)> {
        match method {
            "initialize" if !self.modern => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": { "tools": {}, "tasks": TaskBook::legacy_capability() },
                "serverInfo": { "name": "task-server", "version": "1" },
            })),
            "ping" if !self.modern => Ok(json!({})),
            "server/discover" if self.modern => Ok(json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "extensions": TaskBook::modern_extensions() },
                "ttlMs": 0,
                "cacheScope": "private",
            })),
            "tools/list" => Ok(json!({
                "tools": TaskBook::tools(),
                "ttlMs": 3_600_000,
                "cacheScope": "private",
            })),
            _ => Err((-32601, "no such method".to_owned())),
        }
    }
}
