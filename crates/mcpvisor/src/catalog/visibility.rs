//! Decides which of a server's tools callers see.
//!
//! Pure: takes the fetched lists and the rules, returns the catalog to publish.

use std::collections::HashSet;
use std::sync::Arc;

use mcpvisor_core::{Filter, ListKind};
use rmcp::model::Tool;

use super::findings::Findings;
use super::server::ServerCatalog;
use crate::state::pins::{Approval, check_tool};

/// The catalog that callers see, by the filter of the server's config and, if the server is pinned,
/// the approvals and the fingerprint of its transport. Shares the lists if nothing is hidden.
pub(crate) fn visible_catalog(
    fetched: &ServerCatalog,
    filter: &Filter,
    pins: Option<(&Approval, &str)>,
) -> ServerCatalog {
    let mut findings = Findings::default();
    let mut names = HashSet::with_capacity(fetched.tools.len());
    let mut visible = Vec::with_capacity(fetched.tools.len());
    let mut held = Vec::new();
    for tool in fetched.tools.iter() {
        if !filter.passes(&tool.name) {
            continue;
        }
        if !names.insert(&tool.name) {
            findings.duplicate(ListKind::Tools, &tool.name);
            continue;
        }
        findings.tool(tool);
        match pins.and_then(|(approval, at)| check_tool(approval, at, tool)) {
            Some(unapproved) => held.push(unapproved),
            None => visible.push(tool),
        }
    }
    fetched.prompts.iter().for_each(|it| findings.prompt(it));
    let resources = fetched.resources.iter();
    resources.for_each(|it| findings.resource(it));
    let templates = fetched.resource_templates.iter();
    templates.for_each(|it| findings.template(it));
    ServerCatalog {
        tools: share(&fetched.tools, visible),
        findings: findings.0.into(),
        held: held.into(),
        ..fetched.clone()
    }
}

fn share(all: &Arc<[Tool]>, visible: Vec<&Tool>) -> Arc<[Tool]> {
    if visible.len() == all.len() {
        Arc::clone(all)
    } else {
        visible.into_iter().cloned().collect()
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

    fn unpinned(fetched: &ServerCatalog, filter: &Filter) -> ServerCatalog {
        visible_catalog(fetched, filter, None)
    }

    #[test]
    fn filtered_tools_are_hidden_and_unfiltered_lists_are_shared() {
        let listed = catalog(&[tool("read", ""), tool("delete", "")]);
        let filter = Filter::new([] as [&str; 0], ["delete*"]);
        let visible = unpinned(&listed, &filter);
        assert_eq!(names(&visible), ["read"]);
        let open = Filter::default();
        let all = unpinned(&listed, &open);
        assert!(Arc::ptr_eq(&all.tools, &listed.tools));
    }

    #[test]
    fn the_first_of_two_tools_with_one_name_counts_and_a_finding_reports_it() {
        let listed = catalog(&[tool("a", "first"), tool("a", "second"), tool("b", "")]);
        let open = Filter::default();
        let visible = unpinned(&listed, &open);
        assert_eq!(names(&visible), ["a", "b"]);
        assert_eq!(
            visible.tool("a").unwrap().description.as_deref(),
            Some("first")
        );
        assert_eq!(visible.findings[0].kind, FindingKind::Duplicate);
    }

    #[test]
    fn hidden_characters_are_found_in_descriptions_and_schemas() {
        let schema = json!({ "properties": { "a": { "description": "x\u{202e}y" } } });
        let schema = schema.as_object().unwrap().clone();
        let listed = catalog(&[
            tool("plain", "harmless"),
            tool("a", "do\u{200b}this \u{1b}[8m"),
            Tool::new("b", "", schema),
        ]);
        let open = Filter::default();
        let visible = unpinned(&listed, &open);
        let found: Vec<String> = visible.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "tools: the description of \"a\" has an invisible character (U+200B)",
                "tools: the description of \"a\" has a control character (U+001B)",
                "tools: the input schema of \"b\" has a character that changes the text direction (U+202E)",
            ]
        );
    }

    #[test]
    fn findings_of_a_hostile_server_are_bounded() {
        let text: String = "\u{200b}".repeat(10_000);
        let tools: Vec<Tool> = (0..200)
            .map(|number| {
                let schema = json!({ "type": "object" }).as_object().unwrap().clone();
                Tool::new(format!("t{number}"), text.clone(), schema)
            })
            .collect();
        let open = Filter::default();
        let visible = unpinned(&catalog(&tools), &open);
        assert_eq!(visible.findings.len(), 256);
    }
}
