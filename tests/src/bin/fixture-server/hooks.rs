//! Applies the flags to a well-behaved server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mcpvisor_testkit::stdio_server::output::{answer, append_line, notify};
use mcpvisor_testkit::stdio_server::tools::{definition, structured};
use mcpvisor_testkit::stdio_server::{Request, Server, ServerHooks};
use serde_json::{Value, json};

use crate::eras::Eras;
use crate::flags::Flags;

/// The tool that is listed only after a burst.
const NEWS: &str = "after_burst";

/// A server with the faults of its flags.
#[derive(Debug)]
pub(crate) struct FlagHooks {
    flags: Flags,
    eras: Eras,
    /// Tool calls answered.
    answered: AtomicU64,
    burst_is_over: AtomicBool,
}

impl FlagHooks {
    pub(crate) fn new(flags: Flags) -> Self {
        Self {
            eras: Eras::new(flags.era, flags.end_listen),
            flags,
            answered: AtomicU64::new(0),
            burst_is_over: AtomicBool::new(false),
        }
    }

    fn note(&self, method: &str) {
        if let Some(file) = &self.flags.received {
            // If the log cannot be written, the test that reads it fails.
            let _ = append_line(file, &format!("{} {method}", std::process::id()));
        }
    }

    fn burst(&self) {
        if self.flags.list_changed_burst == 0 {
            return;
        }
        for _ in 1..self.flags.list_changed_burst {
            notify("notifications/tools/list_changed", Value::Null);
        }
        // Only the last notification of the burst announces a real change.
        self.burst_is_over.store(true, Ordering::SeqCst);
        notify("notifications/tools/list_changed", Value::Null);
    }
}

impl ServerHooks for FlagHooks {
    fn name(&self) -> &'static str {
        "fixture-server"
    }

    fn serves(&self, server: &Server, request: &Request) -> bool {
        self.note(&request.method);
        let muted = match request.method.as_str() {
            "initialize" => self.flags.mute_initialize,
            "ping" => self.flags.mute_pings,
            "tools/call" => self.flags.mute_calls,
            _ => false,
        };
        if !muted {
            match self.eras.serves(server, request) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(problem) => {
                    self.note(&format!("{problem} {}", request.method));
                    return false;
                }
            }
        }
        if request.tool() == "news" {
            self.burst_is_over.store(true, Ordering::SeqCst);
            let wanted = |filter: &Value| filter["toolsListChanged"] == true;
            self.eras
                .tell("notifications/tools/list_changed", &json!({}), wanted);
            server.answer(request, structured(Value::Null));
            return false;
        }
        if !muted && request.tool() == NEWS {
            server.answer(request, structured(request.arguments().clone()));
            return false;
        }
        !muted
    }

    fn on_notification(&self, _: &Server, method: &str, params: &Value) {
        self.note(method);
        match method {
            "notifications/initialized" if self.flags.flap => std::process::exit(0),
            "notifications/initialized" => self.burst(),
            "notifications/cancelled" => {
                self.eras.cancelled(&params["requestId"]);
                if let Some(file) = &self.flags.cancel_log {
                    let _ = append_line(file, &params["requestId"].to_string());
                }
            }
            _ => {}
        }
    }

    fn tools(&self) -> Vec<Value> {
        let news = self.burst_is_over.load(Ordering::SeqCst);
        let definition = || definition(NEWS, "only listed after a burst", true);
        news.then(definition).into_iter().collect()
    }

    fn answer(&self, request: &Request, mut result: Value) {
        if let ("initialize", Some(version)) = (request.method.as_str(), &self.flags.protocol) {
            result["protocolVersion"] = version.as_str().into();
        }
        if self.eras.is_modern() && request.method != "initialize" {
            result["resultType"] = "complete".into();
        }
        if let ("tools/list", Some(ttl)) = (request.method.as_str(), self.flags.ttl) {
            result["ttlMs"] = ttl.into();
            self.burst_is_over.store(true, Ordering::SeqCst);
        }
        answer(&request.id, result);
        self.eras.answered(request);
        if request.method == "tools/call" {
            let answered = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
            if self.flags.die_after.is_some_and(|last| answered >= last) {
                std::process::exit(0);
            }
        }
    }
}
