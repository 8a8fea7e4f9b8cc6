//! Values that are never printed, and the redaction of such values in texts.
//!
//! The transport lists the secrets of a server. Texts about the server are redacted where they are
//! created.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;

#[cfg(any(feature = "stdio", feature = "http"))]
use base64::Engine as _;
#[cfg(any(feature = "stdio", feature = "http"))]
use base64::engine::general_purpose::STANDARD as BASE64;

/// Replaces a secret.
const REDACTED: &str = "***";

/// Marks the end of a truncated text.
const ELLIPSIS: char = '…';

/// Values with fewer characters are not redacted in texts of a server: replacing every `1` or
/// `true` would make them unreadable.
pub(crate) const MIN_REDACTED_CHARS: usize = 6;

/// A longer name without `_` may be a token of capital letters.
#[cfg(any(feature = "config-files", feature = "http"))]
const MAX_WORD_CHARS: usize = 12;

/// Whether a text looks like the name of a variable and not like a token: users may paste the token
/// where the name of a variable is expected.
#[cfg(any(feature = "config-files", feature = "http"))]
pub(crate) fn is_env_var_name(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_word = || name.len() <= MAX_WORD_CHARS && !name.contains(|c: char| c.is_ascii_digit());
    let is_name = name.contains('_') || is_word();
    !name.is_empty() && name.len() <= 40 && is_name && name.chars().all(usual)
}

/// Whether the name of a variable may be shown: it is set, or looks like one.
#[cfg(any(feature = "config-files", feature = "http"))]
pub(crate) fn is_shown_variable(name: &str) -> bool {
    is_env_var_name(name) || std::env::var_os(name).is_some()
}

/// Proxy variables in lower case; they are also used in upper case.
#[cfg(any(feature = "stdio", feature = "http"))]
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "all_proxy"];

/// The credentials in the proxy variables. Children inherit these variables, and connection errors
/// may repeat them.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn proxy_credentials(variable: impl Fn(&OsStr) -> Option<OsString>) -> Vec<String> {
    let names = PROXIES
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.to_ascii_uppercase()]);
    let values = names.filter_map(|name| variable(OsStr::new(&name)));
    values
        .flat_map(|value| url_credentials(&value.to_string_lossy()))
        .collect()
}

/// The credentials in a URL, with or without a scheme: as a whole, user and password alone,
/// decoded, and in the form of basic authentication.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn url_credentials(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let address = rest.split(['?', '#']).next().unwrap_or_default();
    let Some((user, _)) = address.rsplit_once('@') else {
        return Vec::new();
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let parts = [user, name, password]
        .into_iter()
        .filter(|it| !it.is_empty());
    let decoded = |part: &str| String::from_utf8_lossy(&percent_decode(part)).into_owned();
    parts
        .flat_map(|part| [part.to_owned(), decoded(part)])
        .chain([basic_auth(user)])
        .collect()
}

/// The user info of a URL, encoded for basic authentication.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn basic_auth(user: &str) -> String {
    BASE64.encode(percent_decode(user))
}

/// Decodes percent-encoding; invalid sequences stay as they are.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut rest = bytes.clone();
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (byte, digit(rest.next()), digit(rest.next())) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                bytes = rest;
            }
            _ => decoded.push(byte),
        }
    }
    decoded
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret<T>(T);

impl<T> Secret<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The unprotected value.
    pub(crate) fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl AsRef<OsStr> for Secret<OsString> {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

/// Secrets that are redacted in texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets(Vec<Secret<String>>);

impl Secrets {
    /// The values with at least `min_chars` characters, as they are and in quoted forms.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v OsStr>, min_chars: usize) -> Self {
        let values = values.into_iter().map(OsStr::to_string_lossy);
        let mut values: Vec<String> = values
            .filter(|value| value.chars().count() >= min_chars.max(1))
            .flat_map(|value| {
                let quoted = [value.escape_debug().to_string(), escape_json(&value)];
                quoted.into_iter().chain([value.into_owned()])
            })
            .collect();
        // A secret may contain another one, so the longest is replaced first.
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into_iter().map(Secret::new).collect())
    }

    /// Replaces the secrets in a text.
    pub(crate) fn redact<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        let mut text = text.into();
        for secret in &self.0 {
            if text.contains(secret.expose()) {
                text = Cow::Owned(text.replace(secret.expose(), REDACTED));
            }
        }
        match text.strip_suffix(ELLIPSIS) {
            Some(start) => match self.truncated_at_end(start) {
                0 => text,
                length => Cow::Owned(format!(
                    "{}{REDACTED}{ELLIPSIS}",
                    &start[..start.len() - length]
                )),
            },
            None => text,
        }
    }

    /// How many bytes at the end of the text are the start of a truncated secret.
    fn truncated_at_end(&self, text: &str) -> usize {
        let truncated = |secret: &Secret<String>| {
            let secret = secret.expose();
            let starts = secret.char_indices().skip(1).map(|(at, _)| &secret[..at]);
            let seen = starts.filter(|start| text.ends_with(start));
            let long = seen.filter(|start| start.chars().count() >= MIN_REDACTED_CHARS);
            long.map(str::len).max().unwrap_or(0)
        };
        self.0.iter().map(truncated).max().unwrap_or(0)
    }

    /// Replaces the secrets in the tail of a text, which may start within a secret.
    pub(crate) fn redact_tail<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let cut = self
            .0
            .iter()
            .map(|secret| truncated_at_start(secret.expose(), text));
        match cut.max() {
            Some(cut) if cut > 0 => self.redact(format!("{REDACTED}{}", &text[cut..])),
            _ => self.redact(text),
        }
    }
}

/// A text escaped as in a JSON string.
fn escape_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// How many bytes at the start of the text are the end of a secret.
fn truncated_at_start(secret: &str, text: &str) -> usize {
    let ends = secret.char_indices().skip(1).map(|(at, _)| &secret[at..]);
    ends.filter(|end| end.chars().count() >= MIN_REDACTED_CHARS)
        .find(|end| text.starts_with(end))
        .map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(values.iter().map(OsStr::new), MIN_REDACTED_CHARS)
    }

    #[test]
    fn a_secret_never_prints() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "it is printed")]
        struct Holder {
            token: Secret<String>,
        }
        let holder = Holder {
            token: Secret::new("canary".to_owned()),
        };
        assert_eq!(format!("{holder:?}"), "Holder { token: *** }");
        assert_eq!(format!("{:?}", secrets(&["canary"])), "Secrets([***])");
    }

    #[test]
    fn every_occurrence_is_redacted_the_longest_first() {
        let secrets = secrets(&["canary", "canary-bird", "canary"]);
        assert_eq!(
            secrets.redact("canary-bird, canary and a canary-bird"),
            "***, *** and a ***"
        );
        assert!(matches!(
            secrets.redact("nothing"),
            Cow::Borrowed("nothing")
        ));
    }

    #[test]
    fn short_values_are_not_redacted() {
        assert_eq!(secrets(&["1", "true", ""]).redact("1 is true"), "1 is true");
        let short = Secrets::new([OsStr::new("1"), OsStr::new("")], 0);
        assert_eq!(short.redact("v1"), "v***");
    }

    #[test]
    fn quoted_and_truncated_secrets_are_redacted() {
        let secrets = secrets(&["can\"ary\\bird\u{7}"]);
        let shown = secrets.redact(r#"said "can\"ary\\bird\u{7}", "can\"ary\\bird\u0007""#);
        assert_eq!(shown, r#"said "***", "***""#);
        assert_eq!(secrets.redact("it was can\"ary…"), "it was ***…");
        assert_eq!(secrets.redact("it was can\"a…"), "it was can\"a…");
        assert_eq!(secrets.redact("it was can\"ary"), "it was can\"ary");
    }

    #[cfg(any(feature = "stdio", feature = "http"))]
    #[test]
    fn the_credentials_of_proxies_are_secret_in_every_form() {
        for (name, url) in [
            ("http_proxy", "http://agent:p%40ss-canary@proxy:3128"),
            ("HTTP_PROXY", "http://agent:p%40ss-canary@proxy:3128/"),
            ("https_proxy", "agent:p%40ss-canary@proxy:3128"),
            ("HTTPS_PROXY", "https://agent:p%40ss-canary@proxy"),
            ("all_proxy", "socks5h://agent:p%40ss-canary@proxy"),
            ("ALL_PROXY", "http://agent:p%40ss-canary@proxy:3128?x#y"),
        ] {
            let found = proxy_credentials(|wanted| (wanted == name).then(|| url.into()));
            let secrets = Secrets::new(found.iter().map(OsStr::new), MIN_REDACTED_CHARS);
            let text = "agent:p%40ss-canary, p@ss-canary, Basic YWdlbnQ6cEBzcy1jYW5hcnk=, proxy";
            assert_eq!(secrets.redact(text), "***, ***, Basic ***, proxy", "{name}");
        }
        assert_eq!(url_credentials("http://proxy:3128"), [""; 0]);
    }

    #[test]
    fn the_end_of_a_secret_is_redacted_at_the_start_of_a_tail() {
        let secrets = secrets(&["s3cret-canary"]);
        assert_eq!(secrets.redact_tail("canary and more"), "*** and more");
        assert_eq!(secrets.redact_tail("anary and more"), "anary and more");
        assert_eq!(secrets.redact_tail("canary s3cret-canary"), "*** ***");
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::budget;

    proptest! {
        #![proptest_config(budget(300))]

        #[test]
        fn redaction_leaves_no_secret_in_a_text(
            values in vec("[ab]{1,8}", 0..4),
            text in "[abc]{0,60}",
            min_chars in 1..7_usize,
        ) {
            let secrets = Secrets::new(values.iter().map(OsStr::new), min_chars);
            for shown in [secrets.redact(&text), secrets.redact_tail(&text)] {
                for value in values.iter().filter(|value| value.len() >= min_chars) {
                    prop_assert!(!shown.contains(value), "{value} in {shown}");
                }
            }
        }
    }
}
