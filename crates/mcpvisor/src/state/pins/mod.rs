//! Tools that a person approved, and those that wait for it (I4).
//!
//! Judging is pure: what is approved and what a server offers go in, what is held back comes out. The
//! approved definitions are kept in a lock file that a person can read, and that processes with the
//! same folder share; it is never read or written on an async worker.

mod diff;
mod lock;
mod store;

pub use diff::DefinitionChange;
pub(crate) use lock::{Lock, hex};
pub(crate) use store::PinStore;

use std::fmt;

use rmcp::model::Tool;
use serde::Serialize;
use serde_json::Value;

/// A tool that callers neither see nor call until a person approves it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeldTool {
    /// The name that its server gave it.
    pub tool: String,
    /// Why it is held back.
    pub reason: HeldReason,
    /// What differs from the definition that was approved; nothing for a tool that is new.
    pub diff: Vec<DefinitionChange>,
    /// The definition that the server offers now.
    pub offered: Value,
}

impl HeldTool {
    /// The hash of the definition that is offered, as the lock file has it: `sha256:` and 64 digits.
    /// With it [`Runtime::approve_definition`](crate::Runtime::approve_definition) approves this
    /// definition and no other.
    pub fn hash(&self) -> String {
        lock::hash(&self.offered)
    }
}

/// Why a tool is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeldReason {
    /// It was not there when the server's tools were approved.
    New,
    /// Its definition changed since it was approved.
    Changed,
    /// It was approved for another command, other arguments or another address.
    Moved,
    /// What was approved cannot be read.
    Unreadable,
    /// Tools of this server were approved, and the file that says which is gone.
    Missing,
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "it is new since the server's tools were approved",
            Self::Changed => "its definition changed since it was approved",
            Self::Moved => "it was approved for another command or address",
            Self::Unreadable => "the file of approved tools cannot be read",
            Self::Missing => "the file of approved tools is gone",
        })
    }
}

/// What is approved of a server.
#[derive(Debug, Clone, Default)]
pub(crate) enum Approval {
    /// The lock file was not looked at yet.
    #[default]
    Unknown,
    /// The server was never seen: what it offers first is approved.
    FirstSight,
    /// These tools.
    Known(Lock),
    /// There is a file, and it cannot be read: nothing is approved.
    Unreadable,
    /// There was a file, and it is gone: nothing is approved.
    Missing,
}

/// Why a tool is held back, if it is.
pub(crate) fn judge(approval: &Approval, transport: &str, tool: &Tool) -> Option<HeldTool> {
    let held = |reason, diff, offered| {
        Some(HeldTool {
            tool: tool.name.to_string(),
            reason,
            diff,
            offered,
        })
    };
    let offered = lock::definition(tool);
    match approval {
        Approval::FirstSight => None,
        Approval::Unknown | Approval::Unreadable => {
            held(HeldReason::Unreadable, Vec::new(), offered)
        }
        Approval::Missing => held(HeldReason::Missing, Vec::new(), offered),
        Approval::Known(lock) => match lock.tools.get(&*tool.name) {
            None => held(HeldReason::New, Vec::new(), offered),
            Some(approved) => {
                let here = approved.at(transport);
                let known = here.unwrap_or(approved);
                if known.hash != lock::hash(&offered) {
                    let diff = diff::between(&known.definition, &offered);
                    return held(HeldReason::Changed, diff, offered);
                }
                match here {
                    Some(_) => None,
                    None => held(HeldReason::Moved, Vec::new(), offered),
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        let schema = json!({ "type": "object", "properties": { "b": {}, "a": {} } });
        let schema = schema.as_object().unwrap().clone();
        Tool::new(name.to_owned(), description.to_owned(), schema)
    }

    fn approved(tools: &[Tool]) -> Approval {
        Approval::Known(Lock::of("s", tools, "here"))
    }

    fn reason(approval: &Approval, transport: &str, tool: &Tool) -> Option<HeldReason> {
        judge(approval, transport, tool).map(|held| held.reason)
    }

    #[test]
    fn only_what_was_approved_passes() {
        let (read, write) = (tool("read", "reads"), tool("write", "writes"));
        let approval = approved(std::slice::from_ref(&read));
        assert_eq!(reason(&approval, "here", &read), None);
        assert_eq!(reason(&approval, "here", &write), Some(HeldReason::New));
        assert_eq!(reason(&approval, "there", &read), Some(HeldReason::Moved));
        let changed = judge(&approval, "here", &tool("read", "deletes")).unwrap();
        assert_eq!(changed.reason, HeldReason::Changed);
        assert_eq!(
            changed.diff[0].to_string(),
            "/description: \"reads\" became \"deletes\""
        );
        assert_eq!(reason(&Approval::FirstSight, "here", &write), None);
        let unreadable = Some(HeldReason::Unreadable);
        assert_eq!(reason(&Approval::Unreadable, "here", &read), unreadable);
        assert_eq!(reason(&Approval::Unknown, "here", &read), unreadable);
    }

    /// Two configs have a server of this name: who approves in the one takes nothing from the other.
    #[test]
    fn what_is_approved_for_one_command_is_not_forgotten_for_another() {
        let (reads, lists) = (tool("read", "reads"), tool("read", "lists"));
        let mut lock = Lock::of("s", std::slice::from_ref(&reads), "here");
        lock.approve("read", lock::definition(&lists), "there");
        let written = lock.write().unwrap();
        let approval = Approval::Known(Lock::read("s", &written).unwrap());
        assert_eq!(reason(&approval, "here", &reads), None);
        assert_eq!(reason(&approval, "there", &lists), None);
        let changed = Some(HeldReason::Changed);
        assert_eq!(reason(&approval, "here", &lists), changed);
        assert_eq!(reason(&approval, "there", &reads), changed);
        let moved = Some(HeldReason::Moved);
        assert_eq!(reason(&approval, "nowhere", &lists), moved);
        lock.approve("read", lock::definition(&lists), "here");
        let approval = Approval::Known(lock.clone());
        assert_eq!(reason(&approval, "here", &lists), None);
        assert_eq!(reason(&approval, "here", &reads), changed);
        for place in 0..100 {
            lock.approve("read", lock::definition(&lists), &place.to_string());
        }
        let approval = Approval::Known(lock);
        assert_eq!(reason(&approval, "99", &lists), None);
        assert_eq!(reason(&approval, "here", &lists), moved, "it made room");
    }

    #[test]
    fn of_two_tools_of_one_name_the_first_is_approved() {
        let (harmless, other) = (tool("read", "reads"), tool("read", "deletes"));
        let approval = approved(&[harmless.clone(), other.clone()]);
        assert_eq!(reason(&approval, "here", &harmless), None);
        assert_eq!(reason(&approval, "here", &other), Some(HeldReason::Changed));
    }

    /// Whatever part of a definition changes, it is another one; the order of keys is no part of it.
    #[test]
    fn every_part_of_a_definition_counts_and_the_order_of_its_keys_does_not() {
        let plain = tool("t", "d");
        let approval = approved(std::slice::from_ref(&plain));
        let mut other_schema = plain.clone();
        let schema = json!({ "properties": { "a": {}, "b": {} }, "type": "object" });
        other_schema.input_schema = std::sync::Arc::new(schema.as_object().unwrap().clone());
        assert_eq!(reason(&approval, "here", &other_schema), None);
        let mut titled = plain.clone();
        titled.title = Some("T".to_owned());
        let mut annotated = plain.clone();
        annotated.annotations = Some(rmcp::model::ToolAnnotations::new().read_only(true));
        let mut output = plain.clone();
        output.output_schema = Some(std::sync::Arc::default());
        for changed in [titled, annotated, output, tool("t", "d ")] {
            let reason = reason(&approval, "here", &changed);
            assert_eq!(reason, Some(HeldReason::Changed), "{changed:?}");
        }
    }
}
