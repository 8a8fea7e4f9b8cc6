//! `status --watch`: the live screen, or one JSON line per change.

use std::collections::BTreeMap;
use std::time::Duration;

use mcpvisor::{Event, EventKind, EventsError, Runtime, ServerStatus};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Output, status_action, with_action_text};
use crate::screen;

/// How often states are polled for changes that have no event.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn run(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let (source, output) = (invocation.source()?, &invocation.output);
    if !output.json() && !screen::is_available() {
        return Err(Failure::usage(
            "--watch needs a terminal; use --watch --json",
        ));
    }
    let config = source.read_to_start()?;
    fleet::warn(&config, output);
    let title = format!("mcpvisor  {}", source.path().display());
    let unusable = config.unusable_servers();
    fleet::supervised(config, invocation, async |runtime| {
        if output.json() {
            print_changes(runtime, &unusable, output).await
        } else {
            screen::watch(runtime, &title, &unusable).await
        }
    })
    .await
}

/// Prints every server once, then the server of every change, until stdout is closed.
async fn print_changes(
    runtime: &Runtime,
    unusable: &[ServerStatus],
    output: &Output,
) -> Result<Exit, Failure> {
    let mut events = runtime.events();
    let mut printer = ChangePrinter {
        output,
        last: BTreeMap::new(),
    };
    printer.print_all(unusable)?;
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closed = std::pin::pin!(stdout_closed());
    loop {
        let open = tokio::select! {
            biased;
            // An idle fleet writes nothing, so no write would fail.
            () = &mut closed => false,
            // Events come before polls, so that no state is skipped.
            event = events.recv() => match event {
                Ok(event) => match changed_status(runtime, &event) {
                    Some(status) => printer.print(&status)?,
                    None => true,
                },
                Err(EventsError::Lagged(_)) => true,
                Err(_) => return Ok(Exit::Ok),
            },
            // An event may come a moment before the status has it.
            _ = polls.tick() => printer.print_all(&runtime.status())?,
        };
        if !open {
            return Ok(Exit::Ok);
        }
    }
}

/// Prints changed statuses, and remembers the last one of each instance.
struct ChangePrinter<'o> {
    output: &'o Output,
    last: BTreeMap<(String, u32), Value>,
}

impl ChangePrinter<'_> {
    fn print_all(&mut self, statuses: &[ServerStatus]) -> Result<bool, Failure> {
        let mut open = true;
        for status in statuses {
            open &= self.print(status)?;
        }
        Ok(open)
    }

    /// Prints a status unless it equals the last one. Returns whether stdout is still open.
    fn print(&mut self, status: &ServerStatus) -> Result<bool, Failure> {
        let mut value = serde_json::to_value(status).map_err(Failure::unexpected)?;
        // These change all the time.
        for field in ["since", "retry_in_ms", "in_flight"] {
            value[field] = Value::Null;
        }
        let key = (status.name.to_string(), status.instance);
        let last = self.last.insert(key, value.clone());
        if last.is_some_and(|last| last == value) {
            return Ok(true);
        }
        let action = status_action(status);
        self.output
            .json_line(&with_action_text(status.clone(), action))
    }
}

/// The status of the server that an event changed, with the state of the event: the server may have
/// another state by now, which has its own event.
fn changed_status(runtime: &Runtime, event: &Event) -> Option<ServerStatus> {
    let server = event.server.as_ref()?;
    let is_it = |it: &ServerStatus| it.name == *server && it.instance == event.instance;
    let mut status = runtime.status().into_iter().find(is_it)?;
    match &event.kind {
        EventKind::StateChanged { to, fault, .. } => {
            if status.state != *to {
                status.state = *to;
                status.generation = event.generation;
                status.retry_at = None;
            }
            if let Some(fault) = fault {
                status.last_error = Some(fault.clone());
            }
            Some(status)
        }
        EventKind::CatalogChanged { .. }
        | EventKind::ActorRestarted { .. }
        | EventKind::LoginUnsaved(_)
        | EventKind::LoginSaved
        | EventKind::Added
        | EventKind::InstanceAdded => Some(status),
        _ => None,
    }
}

/// Waits until the reader of stdout is gone. For a file this never returns.
#[cfg(unix)]
async fn stdout_closed() {
    use std::os::fd::AsFd;
    use tokio::io::Interest;
    use tokio::net::unix::pipe::Sender;
    // Nothing is written through it, so it need not be a pipe, and stays blocking.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    if let Ok(stdout) = stdout.and_then(Sender::from_owned_fd_unchecked)
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Not supported here: the next write fails instead.
#[cfg(not(unix))]
async fn stdout_closed() {
    std::future::pending().await
}
