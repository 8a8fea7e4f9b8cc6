//! Values that are never printed, and what keeps them out of texts that are.
//!
//! What is a secret is said by those who describe a server; where texts about it are made, they are
//! cleared of its secrets.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;

#[cfg(any(feature = "stdio", feature = "http"))]
use base64::Engine as _;
#[cfg(any(feature = "stdio", feature = "http"))]
use base64::engine::general_purpose::STANDARD as BASE64;

/// What stands where a secret was.
const HIDDEN: &str = "***";

/// What stands where a text was cut off.
const CUT: char = '…';

/// Shorter values, in characters, are not looked for in what a server says: `1` or `true` is
/// everywhere, and hiding it would hide the message.
pub(crate) const MIN_REDACTED_CHARS: usize = 6;

/// A name without `_` that is longer, in characters, may be a token of capital letters.
#[cfg(any(feature = "config-files", feature = "http"))]
const LONGEST_WORD: usize = 12;

/// Whether a text is a name as variables usually have them, and as tokens do not. Where a variable is
/// to be named, people paste the token itself.
#[cfg(any(feature = "config-files", feature = "http"))]
pub(crate) fn is_env_var_name(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let word = || name.len() <= LONGEST_WORD && !name.contains(|c: char| c.is_ascii_digit());
    let named = name.contains('_') || word();
    !name.is_empty() && name.len() <= 40 && named && name.chars().all(usual)
}

/// Variables that name proxies, in lower case. The upper case is used too.
#[cfg(any(feature = "stdio", feature = "http"))]
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "all_proxy"];

/// The credentials in the proxy variables of an environment. Children inherit these variables, and
/// errors of connections may repeat them.
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

/// The credentials in the user info of an address, with or without its scheme: as a whole, in parts,
/// decoded, and as they are sent.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn url_credentials(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    let Some((user, _)) = place.rsplit_once('@') else {
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

/// The user info of an address as it is sent.
#[cfg(any(feature = "stdio", feature = "http"))]
pub(crate) fn basic_auth(user: &str) -> String {
    BASE64.encode(percent_decode(user))
}

#[cfg(any(feature = "stdio", feature = "http"))]
/// The bytes that percent signs stand for.
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

    /// The value, for the one who needs it.
    pub(crate) fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A command line is made of it.
impl AsRef<OsStr> for Secret<OsString> {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

/// Secrets that are taken out of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets(Vec<Secret<String>>);

impl Secrets {
    /// Those of the values that have at least so many characters, as they are and as a text that
    /// quotes them has them.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v OsStr>, at_least: usize) -> Self {
        let values = values.into_iter().map(OsStr::to_string_lossy);
        let mut values: Vec<String> = values
            .filter(|value| value.chars().count() >= at_least.max(1))
            .flat_map(|value| {
                let quoted = [value.escape_debug().to_string(), in_json(&value)];
                quoted.into_iter().chain([value.into_owned()])
            })
            .collect();
        // A secret may contain another; the longer one goes first, so that nothing of it stays.
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into_iter().map(Secret::new).collect())
    }

    /// The text without the secrets.
    pub(crate) fn redact<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        let mut text = text.into();
        for secret in &self.0 {
            if text.contains(secret.expose()) {
                text = Cow::Owned(text.replace(secret.expose(), HIDDEN));
            }
        }
        match text.strip_suffix(CUT) {
            Some(start) => match self.begun_at_the_end(start) {
                0 => text,
                begun => Cow::Owned(format!("{}{HIDDEN}{CUT}", &start[..start.len() - begun])),
            },
            None => text,
        }
    }

    /// How much of the text's end is the start of a secret that was cut off, in bytes.
    fn begun_at_the_end(&self, text: &str) -> usize {
        let begun = |secret: &Secret<String>| {
            let secret = secret.expose();
            let starts = secret.char_indices().skip(1).map(|(at, _)| &secret[..at]);
            let seen = starts.filter(|start| text.ends_with(start));
            let long = seen.filter(|start| start.chars().count() >= MIN_REDACTED_CHARS);
            long.map(str::len).max().unwrap_or(0)
        };
        self.0.iter().map(begun).max().unwrap_or(0)
    }

    /// The text without the secrets, where its start was cut off, perhaps within one.
    pub(crate) fn redact_tail<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let cut = self.0.iter().map(|secret| cut_off(secret.expose(), text));
        match cut.max() {
            Some(cut) if cut > 0 => self.redact(format!("{HIDDEN}{}", &text[cut..])),
            _ => self.redact(text),
        }
    }
}

/// A text as it stands between the quotes of JSON.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// How much of the text's start is the end of a secret, in bytes.
fn cut_off(secret: &str, text: &str) -> usize {
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
    fn every_occurrence_is_taken_out_the_longest_first() {
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
    fn short_values_do_not_hide_the_message() {
        assert_eq!(secrets(&["1", "true", ""]).redact("1 is true"), "1 is true");
        let short = Secrets::new([OsStr::new("1"), OsStr::new("")], 0);
        assert_eq!(short.redact("v1"), "v***");
    }

    #[test]
    fn a_secret_is_found_where_it_is_quoted_or_cut_off() {
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
            let said = "agent:p%40ss-canary, p@ss-canary, Basic YWdlbnQ6cEBzcy1jYW5hcnk=, proxy";
            assert_eq!(secrets.redact(said), "***, ***, Basic ***, proxy", "{name}");
        }
        assert_eq!(url_credentials("http://proxy:3128"), [""; 0]);
    }

    #[test]
    fn the_end_of_a_secret_that_was_cut_off_is_taken_out_too() {
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
        fn no_text_keeps_a_secret(
            values in vec("[ab]{1,8}", 0..4),
            text in "[abc]{0,60}",
            at_least in 1..7_usize,
        ) {
            let secrets = Secrets::new(values.iter().map(OsStr::new), at_least);
            for shown in [secrets.redact(&text), secrets.redact_tail(&text)] {
                for value in values.iter().filter(|value| value.len() >= at_least) {
                    prop_assert!(!shown.contains(value), "{value} in {shown}");
                }
            }
        }
    }
}
