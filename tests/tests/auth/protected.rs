//! A protected server, its authorization server, and a runtime that is logged in to it.

#![allow(dead_code, reason = "each suite uses some of it")]

use std::time::Duration;

use mcpvisor::auth::StoreChoice;
use mcpvisor::auth::mcpvisor_auth::record::CredentialRecord;
use mcpvisor::{
    CallError, HttpEndpoint, Runtime, RuntimeBuilder, ServerConfig, ServerHandle, Transport,
};
use mcpvisor_testkit::auth_server::{
    AuthOptions, AuthServer, Client, ProtectedOptions, ProtectedServer,
};
use rmcp::model::{CallToolResult, ProtocolVersion};
use serde_json::json;

use crate::fleet::{no_governor, server};
use crate::folder::{CLIENT, Folder, new_login};

/// Upper bound for every step, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The grant type of a refresh.
pub(crate) const REFRESH: &str = "refresh_token";

/// Both servers and the state folder.
pub(crate) struct Protected {
    pub(crate) auth: AuthServer,
    pub(crate) server: ProtectedServer,
    pub(crate) folder: Folder,
}

impl Protected {
    pub(crate) async fn new() -> Self {
        Self::with(AuthOptions::default(), ProtectedOptions::default()).await
    }

    pub(crate) async fn with(auth: AuthOptions, protected: ProtectedOptions) -> Self {
        let auth = AuthServer::start_with(auth).await;
        auth.add_client(Client::public(CLIENT, "http://127.0.0.1/callback"));
        let server = ProtectedServer::start_with(&auth, protected).await;
        let folder = Folder::new();
        Self {
            auth,
            server,
            folder,
        }
    }

    /// Saves a login, as another process would.
    pub(crate) async fn log_in(&self) -> CredentialRecord {
        self.log_in_with(&["mcp"]).await
    }

    pub(crate) async fn log_in_with(&self, scopes: &[&str]) -> CredentialRecord {
        let record = new_login(&self.auth, &self.server, scopes);
        self.folder.save(&record).await;
        record
    }

    pub(crate) async fn record(&self) -> CredentialRecord {
        self.folder.record_of(&self.server.url()).await
    }

    /// A runtime on the state folder, without servers.
    pub(crate) fn builder(&self) -> RuntimeBuilder {
        builder(&self.folder)
    }

    /// A runtime that is connected.
    pub(crate) async fn connected(&self) -> (Runtime, ServerHandle) {
        let (runtime, handle) = self.started().await;
        runtime.ready(LONG).await.unwrap();
        (runtime, handle)
    }

    /// A runtime that is connected as `web`, and as `other` to another server that its folder has a
    /// login of.
    pub(crate) async fn connected_beside(&self, other: &Self) -> (Runtime, [ServerHandle; 2]) {
        let builder = self.builder();
        let builder = builder.server(web("web", Transport::http(self.server.url())));
        let builder = builder.server(web("other", Transport::http(other.server.url())));
        let runtime = builder.start().await.unwrap();
        runtime.ready(LONG).await.unwrap();
        let handles = ["web", "other"].map(|name| runtime.server(name).unwrap());
        (runtime, handles)
    }

    /// A runtime that connects.
    pub(crate) async fn started(&self) -> (Runtime, ServerHandle) {
        let web = web("web", Transport::http(self.server.url()));
        let runtime = self.builder().server(web).start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        (runtime, handle)
    }

    /// How often a token was refreshed.
    pub(crate) fn refreshes(&self) -> usize {
        self.auth.token_requests(REFRESH)
    }

    /// The requests with another session, connection or run than intended.
    #[track_caller]
    pub(crate) fn assert_untouched(&self, handle: &ServerHandle) {
        let status = handle.status();
        assert_eq!(status.generation.get(), 1, "no reconnect: {status:?}");
        assert_eq!(self.server.requests("initialize"), 1, "no handshake");
        assert_eq!(self.server.sessions_opened(), 1, "the same session");
        assert_eq!(self.server.ran_twice(), Vec::<String>::new());
    }
}

pub(crate) fn builder(folder: &Folder) -> RuntimeBuilder {
    let builder = Runtime::builder().state_dir(&folder.0);
    builder
        .auth_store(StoreChoice::File)
        .governor(no_governor())
}

/// A server that is asked for a session, and for nothing newer first.
pub(crate) fn web(name: &str, endpoint: HttpEndpoint) -> ServerConfig {
    let mut config = server(name, endpoint).required(true);
    config.protocol = Some(ProtocolVersion::V_2025_06_18);
    config
}

/// Runs a side effect that the server counts.
pub(crate) async fn run(handle: &ServerHandle, key: &str) -> Result<CallToolResult, CallError> {
    run_within(handle, key, LONG).await
}

pub(crate) async fn run_within(
    handle: &ServerHandle,
    key: &str,
    deadline: Duration,
) -> Result<CallToolResult, CallError> {
    let call = handle.call_tool("run", json!({ "key": key }));
    let outcome = tokio::time::timeout(deadline + LONG, call.deadline(deadline)).await;
    outcome.unwrap_or_else(|_| panic!("the call {key} hangs"))
}

/// Runs side effects at once, each with its own key.
pub(crate) async fn run_many(
    handle: &ServerHandle,
    round: &str,
    calls: usize,
) -> Vec<Result<CallToolResult, CallError>> {
    let calls = (0..calls).map(|number| {
        let handle = handle.clone();
        let key = format!("{round} {number}");
        async move { run(&handle, &key).await }
    });
    futures_util::future::join_all(calls).await
}
