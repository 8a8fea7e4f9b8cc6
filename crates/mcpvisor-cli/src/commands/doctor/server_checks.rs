//! Checks of one server: its entry, its command or socket, its connection and its catalog.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor::config::Severity;
use mcpvisor::{
    Config, FaultClass, Finding, ListKind, ServerConfig, ServerHandle, ServerStatus, StateName,
};
use tokio::time::Instant;

use super::report::{Check, ServerReport};
use super::{authorization_checks, command_check, socket_check};
use crate::config::source::Source;
use crate::failure::needs_authorization;
use crate::fleet;
use crate::output::counted;
use crate::output::{after_command, server_notes};

/// Lines of stderr in the report.
const MAX_STDERR_LINES: usize = 10;

/// Findings of one server in the report.
const MAX_FINDINGS: usize = 20;

/// What to do about a server that does not answer.
const SILENT: &str = "Allow more with `--timeout`, or check why it does not answer.";

/// Checks every entry without starting servers, unusable ones included.
pub(super) fn entries(config: &Config, source: &Source) -> Vec<ServerReport> {
    let path = source.path().display().to_string();
    let mut reports: Vec<ServerReport> = config
        .servers
        .iter()
        .map(|server| entry(config, server, &path))
        .collect();
    for problem in &config.problems {
        let Some(name) = problem.excluded_server() else {
            continue;
        };
        let off = problem.severity == Severity::Disabled;
        reports.push(ServerReport {
            name: name.to_owned(),
            config: path.clone(),
            state: off.then(|| "disabled".to_owned()),
            checks: vec![Check::problem("entry", problem, &path)],
            ..ServerReport::default()
        });
    }
    reports
}

fn entry(config: &Config, server: &ServerConfig, path: &str) -> ServerReport {
    let name = server.name.as_str();
    let problems = config
        .problems
        .iter()
        .filter(|it| it.excluded_server().is_none() && it.server.as_deref() == Some(name));
    let problems: Vec<Check> = problems
        .map(|problem| Check::problem("entry", problem, path))
        .collect();
    let mut checks = match problems.is_empty() {
        true => vec![Check::good(
            "entry",
            format!("{path}: {}", server.transport),
        )],
        false => problems,
    };
    checks.extend(command_check::check(&server.transport));
    checks.extend(socket_check::check(&server.transport));
    ServerReport {
        name: name.to_owned(),
        config: path.to_owned(),
        transport: server.transport.label().to_owned(),
        checks,
        ..ServerReport::default()
    }
}

/// How a server settled, and how long it took.
pub(super) struct Observation {
    pub(super) status: ServerStatus,
    pub(super) took: Duration,
    pub(super) in_time: bool,
    pub(super) stderr: String,
    pub(super) findings: Arc<[Finding]>,
    pub(super) authorization: Vec<Check>,
}

/// Waits until a server settles.
pub(super) async fn observe(server: ServerHandle, begun: Instant, until: Instant) -> Observation {
    let settled = fleet::settled(&server, &ListKind::ALL, until).await;
    let (took, in_time) = (begun.elapsed(), settled.is_some());
    let status = settled.unwrap_or_else(|| server.status());
    Observation {
        authorization: authorization_checks::check(&server, &status).await,
        in_time,
        status,
        took,
        stderr: server.stderr_tail(),
        findings: Arc::clone(&server.catalog().findings),
    }
}

/// Adds the checks of the connection to the report.
pub(super) fn examine(report: &mut ServerReport, outcome: &Observation, within: &str) {
    let status = &outcome.status;
    report.state = Some(status.state.to_string());
    // The config may leave it open.
    status.transport.clone_into(&mut report.transport);
    report.protocol.clone_from(&status.protocol);
    report.needs_authorization = needs_authorization(status);
    report.late = !outcome.in_time;
    let connected = status.state == StateName::Connected;
    if connected {
        report.connect_ms = u64::try_from(outcome.took.as_millis()).ok();
        report.tools = Some(status.tools);
    }
    let check = match status.state {
        StateName::Disabled => Some(Check::good("connection", "disabled, not started")),
        _ if connected => Some(Check::good("connection", greeting(outcome))),
        // A problem is reported once.
        _ if is_command_fault(status) && has_failed(report, "command") => None,
        _ if is_connect_fault(status) && has_failed(report, socket_check::SOCKET) => None,
        _ => Some(failed(outcome, &report.transport)),
    };
    report.checks.extend(check);
    if report.needs_authorization {
        report
            .checks
            .push(Check::bad("authorization", "needed", ""));
    }
    report.checks.extend(outcome.authorization.iter().cloned());
    if connected {
        report.checks.push(catalog(status, within));
        report.checks.extend(stdout(status));
        report.checks.extend(held(status));
        report.checks.extend(findings(&outcome.findings));
    }
    let well = report.checks.iter().all(|check| check.ok);
    if !well && !outcome.stderr.trim().is_empty() {
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let last = &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..];
        report.stderr = Some(last.join("\n"));
    }
}

fn is_command_fault(status: &ServerStatus) -> bool {
    let class = status.last_error.as_ref().map(|fault| fault.class);
    matches!(
        class,
        Some(FaultClass::CommandNotFound | FaultClass::InvalidCommand)
    )
}

fn is_connect_fault(status: &ServerStatus) -> bool {
    let fault = status.last_error.as_ref();
    fault.is_some_and(|fault| fault.class == FaultClass::ConnectFailed)
}

/// Whether a check of the entry failed already.
fn has_failed(report: &ServerReport, name: &str) -> bool {
    let mut checks = report.checks.iter();
    checks.any(|check| check.check == name && !check.ok)
}

fn greeting(outcome: &Observation) -> String {
    let status = &outcome.status;
    let mut text = format!("{} ms", outcome.took.as_millis());
    if let Some(protocol) = &status.protocol {
        text.push_str(&format!(", protocol {protocol}"));
    }
    if let Some(server) = &status.server {
        text.push_str(&format!(", {} {}", server.name, server.version));
    }
    text
}

fn failed(outcome: &Observation, transport: &str) -> Check {
    let status = &outcome.status;
    let fault = status.last_error.as_ref();
    let state = status.state;
    let mut detail = match fault {
        _ if !outcome.in_time => {
            format!("no answer after {} ms ({state})", outcome.took.as_millis())
        }
        Some(fault) => format!("{fault} ({state})"),
        None => state.to_string(),
    };
    if let Some(strays) = server_notes::stray_lines(status) {
        detail.push_str(&format!("; {strays}"));
    }
    let usual = match (outcome.in_time, transport) {
        (true, "http" | "sse") => "Check the URL and that the server is running.",
        (true, _) if outcome.stderr.trim().is_empty() => "Fix it, then rerun `mcpvisor doctor`.",
        (true, _) => "Fix the error below, then rerun `mcpvisor doctor`.",
        (false, _) => SILENT,
    };
    let action = after_command(status).unwrap_or_else(|| usual.to_owned());
    Check::bad("connection", detail, action)
}

/// Lines on stdout that are not messages. We skip them; some clients disconnect.
fn stdout(status: &ServerStatus) -> Option<Check> {
    if status.strays == 0 || status.transport != "stdio" {
        return None;
    }
    let lines = counted(usize::try_from(status.strays).unwrap_or(usize::MAX), "line");
    Some(Check::warning(
        "stdout",
        format!("wrote {lines} to stdout that are not protocol messages; some clients disconnect"),
        "Write logs and banners to stderr.",
    ))
}

/// Tools that wait for approval.
fn held(status: &ServerStatus) -> Option<Check> {
    let note = server_notes::held_tools(status.name.as_str(), status.held)?;
    Some(Check::bad("tools", note.text, note.action))
}

/// Findings are warnings, because only a person can judge them.
fn findings(findings: &[Finding]) -> Vec<Check> {
    let shown = findings.iter().take(MAX_FINDINGS);
    let mut checks: Vec<Check> = shown
        .map(|finding| Check::warning("finding", finding.to_string(), ""))
        .collect();
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        checks.push(Check::warning("finding", format!("and {more} more"), ""));
    }
    checks
}

fn catalog(status: &ServerStatus, within: &str) -> Check {
    if let Some(list) = server_notes::pending_list(status) {
        let detail = format!("its {list} were not listed {within}");
        return Check::bad("catalog", detail, SILENT);
    }
    let counts = [
        counted(status.tools, "tool"),
        counted(status.prompts, "prompt"),
        counted(status.resources, "resource"),
    ];
    let counts = counts.join(", ");
    match &status.last_error {
        Some(fault) if fault.class == FaultClass::Discovery => Check::bad(
            "catalog",
            fault.message.clone(),
            "Fix the server. Its earlier catalog stays published.",
        ),
        _ => Check::good("catalog", counts),
    }
}
