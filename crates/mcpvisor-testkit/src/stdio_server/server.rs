//! The protocol: handles each message, except for the tools.

use std::collections::BTreeSet;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::hooks::ServerHooks;
use super::journal::write_journal_if_requested;
use super::output::refuse;
use super::pending_calls::PendingCalls;
use super::tools;

/// JSON-RPC: method not found.
const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: invalid parameters.
const INVALID_PARAMS: i32 = -32602;

/// One request from the client.
#[derive(Debug, Clone)]
pub struct Request {
    /// The client's id for it.
    pub id: Value,
    /// The requested method.
    pub method: String,
    /// The parameters; null if there are none.
    pub params: Value,
}

impl Request {
    /// The called tool; empty if it is not a call.
    pub fn tool(&self) -> &str {
        match self.method.as_str() {
            "tools/call" => self.params["name"].as_str().unwrap_or_default(),
            _ => "",
        }
    }

    /// The arguments of the call.
    pub fn arguments(&self) -> &Value {
        &self.params["arguments"]
    }
}

/// One server process. Clones share it with the threads of pending calls.
#[derive(Debug, Clone)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hooks: Box<dyn ServerHooks>,
    pending_calls: PendingCalls,
    calls: AtomicU64,
    subscriptions: Mutex<BTreeSet<String>>,
    log_level: Mutex<String>,
}

impl Server {
    /// Creates a server that is well-behaved except for its hooks.
    pub fn new(hooks: impl ServerHooks) -> Self {
        Self(Arc::new(Inner {
            hooks: Box::new(hooks),
            pending_calls: PendingCalls::default(),
            calls: AtomicU64::new(0),
            subscriptions: Mutex::default(),
            log_level: Mutex::new("info".to_owned()),
        }))
    }

    /// Serves until the end of stdin.
    pub fn run(&self) -> io::Result<()> {
        write_journal_if_requested()?;
        for line in io::stdin().lock().lines() {
            self.receive(&line?);
        }
        Ok(())
    }

    /// Handles one line. Ignores anything but requests and notifications.
    fn receive(&self, line: &str) {
        let Ok(mut message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return;
        };
        let params = message["params"].take();
        match message.get_mut("id").map(Value::take) {
            Some(id) => self.request(&Request { id, method, params }),
            None => self.notification(&method, &params),
        }
    }

    fn notification(&self, method: &str, params: &Value) {
        self.0.hooks.on_notification(self, method, params);
        if method == "notifications/cancelled" {
            self.0.pending_calls.cancel(&params["requestId"]);
        }
    }

    fn request(&self, request: &Request) {
        if request.method == "tools/call" {
            self.0.calls.fetch_add(1, Ordering::SeqCst);
        }
        if self.0.hooks.serves(self, request) {
            self.serve(request);
        }
    }

    fn serve(&self, request: &Request) {
        let params = &request.params;
        let result = match request.method.as_str() {
            "initialize" => self.welcome(params),
            "ping" => json!({}),
            "tools/list" => json!({ "tools": self.tools() }),
            "tools/call" => return tools::call(self, request),
            "prompts/list" => json!({ "prompts": [prompt()] }),
            "prompts/get" if params["name"] == "greet" => greeting(params),
            "prompts/get" => return self.refuse(request, "no such prompt"),
            "resources/list" => json!({ "resources": [resource()] }),
            "resources/templates/list" => json!({ "resourceTemplates": [template()] }),
            "resources/read" => contents(params),
            "resources/subscribe" => {
                lock(&self.0.subscriptions).insert(text(params, "uri"));
                json!({})
            }
            "resources/unsubscribe" => {
                lock(&self.0.subscriptions).remove(&text(params, "uri"));
                json!({})
            }
            "logging/setLevel" => {
                *lock(&self.0.log_level) = text(params, "level");
                json!({})
            }
            "completion/complete" => {
                let value = text(&params["argument"], "value");
                json!({ "completion": { "values": [format!("{value}…")] } })
            }
            _ => return refuse(&request.id, METHOD_NOT_FOUND, "no such method"),
        };
        self.answer(request, result);
    }

    /// The reply to `initialize`: the requested version, and all capabilities.
    pub fn welcome(&self, params: &Value) -> Value {
        json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {
                "tools": { "listChanged": true },
                "prompts": {},
                "resources": { "subscribe": true, "listChanged": true },
                "logging": {},
                "completions": {},
            },
            "serverInfo": { "name": self.0.hooks.name(), "version": env!("CARGO_PKG_VERSION") },
        })
    }

    /// The definitions of all tools.
    pub fn tools(&self) -> Vec<Value> {
        let mut tools = tools::list();
        tools.extend(self.0.hooks.tools());
        tools
    }

    /// Replies to a request.
    pub fn answer(&self, request: &Request, result: Value) {
        self.0.hooks.answer(request, result);
    }

    /// Refuses a request because of its parameters.
    pub fn refuse(&self, request: &Request, problem: &str) {
        refuse(&request.id, INVALID_PARAMS, problem);
    }

    /// The tool calls received so far.
    pub fn calls_received(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// The calls that take time.
    pub fn pending_calls(&self) -> &PendingCalls {
        &self.0.pending_calls
    }

    /// Whether the client subscribed to a resource.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        lock(&self.0.subscriptions).contains(uri)
    }

    /// Whether the client's log level includes this level.
    pub(super) fn logs(&self, level: &str) -> bool {
        const LEVELS: [&str; 8] = [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ];
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
        rank(level) >= rank(&lock(&self.0.log_level))
    }
}

pub(crate) fn prompt() -> Value {
    json!({ "name": "greet", "arguments": [{ "name": "name", "required": true }] })
}

pub(crate) fn greeting(params: &Value) -> Value {
    let text = format!("Hello, {}!", text(&params["arguments"], "name"));
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] })
}

pub(crate) fn resource() -> Value {
    json!({ "uri": "fixture://one", "name": "one", "mimeType": "text/plain" })
}

pub(crate) fn template() -> Value {
    json!({ "uriTemplate": "fixture://{name}", "name": "any" })
}

pub(crate) fn contents(params: &Value) -> Value {
    let uri = text(params, "uri");
    let text = format!("contents of {uri}");
    json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] })
}

pub(super) fn text(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or_default().to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
