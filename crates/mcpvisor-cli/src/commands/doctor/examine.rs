//! Runs all checks of `doctor`.

use mcpvisor::{Config, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::report::{Check, Report, ServerReport};
use super::{authorization_checks, machine_checks, server_checks};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::ColorMode;

pub(crate) async fn run(only: Option<&str>, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let report = examine(only, invocation).await?;
    let render = || report.render(ColorMode::of_stdout());
    invocation.output.result(&report, render)?;
    Ok(report.exit())
}

async fn examine(only: Option<&str>, invocation: &Invocation<'_>) -> Result<Report, Failure> {
    let deadline = invocation.deadline;
    let mut checks = Vec::new();
    let source = invocation.source();
    let read = source.and_then(|source| Ok((source.read_with_trust()?, source)));
    let ((mut config, may_start), source) = match read {
        Ok(read) => read,
        Err(failure) => {
            let action = match failure.diagnostic {
                Some(_) => "Fix it, or pass another with `--config`.",
                None => "Create one, or pass one with `--config`.",
            };
            checks.push(Check {
                diagnostic: failure.diagnostic.map(|it| *it),
                ..Check::bad("config", failure.message, action)
            });
            checks.extend(machine_without(None));
            return Ok(Report::new(checks, Vec::new()));
        }
    };
    if let Some(only) = only {
        config = match fleet::only(config.clone(), only) {
            Ok(config) => config,
            // The doctor reports an unusable entry.
            Err(failure) if failure.code != "unknown_server" => {
                config.servers.clear();
                config
            }
            Err(failure) => return Err(failure),
        };
    }
    checks.push(machine_checks::config(&source, may_start));
    checks.extend(machine_checks::config_problems(&config, &source));
    checks.extend(machine_without(Some(&config)));
    let mut servers = server_checks::entries(&config, &source);
    if let Some(only) = only {
        servers.retain(|server| server.name == only);
    }
    if may_start {
        let until = deadline.ready_until(&config);
        fleet::with(config, invocation, async |runtime| {
            if only.is_none() {
                checks.extend(authorization_checks::unassigned(runtime).await);
            }
            connect(runtime, &mut servers, until, &deadline.describe()).await
        })
        .await?;
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    let mut report = Report::new(checks, servers);
    report.has_deadline = deadline.at().is_some();
    Ok(report)
}

/// The checks of the machine besides the config.
fn machine_without(config: Option<&Config>) -> Vec<Check> {
    let mut checks: Vec<Check> = machine_checks::trusted().into_iter().collect();
    checks.push(machine_checks::state_folder(config));
    checks.push(machine_checks::orphaned_servers(config));
    checks
}

/// Waits for all servers at once, and adds the result of each.
async fn connect(
    runtime: &Runtime,
    reports: &mut [ServerReport],
    until: Instant,
    within: &str,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut observed = JoinSet::new();
    for name in runtime.servers() {
        let server = runtime.server(name.as_str()).map_err(Failure::unexpected)?;
        observed.spawn(server_checks::observe(server, begun, until));
    }
    while let Some(outcome) = observed.join_next().await {
        let outcome = outcome.map_err(Failure::unexpected)?;
        let name = outcome.status.name.as_str();
        if let Some(report) = reports.iter_mut().find(|report| report.name == name) {
            server_checks::examine(report, &outcome, within);
        }
    }
    Ok(())
}
