//! Prints every state change of a server.

use mcpvisor::{Event, EventKind, Events, EventsError, Runtime, StateName};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::narrator::Narrator;
use crate::screen::Tone;

/// A task that reads the runtime's events.
#[derive(Debug)]
pub(super) struct StateReporter {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl StateReporter {
    pub(super) fn start(runtime: &Runtime, narrator: Narrator) -> Self {
        let (finish, finished) = oneshot::channel();
        let task = tokio::spawn(report(runtime.events(), narrator, finished));
        Self { finish, task }
    }

    /// Prints the events so far, and stops.
    pub(super) async fn finish(self) {
        let _ = self.finish.send(());
        let _ = self.task.await;
    }
}

async fn report(mut events: Events, narrator: Narrator, mut finished: oneshot::Receiver<()>) {
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            // Events come first, so all queued ones are printed by now.
            _ = &mut finished => return,
        };
        match event {
            Ok(event) => tell(&narrator, &event),
            Err(EventsError::Lagged(_)) => {}
            Err(_) => return,
        }
    }
}

fn tell(narrator: &Narrator, event: &Event) {
    let EventKind::StateChanged { from, to, fault } = &event.kind else {
        return;
    };
    let mut text = format!("{from} → {to}");
    match (to, fault) {
        (StateName::Connected, _) => text.push_str(&format!(" (connection {})", event.generation)),
        (_, Some(fault)) => text.push_str(&format!(": {fault}")),
        (_, None) => {}
    }
    let server = event.server.as_ref().map_or("", |name| name.as_str());
    narrator.line(Tone::of_state(*to), server, &text);
}
