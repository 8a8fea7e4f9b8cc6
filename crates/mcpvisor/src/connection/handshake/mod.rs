//! The handshake: finds out which era and version the server speaks and what it offers.
//!
//! [`Negotiation`](mcpvisor_core::Negotiation) decides what to send and what follows from a reply.
//! This module sends and receives: `server/discover` in the modern era, `initialize` and
//! `initialized` in the legacy era.

mod driver;
pub(super) mod error;
mod peer_info;
mod replies;

pub(super) use self::driver::{Negotiated, run};
