//! Errors of the API.
//!
//! Each error names the server, says what is known about the request, and what to do next. Callers
//! decide about a retry by the variant, never by the text.

mod busy;
mod call;
mod control;
mod notify;
mod request_context;
mod start;

pub use self::busy::BusyLimit;
pub use self::call::{CallError, NotSentReason, SchemaProblem};
pub use self::control::{ControlError, UnknownServer, UnknownTool};
pub use self::notify::NotifyError;
pub(crate) use self::request_context::{Obstacle, RequestContext};
pub use self::start::{MissingDriver, NotReady, ServerNotReady, StartError};

/// Lists items in one text.
pub(crate) fn join(items: &[impl ToString], separator: &str) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(separator)
}
