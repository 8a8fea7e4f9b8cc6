//! What a server tells while a request runs: progress as a bar on a terminal, log messages dimmed,
//! both on stderr.

#![expect(
    deprecated,
    reason = "log messages are of the protocol's older eras, which servers still speak"
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

/// Reports of progress that wait to be shown; more are skipped, the next one says more anyway.
const BUFFER: usize = 64;

/// The bar counts in these, because a server may count in fractions.
const STEPS: f64 = 1_000.0;

/// A message beside the bar is cut here, in columns.
const MAX_MESSAGE: usize = 40;

/// A log message is cut here, in columns: it is a line, not a file.
const MAX_LOG: usize = 2_000;

/// The one bar on the terminal, which makes room for questions.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedBar(Arc<Mutex<Speech>>);

#[derive(Debug, Default)]
struct Speech {
    bar: Option<ProgressBar>,
    paused: bool,
}

impl SharedBar {
    /// Takes the bar away, and shows none until further notice.
    pub(crate) fn pause(&self) {
        self.end();
        self.speech().paused = true;
    }

    /// The next report of progress shows it again.
    pub(crate) fn resume(&self) {
        self.speech().paused = false;
    }

    fn end(&self) {
        if let Some(bar) = self.speech().bar.take() {
            bar.finish_and_clear();
        }
    }

    fn speech(&self) -> MutexGuard<'_, Speech> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows what happens while a request runs.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    bar: SharedBar,
    reports: mpsc::Receiver<ProgressNotificationParam>,
    events: Events,
}

impl Progress {
    /// The sink is for the request. Events are those of the runtime from now on.
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

    /// Waits for a request, and shows meanwhile what the server tells of it.
    pub(crate) async fn during<T>(mut self, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        let mut told = true;
        let result = loop {
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.report(&report),
                event = self.events.recv(), if told => match event {
                    Ok(event) => self.tell(&event),
                    Err(EventsError::Lagged(_)) => {}
                    Err(_) => told = false,
                },
                result = &mut request => break result,
            }
        };
        // What was said before the answer is shown before it.
        while let Ok(Some(event)) = self.events.try_recv() {
            self.tell(&event);
        }
        self.bar.end();
        result
    }

    fn report(&self, report: &ProgressNotificationParam) {
        if self.output.json() || !io::stderr().is_terminal() {
            return;
        }
        let mut speech = self.bar.speech();
        if speech.paused {
            return;
        }
        let bar = speech.bar.get_or_insert_with(bar);
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

    fn tell(&self, event: &Event) {
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
        match &self.bar.speech().bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

/// A log message as one harmless line, which begins with who says it: a server also chooses the name
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
    // The templates are ours, and good.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcpvisor::rmcp::model::LoggingLevel;

    #[test]
    fn a_log_message_is_one_harmless_line() {
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
    fn the_templates_of_the_bar_are_good() {
        for template in ["{bar:30} {percent:>3} %  {msg}", "{spinner} {msg}"] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
