//! Runs a test and searches its whole output for canaries.

use std::process::Command;

use tracing_subscriber::layer::SubscriberExt;

use crate::capture::Capture;
use crate::evidence::Evidence;

/// Runs the named test in a process with this variable set. The collected texts and logs must
/// contain no canary, and the library must have logged more than `traces` lines.
pub(crate) fn run_traced(
    name: &str,
    (variable, value): (&str, String),
    traces: usize,
    run: impl AsyncFnOnce(&mut Evidence),
) {
    if std::env::var_os(variable).is_none() {
        return in_another_process(name, variable, &value);
    }
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut evidence = Evidence::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(&mut evidence));
    let logs = capture.take();
    let ours = logs.iter().filter(|log| log.target.starts_with("mcpvisor"));
    assert!(ours.count() > traces, "the fleet left its traces: {logs:?}");
    for log in logs {
        evidence.add("log", format!("{}: {}", log.target, log.text));
    }
    evidence.assert_shows_nothing();
}

fn in_another_process(name: &str, variable: &str, value: &str) {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap();
    let output = [ran.stdout, ran.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(
        ran.status.success() && output.contains("1 passed"),
        "{output}"
    );
}
