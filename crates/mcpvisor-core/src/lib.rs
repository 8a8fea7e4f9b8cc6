//! The decisions of mcpvisor, as pure values.
//!
//! Nothing here knows tokio, ractor or rmcp, reads a clock or rolls dice: time and chance enter as
//! arguments, what should happen leaves as data. The `mcpvisor` crate performs it.

pub mod admission;
pub mod backoff;
pub mod budget;
pub mod chance;
pub mod discovery;
pub mod era;
pub mod glob;
pub mod governor;
pub mod health;
pub mod ids;
pub mod keep_alive;
pub mod machine;
pub mod names;
pub mod open_calls;
pub mod retry;
pub mod session;
pub mod settings;
pub mod suspicion;

pub use admission::{Admission, Entry, Priority};
pub use backoff::Backoff;
pub use budget::{ReconnectBudget, Verdict};
pub use chance::Chance;
pub use discovery::{Discovery, FetchOutcome, ListKind};
pub use era::{Era, KnownEra, Negotiation};
pub use glob::{Filter, Glob, Hidden};
pub use governor::{ConnectKind, Governor, GovernorSettings};
pub use health::Health;
pub use ids::{CallId, CallMap, ClientId, Generation, InvalidServerName, ServerName, Slot};
pub use keep_alive::KeepAlive;
pub use machine::{Durable, Effect, Input, Machine, State, StateName};
pub use names::{MAX_EXPOSED_NAME, exposed_name, may_expose};
pub use retry::{Decision, Known, RetryWish, Ruling, Safety, Trouble};
pub use session::Evidence;
pub use settings::{InvalidSetting, ServerSettings};
pub use suspicion::Suspicion;
