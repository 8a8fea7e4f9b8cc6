//! One connection to a server: a task that owns the transport, does the handshake and runs the
//! session.
//!
//! The connection decides nothing about retries or reconnects: it returns unanswered calls to the
//! actor.

mod era;
mod faults;
mod handle;
mod handshake;
#[cfg(feature = "http")]
mod http_connect;
mod modern;
mod session;
mod task;

pub(crate) use self::handle::{Command, ConnectionHandle, InternalRequestSender};
pub(crate) use self::session::pending::{InternalFailure, InternalReply};
pub(crate) use self::session::{collect_input, to_level};
pub(crate) use self::task::spawn;
