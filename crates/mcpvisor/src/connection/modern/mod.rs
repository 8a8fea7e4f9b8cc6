//! The protocol from 2026-07-28 on: no session, and metadata on every request.

pub(super) mod era_change;
pub(super) mod input_rounds;
pub(super) mod param_headers;
pub(super) mod requests;
pub(super) mod session;
pub(super) mod subscriptions;
