//! A protected server `shop` on `fastmcp`, its issuer, and a state folder.

use std::collections::BTreeSet;

use mcpvisor::auth::StoreChoice;
use mcpvisor::{CallError, Runtime, ServerConfig, ServerHandle, StateName, Transport};
use mcpvisor_testkit::eventually::eventually_in;
use serde_json::{Value, json};

use crate::common::{Folder, Ran, run};
use crate::peers::Peers;
use crate::process::{LONG, Process};
use crate::visit::{Page, Tool, Visit, press};

/// Time for a command. The servers are slow on a busy machine.
const PATIENCE: [&str; 2] = ["--timeout", "50s"];

/// The arguments of a call.
pub(crate) const CALL: [&str; 5] = ["call", "shop", "echo", "--args", "{\"message\":\"hello\"}"];

/// `oidc-provider`.
pub(crate) struct Issuer {
    process: Process,
    url: String,
}

impl Issuer {
    /// Starts it, with a lifetime of access tokens in seconds.
    pub(crate) fn start(peers: &Peers, lifetime: u32) -> Self {
        let mut command = peers.javascript("issuer.mjs");
        command.arg(peers.packages()).arg(lifetime.to_string());
        let mut process = Process::start(command);
        let url = process.first_line();
        Self { process, url }
    }

    /// The events of this kind.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let lines = self.process.lines().into_iter();
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// Successful grants of this type.
    pub(crate) fn granted(&self, grant: &str) -> Vec<Value> {
        let mut granted = self.events("granted");
        granted.retain(|event| event["type"] == grant);
        granted
    }

    pub(crate) fn refreshes(&self) -> Vec<Value> {
        self.granted("refresh_token")
    }

    /// Fails unless every refresh token was used once, and no request was refused.
    #[track_caller]
    pub(crate) fn assert_used_correctly(&self) {
        assert_eq!(self.events("refused"), [] as [Value; 0]);
        assert_eq!(self.events("revoked"), [] as [Value; 0]);
        let refreshes = self.refreshes();
        let tokens = refreshes.iter().map(|it| it["token"].to_string());
        assert_eq!(tokens.collect::<BTreeSet<_>>().len(), refreshes.len());
    }

    /// Revokes every grant.
    pub(crate) fn revoke(&mut self) {
        self.process.execute("revoke", "done");
    }
}

/// Everything about one server.
pub(crate) struct Shop {
    peers: Peers,
    pub(crate) server: Process,
    pub(crate) folder: Folder,
    pub(crate) url: String,
}

impl Shop {
    /// A server that accepts the tokens of an issuer.
    pub(crate) fn with_issuer(peers: &Peers, issuer: &Issuer) -> Self {
        Self::start(peers, &[&issuer.url, "mcp"], &json!({}))
    }

    /// A server that is its own issuer, with these keys in its config.
    pub(crate) fn alone(peers: &Peers, keys: &Value) -> Self {
        Self::start(peers, &[], keys)
    }

    fn start(peers: &Peers, args: &[&str], keys: &Value) -> Self {
        let mut command = peers.python("server.py");
        command.args(args);
        let mut server = Process::start(command);
        let url = server.first_line();
        let mut entry = keys.clone();
        entry["url"] = url.clone().into();
        let folder = Folder::with(&json!({ "shop": entry }));
        Self {
            peers: peers.clone(),
            server,
            folder,
            url,
        }
    }

    /// Prepares a visit; `name` is unique.
    pub(crate) fn visit(&self, name: &str, tool: &Tool, steps: &[Value]) -> Visit {
        Visit::new(&self.peers, &self.folder, name, tool, steps)
    }

    /// `mcpvisor login`, and where its browser ended.
    pub(crate) fn log_in(&self, visit: &Visit, args: &[&str]) -> (Ran, Page) {
        let args = [&["login", "shop"], args, &PATIENCE].concat();
        let mut command = self.folder.command(&args);
        visit.prepare(&mut command);
        let ran = run(command);
        (ran, visit.page())
    }

    /// Logs in without a browser. Fails unless that works.
    #[track_caller]
    pub(crate) fn log_in_with_forms(&self, name: &str, steps: &[Value], args: &[&str]) -> Ran {
        let visit = self.visit(name, &Tool::FormClient, steps);
        let (ran, page) = self.log_in(&visit, args);
        ran.exits(0);
        page.shows("Login received", "You can close this page");
        ran
    }

    /// A command of another process.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.folder.run(&[args, &PATIENCE].concat())
    }

    /// A runtime of this process, on the same state folder.
    pub(crate) async fn runtime(&self) -> (Runtime, ServerHandle) {
        let state = self.folder.path("state");
        runtime(state.to_str().unwrap(), &self.url).await
    }
}

/// A connected runtime.
pub(crate) async fn runtime(state: &str, url: &str) -> (Runtime, ServerHandle) {
    let mut config = ServerConfig::new("shop", Transport::http(url)).unwrap();
    config.settings.timeouts.connect = LONG;
    let runtime = Runtime::builder()
        .state_dir(state)
        .auth_store(StoreChoice::File)
        .server(config);
    let runtime = runtime.start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    let handle = runtime.server("shop").unwrap();
    (runtime, handle)
}

/// Calls the server. Fails if the answer is not that of this call.
pub(crate) async fn echo(handle: &ServerHandle, message: &str) -> Result<(), CallError> {
    let call = handle.call_tool("echo", json!({ "message": message }));
    let result = call.deadline(LONG).await?;
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!(*text, format!("Echo: {message}"), "its own answer");
    Ok(())
}

/// Waits for a state.
pub(crate) async fn reaches(handle: &ServerHandle, state: StateName) {
    let mut status = handle.watch();
    eventually_in(LONG, state, &mut status, |status| status.state == state).await;
}

/// What a person does at `oidc-provider` to approve a login: signs in and consents.
pub(crate) fn approve() -> [Value; 2] {
    let fields = json!({ "login": "alice", "password": "secret" });
    [
        json!({ "fill": fields, "press": "Sign-in" }),
        press("Continue"),
    ]
}
