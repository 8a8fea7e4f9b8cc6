//! The challenges in `WWW-Authenticate`.

/// What a 401 or 403 says about the authorization that is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The URL of the protected-resource metadata.
    pub resource_metadata: Option<String>,
    /// The scopes that are needed.
    pub scopes: Option<Vec<String>>,
    /// The error code, such as `insufficient_scope`.
    pub error: Option<String>,
    /// Its description, bounded, without control characters.
    pub error_description: Option<String>,
}

impl Challenge {
    /// Reads the `Bearer` challenge among all values of the header; empty if there is none.
    pub fn parse<'v>(_values: impl IntoIterator<Item = &'v str>) -> Self {
        todo!()
    }

    /// Whether more scopes are needed (a 403 with `insufficient_scope`).
    pub fn needs_step_up(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}
