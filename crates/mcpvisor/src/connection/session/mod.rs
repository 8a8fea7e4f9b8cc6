//! The session: sends requests and handles replies until the link goes down or the actor closes
//! the connection.
//!
//! Messages are handled in batches, so that a busy connection costs the actor one message per
//! batch.

mod batch;
mod client_settings;
mod event_loop;
mod input_rounds;
mod notifications;
pub(super) mod pending;
mod replies;
mod requests;
pub(super) mod server_requests;
mod session_check;

pub(crate) use self::client_settings::to_level;
pub(super) use self::event_loop::Session;
pub(super) use self::input_rounds::RequiredInput;
pub(crate) use self::input_rounds::collect_input;
