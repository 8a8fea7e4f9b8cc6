//! The links to servers over HTTP: Streamable HTTP (`link`) and the older HTTP+SSE (`sse_link`).
//!
//! Each message is a separate HTTP request. Over Streamable HTTP it is answered by a body or an event
//! stream, over HTTP+SSE on the stream of the session. The task that owns the link polls them all, on
//! connections that belong to the link, so nothing outlives it. The machine decides whether a session
//! is replaced or a request retried; the link only reports what happened.

mod context;
mod endpoint;
mod exchange;
#[cfg(test)]
mod fuzz;
mod headers;
mod link;
pub(crate) mod net;
mod no_proxy;
mod parts;
mod redirect;
mod refusal;
mod sse_link;
pub(crate) mod target;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use self::context::HttpContext;
pub use self::endpoint::HttpEndpoint;
#[cfg(feature = "config-files")]
pub(crate) use self::endpoint::parts::EndpointParts;
pub(crate) use self::link::HttpLink;
#[doc(hidden)]
pub use self::net::dns::NameLookup;
pub(crate) use self::net::dns::Resolver;
pub(crate) use self::sse_link::SseLink;
