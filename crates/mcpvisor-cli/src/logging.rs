//! Logs, on stderr.
//!
//! They repeat what servers say, so every field is made printable, and the part of rmcp's log that
//! shows whole messages is left out.

use std::fmt::{self, Debug};

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter::filter_fn};

use crate::output::{ColorMode, printable};

/// Starts logging: RUST_LOG if it is set, else by the number of `-v`.
pub(crate) fn start(verbose: u8) {
    let wished = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = EnvFilter::builder().parse_lossy(wish(&wished, verbose));
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_writer(std::io::stderr)
        .with_ansi(ColorMode::of_stderr() == ColorMode::Colored)
        // No directive, however it is written, gets around this one.
        .with_filter(filter_fn(may_be_shown));
    let subscriber = tracing_subscriber::registry().with(lines).with(filter);
    // Only fails if there is a subscriber already, and then that one logs.
    let _ = subscriber.try_init();
}

fn wish(wished: &str, verbose: u8) -> &str {
    if !wished.trim().is_empty() {
        return wished;
    }
    match verbose {
        0 => "error",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

/// Below warn, rmcp logs messages with all that is in them.
fn may_be_shown(what: &Metadata<'_>) -> bool {
    let of_rmcp = what.target().split("::").next() == Some("rmcp");
    !of_rmcp || *what.level() <= Level::WARN
}

/// One field, as a terminal may show it.
fn field(writer: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn Debug) -> fmt::Result {
    let value = printable(&format!("{value:?}"));
    match field.name() {
        "message" => write!(writer, "{value}"),
        name => write!(writer, "{name}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_sets_the_level_and_the_environment_wins() {
        assert_eq!(wish("", 0), "error");
        assert_eq!(wish(" ", 2), "debug");
        assert_eq!(wish("mcpvisor=trace", 1), "mcpvisor=trace");
    }

    #[test]
    fn what_rmcp_says_of_messages_cannot_be_switched_on() {
        let seen = Seen::default();
        let filter = EnvFilter::builder().parse_lossy("trace,rmcp=trace,[span]=trace");
        let layer = seen.clone().with_filter(filter_fn(may_be_shown));
        let subscriber = tracing_subscriber::registry().with(layer).with(filter);
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("span").entered();
            tracing::info!(target: "rmcp::service", "a message");
            tracing::trace!(target: "rmcp", "a message");
            tracing::warn!(target: "rmcp::service", "a warning");
            tracing::trace!(target: "rmcpvisor", "someone else");
        });
        assert_eq!(
            *seen.0.lock().unwrap(),
            [("rmcp::service", Level::WARN), ("rmcpvisor", Level::TRACE)]
        );
    }

    #[derive(Clone, Default)]
    struct Seen(std::sync::Arc<std::sync::Mutex<Vec<(&'static str, Level)>>>);

    impl<S: tracing::Subscriber> Layer<S> for Seen {
        fn on_event(
            &self,
            event: &tracing::Event<'_>,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            let what = event.metadata();
            self.0.lock().unwrap().push((what.target(), *what.level()));
        }
    }
}
