//! Secrets of a config are never shown: every field that can hold a secret contains a canary, and
//! all logs, return values and output of the library are searched for them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

#[path = "../auth/browser.rs"]
mod browser;
#[path = "../fleet/mod.rs"]
mod fleet;
#[path = "../auth/folder.rs"]
mod folder;
#[path = "../auth/protected.rs"]
mod protected;

mod auth;
mod capture;
mod evidence;
mod http;
mod proxies;
mod traced_run;

use std::time::Duration;

use capture::Capture;
use evidence::{Evidence, MARK, shows};
use mcpvisor::config::{Arguments, Severity};
use mcpvisor::rmcp::{self, ServerHandler, tool, tool_handler, tool_router};
use mcpvisor::{CallError, Config, Runtime, ServerConfig, ServerStatus, StateName, Transport};
use mcpvisor_testkit::eventually_in;
use serde_json::{Value, json};
use traced_run::run_traced;
use tracing_subscriber::layer::SubscriberExt;

const FIXTURE: &str = env!("CARGO_BIN_EXE_fixture-server");

const DEADLINE: Duration = Duration::from_secs(20);

/// A variable that the servers inherit.
const INHERITED: &str = "MCPVISOR_TEST_INHERITED";

/// The canary contains its location.
fn canary(place: &str) -> String {
    format!("{MARK}-{place}-7f3a")
}

/// A folder whose name is a secret; removed on drop.
struct SecretFolder(std::path::PathBuf);

impl SecretFolder {
    fn new() -> Self {
        let name = format!("mcpvisor-{}-{}", canary("folder"), std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for SecretFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One server that works, and one for each way to fail.
fn config(folder: &SecretFolder) -> Config {
    let secrets = json!({ "TOKEN": canary("env"), "FROM_VARIABLE": "x${SECRET}" });
    let server = |args: Value| {
        json!({
            "command": "${FIXTURE}",
            "args": args,
            "env": secrets,
            "inheritEnv": [INHERITED],
            "cwd": "${FOLDER}",
            "reconnect": { "attempts": 2, "initialDelay": "10ms" },
        })
    };
    let mut homeless = server(json!([]));
    homeless["cwd"] = json!("${FOLDER}/nowhere");
    let mut missing = server(json!([]));
    missing["command"] = json!("/nonexistent/${SECRET}");
    let told = format!("I hold {} and ${{SECRET}}", canary("env"));
    let text = json!({ "mcpServers": {
        "good": server(json!(["--cancel-log", "/nonexistent/${SECRET}"])),
        "missing": missing,
        "homeless": homeless,
        "silent": server(json!(["--exit-at-once", "3"])),
        "talkative": server(json!(["--exit-at-once", "4", "--stderr", told])),
        "noisy": server(json!(["--banner", told])),
        "foreign": server(json!(["--protocol", "${SECRET}"])),
        // Rejected entries, each with an error about a field that holds a secret.
        "bad_env": { "command": "x", "env": { "K": [canary("bad-env")] } },
        "bad_args": { "command": "x", "args": canary("bad-args") },
        "bad_command": { "command": { "k": canary("bad-command") } },
        "bad_duration": { "command": "x", "timeouts": { "call": "${SECRET}" } },
        "bad_header": { "url": "https://example.com", "headers": { "K": format!("{}\n", canary("bad-header")) } },
        "bad_url": { "url": format!("ftp://{}", canary("bad-url")), "httpUrl": null },
        "bad_type": { "type": canary("bad-type"), "command": "x" },
        // No server listens at this address.
        "web": {
            "url": format!("http://user:{}@127.0.0.1:9/${{SECRET}}?key={}", canary("url"), canary("query")),
            "headers": { "Authorization": format!("Bearer {}", canary("header")), "X": "${SECRET}" },
            "reconnect": { "attempts": 2, "initialDelay": "10ms" },
        },
    } });
    let lookup = |name: &str| match name {
        "FIXTURE" => Some(FIXTURE.to_owned()),
        "FOLDER" => Some(folder.0.to_str().unwrap().to_owned()),
        "SECRET" => Some(canary("variable")),
        _ => None,
    };
    Config::from_json(&text.to_string(), lookup).unwrap()
}

#[test]
fn no_secret_of_a_config_is_shown_anywhere() {
    let name = "no_secret_of_a_config_is_shown_anywhere";
    run_traced(name, (INHERITED, canary("inherited")), 20, run_fleet);
}

async fn run_fleet(evidence: &mut Evidence) {
    let folder = SecretFolder::new();
    let config = config(&folder);
    look_at_config(&config, evidence);
    let builder = Runtime::builder()
        .config(config)
        .server(ServerConfig::new("inner", Transport::in_process(Inner)).unwrap());
    evidence.debug("builder", &builder);
    let runtime = builder.start().await.unwrap();
    let mut events = runtime.events();
    let client = runtime.client("agent");
    evidence.debug("client builder", &client);
    let client = client.build();
    evidence.debug("client", &client);

    use_the_good_one(&runtime, evidence).await;
    for name in ["missing", "homeless", "foreign"] {
        settle(&runtime, name, StateName::PermanentlyFailed).await;
    }
    for name in ["silent", "talkative"] {
        settle(&runtime, name, StateName::Disconnected).await;
    }
    settle(&runtime, "noisy", StateName::Connected).await;
    for name in runtime.servers() {
        look_at_server(&runtime, name.as_str(), evidence).await;
    }
    let not_ready = runtime.ready(Duration::from_millis(1)).await.unwrap_err();
    evidence.error("not ready", &not_ready);
    evidence.debug("runtime", &runtime);
    evidence.debug("report", &runtime.shutdown(DEADLINE).await);
    while let Ok(Some(event)) = events.try_recv() {
        evidence.debug("event", &event);
    }
    evidence.debug("runtime that ended", &runtime);
}

fn look_at_config(config: &Config, evidence: &mut Evidence) {
    evidence.debug("config", config);
    let left_out = config.problems.iter();
    let left_out = left_out.filter(|problem| problem.severity == Severity::Excluded);
    assert_eq!(left_out.count(), 7, "{:?}", config.problems);
    for problem in &config.problems {
        evidence.add("problem", format!("{problem} {problem:?}"));
        evidence.add("diagnostic", problem.render());
        assert!(problem.location.is_some(), "{problem}");
    }
    evidence.add("written", config.to_json(Arguments::Hidden).to_string());
    for server in &config.servers {
        evidence.debug("server config", server);
        evidence.debug("transport", &server.transport);
    }
    let command = Transport::stdio("x")
        .arg(canary("arg"))
        .env("K", canary("set"));
    evidence.debug("command", &command);
    // Texts that are not a config at all.
    for text in [
        format!("{{ \"mcpServers\": {{ \"a\": {} }} }}", canary("syntax")),
        format!("{{ \"mcpServers\": \"{}\" }}", canary("shape")),
        format!("\"{}\"", canary("top")),
    ] {
        for error in [
            Config::from_json(&text, |_| None).unwrap_err(),
            Config::from_toml(&text, |_| None).unwrap_err(),
        ] {
            evidence.add("diagnostic", error.render());
            evidence.error("config error", &error);
        }
    }
}

/// Calls that work, a crash during a call, a reconnect and a retry. Checks that the child received
/// its secrets.
async fn use_the_good_one(runtime: &Runtime, evidence: &mut Evidence) {
    let good = runtime.server("good").unwrap();
    evidence.debug("handle", &good);
    for (name, expected) in [
        ("TOKEN", canary("env")),
        ("FROM_VARIABLE", format!("x{}", canary("variable"))),
        (INHERITED, canary("inherited")),
    ] {
        let call = good.call_tool("env", json!({ "name": name }));
        let result = call.deadline(DEADLINE).await.unwrap();
        let shown = serde_json::to_string(&result).unwrap();
        assert!(shown.contains(&expected), "{name} in {shown}");
    }
    let tool = good.tool("kill_self");
    evidence.debug("tool", &tool);
    let request = tool.call(Default::default());
    evidence.debug("request", &request);
    let lost = request.await.unwrap_err();
    assert!(matches!(lost, CallError::OutcomeUnknown { .. }), "{lost}");
    evidence.error("lost call", &lost);
    good.list_tools(None).await.unwrap();
    runtime.reconnect("good").await.unwrap();
    good.call_tool("pid", Value::Null).await.unwrap();
    let refused = good.call_tool("echo", json!([1])).await.unwrap_err();
    evidence.error("refused call", &refused);
}

async fn settle(runtime: &Runtime, name: &str, state: StateName) {
    let server = runtime.server(name).unwrap();
    let what = format!("{name} is {state}");
    let look = |status: &ServerStatus| status.state == state;
    eventually_in(DEADLINE, what, &mut server.watch(), look).await;
}

async fn look_at_server(runtime: &Runtime, name: &str, evidence: &mut Evidence) {
    let server = runtime.server(name).unwrap();
    evidence.debug("handle", &server);
    let status = server.status();
    evidence.debug("status", &status);
    evidence.add("status as JSON", serde_json::to_string(&status).unwrap());
    evidence.debug("catalog", &server.catalog());
    evidence.add("stderr", server.stderr_tail());
    let call = server.call_tool("echo", Value::Null).deadline(DEADLINE);
    if let Err(error) = call.await {
        evidence.error("call", &error);
    }
}

#[tokio::test]
async fn what_a_child_repeats_of_its_secrets_is_hidden_and_the_rest_is_shown() {
    let told = format!("token {} in short x=1, port 8080", canary("env"));
    let command = Transport::stdio(FIXTURE)
        .args(["--exit-at-once", "4", "--stderr", &told])
        .env("TOKEN", canary("env"))
        .env("SHORT", "x=1");
    let runtime = Runtime::builder()
        .server(ServerConfig::new("talkative", command).unwrap())
        .start()
        .await
        .unwrap();
    let server = runtime.server("talkative").unwrap();
    let look = |status: &ServerStatus| status.last_error.clone();
    let fault = eventually_in(DEADLINE, "a failed connect", &mut server.watch(), look).await;
    assert_eq!(
        fault.to_string(),
        "the process exited with code 4; its stderr ends with: token *** in short x=1, port 8080"
    );
    assert_eq!(
        fault.stderr.as_deref(),
        Some("token *** in short x=1, port 8080")
    );
    assert_eq!(
        server.stderr_tail().trim_end(),
        "token *** in short x=1, port 8080"
    );
    runtime.shutdown(DEADLINE).await;
}

#[test]
fn the_search_finds_what_a_plain_debug_prints() {
    #[derive(Debug)]
    #[expect(dead_code, reason = "it is printed")]
    struct Careless {
        env: Vec<(String, String)>,
    }
    let env = vec![("TOKEN".to_owned(), canary("env"))];
    assert!(shows(&format!("{:?}", Careless { env })));
    assert!(shows(&format!("{:?}", canary("bytes").into_bytes())));
    assert!(shows(&format!("{:#?}", canary("bytes").into_bytes())));
    assert!(!shows("nothing of the kind"));
}

#[derive(Clone)]
struct Inner;

#[tool_router]
impl Inner {
    /// Answers.
    #[tool]
    async fn echo(&self) -> String {
        "echo".to_owned()
    }
}

#[tool_handler]
impl ServerHandler for Inner {}

/// Call arguments are not secrets of the config, but do not belong in a log either: rmcp logs whole
/// messages. The library's documentation names the targets, so that a host can filter them.
#[test]
fn the_targets_that_log_messages_are_those_that_the_documentation_names() {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let runtime = Runtime::builder()
            .server(ServerConfig::new("inner", Transport::in_process(Inner)).unwrap())
            .server(ServerConfig::new("outer", Transport::stdio(FIXTURE)).unwrap())
            .start()
            .await
            .unwrap();
        for name in ["inner", "outer"] {
            let server = runtime.server(name).unwrap();
            let call = server.call_tool("echo", json!({ "text": canary("argument") }));
            call.deadline(DEADLINE).await.unwrap();
        }
        runtime.shutdown(DEADLINE).await;
    });
    let mut targets: Vec<String> = capture
        .take()
        .into_iter()
        .filter(|log| shows(&log.text))
        .map(|log| log.target)
        .collect();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets, ["rmcp::service"]);
    let documentation = include_str!("../../../docs/semantics.md");
    for target in targets {
        assert!(documentation.contains(&format!("`{target}`")), "{target}");
    }
}
