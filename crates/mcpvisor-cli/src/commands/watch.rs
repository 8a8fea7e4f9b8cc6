//! `status --watch`: the live screen, or one JSON line per change.

use std::collections::BTreeMap;
use std::time::Duration;

use mcpvisor::{Event, EventKind, EventsError, Runtime, ServerStatus};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::source::Source;
use crate::config::unusable_entry;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::output::hints;
use crate::output::{Output, stdout_closed};
use crate::screen;

/// How often the states are looked at for what no event tells.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn run(source: &Source, output: &Output) -> Result<Exit, Failure> {
    if !output.json() && !screen::is_available() {
        return Err(Failure::usage(
            "--watch needs a terminal; use --watch --json",
        ));
    }
    let config = source.read_to_start()?;
    fleet::warn(&config, output);
    let title = format!("mcpvisor  {}", source.path().display());
    let entries = config.clone();
    fleet::supervised(config, output, async |runtime| {
        if output.json() {
            for entry in unusable_entry::of(&entries) {
                output.json_line(&entry)?;
            }
            lines(runtime, output).await
        } else {
            screen::watch(runtime, &title, &unusable_entry::of(&entries)).await
        }
    })
    .await
}

/// Every server once, then the server of every change, until nobody reads any more.
async fn lines(runtime: &Runtime, output: &Output) -> Result<Exit, Failure> {
    let mut events = runtime.events();
    let mut lines = Lines {
        output,
        last: BTreeMap::new(),
    };
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stdout_closed = std::pin::pin!(stdout_closed());
    loop {
        let read = tokio::select! {
            biased;
            // A fleet at rest has nothing to write, so no write would notice it.
            () = &mut stdout_closed => false,
            // Events come first, so that no state is skipped and none is told too late.
            event = events.recv() => match event {
                Ok(event) => match changed(runtime, &event) {
                    Some(status) => lines.tell(&status)?,
                    None => true,
                },
                Err(EventsError::Lagged(_)) => true,
                Err(_) => return Ok(Exit::Ok),
            },
            // An event may come a moment before the status has it.
            _ = looks.tick() => lines.tell_all(&runtime.status())?,
        };
        if !read {
            return Ok(Exit::Ok);
        }
    }
}

/// What was told last of each server.
struct Lines<'o> {
    output: &'o Output,
    last: BTreeMap<String, Value>,
}

impl Lines<'_> {
    fn tell_all(&mut self, all: &[ServerStatus]) -> Result<bool, Failure> {
        let mut read = true;
        for status in all {
            read &= self.tell(status)?;
        }
        Ok(read)
    }

    /// Prints a status unless it says the same as the last one, and says whether someone reads.
    fn tell(&mut self, status: &ServerStatus) -> Result<bool, Failure> {
        let mut value =
            serde_json::to_value(status).map_err(|error| Failure::unexpected(error.to_string()))?;
        // What moves all the time is no change.
        for moving in ["since", "retry_in_ms", "in_flight"] {
            value[moving] = Value::Null;
        }
        let last = self.last.insert(status.name.to_string(), value.clone());
        if last.is_some_and(|last| last == value) {
            return Ok(true);
        }
        let mut status = status.clone();
        status.action = status.action.as_deref().map(hints::here);
        self.output.json_line(&status)
    }
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
