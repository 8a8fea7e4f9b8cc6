//! The protocol from 2026-07-28 on: no session, and metadata on every request.

mod era_change;
mod header_mismatch;
mod listen_request;
mod param_headers;
mod requests;
pub(super) mod session;
mod subscriptions;
