//! What a server offers, as an immutable snapshot.
//!
//! A snapshot is separate from connectivity: it stays the last good one through reconnects and
//! failed refreshes, and says so by being stale. Fetching it is [`crate::discovery`]'s business.

use std::sync::Arc;

use mcpvisor_core::{Generation, ListKind};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};

/// The published catalog of one server.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerCatalog {
    /// Grows with every change that readers can see.
    pub revision: u64,
    /// The connection that the newest part came from.
    pub generation: Generation,
    /// Not confirmed on the present connection, or a refresh failed.
    pub stale: bool,
    /// The tools.
    pub tools: Arc<[Tool]>,
    /// The prompts.
    pub prompts: Arc<[Prompt]>,
    /// The resources.
    pub resources: Arc<[Resource]>,
    /// The templates of resources.
    pub resource_templates: Arc<[ResourceTemplate]>,
}

impl ServerCatalog {
    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The prompt of this name.
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.iter().find(|prompt| prompt.name == name)
    }

    /// Whether it lists nothing at all.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.prompts.is_empty()
            && self.resources.is_empty()
            && self.resource_templates.is_empty()
    }

    /// The same catalog with one list replaced.
    pub(crate) fn with(&self, generation: Generation, list: Listed) -> Self {
        let mut next = Self {
            generation,
            ..self.clone()
        };
        match list {
            Listed::Tools(tools) => next.tools = tools.into(),
            Listed::Prompts(prompts) => next.prompts = prompts.into(),
            Listed::Resources(resources) => next.resources = resources.into(),
            Listed::Templates(templates) => next.resource_templates = templates.into(),
        }
        next
    }
}

/// One list, fetched to its end.
#[derive(Debug)]
pub(crate) enum Listed {
    Tools(Vec<Tool>),
    Prompts(Vec<Prompt>),
    Resources(Vec<Resource>),
    Templates(Vec<ResourceTemplate>),
}

impl Listed {
    pub(crate) fn empty(kind: ListKind) -> Self {
        match kind {
            ListKind::Tools => Self::Tools(Vec::new()),
            ListKind::Prompts => Self::Prompts(Vec::new()),
            ListKind::Resources => Self::Resources(Vec::new()),
            ListKind::Templates => Self::Templates(Vec::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Tools(items) => items.len(),
            Self::Prompts(items) => items.len(),
            Self::Resources(items) => items.len(),
            Self::Templates(items) => items.len(),
        }
    }
}

/// How one list changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListDiff {
    /// Names (of resources: their addresses) that are new.
    pub added: Vec<String>,
    /// Names that are gone.
    pub removed: Vec<String>,
    /// Names whose definition changed.
    pub changed: Vec<String>,
}

impl ListDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    pub(crate) fn between<T: PartialEq>(old: &[T], new: &[T], name: impl Fn(&T) -> &str) -> Self {
        use std::collections::HashMap;
        let before: HashMap<&str, &T> = old.iter().map(|item| (name(item), item)).collect();
        let after: HashMap<&str, &T> = new.iter().map(|item| (name(item), item)).collect();
        let mut diff = Self::default();
        for item in new {
            match before.get(name(item)) {
                None => diff.added.push(name(item).to_owned()),
                Some(old) if *old != item => diff.changed.push(name(item).to_owned()),
                Some(_) => {}
            }
        }
        for item in old {
            if !after.contains_key(name(item)) {
                diff.removed.push(name(item).to_owned());
            }
        }
        diff
    }

    pub(crate) fn of(kind: ListKind, old: &ServerCatalog, new: &ServerCatalog) -> Self {
        match kind {
            ListKind::Tools => Self::between(&old.tools, &new.tools, |t| &t.name),
            ListKind::Prompts => Self::between(&old.prompts, &new.prompts, |p| &p.name),
            ListKind::Resources => Self::between(&old.resources, &new.resources, |r| &r.uri),
            ListKind::Templates => {
                Self::between(&old.resource_templates, &new.resource_templates, |t| {
                    &t.uri_template
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_what_is_new_gone_and_changed() {
        let old = [("a", 1), ("b", 1), ("c", 1)];
        let new = [("b", 2), ("c", 1), ("d", 1)];
        let diff = ListDiff::between(&old, &new, |item| item.0);
        assert_eq!(diff.added, ["d"]);
        assert_eq!(diff.removed, ["a"]);
        assert_eq!(diff.changed, ["b"]);
    }
}
