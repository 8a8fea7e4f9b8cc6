//! What callers see of what a server lists.
//!
//! Pure: the list as it was fetched and the rules go in, the catalog that is published comes out.

use std::collections::HashSet;
use std::sync::Arc;

use mcpvisor_core::{Filter, ListKind};
use rmcp::model::Tool;

use super::findings::Findings;
use super::server::ServerCatalog;
use crate::state::pins::{self, Approval};

/// The rules by which tools are seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibilityRules<'a> {
    /// The server's own filter, over its own names.
    pub(crate) filter: &'a Filter,
    /// What is approved, where only that is shown, and how the server is reached.
    pub(crate) pins: Option<(&'a Approval, &'a str)>,
}

/// The catalog that callers see. Where nothing is hidden, the lists are shared.
pub(crate) fn visible(listed: &ServerCatalog, rules: VisibilityRules<'_>) -> ServerCatalog {
    let mut findings = Findings::default();
    let mut seen = HashSet::with_capacity(listed.tools.len());
    let mut shown = Vec::with_capacity(listed.tools.len());
    let mut held = Vec::new();
    for tool in listed.tools.iter() {
        if !rules.filter.passes(&tool.name) {
            continue;
        }
        if !seen.insert(&tool.name) {
            findings.duplicate(ListKind::Tools, &tool.name);
            continue;
        }
        findings.tool(tool);
        match rules
            .pins
            .and_then(|(approval, at)| pins::check_tool(approval, at, tool))
        {
            Some(back) => held.push(back),
            None => shown.push(tool),
        }
    }
    listed.prompts.iter().for_each(|it| findings.prompt(it));
    listed.resources.iter().for_each(|it| findings.resource(it));
    listed
        .resource_templates
        .iter()
        .for_each(|it| findings.template(it));
    ServerCatalog {
        tools: share(&listed.tools, shown),
        findings: findings.take().into(),
        held: held.into(),
        ..listed.clone()
    }
}

fn share(all: &Arc<[Tool]>, shown: Vec<&Tool>) -> Arc<[Tool]> {
    if shown.len() == all.len() {
        Arc::clone(all)
    } else {
        shown.into_iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::FindingKind;

    fn tool(name: &'static str, description: &'static str) -> Tool {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        Tool::new(name, description, schema)
    }

    fn catalog(tools: &[Tool]) -> ServerCatalog {
        ServerCatalog {
            tools: tools.into(),
            ..ServerCatalog::default()
        }
    }

    fn names(catalog: &ServerCatalog) -> Vec<&str> {
        catalog.tools.iter().map(|tool| &*tool.name).collect()
    }

    #[test]
    fn what_the_filter_hides_is_not_there_and_the_rest_is_shared() {
        let listed = catalog(&[tool("read", ""), tool("delete", "")]);
        let filter = Filter::new([] as [&str; 0], ["delete*"]);
        let seen = visible(
            &listed,
            VisibilityRules {
                filter: &filter,
                pins: None,
            },
        );
        assert_eq!(names(&seen), ["read"]);
        let open = Filter::default();
        let all = visible(
            &listed,
            VisibilityRules {
                filter: &open,
                pins: None,
            },
        );
        assert!(Arc::ptr_eq(&all.tools, &listed.tools));
    }

    #[test]
    fn of_two_tools_of_one_name_the_first_counts_and_a_finding_says_so() {
        let listed = catalog(&[tool("a", "first"), tool("a", "second"), tool("b", "")]);
        let open = Filter::default();
        let seen = visible(
            &listed,
            VisibilityRules {
                filter: &open,
                pins: None,
            },
        );
        assert_eq!(names(&seen), ["a", "b"]);
        assert_eq!(
            seen.tool("a").unwrap().description.as_deref(),
            Some("first")
        );
        assert_eq!(seen.findings[0].kind, FindingKind::Duplicate);
    }

    #[test]
    fn hidden_text_is_found_in_descriptions_and_in_schemas() {
        let schema = json!({ "properties": { "a": { "description": "x\u{202e}y" } } });
        let schema = schema.as_object().unwrap().clone();
        let listed = catalog(&[
            tool("plain", "harmless"),
            tool("a", "do\u{200b}this \u{1b}[8m"),
            Tool::new("b", "", schema),
        ]);
        let open = Filter::default();
        let seen = visible(
            &listed,
            VisibilityRules {
                filter: &open,
                pins: None,
            },
        );
        let said: Vec<String> = seen.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "tools: the description of \"a\" has an invisible character (U+200B)",
                "tools: the description of \"a\" has a control character (U+001B)",
                "tools: the input schema of \"b\" has a character that changes the text direction (U+202E)",
            ]
        );
    }

    #[test]
    fn a_server_that_is_nothing_but_suspicious_fills_no_memory() {
        let text: String = "\u{200b}".repeat(10_000);
        let tools: Vec<Tool> = (0..200)
            .map(|number| {
                let schema = json!({ "type": "object" }).as_object().unwrap().clone();
                Tool::new(format!("t{number}"), text.clone(), schema)
            })
            .collect();
        let open = Filter::default();
        let seen = visible(
            &catalog(&tools),
            VisibilityRules {
                filter: &open,
                pins: None,
            },
        );
        assert_eq!(seen.findings.len(), 256);
    }
}
