//! Names and numbers that identify things across the runtime.
//!
//! They are newtypes, so that a generation is never confused with a call id.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bytes of the longest server name.
pub const MAX_SERVER_NAME: usize = 64;

/// The server name of the runtime's own tools; no configured server has it.
pub const RESERVED_SERVER_NAME: &str = "mcpvisor";

/// The name of a configured server, validated on construction.
///
/// ```
/// use mcpvisor_core::ServerName;
///
/// let name = ServerName::new("github")?;
/// assert_eq!(name.as_str(), "github");
/// assert!(ServerName::new("git__hub").is_err());
/// # Ok::<(), mcpvisor_core::InvalidServerName>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerName(Arc<str>);

/// Why a text cannot be a server name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidServerName {
    /// The name has no characters.
    #[error("a server name must not be empty")]
    Empty,
    /// The name is longer than [`MAX_SERVER_NAME`].
    #[error("the server name {0:?} is longer than 64 bytes; shorten it")]
    TooLong(String),
    /// The name contains `__`, which separates server and tool in exposed names.
    #[error(
        "the server name {0:?} contains \"__\", which separates server and tool; use \"-\" or a single \"_\""
    )]
    Separator(String),
    /// The name contains a control character.
    #[error("the server name {0:?} contains a control character; remove it")]
    Control(String),
    /// The name is [`RESERVED_SERVER_NAME`].
    #[error(
        "the server name {RESERVED_SERVER_NAME:?} is reserved for the runtime's own tools; rename the server"
    )]
    Reserved,
}

impl ServerName {
    /// Validates a name: not empty, at most [`MAX_SERVER_NAME`] bytes, no `__`, no control character, not
    /// [`RESERVED_SERVER_NAME`].
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidServerName> {
        let name = name.into();
        if name.is_empty() {
            Err(InvalidServerName::Empty)
        } else if name.len() > MAX_SERVER_NAME {
            Err(InvalidServerName::TooLong(name))
        } else if name.contains("__") {
            Err(InvalidServerName::Separator(name))
        } else if name.chars().any(char::is_control) {
            Err(InvalidServerName::Control(name))
        } else if name == RESERVED_SERVER_NAME {
            Err(InvalidServerName::Reserved)
        } else {
            Ok(Self(name.into()))
        }
    }

    /// The name of the runtime's own tools: [`RESERVED_SERVER_NAME`].
    pub fn reserved() -> Self {
        Self(RESERVED_SERVER_NAME.into())
    }

    /// The name of a config entry that cannot be used. It may break the rules of [`ServerName::new`],
    /// and never reaches a runtime.
    #[doc(hidden)]
    pub fn unchecked(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ServerName {
    type Error = InvalidServerName;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl TryFrom<&str> for ServerName {
    type Error = InvalidServerName;
    fn try_from(name: &str) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl From<ServerName> for String {
    fn from(name: ServerName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl AsRef<str> for ServerName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// One running instance of a server. Servers that are present at startup have instance 0; those added at
/// run time get increasing numbers, so that a name that was removed and added again is distinct.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerInstance {
    /// The configured server.
    pub server: ServerName,
    /// The number of the instance.
    pub instance: u32,
}

impl ServerInstance {
    /// The instance of a server that is present at startup.
    pub fn first(server: ServerName) -> Self {
        Self {
            server,
            instance: 0,
        }
    }
}

impl fmt::Display for ServerInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.instance == 0 {
            write!(f, "{}", self.server)
        } else {
            write!(f, "{}#{}", self.server, self.instance)
        }
    }
}

/// The number of one connection of a server, larger than that of every earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub struct Generation(u64);

impl Generation {
    /// Before the first connection.
    pub const NONE: Self = Self(0);

    /// The generation that follows this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The plain number, for JSON and logs.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Generation {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a token that this process used for a server; a larger one is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CredentialRevision(pub u64);

impl CredentialRevision {
    /// The request carried no renewable credential.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for CredentialRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One agent that shares the fleet. The queue of calls is fair between clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ClientId(pub u32);

impl ClientId {
    /// The client of calls through a plain server handle.
    pub const DEFAULT: Self = Self(0);
}

/// One request to one server. An id is never reused, so a late answer cannot reach another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A map keyed by call ids. The runtime assigns them in increasing order, so one multiplication spreads
/// them, and a server cannot choose them to collide.
pub type CallMap<V> = HashMap<CallId, V, BuildHasherDefault<CallHasher>>;

/// The hasher of [`CallMap`].
#[derive(Debug, Default, Clone, Copy)]
pub struct CallHasher(u64);

impl Hasher for CallHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_exposed_are_rejected_with_the_reason() {
        assert_eq!(ServerName::new(""), Err(InvalidServerName::Empty));
        assert_eq!(
            ServerName::new("a__b"),
            Err(InvalidServerName::Separator("a__b".into()))
        );
        assert_eq!(
            ServerName::new("a\nb"),
            Err(InvalidServerName::Control("a\nb".into()))
        );
        assert!(ServerName::new("x".repeat(65)).is_err());
        let reserved = ServerName::new("mcpvisor").unwrap_err();
        assert_eq!(
            reserved.to_string(),
            "the server name \"mcpvisor\" is reserved for the runtime's own tools; rename the server"
        );
        assert!(ServerName::new("mcpvisor2").is_ok());
        assert_eq!(ServerName::new("käse").unwrap().as_str(), "käse");
    }

    #[test]
    fn generations_only_grow() {
        let first = Generation::NONE.next();
        assert!(first > Generation::NONE);
        assert!(first.next() > first);
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;

    use super::*;

    /// `MCPVISOR_FUZZ_CASES` sets the number of cases: `just fuzz`.
    fn config() -> ProptestConfig {
        let cases = std::env::var("MCPVISOR_FUZZ_CASES").ok();
        let cases = cases.and_then(|cases| cases.parse().ok());
        ProptestConfig::with_cases(cases.unwrap_or(500))
    }

    proptest! {
        #![proptest_config(config())]

        /// Every name is accepted unchanged, or rejected for a reason that applies.
        #[test]
        fn names_are_checked_and_never_changed(name in prop_oneof![
            any::<String>(), "[a_\\PC\\x00-\\x1f]{0,6}", "[a_]{60,70}", "ä{30,35}", "mcpviso[qrs]",
        ]) {
            match ServerName::new(name.as_str()) {
                Ok(checked) => {
                    prop_assert_eq!(checked.as_str(), &name);
                    prop_assert!(!name.is_empty() && name.len() <= MAX_SERVER_NAME);
                    prop_assert!(!name.contains("__") && !name.contains(char::is_control));
                    prop_assert!(name != RESERVED_SERVER_NAME);
                }
                Err(InvalidServerName::Empty) => prop_assert!(name.is_empty()),
                Err(InvalidServerName::TooLong(rejected)) => {
                    prop_assert!(rejected == name && name.len() > MAX_SERVER_NAME);
                }
                Err(InvalidServerName::Separator(rejected)) => {
                    prop_assert!(rejected == name && name.contains("__"));
                }
                Err(InvalidServerName::Control(rejected)) => {
                    prop_assert!(rejected == name && name.contains(char::is_control));
                }
                Err(InvalidServerName::Reserved) => prop_assert_eq!(&name, RESERVED_SERVER_NAME),
            }
        }
    }
}
