//! The transport to a server in this process, over typed channels and without JSON.
//!
//! The channels are unbounded: call admission bounds the messages to the server, and the server is
//! code of the same program, which can exhaust its memory anyway.

mod link;
#[cfg(feature = "in-process")]
mod rmcp_service;

pub use self::link::ServerEnd;
pub(crate) use self::link::{ChannelLink, ServeFn, serve_fn};
#[cfg(feature = "in-process")]
pub(crate) use self::rmcp_service::serve_made;

#[cfg(test)]
mod tests;
