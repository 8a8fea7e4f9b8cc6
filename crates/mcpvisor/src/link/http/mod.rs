//! The link to a server over Streamable HTTP.
//!
//! Each message is a separate HTTP request, answered by a body or an event stream. The task that
//! owns the link polls them all, on connections that belong to the link, so nothing outlives it.
//! The machine decides whether a session is replaced or a request retried; the link only reports
//! what happened.

mod context;
mod endpoint;
mod exchange;
#[cfg(test)]
mod fuzz;
mod headers;
mod link;
pub(crate) mod net;
mod no_proxy;
mod redirect;
mod refusal;
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
