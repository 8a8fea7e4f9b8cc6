//! Catalogs: immutable snapshots of the tools, prompts and resources of each server and of the
//! fleet.
//!
//! A read costs one pointer load. The server's actor fetches the lists and decides when they are
//! published.

mod changes;
mod client_view;
mod diff;
mod findings;
mod fleet;
mod merger;
mod search;
mod server;
pub(crate) mod task_support;
mod visibility;

pub use changes::CatalogChanges;
pub(crate) use changes::ChangeSignal;
pub(crate) use client_view::ClientView;
pub use diff::ListDiff;
pub use findings::{Finding, FindingKind};
pub use fleet::{FleetCatalog, FleetTool, ServerView};
pub(crate) use merger::CatalogMerger;
pub use search::ToolMatch;
pub use server::ServerCatalog;
pub(crate) use server::{Audience, ListItems};
pub use task_support::TaskSupport;
pub(crate) use visibility::visible_catalog;
