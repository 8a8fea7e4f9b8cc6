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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_tokens::discovered;

    fn expected() -> ExpectedCallback {
        let config = CredentialConfig::new("https://mcp.example.com");
        let uri = "http://127.0.0.1:8123/callback";
        ExpectedCallback::new(&config, &discovered(), uri, Secret::new("state-1"))
    }

    const ISS: &str = "iss=https%3A%2F%2Fas.example.com";

    fn code() -> Callback {
        Callback::Code(Secret::new("code-1"))
    }

    fn failure(callback: Callback) -> String {
        match callback {
            Callback::Failed(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_callback_is_read_in_every_pasted_form() {
        let query = format!("code=code-1&state=state-1&{ISS}");
        for text in [
            query.clone(),
            format!("?{query}"),
            format!("/callback?{query}"),
            format!("http://127.0.0.1:8123/callback?{query}"),
            format!("  \"http://localhost:1/callback?{query}#_=_\"\n"),
        ] {
            assert_eq!(expected().read_pasted(&text), code(), "{text}");
        }
    }

    #[test]
    fn another_path_or_state_is_ignored() {
        let read = |target: &str| expected().read_target(target);
        for (target, reason) in [
            ("/favicon.ico", IgnoredCallback::OtherPath),
            (
                "/callback/?code=c&state=state-1",
                IgnoredCallback::OtherPath,
            ),
            ("/callback", IgnoredCallback::NoState),
            ("/callback?code=c", IgnoredCallback::NoState),
            ("/callback?code=c&state=", IgnoredCallback::OtherState),
            (
                "/callback?code=c&state=state-2",
                IgnoredCallback::OtherState,
            ),
            (
                "/callback?code=c&state=state-10",
                IgnoredCallback::OtherState,
            ),
            ("/callback?error=x&state=state", IgnoredCallback::OtherState),
            (
                "/callback?state=state-1&state=state-1",
                IgnoredCallback::NoState,
            ),
        ] {
            assert_eq!(read(target), Callback::Ignored(reason), "{target}");
        }
        let long = format!(
            "/callback?state=state-1&code={}",
            "x".repeat(MAX_CALLBACK_BYTES)
        );
        assert_eq!(read(&long), Callback::Ignored(IgnoredCallback::TooLong));
    }

    #[test]
    fn an_announced_issuer_must_be_there_and_match_byte_for_byte() {
        let read =
            |query: &str| expected().read_pasted(&format!("state=state-1&code=code-1{query}"));
        assert!(failure(read("")).contains("lacks `iss`"));
        for iss in [
            "https://as.example.com/",
            "https://AS.example.com",
            "https://evil.example.com",
            "",
        ] {
            let error = failure(read(&format!("&iss={iss}")));
            assert!(error.contains("instead of"), "{error}");
        }
        assert_eq!(read(&format!("&{ISS}")), code());
        assert!(failure(read(&format!("&{ISS}&{ISS}"))).contains("more than once"));
    }

    #[test]
    fn an_issuer_that_was_not_announced_is_still_compared() {
        let mut expected = expected();
        expected.iss_required = false;
        assert_eq!(expected.read_pasted("state=state-1&code=code-1"), code());
        let other = "state=state-1&code=code-1&iss=https://evil.example.com";
        failure(expected.read_pasted(other));
        expected.issuer_exception = Some("https://evil.example.com".into());
        assert_eq!(expected.read_pasted(other), code());
    }

    #[test]
    fn an_error_is_typed_and_cleaned() {
        let query = format!(
            "state=state-1&{ISS}&error=access_denied&error_description=no%0A%1B%5B31m+way&code=c"
        );
        assert_eq!(
            expected().read_pasted(&query),
            Callback::Failed(AuthError::Refused {
                request: "login to https://as.example.com".into(),
                status: 302,
                error: "access_denied".into(),
                description: Some("no [31m way".into()),
            })
        );
    }

    #[test]
    fn a_forged_issuer_hides_the_error_it_brings() {
        let error = failure(expected().read_pasted("state=state-1&iss=x&error=access_denied"));
        assert!(!error.contains("access_denied"), "{error}");
    }

    #[test]
    fn a_callback_without_code_fails() {
        assert!(
            failure(expected().read_pasted(&format!("state=state-1&{ISS}"))).contains("neither")
        );
        let empty = format!("state=state-1&{ISS}&code=");
        assert!(failure(expected().read_pasted(&empty)).contains("neither"));
    }

    #[test]
    fn debug_shows_neither_state_nor_code() {
        let text = format!("{:?} {:?}", expected(), code());
        assert!(
            !text.contains("state-1") && !text.contains("code-1"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in any::<String>()) {
            let _ = expected().read_pasted(&text);
            let _ = expected().read_target(&text);
        }

        #[test]
        fn no_other_state_yields_a_code(state in "[a-z0-9-]{0,10}") {
            prop_assume!(state != "state-1");
            let callback = expected().read_pasted(&format!("code=c&state={state}&{ISS}"));
            prop_assert!(matches!(callback, Callback::Ignored(_)));
        }
    }
}
