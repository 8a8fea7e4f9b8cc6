//! The lock file of one server: which definitions of which tools were approved.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The form of the file; another one is not understood.
const VERSION: u32 = 1;

/// For so many commands or addresses a tool is approved at once; the oldest makes room.
const MOST_PLACES: usize = 16;

/// The approved tools of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lock {
    version: u32,
    server: String,
    pub(crate) tools: BTreeMap<String, Approved>,
}

/// One approved tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Approved {
    /// Of the whole definition, with its keys in order.
    pub(crate) hash: String,
    /// Of the command and its arguments, or of the address, that it was approved for.
    pub(crate) transport: String,
    /// For a person to read, and to show what changed.
    pub(crate) definition: Value,
    /// What was approved before for other commands or addresses, the newest first: two configs may
    /// have servers of one name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    elsewhere: Vec<Approved>,
}

impl Approved {
    /// All that is approved, the newest first.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.elsewhere)
    }

    /// What is approved for this command or address.
    pub(super) fn at(&self, transport: &str) -> Option<&Self> {
        self.all().find(|it| it.transport == transport)
    }
}

impl Lock {
    pub(crate) fn new(server: &str) -> Self {
        Self {
            version: VERSION,
            server: server.to_owned(),
            tools: BTreeMap::new(),
        }
    }

    /// Approves all that a server lists. Of two tools of one name it is the first: callers see no
    /// other.
    pub(crate) fn of(server: &str, tools: &[Tool], transport: &str) -> Self {
        let mut lock = Self::new(server);
        for tool in tools {
            if !lock.tools.contains_key(&*tool.name) {
                lock.approve(&tool.name, definition(tool), transport);
            }
        }
        lock
    }

    /// Approves this definition of a tool for this command or address, and no other.
    pub(crate) fn approve(&mut self, tool: &str, definition: Value, transport: &str) {
        let mut elsewhere = Vec::new();
        if let Some(mut before) = self.tools.remove(tool) {
            elsewhere = std::mem::take(&mut before.elsewhere);
            elsewhere.insert(0, before);
            elsewhere.retain(|it| it.transport != transport);
            elsewhere.truncate(MOST_PLACES - 1);
        }
        let approved = Approved {
            hash: hash(&definition),
            transport: transport.to_owned(),
            definition,
            elsewhere,
        };
        self.tools.insert(tool.to_owned(), approved);
    }

    /// The contents of the file.
    pub(crate) fn write(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }

    /// The lock in a file, if it is one of this server. A definition that does not fit its hash was
    /// edited by hand and counts for nothing.
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

/// A definition as a value, with all keys in order.
pub(super) fn definition(tool: &Tool) -> Value {
    sorted(serde_json::to_value(tool).unwrap_or_default())
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
    // Whoever edits the file may have put the keys in another order.
    let text = sorted(definition.clone()).to_string();
    hex(&Sha256::digest(text.as_bytes()))
}

/// A hash as it is written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    "sha256:".chars().chain(digits).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lock() -> Lock {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let search = Tool::new("search", "finds", schema);
        Lock::of("git", &[search], "sha256:00")
    }

    #[test]
    fn a_lock_is_read_as_it_was_written_and_a_person_can_read_it() {
        let written = lock().write().unwrap();
        assert_eq!(Lock::read("git", &written), Some(lock()));
        let text = String::from_utf8(written).unwrap();
        assert!(text.contains("\n      \"hash\": \"sha256:"), "{text}");
        assert!(text.contains("\"description\": \"finds\""), "{text}");
    }

    /// The numbers of a schema are hashed as they are written, and have to be the same when they are
    /// read. The feature is that of the workspace: in a test others switch it on too.
    #[test]
    fn a_number_of_any_length_is_read_as_it_was_written() {
        let schema = json!({ "maximum": 3.402_823_466_385_288_6e38, "minimum": 5e-324 });
        let tool = Tool::new("t", "d", schema.as_object().unwrap().clone());
        let lock = Lock::of("git", &[tool], "sha256:00");
        let written = lock.write().unwrap();
        assert_eq!(Lock::read("git", &written), Some(lock));
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let mut lines = manifest.lines();
        let line = lines
            .find(|line| line.starts_with("serde_json = "))
            .unwrap();
        assert!(line.contains("\"float_roundtrip\""), "{line}");
    }

    #[test]
    fn what_is_cut_off_edited_or_of_another_server_is_no_lock() {
        let written = lock().write().unwrap();
        for length in 0..written.len() {
            assert_eq!(
                Lock::read("git", &written[..length]),
                None,
                "{length} bytes"
            );
        }
        assert_eq!(Lock::read("other", &written), None);
        let text = String::from_utf8(written).unwrap();
        for edited in [
            text.replace("finds", "deletes"),
            text.replace("\"version\": 1", "\"version\": 2"),
        ] {
            assert_eq!(Lock::read("git", edited.as_bytes()), None);
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
        fn a_lock_that_was_hurt_approves_only_what_fits_its_hash(contents in bytes(LOCKS)) {
            if let Some(lock) = Lock::read("git", &contents) {
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
            prop_assert!(Lock::read("git", &contents(&one)).is_some());
            // As they are written: `0.0` and `-0.0` are equal, and not the same.
            let written = |value: &Value| sorted(value.clone()).to_string();
            let is_same = written(&one) == written(&other);
            prop_assert_eq!(Lock::read("git", &contents(&other)).is_some(), is_same);
        }
    }
}
