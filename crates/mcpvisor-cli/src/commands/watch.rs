//! `status --watch`: the live screen, or one JSON line per change.

use mcpvisor::{Event, EventKind, EventsError, Runtime, ServerStatus};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::Output;
use crate::screen;
use crate::source::Source;

pub(super) async fn run(source: &Source, output: &Output) -> Result<Exit, Failure> {
    if !output.json() && !screen::possible() {
        return Err(Failure::usage(
            "--watch needs a terminal; without one, --watch --json prints one JSON line per change",
        ));
    }
    let config = source.read_to_start()?;
    fleet::warn(&config, output);
    let title = format!("mcpvisor  {}", source.path().display());
    fleet::with(config, async |runtime| {
        if output.json() {
            lines(runtime, output).await
        } else {
            screen::watch(runtime, &title).await
        }
    })
    .await
}

/// Every server once, then the server of every change, until nobody reads any more.
async fn lines(runtime: &Runtime, output: &Output) -> Result<Exit, Failure> {
    let mut events = runtime.events();
    if !all(runtime, output)? {
        return Ok(Exit::Ok);
    }
    loop {
        let read = match events.recv().await {
            Ok(event) => match changed(runtime, &event) {
                Some(status) => output.json_line(&status)?,
                None => true,
            },
            // What was missed is in the present state of all.
            Err(EventsError::Lagged(_)) => all(runtime, output)?,
            Err(_) => return Ok(Exit::Ok),
        };
        if !read {
            return Ok(Exit::Ok);
        }
    }
}

fn all(runtime: &Runtime, output: &Output) -> Result<bool, Failure> {
    let mut read = true;
    for status in runtime.status() {
        read &= output.json_line(&status)?;
    }
    Ok(read)
}

/// The status of the server that an event changed, with the state that the event tells: a quick
/// server may have another one by now, and that one has an event of its own.
fn changed(runtime: &Runtime, event: &Event) -> Option<ServerStatus> {
    let mut status = runtime
        .server(event.server.as_ref()?.as_str())
        .ok()?
        .status();
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
        EventKind::CatalogChanged { .. } | EventKind::ActorRestarted { .. } | EventKind::Added => {
            Some(status)
        }
        _ => None,
    }
}
