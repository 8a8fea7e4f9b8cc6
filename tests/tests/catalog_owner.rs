//! Saved lists are shown only with the account and the credential that fetched them. (A5)

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::mcpvisor_auth::record::{
    ClientAuthMethod, ClientRecord, ClientSource, CredentialKey, CredentialRecord, Endpoints,
    RECORD_VERSION, TokenSet,
};
use mcpvisor::auth::mcpvisor_auth::store::{CredentialStore, FileStore};
use mcpvisor::auth::{AuthConfig, StoreChoice};
use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{
    Client, Config, ConnectionScope, HttpEndpoint, Runtime, ServerConfig, ServerHandle, StartMode,
    StateName, Transport,
};
use mcpvisor_files::state_dir::StateDir;
use mcpvisor_testkit::stub_server::{StubReply, StubRequest, StubServer, default_reply};
use serde_json::json;

/// Upper bound for every step, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    assert!(waited.is_ok(), "waited in vain for {what}");
}

async fn reaches(handle: &ServerHandle, state: StateName) {
    until(state.as_str(), || handle.status().state == state).await;
}

/// The config of the server.
fn web(endpoint: HttpEndpoint) -> ServerConfig {
    let mut config = ServerConfig::new("web", endpoint).unwrap().required(true);
    config.protocol = Some(ProtocolVersion::V_2025_06_18);
    config
}

/// A state folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("mcpvisor-owner-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// Stores a login: a token that does not expire and cannot be refreshed.
    async fn log_in(&self, server: &StubServer, account: &str, token: &str, scopes: &[&str]) {
        let record = CredentialRecord {
            version: RECORD_VERSION,
            revision: 1,
            key: CredentialKey {
                server_url: server.url(),
                issuer: "https://login.example.com".to_owned(),
                resource: None,
                account: account.to_owned(),
            },
            client: ClientRecord {
                id: "app".to_owned(),
                secret: None,
                secret_expires_at: None,
                auth_method: ClientAuthMethod::None,
                source: ClientSource::Configured,
                redirect_uri: None,
            },
            endpoints: Endpoints {
                token: "https://login.example.com/token".to_owned(),
                revocation: None,
            },
            tokens: TokenSet {
                access: Secret::new(token),
                refresh: None,
                obtained_at: 1_700_000_000,
                expires_at: None,
            },
            scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            dpop: None,
            logged_in_at: 1_700_000_000,
            rejected: None,
        };
        let store = FileStore::new(StateDir::new(&self.0));
        store.save(record).await.unwrap();
    }

    async fn start(&self, endpoint: HttpEndpoint, start: StartMode) -> Runtime {
        let config = Config::new()
            .server(web(endpoint).start(start))
            .state_dir(&self.0)
            .auth_store(StoreChoice::File);
        Runtime::builder().config(config).start().await.unwrap()
    }

    /// Fetches and saves the lists.
    async fn visit(&self, endpoint: HttpEndpoint) -> Vec<String> {
        let runtime = self.start(endpoint, StartMode::Eager).await;
        runtime.ready(LONG).await.unwrap();
        let tools = tools(&runtime);
        runtime.shutdown(LONG).await;
        tools
    }

    /// The tools that are shown before a connection.
    async fn remembered(&self, endpoint: HttpEndpoint) -> Vec<String> {
        let runtime = self.start(endpoint, StartMode::Lazy).await;
        let tools = tools(&runtime);
        runtime.shutdown(LONG).await;
        tools
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tools(runtime: &Runtime) -> Vec<String> {
    let catalog = runtime.server("web").unwrap().catalog();
    let names = catalog.tools.iter().map(|tool| tool.name.to_string());
    names.collect()
}

fn account(server: &StubServer, account: &str) -> HttpEndpoint {
    let mut auth = AuthConfig::default();
    auth.account = Some(account.to_owned());
    Transport::http(server.url()).auth(auth)
}

/// Lists one private tool that is named after the token.
fn by_token(request: &StubRequest) -> StubReply {
    let token = request.header("authorization").unwrap_or_default();
    let token = token.trim_start_matches("Bearer ");
    match request.operation() {
        "tools/list" => {
            let tool =
                json!({ "name": format!("of-{token}"), "inputSchema": { "type": "object" } });
            let list = json!({ "tools": [tool], "ttlMs": 3_600_000, "cacheScope": "private" });
            StubReply::result(request, &list)
        }
        _ => default_reply(request),
    }
}

#[tokio::test]
async fn another_account_does_not_get_the_saved_catalog() {
    let folder = Folder::new("account");
    let server = StubServer::start(by_token).await;
    folder.log_in(&server, "one", "t1", &["read"]).await;
    folder.log_in(&server, "two", "t2", &["read"]).await;
    assert_eq!(folder.visit(account(&server, "one")).await, ["of-t1"]);
    // The control: the same account gets it.
    assert_eq!(folder.remembered(account(&server, "one")).await, ["of-t1"]);
    assert_eq!(folder.remembered(account(&server, "two")).await, [""; 0]);
    assert_eq!(folder.remembered(account(&server, "none")).await, [""; 0]);
    let without = Transport::http(server.url());
    assert_eq!(folder.remembered(without).await, [""; 0]);
    assert_eq!(folder.visit(account(&server, "two")).await, ["of-t2"]);
    assert_eq!(folder.remembered(account(&server, "one")).await, [""; 0]);
}

#[tokio::test]
async fn after_a_login_with_other_scopes_the_saved_catalog_is_not_shown() {
    let folder = Folder::new("scopes");
    let server = StubServer::start(by_token).await;
    folder
        .log_in(&server, "one", "t1", &["read", "write"])
        .await;
    assert_eq!(folder.visit(account(&server, "one")).await, ["of-t1"]);
    // The control: the same scopes in another order, with another token.
    folder
        .log_in(&server, "one", "t2", &["write", "read"])
        .await;
    assert_eq!(folder.remembered(account(&server, "one")).await, ["of-t1"]);
    folder.log_in(&server, "one", "t3", &["read"]).await;
    assert_eq!(folder.remembered(account(&server, "one")).await, [""; 0]);
}

#[tokio::test]
async fn a_catalog_is_bound_to_the_credential_of_the_config_which_is_not_saved() {
    let folder = Folder::new("static");
    let server = StubServer::start(by_token).await;
    let with = |token: &str| {
        let value = format!("Bearer {token}");
        Transport::http(server.url()).header("Authorization", value)
    };
    assert_eq!(folder.visit(with("canary-1")).await, ["of-canary-1"]);
    assert_eq!(folder.remembered(with("canary-1")).await, ["of-canary-1"]);
    assert_eq!(folder.remembered(with("canary-2")).await, [""; 0]);
    let catalogs = std::fs::read_dir(folder.0.join("catalogs")).unwrap();
    for file in catalogs {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("Bearer"), "{text}");
        assert!(
            !text.replace("of-canary-1", "").contains("canary"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_login_with_other_scopes_drops_the_lists_of_a_running_server() {
    let folder = Folder::new("running");
    let (revoked, held) = (
        Arc::new(AtomicBool::new(false)),
        tokio::sync::watch::channel(false),
    );
    let (release, released) = held;
    let server = StubServer::start({
        let revoked = Arc::clone(&revoked);
        move |request| {
            let token = request.header("authorization").unwrap_or_default();
            if token == "Bearer t1" && revoked.load(Ordering::SeqCst) {
                return StubReply::status("401 Unauthorized", "www-authenticate: Bearer\r\n", "");
            }
            match (token, request.operation()) {
                ("Bearer t2", "tools/list") => by_token(request).held(&released),
                _ => by_token(request),
            }
        }
    })
    .await;
    folder
        .log_in(&server, "one", "t1", &["read", "write"])
        .await;
    let runtime = folder
        .start(account(&server, "one"), StartMode::Eager)
        .await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(tools(&runtime), ["of-t1"]);
    let handle = runtime.server("web").unwrap();
    revoked.store(true, Ordering::SeqCst);
    handle.call_tool("of-t1", json!({})).await.unwrap_err();
    reaches(&handle, StateName::PermanentlyFailed).await;
    folder.log_in(&server, "one", "t2", &["read"]).await;
    reaches(&handle, StateName::Connected).await;
    assert_eq!(tools(&runtime), [""; 0]);
    release.send(true).unwrap();
    until("its own list", || tools(&runtime) == ["of-t2"]).await;
    runtime.shutdown(LONG).await;
    assert_eq!(folder.remembered(account(&server, "one")).await, ["of-t2"]);
}

#[tokio::test]
async fn a_reload_to_another_account_drops_the_lists_of_the_first() {
    let folder = Folder::new("reload");
    let (release, released) = tokio::sync::watch::channel(false);
    let server = StubServer::start(move |request| {
        let is_second = request.header("authorization") == Some("Bearer t2");
        match request.operation() {
            "tools/list" if is_second => by_token(request).held(&released),
            _ => by_token(request),
        }
    })
    .await;
    folder.log_in(&server, "one", "t1", &["read"]).await;
    folder.log_in(&server, "two", "t2", &["read"]).await;
    let runtime = folder
        .start(account(&server, "one"), StartMode::Eager)
        .await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(tools(&runtime), ["of-t1"]);
    let config = Config::new().server(web(account(&server, "two")));
    let report = runtime.reload(config).await.unwrap();
    let why = vec!["auth"];
    let change = &report.server("web").unwrap().change;
    assert_eq!(*change, mcpvisor::ServerChange::Restarted { why });
    assert_eq!(tools(&runtime), [""; 0]);
    release.send(true).unwrap();
    until("the list of the second", || tools(&runtime) == ["of-t2"]).await;
    runtime.shutdown(LONG).await;
}

/// One server, one connection for each client.
#[tokio::test]
async fn clients_of_two_accounts_use_and_see_their_own() {
    let folder = Folder::new("clients");
    let server = StubServer::start(by_token).await;
    for (account, token) in [("", "t0"), ("one", "t1"), ("two", "t2")] {
        folder.log_in(&server, account, token, &["read"]).await;
    }
    let endpoint = Transport::http(server.url()).auth(AuthConfig::default());
    let config = Config::new()
        .server(web(endpoint).scope(ConnectionScope::Client))
        .state_dir(&folder.0)
        .auth_store(StoreChoice::File);
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    assert_eq!(tools(&runtime), ["of-t0"]);
    let seen = |client: &Client| {
        let catalog = client.catalog();
        let names = catalog.tools().map(|tool| tool.name().to_owned());
        names.collect::<Vec<_>>()
    };
    let plain = runtime.client("plain").build();
    let one = runtime.client("a").account("one").build();
    let two = runtime.client("b").account("two").build();
    assert_eq!(seen(&plain), ["of-t0"]);
    assert_eq!(seen(&one), [""; 0], "the lists of another account");
    for (client, tool) in [(&plain, "of-t0"), (&one, "of-t1"), (&two, "of-t2")] {
        let listed = client
            .server("web")
            .unwrap()
            .list_tools(None)
            .await
            .unwrap();
        assert_eq!(listed.tools[0].name, tool);
        until("the own lists", || seen(client) == [tool]).await;
    }
    // The second client of an account sees its lists before it connects.
    let other = runtime.client("c").account("two").build();
    other.server("web").unwrap().ping().await.unwrap();
    until("the lists of the account", || seen(&other) == ["of-t2"]).await;
    runtime.shutdown(LONG).await;
}
