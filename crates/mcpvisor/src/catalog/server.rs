//! The catalog of one server, as an immutable snapshot.
//!
//! A snapshot is separate from connectivity: the last good one stays through reconnects and failed
//! refreshes, marked stale. [`super::visibility`] decides what callers see of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mcpvisor_core::{Generation, ListKind};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};

use super::findings::Finding;
use crate::state::pins::HeldTool;

/// The published catalog of one server.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerCatalog {
    /// Increases with every change that readers can see.
    pub revision: u64,
    /// The connection that fetched the newest list.
    pub generation: Generation,
    /// Not fetched on the present connection, or a refresh failed.
    pub stale: bool,
    /// The tools.
    pub tools: Arc<[Tool]>,
    /// The prompts.
    pub prompts: Arc<[Prompt]>,
    /// The resources.
    pub resources: Arc<[Resource]>,
    /// The resource templates.
    pub resource_templates: Arc<[ResourceTemplate]>,
    /// What a person should review before trusting the server.
    pub findings: Arc<[Finding]>,
    /// Tools that wait for the approval of a person; not included in `tools`.
    pub held: Arc<[HeldTool]>,
    /// Who may see it without a connection of its own.
    pub(crate) audience: Audience,
}

/// Which clients may see a catalog that their own connections did not fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All of them.
    #[default]
    Everyone,
    /// Those that use this account of the server; none is the one of its config.
    Account(Option<Arc<str>>),
}

impl Audience {
    /// Whether a client with this account is included; none for the accounts of the config.
    pub(crate) fn includes(&self, account: Option<&Arc<str>>) -> bool {
        match self {
            Self::Everyone => true,
            Self::Account(own) => account.is_none() || account == own.as_ref(),
        }
    }
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

    /// Why this tool is held back, if it is.
    pub fn held(&self, name: &str) -> Option<&HeldTool> {
        self.held.iter().find(|held| held.tool == name)
    }

    /// Whether it takes long to process. Stops counting at the limit, so this itself is quick.
    pub(crate) fn is_large(&self) -> bool {
        let (tools, prompts) = (&*self.tools, &*self.prompts);
        let (resources, templates) = (&*self.resources, &*self.resource_templates);
        let all = (tools, prompts, resources, templates);
        serde_json::to_writer(SizeLimit(LARGE), &all).is_err()
    }

    /// Whether it lists nothing.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.prompts.is_empty()
            && self.resources.is_empty()
            && self.resource_templates.is_empty()
    }

    /// Whether this list has items.
    pub(crate) fn lists_any(&self, list: ListKind) -> bool {
        match list {
            ListKind::Tools => !self.tools.is_empty(),
            ListKind::Prompts => !self.prompts.is_empty(),
            ListKind::Resources => !self.resources.is_empty(),
            ListKind::Templates => !self.resource_templates.is_empty(),
        }
    }

    /// Shares the lists that are equal in the old catalog. The order does not matter: some servers
    /// list their items in another order each time, and readers should see no change then.
    pub(crate) fn share(&mut self, old: &Self) {
        share(&mut self.tools, &old.tools, |tool| &tool.name);
        share(&mut self.prompts, &old.prompts, |prompt| &prompt.name);
        share(&mut self.resources, &old.resources, |it| &it.uri);
        let (templates, old) = (&mut self.resource_templates, &old.resource_templates);
        share(templates, old, |template| &template.uri_template);
    }

    /// Whether both share all lists. Compares pointers only.
    pub(crate) fn shares_all(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tools, &other.tools)
            && Arc::ptr_eq(&self.prompts, &other.prompts)
            && Arc::ptr_eq(&self.resources, &other.resources)
            && Arc::ptr_eq(&self.resource_templates, &other.resource_templates)
            && Arc::ptr_eq(&self.held, &other.held)
    }

    /// Whether it has anything that callers can use, now or after an approval.
    pub(super) fn offers_something(&self) -> bool {
        !self.is_empty() || !self.held.is_empty()
    }

    /// Whether both offer the same items, ignoring staleness.
    pub(crate) fn offers_same(&self, other: &Self) -> bool {
        same(&self.tools, &other.tools)
            && same(&self.prompts, &other.prompts)
            && same(&self.resources, &other.resources)
            && same(&self.resource_templates, &other.resource_templates)
            && same(&self.held, &other.held)
    }

    /// A copy with one list of another catalog.
    pub(crate) fn taking(&self, list: ListKind, other: &Self) -> Self {
        let mut next = Self {
            generation: other.generation,
            ..self.clone()
        };
        match list {
            ListKind::Tools => next.tools = Arc::clone(&other.tools),
            ListKind::Prompts => next.prompts = Arc::clone(&other.prompts),
            ListKind::Resources => next.resources = Arc::clone(&other.resources),
            ListKind::Templates => {
                next.resource_templates = Arc::clone(&other.resource_templates);
            }
        }
        next
    }

    /// A catalog with one list alone.
    pub(crate) fn of(generation: Generation, list: ListItems) -> Self {
        let mut catalog = Self {
            generation,
            ..Self::default()
        };
        match list {
            ListItems::Tools(tools) => catalog.tools = tools.into(),
            ListItems::Prompts(prompts) => catalog.prompts = prompts.into(),
            ListItems::Resources(resources) => catalog.resources = resources.into(),
            ListItems::Templates(templates) => catalog.resource_templates = templates.into(),
        }
        catalog
    }
}

/// Equal lists are usually shared, so the items are compared only if the pointers differ.
fn same<T: PartialEq>(list: &Arc<[T]>, other: &Arc<[T]>) -> bool {
    Arc::ptr_eq(list, other) || *list == *other
}

fn share<T: PartialEq>(list: &mut Arc<[T]>, old: &Arc<[T]>, name: fn(&T) -> &str) {
    if !Arc::ptr_eq(list, old) && (*list == *old || is_reordered(list, old, name)) {
        *list = Arc::clone(old);
    }
}

/// Whether both lists have the same items, under different names.
fn is_reordered<T: PartialEq>(list: &[T], old: &[T], name: fn(&T) -> &str) -> bool {
    if list.len() != old.len() {
        return false;
    }
    let by_name: HashMap<&str, &T> = old.iter().map(|item| (name(item), item)).collect();
    let mut names = HashSet::with_capacity(list.len());
    list.iter()
        .all(|item| by_name.get(name(item)) == Some(&item) && names.insert(name(item)))
}

/// Lists of more JSON than this are processed off the actor's thread, in bytes.
const LARGE: usize = 1024 * 1024;

/// A writer that counts bytes and fails beyond its limit.
struct SizeLimit(usize);

impl std::io::Write for SizeLimit {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The items of one complete list.
#[derive(Debug)]
pub(crate) enum ListItems {
    Tools(Vec<Tool>),
    Prompts(Vec<Prompt>),
    Resources(Vec<Resource>),
    Templates(Vec<ResourceTemplate>),
}

impl ListItems {
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

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn listed(tools: &[(&'static str, &'static str)]) -> ServerCatalog {
        let tool = |(name, description): &(_, _)| Tool::new(*name, *description, Map::new());
        ServerCatalog {
            tools: tools.iter().map(tool).collect(),
            ..ServerCatalog::default()
        }
    }

    #[test]
    fn a_list_in_another_order_is_shared_and_one_with_other_items_is_not() {
        let old = listed(&[("a", "1"), ("b", "2"), ("c", "3")]);
        for (tools, is_same) in [
            (listed(&[("c", "3"), ("a", "1"), ("b", "2")]), true),
            (listed(&[("c", "3"), ("a", "2"), ("b", "1")]), false),
            (listed(&[("a", "1"), ("a", "1"), ("b", "2")]), false),
            (listed(&[("b", "2"), ("a", "1")]), false),
        ] {
            let mut new = tools.clone();
            new.share(&old);
            assert_eq!(Arc::ptr_eq(&new.tools, &old.tools), is_same, "{tools:?}");
            assert_eq!(new.tools == tools.tools, !is_same);
        }
    }
}
