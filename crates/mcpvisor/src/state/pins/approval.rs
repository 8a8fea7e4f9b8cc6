//! Which tools are held back, given what is approved and what a server offers.

use std::fmt;

use rmcp::model::Tool;
use serde::Serialize;
use serde_json::Value;

use super::{DefinitionChange, LockFile, diff, lock};

/// A tool that callers neither see nor call until a person approves it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeldTool {
    /// The name that its server gave it.
    pub tool: String,
    /// Why it is held back.
    pub reason: HeldReason,
    /// What differs from the approved definition; empty for a new tool.
    pub diff: Vec<DefinitionChange>,
    /// The definition that the server offers now.
    pub offered: Value,
}

impl HeldTool {
    /// The hash of the offered definition, as in the lock file: `sha256:` and 64 digits.
    /// [`Runtime::approve_definition`](crate::Runtime::approve_definition) takes it to approve
    /// exactly this definition.
    pub fn hash(&self) -> String {
        lock::hash(&self.offered)
    }
}

/// Why a tool is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeldReason {
    /// It did not exist when the server's tools were approved.
    New,
    /// Its definition changed since it was approved.
    Changed,
    /// It was approved for another command, other arguments or another address.
    Moved,
    /// The lock file cannot be read.
    Unreadable,
    /// Tools of this server were approved, but the lock file is gone.
    Missing,
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "it was added after the server's tools were approved",
            Self::Changed => "its definition changed since it was approved",
            Self::Moved => "it was approved for another command or address",
            Self::Unreadable => "the file of approved tools cannot be read",
            Self::Missing => "the file of approved tools is gone",
        })
    }
}

/// The approved tools of a server.
#[derive(Debug, Clone, Default)]
pub(crate) enum Approval {
    /// The lock file was not read yet.
    #[default]
    NotLoaded,
    /// The server was never listed: its first listing is approved.
    NeverListed,
    /// The tools of the lock file.
    Locked(LockFile),
    /// The lock file cannot be read: nothing is approved.
    Unreadable,
    /// The lock file is gone: nothing is approved.
    Missing,
}

/// Checks a tool against the approvals; `None` if callers may use it.
pub(crate) fn check_tool(approval: &Approval, transport: &str, tool: &Tool) -> Option<HeldTool> {
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
        Approval::NeverListed => None,
        Approval::NotLoaded | Approval::Unreadable => {
            held(HeldReason::Unreadable, Vec::new(), offered)
        }
        Approval::Missing => held(HeldReason::Missing, Vec::new(), offered),
        Approval::Locked(lock) => match lock.tools.get(&*tool.name) {
            None => held(HeldReason::New, Vec::new(), offered),
            Some(approved) => {
                let here = approved.for_transport(transport);
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
        Approval::Locked(LockFile::of("s", tools, "here"))
    }

    fn reason(approval: &Approval, transport: &str, tool: &Tool) -> Option<HeldReason> {
        check_tool(approval, transport, tool).map(|held| held.reason)
    }

    #[test]
    fn only_approved_tools_pass() {
        let (read, write) = (tool("read", "reads"), tool("write", "writes"));
        let approval = approved(std::slice::from_ref(&read));
        assert_eq!(reason(&approval, "here", &read), None);
        assert_eq!(reason(&approval, "here", &write), Some(HeldReason::New));
        assert_eq!(reason(&approval, "there", &read), Some(HeldReason::Moved));
        let changed = check_tool(&approval, "here", &tool("read", "deletes")).unwrap();
        assert_eq!(changed.reason, HeldReason::Changed);
        assert_eq!(
            changed.diff[0].to_string(),
            "/description: \"reads\" became \"deletes\""
        );
        assert_eq!(reason(&Approval::NeverListed, "here", &write), None);
        let unreadable = Some(HeldReason::Unreadable);
        assert_eq!(reason(&Approval::Unreadable, "here", &read), unreadable);
        assert_eq!(reason(&Approval::NotLoaded, "here", &read), unreadable);
    }

    /// Two configs may use one server name: an approval in one must not revoke that of the other.
    #[test]
    fn an_approval_for_one_command_keeps_that_for_another() {
        let (reads, lists) = (tool("read", "reads"), tool("read", "lists"));
        let mut lock = LockFile::of("s", std::slice::from_ref(&reads), "here");
        lock.approve("read", lock::definition(&lists), "there");
        let written = lock.write().unwrap();
        let approval = Approval::Locked(LockFile::read("s", &written).unwrap());
        assert_eq!(reason(&approval, "here", &reads), None);
        assert_eq!(reason(&approval, "there", &lists), None);
        let changed = Some(HeldReason::Changed);
        assert_eq!(reason(&approval, "here", &lists), changed);
        assert_eq!(reason(&approval, "there", &reads), changed);
        let moved = Some(HeldReason::Moved);
        assert_eq!(reason(&approval, "nowhere", &lists), moved);
        lock.approve("read", lock::definition(&lists), "here");
        let approval = Approval::Locked(lock.clone());
        assert_eq!(reason(&approval, "here", &lists), None);
        assert_eq!(reason(&approval, "here", &reads), changed);
        for transport in 0..100 {
            lock.approve("read", lock::definition(&lists), &transport.to_string());
        }
        let approval = Approval::Locked(lock);
        assert_eq!(reason(&approval, "99", &lists), None);
        assert_eq!(
            reason(&approval, "here", &lists),
            moved,
            "the oldest was evicted"
        );
    }

    #[test]
    fn of_two_tools_of_one_name_the_first_is_approved() {
        let (harmless, other) = (tool("read", "reads"), tool("read", "deletes"));
        let approval = approved(&[harmless.clone(), other.clone()]);
        assert_eq!(reason(&approval, "here", &harmless), None);
        assert_eq!(reason(&approval, "here", &other), Some(HeldReason::Changed));
    }

    /// Any change of a definition counts, except for the order of its keys.
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
