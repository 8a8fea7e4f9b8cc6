//! Progress and log messages of a server during a request, on stderr.

#![expect(
    deprecated,
    reason = "log messages belong to older protocol versions that servers still use"
)]

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mcpvisor::rmcp::model::{LoggingMessageNotificationParam, ProgressNotificationParam};
use mcpvisor::{Event, EventKind, Events, EventsError};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::output::{Output, TextFormat, cut, hanging_indent, paint, printable};

/// Queued progress reports; further ones are dropped, since the next one replaces them.
const BUFFER: usize = 64;

/// Steps of the bar; servers may report fractions.
const STEPS: f64 = 1_000.0;

/// Columns of the message beside the bar.
const MAX_MESSAGE: usize = 40;

/// Columns of a log message.
const MAX_LOG: usize = 2_000;

/// The one progress bar, which is hidden while a question is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedBar(Arc<Mutex<BarState>>);

#[derive(Debug, Default)]
struct BarState {
    bar: Option<ProgressBar>,
    paused: bool,
}

impl SharedBar {
    /// Hides the bar until it is resumed.
    pub(crate) fn pause(&self) {
        self.clear();
        self.state().paused = true;
    }

    /// The next progress report shows the bar again.
    pub(crate) fn resume(&self) {
        self.state().paused = false;
    }

    fn clear(&self) {
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, BarState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows progress and log messages while a request runs.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    bar: SharedBar,
    reports: mpsc::Receiver<ProgressNotificationParam>,
    events: Events,
}

impl Progress {
    /// The sender is for the request. Events are those of the runtime from now on.
    pub(crate) fn new(
        output: &Output,
        bar: &SharedBar,
        events: Events,
    ) -> (Self, mpsc::Sender<ProgressNotificationParam>) {
        let (sink, reports) = mpsc::channel(BUFFER);
        let progress = Self {
            output: *output,
            bar: bar.clone(),
            reports,
            events,
        };
        (progress, sink)
    }

    /// Waits for a request, and shows its progress and log messages.
    pub(crate) async fn during<T>(mut self, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        let mut events_open = true;
        let result = loop {
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.show_progress(&report),
                event = self.events.recv(), if events_open => match event {
                    Ok(event) => self.show_log(&event),
                    Err(EventsError::Lagged(_)) => {}
                    Err(_) => events_open = false,
                },
                result = &mut request => break result,
            }
        };
        // Messages that came before the answer are shown before it.
        while let Ok(Some(event)) = self.events.try_recv() {
            self.show_log(&event);
        }
        self.bar.clear();
        result
    }

    fn show_progress(&self, report: &ProgressNotificationParam) {
        if self.output.json() || !io::stderr().is_terminal() {
            return;
        }
        let mut state = self.bar.state();
        if state.paused {
            return;
        }
        let bar = state.bar.get_or_insert_with(bar);
        match report.total.filter(|total| *total > 0.0) {
            Some(total) => {
                let share = (report.progress / total).clamp(0.0, 1.0);
                bar.set_length(STEPS as u64);
                bar.set_style(style("{bar:30} {percent:>3} %  {msg}"));
                bar.set_position((share * STEPS) as u64);
            }
            None => bar.set_style(style("{spinner} {msg}")),
        }
        let counted = match report.total {
            Some(total) => format!("{} of {total}", report.progress),
            None => report.progress.to_string(),
        };
        let message = report.message.as_deref().unwrap_or(&counted);
        bar.set_message(cut(&printable(message), MAX_MESSAGE));
    }

    fn show_log(&self, event: &Event) {
        let EventKind::Log(log) = &event.kind else {
            return;
        };
        let server = event.server.as_ref().map_or("", |server| server.as_str());
        let line = line(server, log);
        if self.output.json() {
            tracing::info!("{line}");
            return;
        }
        let screen = TextFormat::of_stderr();
        let line = paint(screen.color, "2", &hanging_indent(&line, screen));
        let write = || {
            let _ = writeln!(io::stderr(), "{line}");
        };
        match &self.bar.state().bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

/// A log message as one printable line. It starts with the server, because a server chooses the name
/// of its logger.
fn line(server: &str, log: &LoggingMessageNotificationParam) -> String {
    let text = match &log.data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let level = format!("{:?}", log.level).to_lowercase();
    let logger = log
        .logger
        .as_deref()
        .map_or(String::new(), |logger| format!("{logger}: "));
    let line = format!("{server}: [{level}] {logger}{text}");
    cut(&printable(&line), MAX_LOG)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants, and tested.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcpvisor::rmcp::model::LoggingLevel;

    #[test]
    fn a_log_message_is_one_printable_line() {
        let mut log = LoggingMessageNotificationParam::new(
            LoggingLevel::Warning,
            Value::String("two\nlines\u{1b}[2J".to_owned()),
        );
        assert_eq!(line("shop", &log), "shop: [warning] two\\nlines\\u{1b}[2J");
        log.logger = Some("db".to_owned());
        log.data = serde_json::json!({ "rows": 3 });
        assert_eq!(line("shop", &log), "shop: [warning] db: {\"rows\":3}");
    }

    #[test]
    fn the_templates_of_the_bar_are_valid() {
        for template in ["{bar:30} {percent:>3} %  {msg}", "{spinner} {msg}"] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
