//! The callback of a login: what the browser brings back, or a person pastes.
//!
//! The checks are in this order: path and `state` (else it belongs to another login), `iss`, then
//! `error` or `code`.

use std::borrow::Cow;
use std::hint::black_box;

use crate::config::CredentialConfig;
use crate::discovery::Discovered;
use crate::error::AuthError;
use crate::secret::Secret;
use crate::token_endpoint::request_name;
use crate::token_endpoint::response::clean;

/// Bytes of a callback; a longer one is ignored.
pub const MAX_CALLBACK_BYTES: usize = 16 * 1024;

/// Characters of an error code.
const MAX_CODE_CHARS: usize = 64;

/// Characters of an error description.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// The status that is reported for an error in a callback: it arrives by a redirect.
const REDIRECT_STATUS: u16 = 302;

/// The callback that a login expects.
#[derive(Debug, Clone)]
pub struct ExpectedCallback {
    /// The path of the redirect URI.
    pub path: String,
    /// The `state` of the login.
    pub state: Secret,
    /// The issuer, byte for byte.
    pub issuer: String,
    /// Another name that `iss` may state.
    pub issuer_exception: Option<String>,
    /// Whether `iss` must be there: the issuer announces it.
    pub iss_required: bool,
}

/// What a callback means for the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callback {
    /// The login succeeded with this code.
    Code(Secret),
    /// The login failed.
    Failed(AuthError),
    /// It belongs to another login or to none: go on waiting.
    Ignored(IgnoredCallback),
}

/// Why a callback does not belong to the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IgnoredCallback {
    /// The path is not that of the redirect URI.
    #[error("the path is not that of the redirect URI")]
    OtherPath,
    /// There is no `state`, or not exactly one.
    #[error("there is no `state` parameter; use the whole URL that the browser ended on")]
    NoState,
    /// The `state` is that of another login.
    #[error("the `state` parameter belongs to another login")]
    OtherState,
    /// It is too long.
    #[error("the callback is longer than {MAX_CALLBACK_BYTES} bytes")]
    TooLong,
}

impl ExpectedCallback {
    /// The callback of a login at this issuer.
    pub fn new(
        config: &CredentialConfig,
        discovered: &Discovered,
        redirect_uri: &str,
        state: Secret,
    ) -> Self {
        Self {
            path: path_and_query(redirect_uri).0.to_owned(),
            state,
            issuer: discovered.server.issuer.clone(),
            issuer_exception: config.issuer_exception.clone(),
            iss_required: discovered.server.iss_in_response,
        }
    }

    /// Reads a pasted text: the URL that the browser ended on, or its query alone.
    pub fn read_pasted(&self, text: &str) -> Callback {
        let text = text.trim().trim_matches(['"', '\'', '<', '>', '`']);
        // A value may contain `://`, so only what precedes the parameters tells a URL.
        let start = &text[..text.find(['?', '&', '=']).unwrap_or(text.len())];
        let is_query = !start.contains("://") && !start.starts_with('/');
        if is_query {
            let query = text.strip_prefix('?').unwrap_or(text);
            return self.read(&self.path, query);
        }
        self.read_target(text)
    }

    /// Reads the target of a request to the listener, or a URL.
    pub fn read_target(&self, target: &str) -> Callback {
        let (path, query) = path_and_query(target);
        self.read(path, query)
    }

    fn read(&self, path: &str, query: &str) -> Callback {
        if query.len() > MAX_CALLBACK_BYTES {
            return Callback::Ignored(IgnoredCallback::TooLong);
        }
        if path != self.path {
            return Callback::Ignored(IgnoredCallback::OtherPath);
        }
        let query = query.split('#').next().unwrap_or_default();
        let parameters = Parameters(query);
        let Ok(Some(state)) = parameters.single("state") else {
            return Callback::Ignored(IgnoredCallback::NoState);
        };
        if !equal_in_constant_time(state.as_bytes(), self.state.expose().as_bytes()) {
            return Callback::Ignored(IgnoredCallback::OtherState);
        }
        match self.code(&parameters) {
            Ok(code) => Callback::Code(code),
            Err(error) => Callback::Failed(error),
        }
    }

    fn code(&self, parameters: &Parameters<'_>) -> Result<Secret, AuthError> {
        self.check_issuer(parameters.single("iss")?.as_deref())?;
        if let Some(error) = parameters.single("error")? {
            let description = parameters.single("error_description").unwrap_or(None);
            return Err(AuthError::Refused {
                request: request_name("login", &self.issuer),
                status: REDIRECT_STATUS,
                error: clean(&error, MAX_CODE_CHARS).unwrap_or_else(|| "unknown_error".into()),
                description: description.and_then(|text| clean(&text, MAX_DESCRIPTION_CHARS)),
            });
        }
        match parameters.single("code")? {
            Some(code) if !code.is_empty() => Ok(Secret::new(code)),
            _ => Err(AuthError::Invalid(
                "the callback has neither a code nor an error".into(),
            )),
        }
    }

    /// Compares bytes: a normalized match could be an attacker's issuer (RFC 9207).
    fn check_issuer(&self, iss: Option<&str>) -> Result<(), AuthError> {
        match iss {
            None if self.iss_required => Err(AuthError::Invalid(format!(
                "the callback lacks `iss`, which {} announces",
                self.issuer
            ))),
            None => Ok(()),
            Some(iss) if iss == self.issuer => Ok(()),
            Some(iss) if Some(iss) == self.issuer_exception.as_deref() => Ok(()),
            Some(iss) => Err(AuthError::Invalid(format!(
                "the callback comes from issuer {:?} instead of {:?}",
                clean(iss, MAX_DESCRIPTION_CHARS).unwrap_or_default(),
                self.issuer
            ))),
        }
    }
}

/// The parameters of a query.
struct Parameters<'q>(&'q str);

impl Parameters<'_> {
    /// The value of a parameter that occurs at most once.
    fn single(&self, name: &str) -> Result<Option<String>, AuthError> {
        let mut values = form_urlencoded::parse(self.0.as_bytes())
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value);
        let first = values.next().map(Cow::into_owned);
        match values.next() {
            None => Ok(first),
            Some(_) => Err(AuthError::Invalid(format!(
                "the callback has `{name}` more than once"
            ))),
        }
    }
}

/// The path and query of a URL or request target. An empty path is `/`.
pub(crate) fn path_and_query(target: &str) -> (&str, &str) {
    let (start, query) = target.split_once('?').unwrap_or((target, ""));
    let path = match start.split_once("://") {
        Some((_, rest)) => &rest[rest.find(['/', '#']).unwrap_or(rest.len())..],
        None => start,
    };
    let path = path.split('#').next().unwrap_or_default();
    match path {
        "" => ("/", query),
        path => (path, query),
    }
}

/// Compares without a branch on the content, so that timing reveals nothing about `state`.
fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let difference = left
        .iter()
        .zip(right)
        .fold(0_u8, |difference, (l, r)| black_box(difference | (l ^ r)));
    difference == 0
}

#[cfg(test)]
mod tests;
