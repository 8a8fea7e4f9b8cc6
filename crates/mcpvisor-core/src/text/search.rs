//! Ranked search over the tools of many servers.
//!
//! Each server has an [`Index`] of its own, so that a change of one server costs nothing elsewhere.
//! [`search`] ranks over any number of them as if they were one: BM25 with weighted fields, where
//! the frequencies of a term are added over the indexes. A document is a tool: its name, title,
//! parameter names and description.
//!
//! Texts of servers and queries are untrusted: what is read of them is bounded, and every text is
//! valid.

mod index;
mod query;
mod ranking;

pub use self::index::{Document, Index};
pub use self::query::{MAX_QUERY, MAX_QUERY_TERMS, Query};
pub use self::ranking::{EXACT_NAME, Hit, search};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
