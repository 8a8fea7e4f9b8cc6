//! Children inherit only the listed environment variables and those that the config names.

use std::process::Command;

use mcpvisor::Runtime;

use crate::shell_server::*;

/// Marks the second process as the host.
const HOST: &str = "MCPVISOR_TEST_HOST";

/// The secret in the environment of the host, under names of several kinds.
const CANARY: &str = "canary-in-the-environment";

#[test]
fn nothing_of_the_environment_reaches_a_child_but_what_is_listed_or_named() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["environment::a_host_with_secrets", "--exact", "--nocapture"])
        .env(HOST, "1")
        .envs(
            [
                "AWS_SECRET_ACCESS_KEY",
                "GITHUB_TOKEN",
                "PATHS",
                "HOMES",
                "path",
                "Http_Proxy",
                "LD_PRELOAD_",
                "PYTHONPATH",
                "NODE_OPTIONS",
                "XDG",
                "LC",
            ]
            .map(|name| (name, CANARY)),
        )
        .envs([
            ("NAMED", "kept"),
            ("LC_TIME", "listed"),
            ("XDG_CACHE_HOME", "listed"),
            ("NO_PROXY", "listed"),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "NAMED=kept",
        "LC_TIME=listed",
        "XDG_CACHE_HOME=listed",
        "NO_PROXY=listed",
        "GIVEN=hand",
        "directory /",
    ] {
        assert!(
            said.lines().any(|said| said == line),
            "{line} is not in {said}"
        );
    }
    assert!(!said.contains(CANARY), "{said}");
}

/// Not a test: the host started by the test above.
#[test]
fn a_host_with_secrets() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let script = format!("env >&2; echo \"directory $(pwd)\" >&2; {}", script("", ""));
        let command = sh(&script)
            .env("GIVEN", "hand")
            .inherit_env("NAMED")
            .cwd("/");
        let runtime = Runtime::builder()
            .server(server("curious", command))
            .start()
            .await
            .unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        println!("\n{}", runtime.server("curious").unwrap().stderr_tail());
        runtime.shutdown(BUSY).await;
    });
}
