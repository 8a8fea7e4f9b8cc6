//! The challenges in `WWW-Authenticate`.
//!
//! The header is untrusted. The parser accepts what servers send in practice (unquoted URLs,
//! missing commas, spaces around `=`), skips what it cannot read, and never fails.

use crate::text::{MAX_DESCRIPTION_CHARS, printable, scope_tokens};

mod parser;

/// Values of the header that are read; further ones are ignored.
const MAX_VALUES: usize = 16;

/// Bytes of one value that are read.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Characters of an error code.
const MAX_ERROR_CHARS: usize = 64;

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
    /// Whether the server asks for tokens that are bound to a key: accepted if there is a `DPoP`
    /// challenge, required if there is no `Bearer` challenge beside it.
    pub binding: BindingDemand,
}

/// How far a server asks for tokens that are bound to a key (RFC 9449).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BindingDemand {
    /// Not at all.
    #[default]
    None,
    /// It accepts them.
    Accepted,
    /// It accepts no others.
    Required,
}

impl Challenge {
    /// Reads the `Bearer` and `DPoP` challenges among all values of the header; empty if there are
    /// none. Of several parameters of a name the first of `Bearer` counts, else the first of `DPoP`.
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut bearer = None;
        let mut dpop = None;
        for value in values.into_iter().take(MAX_VALUES) {
            let bytes = value.as_bytes();
            let bytes = bytes.get(..MAX_VALUE_BYTES).unwrap_or(bytes);
            parser::read(bytes, &mut |item| {
                let scheme = item.scheme();
                let target = if scheme.eq_ignore_ascii_case(b"bearer") {
                    &mut bearer
                } else if scheme.eq_ignore_ascii_case(b"dpop") {
                    &mut dpop
                } else {
                    return;
                };
                let challenge = target.get_or_insert_with(Self::default);
                if let parser::Item::Parameter { name, value, .. } = item {
                    challenge.add(name, &String::from_utf8_lossy(&value));
                }
            });
        }
        match (bearer, dpop) {
            (Some(bearer), Some(dpop)) => Self {
                resource_metadata: bearer.resource_metadata.or(dpop.resource_metadata),
                scopes: bearer.scopes.or(dpop.scopes),
                error: bearer.error.or(dpop.error),
                error_description: bearer.error_description.or(dpop.error_description),
                binding: BindingDemand::Accepted,
            },
            (None, Some(dpop)) => Self {
                binding: BindingDemand::Required,
                ..dpop
            },
            (Some(bearer), None) => bearer,
            (None, None) => Self::default(),
        }
    }

    /// Whether more scopes are needed (a 403 with `insufficient_scope`).
    pub fn needs_step_up(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// Adds a parameter, unless there is one of this name.
    fn add(&mut self, name: &[u8], value: &str) {
        match name.to_ascii_lowercase().as_slice() {
            b"resource_metadata" => set_first(&mut self.resource_metadata, value.trim()),
            b"error" => set_first(&mut self.error, &printable(value, MAX_ERROR_CHARS)),
            b"error_description" => set_first(
                &mut self.error_description,
                &printable(value, MAX_DESCRIPTION_CHARS),
            ),
            b"scope" if self.scopes.is_none() => {
                let scopes = scope_tokens(value.split_ascii_whitespace());
                self.scopes = Some(scopes).filter(|scopes| !scopes.is_empty());
            }
            _ => {}
        }
    }
}

fn set_first(slot: &mut Option<String>, value: &str) {
    if slot.is_none() && !value.is_empty() {
        *slot = Some(value.to_owned());
    }
}

#[cfg(test)]
mod tests;
