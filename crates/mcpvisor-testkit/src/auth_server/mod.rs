//! An OAuth authorization server with faults, and an MCP server that it protects, for tests.
//!
//! Both run in the test's own process, over real HTTP on loopback, on their own ports. A test
//! controls them while they serve: it injects faults, expires and revokes tokens, approves devices,
//! and reads what was requested and issued. Nothing here depends on `mcpvisor-auth`, so that its
//! tests are independent evidence. `mcpvisor-authserver` is the same pair as a program, for tests
//! in other processes.
//!
//! Signatures of proofs (DPoP) are verified; of other JWTs (client assertions, ID-JAGs) only the
//! claims are.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use mcpvisor_testkit::auth_server::{AuthFault, AuthServer, Endpoint, ProtectedServer};
//!
//! let auth = AuthServer::start().await;
//! let server = ProtectedServer::start(&auth).await;
//! auth.fault(AuthFault::Status(500)).times(2);
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! assert_eq!(auth.count(Endpoint::Token), 0);
//! # }
//! ```

mod authorize;
mod client;
mod client_auth;
mod control;
mod device;
mod endpoint;
mod fault;
mod fault_queue;
mod form;
mod grants;
mod jwt;
mod ledger;
mod metadata;
mod options;
mod page;
mod program;
mod proof;
mod protected;
mod record;
mod resource_guard;
mod server;
mod service;
mod token;

pub use client::{AuthMethod, Client};
pub use client_auth::ClientAuth;
pub use endpoint::Endpoint;
pub use fault::{AuthFault, list_auth_faults};
pub use fault_queue::AuthFaultBuilder;
pub use form::Form;
pub use ledger::{TokenInfo, TokenProblem, Tokens};
pub use options::{
    AuthOptions, AuthorizeMode, DpopRule, IssuerHost, MetadataLocation, NonceRule, RefreshPolicy,
    ResourceRule,
};
pub use program::main;
pub use protected::{ProtectedOptions, ProtectedServer, ResourceMetadataLocation};
pub use record::{AuthCounters, AuthRequest};
pub use server::AuthServer;
