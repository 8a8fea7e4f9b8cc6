//! Logs to stderr.
//!
//! Log fields may contain text of servers, so every field is made printable. The part of rmcp's log
//! that prints whole messages is filtered out.

use std::fmt::{self, Debug};

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, filter::filter_fn};

use crate::output::{ColorMode, printable};

/// Starts logging at the level of `RUST_LOG`, else of the number of `-v`.
pub(crate) fn start(verbose: u8) {
    let rust_log = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = EnvFilter::builder().parse_lossy(directives(&rust_log, verbose));
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_writer(std::io::stderr)
        .with_ansi(ColorMode::of_stderr() == ColorMode::Colored)
        // No directive can override this filter.
        .with_filter(filter_fn(may_be_shown));
    let subscriber = tracing_subscriber::registry().with(lines).with(filter);
    // Fails only if a subscriber exists already.
    let _ = subscriber.try_init();
}

fn directives(rust_log: &str, verbose: u8) -> &str {
    if !rust_log.trim().is_empty() {
        return rust_log;
    }
    match verbose {
        // Others could read stored logins: the user has to know.
        0 => "error,mcpvisor_auth::store=warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

/// Below warn, rmcp logs whole messages, which may contain secrets.
fn may_be_shown(event: &Metadata<'_>) -> bool {
    let of_rmcp = event.target().split("::").next() == Some("rmcp");
    !of_rmcp || *event.level() <= Level::WARN
}

/// Formats one field, safe for a terminal.
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
        assert_eq!(directives("", 0), "error,mcpvisor_auth::store=warn");
        assert_eq!(directives(" ", 2), "debug");
        assert_eq!(directives("mcpvisor=trace", 1), "mcpvisor=trace");
    }

    #[test]
    fn message_logs_of_rmcp_cannot_be_enabled() {
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
