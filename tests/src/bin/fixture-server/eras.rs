//! The protocol eras of this process, and how it reacts to `server/discover`.

use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcpvisor_testkit::stdio_server::output::{answer, notify, refuse, send};
use mcpvisor_testkit::stdio_server::tools::{ask, structured};
use mcpvisor_testkit::stdio_server::{Request, Server};
use serde_json::{Value, json};

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The value of `--era`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// `legacy`: the older eras; `server/discover` is an unknown method.
    #[default]
    Legacy,
    /// `silent`: the same, but `server/discover` is answered only after `initialize`.
    Silent,
    /// `exit`: the same, but the process exits on `server/discover`.
    Exit,
    /// `modern`: only the modern era.
    Modern,
    /// `both`: every era.
    Both,
    /// `other`: an unknown version.
    Other,
}

impl FromStr for Speaks {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Ok(match word {
            "legacy" => Self::Legacy,
            "silent" => Self::Silent,
            "exit" => Self::Exit,
            "modern" => Self::Modern,
            "both" => Self::Both,
            "other" => Self::Other,
            _ => return Err(()),
        })
    }
}

/// State of a modern-era session.
#[derive(Debug, Default)]
pub(crate) struct Eras {
    speaks: Speaks,
    /// How many listening requests are ended immediately.
    end_listen: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The id of an unanswered `server/discover`.
    unanswered: Option<Value>,
    listens: Vec<(Value, Value)>,
    ended: u32,
}

impl Eras {
    pub(crate) fn new(speaks: Speaks, end_listen: u32) -> Self {
        Self {
            speaks,
            end_listen,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_modern(&self) -> bool {
        matches!(self.speaks, Speaks::Modern | Speaks::Both)
    }

    /// Handles a request that belongs to an era. The error text says what is wrong with it.
    pub(crate) fn serves(&self, server: &Server, request: &Request) -> Result<bool, &'static str> {
        match (request.method.as_str(), self.speaks) {
            ("server/discover", Speaks::Legacy) => Ok(true),
            ("server/discover", Speaks::Silent) => {
                self.state().unanswered = Some(request.id.clone());
                Ok(false)
            }
            ("server/discover", Speaks::Exit) => std::process::exit(3),
            (_, Speaks::Other) => {
                let data = json!({ "supported": ["2099-01-01"], "requested": "?" });
                let error = json!({ "code": -32022, "message": "Unsupported", "data": data });
                send(&json!({ "jsonrpc": "2.0", "id": request.id, "error": error }));
                Ok(false)
            }
            ("initialize", Speaks::Modern) => {
                refuse(&request.id, -32601, "no such method");
                Ok(false)
            }
            ("initialize", _) => Ok(true),
            (_, Speaks::Modern | Speaks::Both) => self.serves_modern(server, request),
            _ => Ok(true),
        }
    }

    fn serves_modern(&self, server: &Server, request: &Request) -> Result<bool, &'static str> {
        let meta = &request.params["_meta"];
        let is_modern = meta[PROTOCOL_VERSION] == "2026-07-28";
        if self.speaks == Speaks::Both && !is_modern {
            return Ok(true);
        }
        if !is_modern || !meta[CAPABILITIES].is_object() || !meta[CLIENT_INFO].is_object() {
            refuse(&request.id, -32602, "a request without its metadata");
            return Err("no-meta");
        }
        match request.method.as_str() {
            "server/discover" => answer(&request.id, discovery(server, request)),
            "ping" | "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                refuse(&request.id, -32601, "not in this era");
                return Err("not-modern");
            }
            "subscriptions/listen" => self.listen(request),
            "tools/call" if request.tool() == "ask" => answer(&request.id, ask(&request.params)),
            "tools/call" if request.tool() == "touch" => self.touch(request),
            "tools/call" if request.tool() == "level" => {
                let level = &meta["io.modelcontextprotocol/logLevel"];
                answer(&request.id, structured(json!({ "level": level })));
            }
            _ => return Ok(true),
        }
        Ok(false)
    }

    fn touch(&self, request: &Request) {
        let uri = &request.arguments()["uri"];
        let params = json!({ "uri": uri });
        self.tell("notifications/resources/updated", &params, |filter| {
            let uris = filter["resourceSubscriptions"].as_array();
            uris.is_some_and(|uris| uris.contains(uri))
        });
        answer(&request.id, structured(json!({})));
    }

    fn listen(&self, request: &Request) {
        let filter = request.params["notifications"].clone();
        let meta = json!({ SUBSCRIPTION: request.id });
        notify(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": filter, "_meta": meta }),
        );
        let mut state = self.state();
        if state.ended < self.end_listen {
            state.ended += 1;
            if state.ended % 2 == 1 {
                let result = json!({ "resultType": "complete", "_meta": meta });
                answer(&request.id, result);
            } else {
                let id = json!({ "requestId": request.id });
                notify("notifications/cancelled", id);
            }
            return;
        }
        state.listens.push((request.id.clone(), filter));
    }

    /// Notifies the matching listening requests.
    pub(crate) fn tell(&self, method: &str, params: &Value, wanted: impl Fn(&Value) -> bool) {
        for (id, filter) in &self.state().listens {
            if wanted(filter) {
                let mut params = params.clone();
                params["_meta"] = json!({ SUBSCRIPTION: id });
                notify(method, params);
            }
        }
    }

    /// Handles the cancellation of a request.
    pub(crate) fn cancelled(&self, id: &Value) {
        self.state().listens.retain(|(listen, _)| listen != id);
    }

    /// Sends the delayed reply after another one.
    pub(crate) fn answered(&self, request: &Request) {
        if request.method == "initialize"
            && let Some(id) = self.state().unanswered.take()
        {
            let late = json!({ "supportedVersions": ["2026-07-28"], "capabilities": {},
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
            answer(&id, late);
        }
    }
}

fn discovery(server: &Server, request: &Request) -> Value {
    let welcome = server.welcome(&request.params);
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": welcome["capabilities"],
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": welcome["serverInfo"] },
    })
}
