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
#[cfg(feature = "auth")]
mod oauth_credential;
#[cfg(feature = "auth")]
mod server_auth;
#[cfg(not(feature = "auth"))]
mod static_auth;
#[cfg(not(feature = "auth"))]
mod without_oauth;

pub(crate) use authorization::{Authorization, CredentialChange};
#[cfg(feature = "auth")]
pub use config::{AuthConfig, AuthGrant, IdentityProviderConfig};
#[cfg(feature = "auth")]
pub(crate) use lazy_store::LazyStore;
#[cfg(feature = "auth")]
pub use login::{Account, Accounts, LoginError, UnreadableLogin};
#[cfg(feature = "auth")]
pub(crate) use server_auth::ServerAuth;
#[cfg(not(feature = "auth"))]
pub(crate) use static_auth::ServerAuth;

#[cfg(not(feature = "auth"))]
pub(crate) use without_oauth::{
    Challenge, INVALID_PROOF, Nonce, PROOF_HEADER, RequestSigner, USE_NONCE,
};

/// The credential crate: its types appear in logins and accounts.
#[cfg(feature = "auth")]
pub use mcpvisor_auth;
#[cfg(feature = "auth")]
pub(crate) use mcpvisor_auth::challenge::Challenge;
#[cfg(feature = "auth")]
pub use mcpvisor_auth::dpop::binding::DpopMode;
#[cfg(feature = "auth")]
pub(crate) use mcpvisor_auth::dpop::{
    INVALID_PROOF, Nonce, PROOF_HEADER, RequestSigner, USE_NONCE,
};
#[cfg(feature = "auth")]
pub use mcpvisor_auth::store::StoreChoice;
