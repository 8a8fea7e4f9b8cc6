//! The differences between two tool definitions.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Differences of one definition that are listed; the rest is counted.
const MAX_CHANGES: usize = 100;

/// The fields that a model reads, so a person has to see them: they come first, in this order.
const FIRST: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// Differences of one field that are listed, so that no field crowds out the others.
const MAX_PER_FIELD: usize = 40;

/// Characters of context before the first difference.
const CONTEXT: usize = 30;

/// Characters of a value that are shown.
const MAX_SHOWN: usize = 200;

/// One difference between two definitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DefinitionChange {
    /// Where, as a JSON pointer; or the number of differences that are not listed.
    pub path: String,
    /// The approved value; `None` if it was added.
    pub approved: Option<Value>,
    /// The offered value; `None` if it was removed.
    pub offered: Option<Value>,
}

impl fmt::Display for DefinitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.approved, &self.offered) {
            (Some(old), Some(new)) => {
                let (old, new) = (old.to_string(), new.to_string());
                let from = first_difference(&old, &new).saturating_sub(CONTEXT);
                // A short common prefix is not worth cutting.
                let from = if from > CONTEXT { from } else { 0 };
                let (old, new) = (shown(&old, from), shown(&new, from));
                write!(f, "{path}: {old} became {new}")
            }
            (None, Some(new)) => write!(f, "{path}: {} is new", shown(&new.to_string(), 0)),
            (Some(old), None) => write!(f, "{path}: {} is gone", shown(&old.to_string(), 0)),
            (None, None) => f.write_str(path),
        }
    }
}

/// Where two texts begin to differ, in characters.
fn first_difference(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars());
    same.take_while(|(one, other)| one == other).count()
}

/// A value on one line from this character on, with everything but plain text escaped.
fn shown(value: &str, from: usize) -> String {
    let text: String = value.chars().skip(from).take(MAX_SHOWN + 1).collect();
    let plain = |c: char| -> String {
        if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            c.to_string()
        } else {
            c.escape_unicode().to_string()
        }
    };
    let cut = text.chars().count() > MAX_SHOWN;
    let mut shown = String::new();
    if from > 0 {
        shown.push_str("(cut) ");
    }
    shown.extend(text.chars().take(MAX_SHOWN).map(plain));
    if cut {
        shown.push_str(" (cut)");
    }
    shown
}

/// Lists the differences of two definitions, first those of fields that a model reads. Differences
/// beyond the limit are counted per field.
pub(super) fn between(approved: &Value, offered: &Value) -> Vec<DefinitionChange> {
    let (Value::Object(old), Value::Object(new)) = (approved, offered) else {
        let mut part = Part::new(MAX_CHANGES);
        part.walk(&mut String::new(), Some(approved), Some(offered));
        return part.finish("");
    };
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable_by_key(|key| (rank(key), *key));
    keys.dedup();
    let mut changes: Vec<DefinitionChange> = Vec::new();
    let mut unlisted = 0;
    for key in keys {
        let mut path = step(key);
        let limit = MAX_CHANGES.saturating_sub(changes.len());
        let mut part = Part::new(limit.min(MAX_PER_FIELD));
        part.walk(&mut path, old.get(key), new.get(key));
        if limit == 0 {
            unlisted += part.unlisted;
        } else {
            changes.extend(part.finish(&path));
        }
    }
    if unlisted > 0 {
        changes.push(and_more("", unlisted));
    }
    changes
}

/// The position of a field among the others.
fn rank(key: &str) -> usize {
    let last = FIRST.len() + usize::from(key == "_meta");
    FIRST.iter().position(|it| *it == key).unwrap_or(last)
}

fn step(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// An entry for differences that are not listed.
fn and_more(path: &str, unlisted: usize) -> DefinitionChange {
    let path = match path {
        "" => format!("\u{2026} and {unlisted} more"),
        path => format!("{path}: \u{2026} and {unlisted} more"),
    };
    DefinitionChange {
        path,
        approved: None,
        offered: None,
    }
}

/// The differences of one field.
struct Part {
    changes: Vec<DefinitionChange>,
    limit: usize,
    /// Differences beyond the limit.
    unlisted: usize,
}

impl Part {
    fn new(limit: usize) -> Self {
        Self {
            changes: Vec::new(),
            limit,
            unlisted: 0,
        }
    }

    fn finish(mut self, path: &str) -> Vec<DefinitionChange> {
        if self.unlisted > 0 {
            self.changes.push(and_more(path, self.unlisted));
        }
        self.changes
    }

    /// The path is one buffer that grows and shrinks, because most differences of a hostile
    /// definition are never listed.
    fn walk(&mut self, path: &mut String, approved: Option<&Value>, offered: Option<&Value>) {
        if approved == offered {
            return;
        }
        let end = path.len();
        match (approved, offered) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    path.push_str(&step(key));
                    self.walk(path, old.get(key), new.get(key));
                    path.truncate(end);
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    path.push_str(&format!("/{index}"));
                    self.walk(path, old.get(index), new.get(index));
                    path.truncate(end);
                }
            }
            _ if self.changes.len() >= self.limit => self.unlisted += 1,
            _ => self.changes.push(DefinitionChange {
                path: path.clone(),
                approved: approved.cloned(),
                offered: offered.cloned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_listed_once() {
        let old = json!({ "a": 1, "b": { "c/d": [1, 2] }, "gone": true, "same": [1] });
        let new = json!({ "a": 2, "b": { "c/d": [1, 3, 4] }, "same": [1], "x": "\u{202e}" });
        let said: Vec<String> = between(&old, &new)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "/a: 1 became 2",
                "/b/c~1d/1: 2 became 3",
                "/b/c~1d/2: 4 is new",
                "/gone: true is gone",
                "/x: \"\\u{202e}\" is new",
            ]
        );
        assert_eq!(between(&old, &old), []);
    }

    #[test]
    fn a_large_difference_is_cut() {
        let list: Vec<Value> = (0..1_000).map(Value::from).collect();
        let other: Vec<Value> = (1..1_001).map(Value::from).collect();
        let cut = between(&list.into(), &other.into());
        assert_eq!(cut.len(), 101);
        assert_eq!(cut[100].to_string(), "\u{2026} and 900 more");
        let long = json!("x".repeat(1_000));
        let change = &between(&json!(1), &long)[0];
        assert!(change.to_string().ends_with(" (cut)"));
    }

    /// A server cannot hide a change of the fields that a model reads behind many other changes.
    #[test]
    fn no_field_crowds_out_another_and_unlisted_differences_are_counted() {
        let many = |value: &str| -> serde_json::Map<String, Value> {
            let keys = (0..150).map(|key| (format!("k{key:03}"), json!(value)));
            keys.collect()
        };
        let tool = |value: &str| {
            json!({
                "_meta": many(value), "annotations": { "title": value }, "description": value,
                "icons": many(value), "inputSchema": { "properties": many(value) }, "name": "t",
            })
        };
        let said: Vec<String> = between(&tool("old"), &tool("new"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(said[0], "/description: \"old\" became \"new\"");
        assert!(said[1].starts_with("/inputSchema/properties/k000: "));
        assert_eq!(said[41], "/inputSchema: \u{2026} and 110 more");
        assert_eq!(said[42], "/annotations/title: \"old\" became \"new\"");
        assert_eq!(said[83], "/icons: \u{2026} and 110 more");
        assert_eq!(said.last().unwrap(), "/_meta: \u{2026} and 134 more");
        assert!(said.len() <= MAX_CHANGES + 1, "{}", said.len());
    }

    #[test]
    fn a_late_difference_in_a_long_text_is_shown() {
        let text = |end: &str| json!({ "description": format!("{}{end}", "reads ".repeat(100)) });
        let said = between(&text("one file"), &text("all mail"))[0].to_string();
        assert_eq!(
            said,
            "/description: (cut) reads reads reads reads reads one file\" became \
             (cut) reads reads reads reads reads all mail\""
        );
    }
}
