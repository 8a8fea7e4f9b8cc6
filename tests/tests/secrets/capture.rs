//! Captures all log output, at every level and from every crate.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// One log line: an event, or the fields of a span.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) target: String,
    pub(crate) text: String,
}

/// Collects everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<Log>>>);

impl Capture {
    /// Takes what was logged so far.
    pub(crate) fn take(&self) -> Vec<Log> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn keep(&self, target: &str, fields: Fields) {
        self.0.lock().unwrap().push(Log {
            target: target.to_owned(),
            text: fields.0,
        });
    }
}

impl<S: Subscriber> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields(attributes.metadata().name().to_owned());
        attributes.record(&mut fields);
        self.keep(attributes.metadata().target(), fields);
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.keep("a span", fields);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.keep(event.metadata().target(), fields);
    }
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {field}={value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
