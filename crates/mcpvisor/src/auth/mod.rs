//! Authorization of HTTP servers: which credential a server uses, and how it is renewed.
//!
//! Discovery, grants, the token store and the refresh are in the crate [`mcpvisor_auth`]. The machine
//! decides when to renew and what happens to refused calls.

mod authorization;
#[cfg(feature = "auth")]
mod config;
#[cfg(feature = "auth")]
mod headers_helper;
#[cfg(feature = "auth")]
mod helper_credential;
#[cfg(feature = "auth")]
mod http_client;
#[cfg(feature = "auth")]
mod lazy_store;
#[cfg(feature = "auth")]
mod login;
mod server_auth;

pub(crate) use authorization::{Authorization, Challenge};
#[cfg(feature = "auth")]
pub use config::{AuthConfig, AuthGrant, IdentityProviderConfig};
#[cfg(feature = "auth")]
pub(crate) use lazy_store::LazyStore;
#[cfg(feature = "auth")]
pub use login::{Account, Accounts, LoginError, UnreadableLogin};
pub(crate) use server_auth::{CredentialChange, ServerAuth};

/// The credential crate: its types appear in logins and accounts.
#[cfg(feature = "auth")]
pub use mcpvisor_auth;
#[cfg(feature = "auth")]
pub use mcpvisor_auth::store::StoreChoice;
