//! One connection to one server, as a stream of messages in each direction.
//!
//! A link transports messages (over the pipes of a child, HTTP, a stream of the embedding program, or
//! channels to a task), preserves
//! their order, bounds its buffers and reports why it ended. The meaning of messages, pending calls
//! and reconnects belong to the connection task. Each transport implements [`Link`].

#![cfg_attr(
    all(feature = "stdio", not(feature = "http")),
    allow(dead_code, reason = "the HTTP link uses everything that links share")
)]

#[cfg(any(feature = "stream", feature = "http"))]
pub(crate) mod codec;
#[cfg(any(feature = "stream", feature = "http"))]
mod cpu_quota;
mod failure;
#[cfg(any(feature = "stream", feature = "http"))]
mod flood_gate;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod in_process;
mod inbound;
pub(crate) mod limits;
#[cfg(feature = "stream")]
mod lines;
mod outgoing;
mod pending_requests;
mod stderr_ring;
#[cfg(feature = "stdio")]
pub(crate) mod stdio;
#[cfg(feature = "stream")]
pub(crate) mod stream;
mod transport_link;

pub(crate) use self::failure::{DownKind, LinkDown, OpenFailure, OpenFailureClass};
pub(crate) use self::inbound::{FailedRequest, Inbound, RejectReason};
pub(crate) use self::outgoing::{
    RequestHeaders, TASK_RESULT, TaskParam, may_call_back, request_id,
};
pub(crate) use self::pending_requests::{PendingRequests, PendingSnapshot, ReplyKind};
pub(crate) use self::stderr_ring::StderrRing;
pub(crate) use self::transport_link::Link;

/// In the arguments, the variables and the folder of a command, the name of the client that a connection
/// belongs to.
#[cfg(any(feature = "stdio", feature = "config-files"))]
pub(crate) const CLIENT_PLACEHOLDER: &str = "${MCPVISOR_CLIENT}";
