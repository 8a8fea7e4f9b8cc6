//! The difference between two versions of a list, by name.

use mcpvisor_core::ListKind;

use super::server::ServerCatalog;

/// How one list changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListDiff {
    /// Added names (of resources: their URIs).
    pub added: Vec<String>,
    /// Removed names.
    pub removed: Vec<String>,
    /// Names with a changed definition.
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
    fn a_diff_names_added_removed_and_changed_items() {
        let old = [("a", 1), ("b", 1), ("c", 1)];
        let new = [("b", 2), ("c", 1), ("d", 1)];
        let diff = ListDiff::between(&old, &new, |item| item.0);
        assert_eq!(diff.added, ["d"]);
        assert_eq!(diff.removed, ["a"]);
        assert_eq!(diff.changed, ["b"]);
    }
}
