//! The config of a fleet: its servers, how each is reached and how it is supervised.
//!
//! These types only describe; the runtime acts on them.

#[cfg(feature = "config-files")]
mod file;
mod fleet_config;
mod location;
#[cfg(feature = "config-files")]
mod lookup;
mod problem;
#[cfg(feature = "config-files")]
mod redact_args;
#[cfg(feature = "diagnostics")]
mod render;
#[cfg(feature = "config-files")]
mod review;
mod server_config;
#[cfg(feature = "config-files")]
mod source;
#[cfg(feature = "config-files")]
#[cfg(test)]
pub(crate) mod test_folder;

#[cfg(feature = "config-files")]
pub use crate::state::trust::{Trust, TrustStore, Trusted};
#[cfg(feature = "config-files")]
pub use file::{
    Arguments, ConfigError, InvalidDuration, MAX_CONFIG_BYTES, MAX_DURATION, nearest_name,
    parse_duration, schema,
};
pub use fleet_config::Config;
pub use location::Location;
#[cfg(feature = "config-files")]
pub use lookup::{ConfigFolder, FoundConfig, UserFolders, candidates};
pub use problem::{ConfigProblem, Severity};
#[cfg(feature = "config-files")]
pub use review::{Fact, Review, ReviewedServer};
pub use server_config::{ResultCheck, ServerConfig, StartMode, ToolFilter};
#[cfg(feature = "config-files")]
pub use source::ConfigSource;
