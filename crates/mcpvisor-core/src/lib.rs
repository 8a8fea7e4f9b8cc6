//! The decisions of mcpvisor as pure values.
//!
//! Nothing here uses tokio, ractor or rmcp, reads a clock or generates random numbers: time and random
//! numbers are arguments, and effects are returned as data. The `mcpvisor` crate performs them.
//!
//! [`machine`] is the lifecycle of one server, [`policy`] has the rules that it applies, and [`text`] has
//! names and patterns.

pub mod ids;
pub mod machine;
pub mod policy;
pub mod random;
pub mod settings;
pub mod text;

pub use policy::*;
pub use text::*;

pub use admission::Priority;
pub use client_settings::{ClientSettings, LogSeverity};
pub use glob::{Filter, FilterRejection, Glob};
pub use governor::{ConnectKind, Governor, GovernorSettings};
pub use ids::{
    CallId, CallMap, ClientId, CredentialRevision, Generation, InvalidServerName,
    RESERVED_SERVER_NAME, ServerInstance, ServerName,
};
pub use keep_alive::KeepAlive;
pub use listing::{FetchOutcome, ListKind};
pub use machine::{Durable, Effect, Input, Machine, State, StateName};
pub use names::{MAX_EXPOSED_NAME, exposed_name, may_expose};
pub use negotiation::{Era, KnownEra, Negotiation};
pub use random::Random;
pub use retry::{Known, RequestFailure, RetryPolicy, Safety, ToolHints};
pub use session_evidence::SessionEvidence;
pub use settings::{InvalidSetting, ServerSettings};
pub use suspicion::Suspicion;
