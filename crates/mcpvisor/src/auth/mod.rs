//! Authorization of HTTP servers: which credential a server uses, and how it is renewed.
//!
//! The protocol of OAuth, the token store and the refresh are in the crate `mcpvisor-auth`. The
//! machine decides when to renew and what happens to refused calls.

pub(crate) mod config;
pub(crate) mod headers_helper;
pub(crate) mod http_client;
pub(crate) mod lazy_store;
pub(crate) mod server_auth;

pub use config::{AuthConfig, AuthGrant, IdentityProviderConfig};
