//! A fleet for the time of one command: started, waited for, always shut down.

use std::time::Duration;

use mcpvisor::{
    Callbacks, Config, ListKind, Runtime, ServerHandle, ServerStatus, StartMode, StateName,
};
use tokio::time::Instant;

use crate::config::state_dir;
use crate::config::unusable_entry;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::Output;
use crate::output::nearest;
use crate::request::deadlines::Deadline;

/// The end of a command waits this long for the servers to close.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Servers get this long to close even if the deadline has passed.
const LEAST_SHUTDOWN: Duration = Duration::from_millis(100);

/// No command takes so long, so a server whose one attempt failed is not probed.
const NO_PROBE: Duration = Duration::from_secs(24 * 60 * 60);

/// Says what is odd in a config.
pub(crate) fn warn(config: &Config, output: &Output) {
    for problem in &config.problems {
        output.problem(problem);
    }
}

/// Keeps one server of a config and what is odd about it, or says why it is not there.
pub(crate) fn only(mut config: Config, server: &str) -> Result<Config, Failure> {
    if !config
        .servers
        .iter()
        .any(|known| known.name.as_str() == server)
    {
        return Err(not_there(&config, server));
    }
    config.servers.retain(|known| known.name.as_str() == server);
    config
        .problems
        .retain(|problem| problem.server.as_deref() == Some(server));
    Ok(config)
}

/// A server that was left out has a reason; one that never was has neighbours.
pub(crate) fn not_there(config: &Config, server: &str) -> Failure {
    let mut left_out = unusable_entry::of(config).into_iter();
    if let Some(entry) = left_out.find(|entry| entry.name == server) {
        return entry.failure();
    }
    let names: Vec<&str> = config
        .servers
        .iter()
        .map(|known| known.name.as_str())
        .collect();
    let left_out = unusable_entry::of(config);
    let all = names.iter().copied();
    let all = all.chain(left_out.iter().map(|entry| entry.name));
    let known = match (nearest(server, all), names.as_slice()) {
        (Some(near), _) => format!(" (did you mean {near:?}?)"),
        (None, []) => "; the config has no servers".to_owned(),
        (None, names) => format!("; servers: {}", names.join(", ")),
    };
    Failure::unknown_server(format!("unknown server {server:?}{known}")).at(server)
}

/// Runs a command on a fleet whose servers may ask nothing, and are started once.
pub(crate) async fn with<T>(
    config: Config,
    deadline: Deadline,
    output: &Output,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (callbacks, interrupted) = (Callbacks::new(), Failure::interrupted);
    with_callbacks(config, deadline, output, callbacks, interrupted, command).await
}

/// Runs a command on a fleet whose servers are started once: a person reads why one failed, and runs
/// the command again.
pub(crate) async fn with_callbacks<T>(
    mut config: Config,
    deadline: Deadline,
    output: &Output,
    callbacks: Callbacks,
    interrupted: impl Fn() -> Failure,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    for server in &mut config.servers {
        let budget = &mut server.settings.budget;
        budget.attempts = 1;
        budget.within = NO_PROBE;
        (budget.first_probe, budget.max_probe) = (NO_PROBE, NO_PROBE);
        budget.wake_on_call = false;
    }
    run(config, deadline, output, callbacks, interrupted, command).await
}

/// Runs a command that goes on, on a fleet that is supervised as its entries say.
pub(crate) async fn supervised<T>(
    config: Config,
    output: &Output,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (deadline, callbacks) = (Deadline::new(None), Callbacks::new());
    let interrupted = Failure::interrupted;
    run(config, deadline, output, callbacks, interrupted, command).await
}

/// Runs a command on a fleet. Whatever happens, an interrupt included, the fleet is shut down: the
/// first interrupt cancels what runs at the servers, a second one no longer waits for them to close.
/// A failure is shown before that, because servers that will not close take their time.
async fn run<T>(
    mut config: Config,
    deadline: Deadline,
    output: &Output,
    callbacks: Callbacks,
    interrupted: impl Fn() -> Failure,
    command: impl AsyncFnOnce(&Runtime) -> Result<T, Failure>,
) -> Result<T, Failure> {
    config.state_dir = state_dir::dir_for(&config);
    for server in &mut config.servers {
        // A command is short, and what it is about has to be there.
        server.start = StartMode::Eager;
        server.sleep_after = None;
    }
    let mut interrupts = Interrupts::listen();
    let builder = Runtime::builder().config(config).callbacks(callbacks);
    let start = builder.start();
    let runtime = start
        .await
        .map_err(|error| Failure::config(error.to_string()))?;
    let outcome = tokio::select! {
        outcome = command(&runtime) => outcome,
        () = interrupts.next() => Err(interrupted()),
    };
    let outcome = outcome.map_err(|failure| failure.told(output));
    // What the command did not use is left for closing; then the children are killed.
    let left = deadline.left().unwrap_or(SHUTDOWN);
    let limit = left.clamp(LEAST_SHUTDOWN, SHUTDOWN);
    tokio::select! {
        _ = runtime.shutdown(limit) => outcome,
        // The children end with the async runtime, or with this process.
        () = interrupts.next() => Err(match outcome {
            Err(failure) => failure.then_interrupted(),
            Ok(_) => interrupted(),
        }),
    }
}

/// Waits until a server is connected and these of its lists are fetched or cannot be, or until it has
/// another verdict. `None`: the time was up.
pub(crate) async fn settled(
    server: &ServerHandle,
    lists: &[ListKind],
    until: Instant,
) -> Option<ServerStatus> {
    let mut status = server.watch();
    let verdict = status.wait_for(|status| has_verdict(status, lists));
    let settled = tokio::time::timeout_at(until, verdict).await.ok()?;
    // An error means that the server's actor is gone for good; its last status is the verdict.
    Some(settled.map_or_else(|_| server.status(), |status| status.clone()))
}

/// Whether the one attempt of a command ended, and these lists are settled.
fn has_verdict(status: &ServerStatus, lists: &[ListKind]) -> bool {
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
