//! What differs between two definitions, place by place.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Differences of one definition that are kept; a person has seen enough by then.
const MAX_CHANGES: usize = 100;

/// The longest value that is written out, in characters.
const MAX_SHOWN: usize = 200;

/// One place in which two definitions differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DefinitionChange {
    /// Where, as a JSON pointer.
    pub path: String,
    /// What was approved there; nothing if the place is new.
    pub approved: Option<Value>,
    /// What is there now; nothing if the place is gone.
    pub offered: Option<Value>,
}

impl fmt::Display for DefinitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.approved, &self.offered) {
            (Some(old), Some(new)) => write!(f, "{path}: {} became {}", shown(old), shown(new)),
            (None, Some(new)) => write!(f, "{path}: {} is new", shown(new)),
            (Some(old), None) => write!(f, "{path}: {} is gone", shown(old)),
            (None, None) => f.write_str(path),
        }
    }
}

/// A value on one line, with everything that is not plain text escaped.
fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(MAX_SHOWN + 1).collect();
    let plain = |c: char| -> String {
        if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            c.to_string()
        } else {
            c.escape_unicode().to_string()
        }
    };
    let cut = text.chars().count() > MAX_SHOWN;
    let mut shown: String = text.chars().take(MAX_SHOWN).map(plain).collect();
    if cut {
        shown.push_str(" (cut)");
    }
    shown
}

/// Every place in which two definitions differ.
pub(super) fn between(approved: &Value, offered: &Value) -> Vec<DefinitionChange> {
    let mut changes = Vec::new();
    walk(String::new(), Some(approved), Some(offered), &mut changes);
    changes
}

fn walk(
    path: String,
    approved: Option<&Value>,
    offered: Option<&Value>,
    changes: &mut Vec<DefinitionChange>,
) {
    if approved == offered || changes.len() >= MAX_CHANGES {
        return;
    }
    match (approved, offered) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let step = key.replace('~', "~0").replace('/', "~1");
                walk(
                    format!("{path}/{step}"),
                    old.get(key),
                    new.get(key),
                    changes,
                );
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                walk(
                    format!("{path}/{index}"),
                    old.get(index),
                    new.get(index),
                    changes,
                );
            }
        }
        _ => changes.push(DefinitionChange {
            path,
            approved: approved.cloned(),
            offered: offered.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_place_that_differs_is_named_once() {
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
        assert_eq!(between(&list.into(), &other.into()).len(), 100);
        let long = json!("x".repeat(1_000));
        let change = &between(&json!(1), &long)[0];
        assert!(change.to_string().ends_with(" (cut)"));
    }
}
