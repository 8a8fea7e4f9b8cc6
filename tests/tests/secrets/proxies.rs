//! Credentials in the proxy variables that children inherit.

use std::process::Command;
use std::time::Duration;

use mcpvisor::{Runtime, ServerConfig, Transport};
use mcpvisor_testkit::eventually;
use tracing_subscriber::layer::SubscriberExt;

use crate::capture::Capture;
use crate::evidence::{MARK, shows};
use crate::{DEADLINE, canary};

/// The deadline of a call to an unusable server.
const SOON: Duration = Duration::from_millis(200);

/// Marks the second process.
const WATCHED: &str = "MCPVISOR_TEST_PROXIES";

#[test]
fn credentials_of_inherited_proxies_are_shown_nowhere() {
    if std::env::var_os(WATCHED).is_none() {
        let url = |place: &str| format!("http://agent:{}@127.0.0.1:9", canary(place));
        let name = "proxies::credentials_of_inherited_proxies_are_shown_nowhere";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args([name, "--exact", "--nocapture"])
            .env(WATCHED, "1");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            again.env(name, url(name));
            let lower = name.to_lowercase();
            again.env(&lower, url(&lower));
        }
        let ran = again.output().unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stdout)
        );
        return;
    }
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut texts = runtime.block_on(run());
    texts.extend(capture.take().into_iter().map(|log| log.text));
    let hits: Vec<_> = texts.iter().filter(|text| shows(text)).collect();
    assert!(hits.is_empty(), "{hits:#?}");
    assert!(
        texts.iter().any(|text| text.contains("only *** is left")),
        "{texts:#?}"
    );
}

/// Servers that echo their environment, and one whose proxy is unreachable.
async fn run() -> Vec<String> {
    let says = |name: &str| {
        let password = format!("${{{name}#*agent:}}");
        let script = format!("x={password}; echo \"${name}: only ${{x%@*}} is left\" >&2; exit 3");
        Transport::stdio("sh").args(["-c", &script])
    };
    let mut builder = Runtime::builder();
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let server = ServerConfig::new(name.to_lowercase(), says(name)).unwrap();
        builder = builder.server(server);
    }
    for (name, url) in [
        ("plain", "http://mcp.invalid/"),
        ("tls", "https://mcp.invalid/"),
    ] {
        let server = ServerConfig::new(name, Transport::http(url)).unwrap();
        builder = builder.server(server);
    }
    let runtime = builder.start().await.unwrap();
    let mut events = runtime.events();
    let mut texts = Vec::new();
    for name in ["http_proxy", "https_proxy", "all_proxy", "plain", "tls"] {
        let handle = runtime.server(name).unwrap();
        let failed = || handle.status().last_error.is_some();
        eventually(DEADLINE, "a failed attempt", failed).await;
        let called = handle.call_tool("any", serde_json::json!({}));
        let error = called.deadline(SOON).await.unwrap_err();
        texts.push(format!("{error} {error:?}"));
        let status = handle.status();
        texts.push(format!(
            "{status:?} {}",
            serde_json::to_string(&status).unwrap()
        ));
        texts.push(handle.stderr_tail());
    }
    runtime.shutdown(DEADLINE).await;
    while let Ok(event) = events.recv().await {
        texts.push(format!("{event:?}"));
    }
    assert!(std::env::var("HTTP_PROXY").unwrap().contains(MARK));
    texts
}
