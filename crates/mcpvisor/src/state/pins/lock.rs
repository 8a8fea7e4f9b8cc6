//! The lock file of one server: the approved definitions of its tools.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::fingerprint;
use crate::unknown_fields;

/// The format version of the file; other versions are rejected.
const VERSION: u32 = 1;

/// Commands or addresses that a tool may be approved for; the oldest is evicted.
const MAX_TRANSPORTS: usize = 16;

/// The approved tools of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LockFile {
    version: u32,
    server: String,
    pub(crate) tools: BTreeMap<String, Approved>,
}

/// One approved tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Approved {
    /// The hash of the whole definition, with sorted keys.
    pub(crate) hash: String,
    /// The fingerprint of the transport that it was approved for.
    pub(crate) transport: String,
    /// For a person to read, and to show what changed.
    pub(crate) definition: Value,
    /// Earlier approvals for other transports, the newest first: two configs may use one server
    /// name.
    #[serde(default, rename = "elsewhere", skip_serializing_if = "Vec::is_empty")]
    other_transports: Vec<Approved>,
}

impl Approved {
    /// The approvals for all transports, the newest first.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.other_transports)
    }

    /// The approval for this transport.
    pub(super) fn for_transport(&self, transport: &str) -> Option<&Self> {
        self.all().find(|it| it.transport == transport)
    }
}

impl LockFile {
    pub(crate) fn new(server: &str) -> Self {
        Self {
            version: VERSION,
            server: server.to_owned(),
            tools: BTreeMap::new(),
        }
    }

    /// Approves all tools that a server lists. Of two tools with one name the first is approved,
    /// since callers see only that one.
    pub(crate) fn of(server: &str, tools: &[Tool], transport: &str) -> Self {
        let mut lock = Self::new(server);
        for tool in tools {
            if !lock.tools.contains_key(&*tool.name) {
                lock.approve(&tool.name, definition(tool), transport);
            }
        }
        lock
    }

    /// Approves exactly this definition of a tool for this transport.
    pub(crate) fn approve(&mut self, tool: &str, definition: Value, transport: &str) {
        let mut other_transports = Vec::new();
        if let Some(mut before) = self.tools.remove(tool) {
            other_transports = std::mem::take(&mut before.other_transports);
            other_transports.insert(0, before);
            other_transports.retain(|it| it.transport != transport);
            other_transports.truncate(MAX_TRANSPORTS - 1);
        }
        let approved = Approved {
            hash: hash(&definition),
            transport: transport.to_owned(),
            definition,
            other_transports,
        };
        self.tools.insert(tool.to_owned(), approved);
    }

    /// The contents of the file.
    pub(crate) fn write(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }

    /// Parses a file, if it is a lock file of this server. If any definition does not match its
    /// hash, the file was edited by hand and is rejected.
    pub(crate) fn read(server: &str, contents: &[u8]) -> Option<Self> {
        let lock: Self = serde_json::from_slice(contents).ok()?;
        let sound = lock
            .tools
            .values()
            .flat_map(Approved::all)
            .all(|it| it.hash == hash(&it.definition));
        (lock.version == VERSION && lock.server == server && sound).then_some(lock)
    }
}

/// A definition as JSON with sorted keys. Members that rmcp does not model are left out, as they
/// always were: hashes of approved tools must not change.
pub(super) fn definition(tool: &Tool) -> Value {
    sorted(unknown_fields::known_definition(tool))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let entries: BTreeMap<String, Value> = object.into_iter().collect();
            let entries = entries.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(entries.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// The hash of a definition: `sha256:` and 64 digits.
pub(super) fn hash(definition: &Value) -> String {
    // An editor may have reordered the keys of the file.
    let text = sorted(definition.clone()).to_string();
    fingerprint::of_text(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lock() -> LockFile {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let search = Tool::new("search", "finds", schema);
        LockFile::of("git", &[search], "sha256:00")
    }

    #[test]
    fn a_lock_file_round_trips_and_is_readable() {
        let written = lock().write().unwrap();
        assert_eq!(LockFile::read("git", &written), Some(lock()));
        let text = String::from_utf8(written).unwrap();
        assert!(text.contains("\n      \"hash\": \"sha256:"), "{text}");
        assert!(text.contains("\"description\": \"finds\""), "{text}");
    }

    /// The numbers of a schema are hashed as written, so reading must not change them. The test
    /// checks the workspace manifest, because in a test build other crates enable the feature too.
    #[test]
    fn a_number_of_any_length_round_trips() {
        let schema = json!({ "maximum": 3.402_823_466_385_288_6e38, "minimum": 5e-324 });
        let tool = Tool::new("t", "d", schema.as_object().unwrap().clone());
        let lock = LockFile::of("git", &[tool], "sha256:00");
        let written = lock.write().unwrap();
        assert_eq!(LockFile::read("git", &written), Some(lock));
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let mut lines = manifest.lines();
        let line = lines
            .find(|line| line.starts_with("serde_json = "))
            .unwrap();
        assert!(line.contains("\"float_roundtrip\""), "{line}");
    }

    #[test]
    fn a_truncated_edited_or_foreign_lock_file_is_rejected() {
        let written = lock().write().unwrap();
        for length in 0..written.len() {
            assert_eq!(
                LockFile::read("git", &written[..length]),
                None,
                "{length} bytes"
            );
        }
        assert_eq!(LockFile::read("other", &written), None);
        let text = String::from_utf8(written).unwrap();
        for edited in [
            text.replace("finds", "deletes"),
            text.replace("\"version\": 1", "\"version\": 2"),
        ] {
            assert_eq!(LockFile::read("git", edited.as_bytes()), None);
        }
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fuzz::{budget, bytes, json};

    const LOCKS: &[&str] = &[
        r#"{"version":1,"server":"git","tools":{}}"#,
        r#"{"version":1,"server":"git","tools":{"a":{"hash":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","transport":"sha256:00","definition":{}}}}"#,
    ];

    proptest! {
        #![proptest_config(budget(300))]

        #[test]
        fn a_damaged_lock_file_approves_only_definitions_that_match_their_hash(contents in bytes(LOCKS)) {
            if let Some(lock) = LockFile::read("git", &contents) {
                prop_assert_eq!((lock.version, lock.server.as_str()), (VERSION, "git"));
                for approved in lock.tools.values() {
                    prop_assert_eq!(&approved.hash, &hash(&approved.definition));
                }
            }
        }

        #[test]
        fn another_definition_under_the_same_hash_is_no_approval(one in json(), other in json()) {
            let contents = |definition: &Value| {
                let tool = json!({ "hash": hash(&one), "transport": "sha256:00", "definition": definition });
                let lock = json!({ "version": VERSION, "server": "git", "tools": { "a": tool } });
                lock.to_string().into_bytes()
            };
            prop_assert!(LockFile::read("git", &contents(&one)).is_some());
            // Compared as text, because `0.0` and `-0.0` are equal but not identical.
            let written = |value: &Value| sorted(value.clone()).to_string();
            let is_same = written(&one) == written(&other);
            prop_assert_eq!(LockFile::read("git", &contents(&other)).is_some(), is_same);
        }
    }
}
