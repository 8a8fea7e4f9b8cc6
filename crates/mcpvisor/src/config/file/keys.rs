//! The tables of keys: their names, value types and descriptions.
//!
//! The reader, the JSON Schema, the writer and the redaction of diagnostics all use these tables,
//! so that they know the same keys. Our own keys are in [`server`] and [`auth`], those of other
//! clients in [`foreign`].

mod auth;
mod foreign;
mod server;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::raw_entry::RawEntry;

pub(super) use auth::{AUTH, DPOP_MODES, GRANTS, OAUTH, STORES};
pub(super) use foreign::{EDITOR_COMMAND, FOREIGN, OLD_SPELLINGS};
pub(super) use server::{CONNECTS, SETTINGS, TRANSPORT};

/// Keys that hold the servers, in order of precedence: ours first, then those of other clients.
pub(super) const SERVERS: [&str; 5] = [
    "mcpServers",
    "mcp_servers",
    "servers",
    "context_servers",
    "mcp",
];

/// Other top-level keys.
pub(super) const DEFAULTS: &str = "defaults";
pub(super) const STATE_DIR: &str = "stateDir";
pub(super) const FLEET_CONNECTS: &str = "connects";
pub(super) const AUTH_STORE: &str = "authStore";

/// The top-level keys that are ours alone.
pub(super) const TOP: [&str; 4] = [DEFAULTS, STATE_DIR, FLEET_CONNECTS, AUTH_STORE];

/// Spellings of the transport types.
pub(super) const STDIO: [&str; 2] = ["stdio", "local"];
pub(super) const HTTP: [&str; 5] = [
    "http",
    "streamable-http",
    "streamable_http",
    "streamableHttp",
    "remote",
];
pub(super) const SSE: [&str; 1] = ["sse"];

/// Protocol versions that a server can be pinned to.
pub(super) const PROTOCOLS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
];

/// One key.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The description in the JSON Schema.
    pub(super) about: &'static str,
    /// Our name for another client's key; empty for our own keys.
    pub(super) means: &'static str,
    pub(super) kind: Kind,
}

/// A field of a raw entry.
pub(super) type At<T> = fn(&mut RawEntry) -> &mut T;

/// The least and the greatest value of a number.
pub(super) struct Bounds<N> {
    pub(super) least: N,
    pub(super) most: Option<N>,
}

const fn at_least<N: Copy>(least: N) -> Bounds<N> {
    Bounds { least, most: None }
}

const fn within<N: Copy>(least: N, most: N) -> Bounds<N> {
    let most = Some(most);
    Bounds { least, most }
}

/// The type of a value, and the field that it sets.
pub(super) enum Kind {
    Flag(At<bool>),
    MaybeFlag(At<Option<bool>>),
    Count(At<u32>),
    Size(Bounds<u64>, At<usize>),
    /// A size whose default depends on the machine.
    MaybeSize(Bounds<u64>, At<Option<usize>>),
    Number(Bounds<f64>, At<f64>),
    Duration(At<Duration>),
    MaybeDuration(At<Option<Duration>>),
    /// Strings that are shown, so no variable is expanded in them.
    Names(At<Vec<String>>),
    /// One such string.
    Name(At<Option<String>>),
    /// Strings in which variables are expanded.
    Texts(At<Vec<String>>),
    Text(At<Option<String>>),
    Env(At<Vec<(String, String)>>),
    Headers(At<Vec<(String, String)>>),
    /// Headers whose values are names of variables.
    EnvHeaders(At<Vec<(String, String)>>),
    Section(&'static [Key]),
    /// The same for authorization; other clients also write a word or a flag.
    Auth(&'static [Key]),
    /// One of these words.
    Choice(&'static [&'static str], At<Option<&'static str>>),
    /// Scopes: a list, or one string with spaces.
    Scopes(At<Option<Vec<String>>>),
    Port(At<Option<u16>>),
    /// A program and its arguments.
    CommandLine(At<Vec<String>>),
    Start,
    /// `"shared"` or `"client"`.
    Scope,
    Protocol,
    /// A program; in the files of other clients also a list that starts with it, or an object.
    Command,
    /// A number of seconds, in files of other clients.
    Seconds(fn(&mut RawEntry, Duration)),
    /// A number of milliseconds, in files of other clients.
    Millis(fn(&mut RawEntry, Duration)),
    /// A number that is seconds for some clients and milliseconds for others.
    Timeout,
    /// A feature that is not supported, with an alternative.
    Unsupported(&'static str),
    /// Has no effect here.
    Ignored,
}

impl Key {
    pub(super) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            name,
            about,
            means: "",
            kind,
        }
    }

    /// A key of another client whose feature is not supported, with an alternative.
    const fn unsupported(name: &'static str, instead: &'static str) -> Self {
        Self::alias(name, "", Kind::Unsupported(instead))
    }

    /// The keys of its section, if it is one.
    fn inner(&self) -> &'static [Self] {
        match self.kind {
            Kind::Section(keys) | Kind::Auth(keys) => keys,
            _ => &[],
        }
    }

    /// A key of another client for one of ours.
    pub(super) const fn alias(name: &'static str, means: &'static str, kind: Kind) -> Self {
        Self {
            name,
            about: "",
            means,
            kind,
        }
    }
}

/// The tables of keys of an entry.
pub(super) const ENTRY: [&[Key]; 4] = [TRANSPORT, SETTINGS, OLD_SPELLINGS, FOREIGN];

/// The tables of keys of `defaults`.
pub(super) const FLEET: [&[Key]; 2] = [SETTINGS, OLD_SPELLINGS];

/// Whether the values of a key are numbers or durations, which are safe to show.
pub(super) fn is_measure(key: &str) -> bool {
    static MEASURES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let keys = all().filter(|key| {
            matches!(
                key.kind,
                Kind::Count(_)
                    | Kind::Size(..)
                    | Kind::MaybeSize(..)
                    | Kind::Port(_)
                    | Kind::Number(..)
                    | Kind::Duration(_)
                    | Kind::MaybeDuration(_)
                    | Kind::Seconds(_)
                    | Kind::Millis(_)
                    | Kind::Timeout
            )
        });
        keys.map(|key| key.name).collect()
    });
    MEASURES.contains(key)
}

/// Whether a word is part of the config vocabulary, and so not a secret.
pub(super) fn is_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let choices = STDIO.iter().chain(&HTTP).chain(&SSE).chain(&PROTOCOLS);
        let choices = choices.chain(&SERVERS).chain(&GRANTS).chain(&STORES);
        let choices = choices.chain(&DPOP_MODES);
        let others = ["true", "false", "null", "eager", "lazy", "inputs"];
        all()
            .map(|key| key.name)
            .chain(choices.copied())
            .chain(others)
            .chain(TOP)
            .collect()
    });
    WORDS.contains(word)
}

/// All keys of all tables, including those of sections.
fn all() -> impl Iterator<Item = &'static Key> {
    let tables = ENTRY
        .iter()
        .copied()
        .chain([EDITOR_COMMAND, CONNECTS])
        .flatten();
    let mut pending: Vec<&'static Key> = tables.collect();
    std::iter::from_fn(move || {
        let key = pending.pop()?;
        pending.extend(key.inner());
        Some(key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_unique() {
        let names: Vec<_> = ENTRY
            .iter()
            .copied()
            .flatten()
            .map(|key| key.name)
            .collect();
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len(), "{names:?}");
    }

    #[test]
    fn every_alias_means_one_of_our_keys() {
        let mut ours = HashSet::new();
        for key in TRANSPORT.iter().chain(SETTINGS) {
            ours.insert(key.name.to_owned());
            let inner = key.inner().iter();
            ours.extend(inner.map(|inner| format!("{}.{}", key.name, inner.name)));
        }
        let aliases = OLD_SPELLINGS.iter().chain(FOREIGN).chain(OAUTH);
        for key in aliases.filter(|key| !key.means.is_empty()) {
            assert!(ours.contains(key.means), "{} means {}", key.name, key.means);
        }
    }

    #[test]
    fn the_versions_are_those_of_the_protocol_crate() {
        let known = rmcp::model::ProtocolVersion::KNOWN_VERSIONS;
        let known: Vec<_> = known.iter().map(|version| version.as_str()).collect();
        assert_eq!(known, PROTOCOLS);
    }
}
