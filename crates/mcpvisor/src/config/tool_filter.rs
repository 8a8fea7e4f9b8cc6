//! Which tools of a server callers see.

/// Which tools of a server callers see: those that match a pattern of `allow` (all if it is empty),
/// except those that match a pattern of `deny`. In a pattern `*` matches any text and `?` any
/// character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFilter {
    /// Patterns of visible tools; all tools if empty.
    pub allow: Vec<String>,
    /// Patterns of hidden tools; they take precedence over `allow`.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// A filter with these patterns.
    pub fn new<A, D>(allow: A, deny: D) -> Self
    where
        A: IntoIterator<Item: Into<String>>,
        D: IntoIterator<Item: Into<String>>,
    {
        Self {
            allow: allow.into_iter().map(Into::into).collect(),
            deny: deny.into_iter().map(Into::into).collect(),
        }
    }
}
