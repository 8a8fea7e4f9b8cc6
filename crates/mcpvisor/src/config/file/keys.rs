//! Every key that a config may have: its name, what it means, and where its value goes.
//!
//! The reader, the JSON Schema, the written form of a config and the words that a diagnostic may
//! show are all made from these tables, so that none of them knows a key that the others do not.

mod foreign;
mod server;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::raw_entry::RawEntry;

pub(super) use foreign::{EDITOR_COMMAND, FOREIGN, OLD_SPELLINGS};
pub(super) use server::{CONNECTS, SETTINGS, TRANSPORT};

/// Where other clients put their servers, ours first. The first that is there counts.
pub(super) const SERVERS: [&str; 5] = [
    "mcpServers",
    "mcp_servers",
    "servers",
    "context_servers",
    "mcp",
];

/// What else may stand at the top.
pub(super) const DEFAULTS: &str = "defaults";
pub(super) const STATE_DIR: &str = "stateDir";
pub(super) const FLEET_CONNECTS: &str = "connects";

/// The types of transport, as they are spelled.
pub(super) const STDIO: [&str; 2] = ["stdio", "local"];
pub(super) const HTTP: [&str; 5] = [
    "http",
    "streamable-http",
    "streamable_http",
    "streamableHttp",
    "remote",
];

/// Versions of the protocol that can be asked for.
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
    /// What the JSON Schema says about it.
    pub(super) about: &'static str,
    /// The key of ours that another client's key means; empty for ours.
    pub(super) means: &'static str,
    pub(super) kind: Kind,
}

/// A part of a raw.
pub(super) type At<T> = fn(&mut RawEntry) -> &mut T;

/// What a value has to be, and where it goes.
pub(super) enum Kind {
    Flag(At<bool>),
    MaybeFlag(At<Option<bool>>),
    Count(At<u32>),
    Size {
        least: u64,
        most: Option<u64>,
        at: At<usize>,
    },
    /// A size whose default depends on the machine.
    MaybeSize {
        least: u64,
        most: u64,
        at: At<Option<usize>>,
    },
    Number {
        least: f64,
        most: Option<f64>,
        at: At<f64>,
    },
    Duration(At<Duration>),
    MaybeDuration(At<Option<Duration>>),
    /// Texts that are shown, so that no variable is replaced in them.
    Names(At<Vec<String>>),
    /// One such text.
    Name(At<Option<String>>),
    /// Texts in which variables are replaced.
    Texts(At<Vec<String>>),
    Text(At<Option<String>>),
    Env(At<Vec<(String, String)>>),
    Headers(At<Vec<(String, String)>>),
    /// Headers whose values are names of variables.
    EnvHeaders(At<Vec<(String, String)>>),
    Section(&'static [Key]),
    Start,
    Protocol,
    /// A program; or, as others write it, a list that begins with it, or an object that holds it.
    Command,
    /// A number of seconds, as another client writes it.
    Seconds(fn(&mut RawEntry, Duration)),
    /// A number of milliseconds, as another client writes it.
    Millis(fn(&mut RawEntry, Duration)),
    /// A number that some clients mean in seconds, and some in milliseconds.
    Timeout,
    /// Means something that is not done; says what to do instead.
    Unsupported(&'static str),
    /// Means nothing here.
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

/// The tables in which the keys of an entry are looked for.
pub(super) const ENTRY: [&[Key]; 4] = [TRANSPORT, SETTINGS, OLD_SPELLINGS, FOREIGN];

/// The tables in which the keys of `defaults` are looked for.
pub(super) const FLEET: [&[Key]; 2] = [SETTINGS, OLD_SPELLINGS];

/// Whether the values of a key are numbers or durations of ours.
pub(super) fn is_measure(key: &str) -> bool {
    static MEASURES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let keys = all().filter(|key| {
            matches!(
                key.kind,
                Kind::Count(_)
                    | Kind::Size { .. }
                    | Kind::MaybeSize { .. }
                    | Kind::Number { .. }
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

/// Whether configs are made of this word, so that it is nobody's secret.
pub(super) fn is_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let choices = STDIO.iter().chain(&HTTP).chain(&PROTOCOLS).chain(&SERVERS);
        let others = ["true", "false", "null", "eager", "lazy", "sse", "inputs"];
        let top = [DEFAULTS, STATE_DIR, FLEET_CONNECTS];
        all()
            .map(|key| key.name)
            .chain(choices.copied())
            .chain(others)
            .chain(top)
            .collect()
    });
    WORDS.contains(word)
}

/// Every key of every table, those of sections too.
fn all() -> impl Iterator<Item = &'static Key> {
    let tables = ENTRY
        .iter()
        .copied()
        .chain([EDITOR_COMMAND, CONNECTS])
        .flatten();
    tables.flat_map(|key| {
        let inner: &[Key] = match key.kind {
            Kind::Section(keys) => keys,
            _ => &[],
        };
        std::iter::once(key).chain(inner)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_there_twice() {
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
    fn what_another_key_means_is_a_key_of_ours() {
        let mut ours = HashSet::new();
        for key in TRANSPORT.iter().chain(SETTINGS) {
            ours.insert(key.name.to_owned());
            if let Kind::Section(inner) = key.kind {
                ours.extend(
                    inner
                        .iter()
                        .map(|inner| format!("{}.{}", key.name, inner.name)),
                );
            }
        }
        let aliases = OLD_SPELLINGS.iter().chain(FOREIGN);
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
