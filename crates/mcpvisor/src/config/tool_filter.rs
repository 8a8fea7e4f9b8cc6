//! Which tools of a server callers see.

/// Which tools of a server callers see: those that a pattern of `allow` matches, all if there is
/// none, without those that a pattern of `deny` matches. In a pattern `*` is any text and `?` any
/// character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFilter {
    /// Patterns of tools that are shown; every tool if empty.
    pub allow: Vec<String>,
    /// Patterns of tools that are not shown, whatever `allow` says.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// A filter that shows what a pattern of `allow` matches, all if there is none, without what a
    /// pattern of `deny` matches.
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
