//! Misbehaving servers over Streamable HTTP and HTTP+SSE, and the guarantees that must still hold.
//!
//! Each guarantee has a control: rmcp's own client with the same server, or a server with a defect
//! that the check must detect. A control that passes would mean that the check is useless.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![expect(
    deprecated,
    reason = "log messages of the protocol's older eras, which servers still flood with"
)]

mod arena;
mod bare;
mod batches;
mod busy;
mod calls;
mod cancellation;
mod closing;
#[path = "../fleet/deadlines.rs"]
mod deadlines;
mod deaths;
mod draining;
mod era_cache;
mod era_change;
mod eras;
#[path = "../fleet/mod.rs"]
mod fleet;
mod floods;
mod harness;
mod header_reload;
mod http_sse;
#[cfg(target_os = "linux")]
mod idle_connections;
mod liveness;
mod modern;
mod nonsense;
mod oversize;
mod packets;
mod param_headers;
mod proxy_quirks;
mod redirects;
mod reply_limits;
mod reply_streams;
mod resumption;
mod reuse;
mod server_kit;
mod session_expiry;
mod sessions;
mod silence;
mod streams;
mod suspected_sessions;
mod tls;
mod transport_fallback;
#[cfg(unix)]
mod unix_socket;
