//! The API for embedding programs: the runtime, its handles and clients, requests, errors, events.

pub(crate) mod agent;
pub(crate) mod callbacks;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod handle;
pub(crate) mod meta_tools;
pub(crate) mod notifications;
pub(crate) mod quota;
pub(crate) mod raw;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod runtime;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod transport;
