//! Connections to the server: opening, reusing and closing them.
//!
//! What is sent on a connection is left to the exchanges.

mod coalescing_stream;
pub(crate) mod conn;
pub(crate) mod connect_error;
pub(crate) mod dial;
pub(crate) mod dns;
pub(crate) mod pool;
pub(crate) mod redial;
mod socket;
