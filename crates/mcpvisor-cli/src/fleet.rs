//! The fleet of one command: started, waited for, always shut down.

use std::time::Duration;

use mcpvisor::{Callbacks, Config, ListKind, Runtime, ServerHandle, ServerStatus, StateName};
use tokio::time::Instant;

use crate::config::state_dir;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::invocation::Invocation;
use crate::output::{Output, suggest_name};
use crate::request::deadlines::Deadline;
use crate::shutdown::shut_down;

/// Longer than any command, so that a server whose one attempt failed is not probed.
const NO_PROBE: Duration = Duration::from_secs(24 * 60 * 60);

/// Prints the problems of a config.
pub(crate) fn warn(config: &Config, output: &Output) {
    for problem in &config.problems {
        output.problem(problem);
    }
}

/// Reduces a config to one server and its problems.
pub(crate) fn only(mut config: Config, server: &str) -> Result<Config, Failure> {
    let mut servers = config.servers.iter();
    if !servers.any(|known| known.name.as_str() == server) {
        return Err(unknown_server(&config, server));
    }
    config.servers.retain(|known| known.name.as_str() == server);
    config
        .problems
        .retain(|problem| problem.server.as_deref() == Some(server));
    Ok(config)
}

/// Why a server is not in the config: its entry cannot be used, or there is none.
pub(crate) fn unknown_server(config: &Config, server: &str) -> Failure {
    let unusable = config.unusable_servers();
    if let Some(status) = unusable.iter().find(|it| it.name.as_str() == server) {
        let mut problems = config.problems.iter();
        let problem = problems.find(|problem| problem.excluded_server() == Some(server));
        match problem {
            Some(problem) if status.state != StateName::Disabled => {
                return Failure::unusable(problem).with_server(server);
            }
            _ => return Failure::disabled(server),
        }
    }
    let names: Vec<&str> = config.servers.iter().map(|it| it.name.as_str()).collect();
    let unusable = unusable.iter().map(|it| it.name.as_str());
    let all = names.iter().copied().chain(unusable);
    let hint = match (suggest_name(server, all), names.as_slice()) {
        (Some(hint), _) => hint,
        (None, []) => "; the config has no servers".to_owned(),
        (None, names) => format!("; servers: {}", names.join(", ")),
    };
    Failure::unknown_server(format!("unknown server {server:?}{hint}")).with_server(server)
}

/// Runs a command on a fleet whose servers are started once and may not ask questions.
pub(crate) async fn with<T>(
    config: Config,
    invocation: &Invocation<'_>,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (callbacks, interrupted) = (Callbacks::new(), Failure::interrupted);
    with_callbacks(config, invocation, callbacks, interrupted, command).await
}

/// Runs a command on a fleet whose servers are started once: the user reads why one failed, and runs
/// the command again. It needs one instance of each server.
pub(crate) async fn with_callbacks<T>(
    mut config: Config,
    invocation: &Invocation<'_>,
    callbacks: Callbacks,
    interrupted: impl Fn() -> Failure,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    for server in &mut config.servers {
        server.settings.connections.instances = 1;
    }
    start_once(&mut config);
    run(config, invocation, callbacks, interrupted, command).await
}

/// Runs a command on a fleet in which every instance of every server is started once.
pub(crate) async fn with_all_instances<T>(
    mut config: Config,
    invocation: &Invocation<'_>,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    start_once(&mut config);
    let (callbacks, interrupted) = (Callbacks::new(), Failure::interrupted);
    run(config, invocation, callbacks, interrupted, command).await
}

fn start_once(config: &mut Config) {
    for server in &mut config.servers {
        let budget = &mut server.settings.budget;
        budget.attempts = 1;
        budget.within = NO_PROBE;
        (budget.first_probe, budget.max_probe) = (NO_PROBE, NO_PROBE);
        budget.wake_on_call = false;
    }
}

/// Runs a long-lived command on a fleet that is supervised as configured.
pub(crate) async fn supervised<T>(
    config: Config,
    invocation: &Invocation<'_>,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let invocation = Invocation {
        deadline: Deadline::new(None),
        ..*invocation
    };
    let (callbacks, interrupted) = (Callbacks::new(), Failure::interrupted);
    run(config, &invocation, callbacks, interrupted, command).await
}

/// Runs a command that outlives lost connections: servers are supervised as configured.
pub(crate) async fn reconnecting<T>(
    config: Config,
    invocation: &Invocation<'_>,
    callbacks: Callbacks,
    interrupted: impl Fn() -> Failure,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    run(config, invocation, callbacks, interrupted, command).await
}

/// Runs a command on a fleet, and always shuts it down. The first interrupt cancels running requests;
/// a second one stops waiting for the servers to close. A failure is shown before the shutdown,
/// because that can take long.
async fn run<T>(
    mut config: Config,
    invocation: &Invocation<'_>,
    callbacks: Callbacks,
    interrupted: impl Fn() -> Failure,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    config.state_dir = state_dir::dir_for(&config);
    for server in &mut config.servers {
        // A command needs its servers at once.
        server.settings.rest.lazy = false;
        server.settings.rest.sleep_after = None;
    }
    let mut interrupts = Interrupts::listen();
    let builder = Runtime::builder().config(config).callbacks(callbacks);
    let start = builder.start();
    let runtime = start.await.map_err(Failure::config)?;
    let outcome = tokio::select! {
        outcome = command(&runtime) => outcome,
        () = interrupts.next() => Err(interrupted()),
    };
    let outcome = outcome.map_err(|failure| failure.show_once(&invocation.output));
    let was_interrupted = matches!(&outcome, Err(failure) if failure.exit == Exit::Interrupted);
    tokio::select! {
        () = shut_down(&runtime, invocation, was_interrupted) => outcome,
        // The children end with the async runtime, or with this process.
        () = interrupts.next() => Err(match outcome {
            Err(failure) => failure.then_interrupted(),
            Ok(_) => interrupted(),
        }),
    }
}

/// Waits until a server is connected and these lists are fetched or failed, or until its connect
/// failed. `None`: the time is up.
pub(crate) async fn settled(
    server: &ServerHandle,
    lists: &[ListKind],
    until: Instant,
) -> Option<ServerStatus> {
    let mut status = server.watch();
    let settled = status.wait_for(|status| is_settled(status, lists));
    let settled = tokio::time::timeout_at(until, settled).await.ok()?;
    // An error means that the server's actor is gone; its last status is final.
    Some(settled.map_or_else(|_| server.status(), |status| status.clone()))
}

/// Whether the one attempt of a command ended, and these lists are settled.
fn is_settled(status: &ServerStatus, lists: &[ListKind]) -> bool {
    match status.state {
        StateName::Connected => lists.iter().all(|list| status.list(*list).is_settled()),
        StateName::Connecting => false,
        StateName::Reconnecting => status.last_error.is_some(),
        StateName::Disabling
        | StateName::Disabled
        | StateName::Disconnected
        | StateName::Sleeping
        | StateName::PermanentlyFailed => true,
    }
}
