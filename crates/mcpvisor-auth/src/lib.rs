//! OAuth credentials for MCP clients.
//!
//! This crate finds the authorization server of an MCP server, registers a client, runs grants,
//! stores tokens, and refreshes them without losing one: one refresh per expired token, however many
//! callers and processes see it. It knows no MCP messages, no runtime and no terminal. Requests go
//! through the trait [`HttpClient`], which the embedding program implements.

mod access_token;
pub mod address;
pub mod callback;
pub mod challenge;
pub mod client;
pub mod config;
pub mod credential;
pub mod discovery;
pub mod dpop;
pub mod error;
#[cfg(test)]
mod fuzz;
pub mod grants;
pub mod http_client;
pub mod jwt;
pub mod listener;
pub mod login;
pub mod metadata;
pub mod pkce;
pub mod record;
pub mod registration;
pub mod renewal;
pub mod scopes;
pub mod secret;
pub mod store;
#[cfg(test)]
mod test_http;
#[cfg(test)]
mod test_store;
mod text;
pub mod token_endpoint;
pub mod url;

#[cfg(test)]
mod test_tokens;

pub use error::AuthError;
pub use http_client::HttpClient;
pub use secret::Secret;
