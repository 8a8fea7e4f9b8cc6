//! Reads a fleet from the config files that MCP clients share: JSON with comments, or TOML.
//!
//! An invalid entry excludes only its own server. [`json`] and [`toml`] parse the text into a
//! [`syntax_tree`], [`document`] finds its parts, [`keys`] has the tables of known keys, and
//! [`entry`] turns an entry into a server.

mod document;
mod duration;
mod encoding;
mod entry;
mod entry_reader;
mod error;
mod json;
mod keys;
mod load;
mod nearest;
mod raw_auth;
mod raw_entry;
mod redacted_excerpt;
mod schema;
mod syntax_tree;
mod to_json;
mod toml;
mod variables;

pub use duration::{InvalidDuration, MAX_DURATION, parse_duration};
pub(super) use encoding::text_of;
pub use error::ConfigError;
pub use load::MAX_CONFIG_BYTES;
pub use nearest::nearest_name;
pub use schema::schema;
pub use to_json::Arguments;

#[cfg(all(feature = "auth", feature = "stdio"))]
#[cfg(test)]
mod auth_tests;
#[cfg(all(feature = "diagnostics", feature = "stdio", feature = "http"))]
#[cfg(test)]
mod fuzz;
#[cfg(all(feature = "stdio", feature = "auth"))]
#[cfg(test)]
mod roundtrip;
#[cfg(all(feature = "stdio", feature = "http"))]
#[cfg(test)]
mod tests;
