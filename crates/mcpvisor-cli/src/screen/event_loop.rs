//! The event loop of the screen: events and keys go to [`super::model`], which is drawn at intervals.
//!
//! Latency is measured with pings to each connected server; in the demo, with the agents' calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mcpvisor::{Event, EventKind, Known, Runtime, ServerStatus, StateName};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::keys::Key;
use super::model::{Mode, Model, ScreenCommand, StoryLine, Tone};
use super::terminal::TerminalGuard;
use super::view;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{ColorMode, server_notes};

/// The time between frames; countdowns need redraws.
const FRAME: Duration = Duration::from_millis(100);

/// How often a server is pinged, and the timeout of a ping.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Queued keys and updates; further ones are dropped.
const QUEUE: usize = 1_024;

/// How often the key thread checks whether to stop.
const KEY_POLL: Duration = Duration::from_millis(50);

/// An update of the screen by the demo.
#[derive(Debug)]
pub(crate) enum ScreenUpdate {
    Line(StoryLine),
    Measured {
        server: String,
        took: Option<Duration>,
    },
}

/// Sends updates to a screen. If the queue is full they are dropped, so the demo never waits.
#[derive(Debug, Clone)]
pub(crate) struct UpdateSender(mpsc::Sender<ScreenUpdate>);

impl UpdateSender {
    pub(crate) fn new() -> (Self, mpsc::Receiver<ScreenUpdate>) {
        let (sender, updates) = mpsc::channel(QUEUE);
        (Self(sender), updates)
    }

    pub(crate) fn send(&self, update: ScreenUpdate) {
        let _ = self.0.try_send(update);
    }
}

/// A screen on the terminal of this process. Dropping it restores the terminal.
pub(crate) struct LiveScreen {
    model: Model,
    /// Before the guard, so that it is dropped first.
    keys: Keys,
    guard: TerminalGuard,
    color: ColorMode,
    started: Instant,
    runtime: Runtime,
    story: Option<mpsc::Receiver<ScreenUpdate>>,
    pings: JoinSet<(String, Option<Duration>)>,
    pinged: BTreeSet<String>,
    /// Config entries that cannot be used, which the runtime does not know.
    unusable: Vec<ServerStatus>,
    commands: JoinSet<String>,
}

/// Watches a fleet until the user quits.
pub(crate) async fn watch(
    runtime: &Runtime,
    title: &str,
    unusable: &[ServerStatus],
) -> Result<Exit, Failure> {
    let mut live = LiveScreen::open(runtime, title, None)?;
    live.unusable = unusable.to_vec();
    live.run().await
}

impl LiveScreen {
    /// Takes over the terminal. With a story, keys cannot change the fleet.
    pub(crate) fn open(
        runtime: &Runtime,
        title: &str,
        story: Option<mpsc::Receiver<ScreenUpdate>>,
    ) -> Result<Self, Failure> {
        let has_story = story.is_some();
        Ok(Self {
            model: Model::new(title, !has_story, has_story),
            // Before the keys, which are read in raw mode.
            guard: TerminalGuard::acquire()?,
            keys: Keys::read(),
            color: ColorMode::of_stdout(),
            started: Instant::now(),
            runtime: runtime.clone(),
            story,
            pings: JoinSet::new(),
            pinged: BTreeSet::new(),
            unusable: Vec::new(),
            commands: JoinSet::new(),
        })
    }

    /// Runs until the user quits.
    pub(crate) async fn run(&mut self) -> Result<Exit, Failure> {
        let mut events = self.runtime.events();
        let mut frames = interval(FRAME);
        let mut pings = interval(PING_EVERY);
        for interval in [&mut frames, &mut pings] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut events_open = true;
        loop {
            tokio::select! {
                _ = frames.tick() => self.draw()?,
                Some(key) = self.keys.pressed.recv() => {
                    match self.model.key(key) {
                        Some(ScreenCommand::Quit { interrupted: false }) => return Ok(Exit::Ok),
                        Some(ScreenCommand::Quit { interrupted: true }) => return Err(Failure::interrupted()),
                        Some(command) => self.command(command),
                        None => {}
                    }
                    self.draw()?;
                }
                event = events.recv(), if events_open && self.story.is_none() => match event {
                    Ok(event) => self.add_event(&event),
                    Err(mcpvisor::EventsError::Lagged(_)) => {}
                    Err(_) => events_open = false,
                },
                Some(update) = next(&mut self.story) => match update {
                    ScreenUpdate::Line(line) => self.model.add_line(line),
                    ScreenUpdate::Measured { server, took } => self.model.add_sample(&server, took),
                },
                _ = pings.tick(), if self.story.is_none() => self.ping(),
                Some(Ok((server, took))) = self.pings.join_next() => {
                    self.pinged.remove(&server);
                    self.model.add_sample(&server, took);
                }
                Some(Ok(message)) = self.commands.join_next() => self.model.message = message,
            }
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        #[cfg(debug_assertions)]
        panic_for_test();
        let mut rows = self.runtime.status();
        rows.extend(self.unusable.iter().cloned());
        self.model.set_rows(rows);
        if self.model.mode == Mode::Detail {
            self.load_detail();
        }
        let (model, color, now) = (&self.model, self.color, Instant::now());
        let drawn = self
            .guard
            .terminal
            .draw(|frame| view::draw(frame, model, color, now));
        drawn.map_err(|error| Failure::unexpected(format!("cannot draw: {error}")))?;
        Ok(())
    }

    /// Loads what the detail view shows beyond the status.
    fn load_detail(&mut self) {
        let row = self.model.current().cloned();
        let Some(server) = row
            .as_ref()
            .and_then(|row| self.runtime.server(row.name.as_str()).ok())
        else {
            return;
        };
        let catalog = server.catalog();
        self.model.tools = catalog
            .tools
            .iter()
            .map(|tool| tool.name.to_string())
            .collect();
        // The handle is that of the first instance.
        let is_first = row.is_some_and(|row| row.instance == server.status().instance);
        self.model.stderr = match is_first {
            true => server.stderr_tail(),
            false => String::new(),
        };
    }

    fn add_event(&mut self, event: &Event) {
        if let Some((tone, text)) = describe(event) {
            self.model.add_line(StoryLine {
                at: self.started.elapsed(),
                who: server_notes::event_source(event),
                text,
                tone,
            });
        }
    }

    /// Runs a command in a task, because closing a server takes time.
    fn command(&mut self, command: ScreenCommand) {
        let runtime = self.runtime.clone();
        self.commands.spawn(async move {
            let (done, name, result) = match command {
                ScreenCommand::Reconnect(name) => {
                    let result = runtime.reconnect(&name).await;
                    ("reconnecting", name, result)
                }
                ScreenCommand::Enable(name) => {
                    let result = runtime.enable(&name).await;
                    ("enabled", name, result)
                }
                ScreenCommand::Disable(name) => {
                    let result = runtime.disable(&name).await;
                    ("disabled", name, result)
                }
                ScreenCommand::Quit { .. } => return String::new(),
            };
            match result {
                Ok(()) => format!("{name}: {done}"),
                Err(error) => error.to_string(),
            }
        });
    }

    /// Pings every connected server that is not being pinged already.
    fn ping(&mut self) {
        for status in self.runtime.status() {
            let name = status.name.to_string();
            if status.state != StateName::Connected || self.pinged.contains(&name) {
                continue;
            }
            let Ok(server) = self.runtime.server(&name) else {
                continue;
            };
            self.pinged.insert(name.clone());
            self.pings.spawn(async move {
                let begun = Instant::now();
                let answered = match server.ping().deadline(PING_TIMEOUT).await {
                    Ok(()) => true,
                    // An error reply to an unknown method has the same latency.
                    Err(error) => error.known() == Known::Answered,
                };
                (name, answered.then(|| begun.elapsed()))
            });
        }
    }
}

async fn next(story: &mut Option<mpsc::Receiver<ScreenUpdate>>) -> Option<ScreenUpdate> {
    match story {
        Some(news) => news.recv().await,
        None => std::future::pending().await,
    }
}

/// For the test that a panic restores the terminal.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "a test needs it")]
fn panic_for_test() {
    if std::env::var_os("MCPVISOR_PANIC_SCREEN").is_some() {
        panic!("MCPVISOR_PANIC_SCREEN is set");
    }
}

/// An event as a line, if it is shown.
fn describe(event: &Event) -> Option<(Tone, String)> {
    Some(match &event.kind {
        EventKind::StateChanged { from, to, fault } => {
            // A failed attempt has its own event.
            let lost = matches!(from, StateName::Connected | StateName::Disabling);
            let fault = fault.as_ref().filter(|_| lost);
            let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
            let text = format!("{from} → {to} (connection {}){fault}", event.generation);
            (Tone::of_state(*to), text)
        }
        EventKind::AttemptFailed {
            attempt,
            fault,
            retry_in,
        } => {
            let next = retry_in.map_or_else(String::new, |wait| {
                format!("; next in {:.1} s", wait.as_secs_f64())
            });
            (
                Tone::Bad,
                format!("attempt {attempt} failed: {fault}{next}"),
            )
        }
        EventKind::CatalogChanged { list, diff, .. } => {
            let counts = [
                ("new", &diff.added),
                ("removed", &diff.removed),
                ("changed", &diff.changed),
            ];
            let counts = counts.iter().filter(|(_, names)| !names.is_empty());
            let counts: Vec<String> = counts
                .map(|(what, names)| format!("{} {what}", names.len()))
                .collect();
            (
                Tone::Plain,
                format!("{list:?}: {}", counts.join(", ")).to_lowercase(),
            )
        }
        EventKind::ActorRestarted { problem } => (Tone::Bad, format!("actor restarted: {problem}")),
        EventKind::LoginUnsaved(unsaved) => {
            let text = format!("the renewed login could not be saved: {}", unsaved.problem);
            (Tone::Bad, text)
        }
        EventKind::LoginSaved => (Tone::Good, "the login is saved".to_owned()),
        EventKind::Added | EventKind::InstanceAdded => (Tone::Plain, "added".to_owned()),
        EventKind::Removed | EventKind::InstanceRemoved => (Tone::Plain, "removed".to_owned()),
        _ => return None,
    })
}

/// The thread that reads keys. Dropping this stops it.
struct Keys {
    pressed: mpsc::Receiver<Key>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    fn read() -> Self {
        let (sender, pressed) = mpsc::channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match crossterm::event::poll(KEY_POLL) {
                    Ok(false) => {}
                    Ok(true) => {
                        let Ok(event) = crossterm::event::read() else {
                            return;
                        };
                        if let Some(key) = Key::of(&event) {
                            let _ = sender.try_send(key);
                        }
                    }
                    // The terminal is gone; its SIGHUP ends the process.
                    Err(_) => return,
                }
            }
        });
        Self {
            pressed,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It must not read after the terminal is restored.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
