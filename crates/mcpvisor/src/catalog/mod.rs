//! What servers offer: snapshots of each, what callers see of it, and all of it together.
//!
//! Readers pay one pointer load. What is in a list is fetched by [`crate::server::internal_requests`]; when it is
//! published, the actor of its server says.

mod changes;
mod diff;
mod findings;
mod fleet;
mod merger;
mod server;
mod visibility;

pub use changes::CatalogChanges;
pub(crate) use changes::ChangeSignal;
pub use diff::ListDiff;
pub use findings::{Finding, FindingKind};
pub use fleet::{FleetCatalog, FleetTool, ServerView};
pub(crate) use merger::{CatalogMerger, ClientView};
pub(crate) use server::ListItems;
pub use server::ServerCatalog;
pub(crate) use visibility::{VisibilityRules, visible};
