//! Expands `${VAR}` and `${VAR:-default}` in the values of a config, in the spellings of editors
//! too.
//!
//! Anything else between `${` and `}` is unchanged: it may be meant for a shell. The value of a
//! variable is treated as a secret; a default is not, since it is in the file.

use std::env::VarError;

use crate::link::CLIENT_PLACEHOLDER;
use crate::secret::{Secret, is_env_var_name};

/// The variable that is the name of a connection's client: [`CLIENT_PLACEHOLDER`].
const CLIENT_VARIABLE: &str = "MCPVISOR_CLIENT";

/// Variables that only editors define.
const EDITOR_VARIABLES: [&str; 6] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "file",
    "cwd",
    "pathSeparator",
];

/// An expanded text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// The values of the variables.
    pub(super) secrets: Vec<Secret<String>>,
    /// A part that looks like a variable and was not expanded.
    pub(super) malformed: Option<Malformed>,
}

impl Expanded {
    /// A text without variables.
    fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            secrets: Vec::new(),
            malformed: None,
        }
    }
}

/// A part that was perhaps meant as a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// A `${` without a `}`.
    Unclosed,
    /// A `${…}` that holds neither a name nor anything that a shell would accept.
    InvalidName,
}

impl Malformed {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Unclosed => "has an unclosed \"${\", which is not expanded; add a }",
            Self::InvalidName => {
                "has a \"${…}\" without a valid name, which is not expanded; \
                 a name has letters, digits and _"
            }
        }
    }

    /// Whether the text between `${` and `}` is not a name.
    fn is_invalid_name(inside: &str) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ' ';
        inside.is_empty() || inside.contains(' ') && inside.chars().all(word)
    }
}

/// Why a text cannot be expanded. It holds names, never values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Missing {
    #[error("needs the variable {0}, which is not set; set it, or write ${{{0}:-default}}")]
    Unset(String),
    #[error("needs the variable {0}, whose value is not valid UTF-8")]
    NotUtf8(String),
    /// The user may have written the value in place of the name, so only a text that looks like a
    /// name is shown.
    #[error("names the variable {0}, which is not set")]
    UnsetName(String),
    #[error("must be the name of a variable that is set; write a value under \"headers\" instead")]
    InvalidName,
    #[error("has ${{input:{0}}}, which needs a terminal; use ${{VAR}}")]
    Input(String),
    #[error("needs ${{{0}}}, which only editors define; write the value, or set a variable {0}")]
    EditorOnly(String),
    #[error(
        "has a variable within the default of {0}, which is not expanded; write the default out, or set {0}"
    )]
    Nested(String),
}

/// Expands variables. An unset variable is an error, never an empty text.
pub(super) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Whether `{env:VAR}` is a variable too, as in opencode.
    pub(super) bare: bool,
    /// Whether references are not expanded.
    pub(super) as_written: bool,
}

impl<'a> Variables<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            bare: false,
            as_written: false,
        }
    }

    /// Expands nothing: a person who reviews a config sees the references and their defaults.
    pub(super) fn as_written() -> Self {
        Self {
            lookup: &|name| Some(format!("${{{name}}}")),
            bare: false,
            as_written: true,
        }
    }

    /// Looks up one variable.
    pub(super) fn lookup(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    /// The value of a variable that is named without `${` and `}`.
    pub(super) fn named(&self, name: &str) -> Result<Expanded, Missing> {
        if self.as_written {
            return Ok(Expanded::plain(name));
        }
        let value = (self.lookup)(name).ok_or_else(|| match is_env_var_name(name) {
            true if is_not_utf8(name) => Missing::NotUtf8(name.to_owned()),
            true => Missing::UnsetName(name.to_owned()),
            false => Missing::InvalidName,
        })?;
        Ok(Expanded {
            text: value.clone(),
            secrets: vec![Secret::new(value)],
            malformed: None,
        })
    }

    /// Expands a text.
    pub(super) fn expand(&self, text: &str) -> Result<Expanded, Missing> {
        if self.as_written {
            return Ok(Expanded::plain(text));
        }
        let mut expanded = String::with_capacity(text.len());
        let mut secrets = Vec::new();
        let mut malformed = None;
        let mut rest = text;
        while let Some((before, opening, reference)) = self.next(rest) {
            expanded.push_str(before);
            let Some(end) = reference.find('}') else {
                malformed = Some(Malformed::Unclosed);
                expanded.push_str(opening);
                rest = reference;
                break;
            };
            rest = &reference[end + 1..];
            let inside = &reference[..end];
            let is_invalid = Malformed::is_invalid_name(inside);
            malformed = malformed.or(is_invalid.then_some(Malformed::InvalidName));
            match Reference::read(inside, opening) {
                Some(reference) => match self.value(&reference)? {
                    Value::Variable(value) => {
                        expanded.push_str(&value);
                        secrets.push(Secret::new(value));
                    }
                    Value::Default(default) => expanded.push_str(default),
                },
                None => {
                    expanded.push_str(opening);
                    expanded.push_str(&reference[..=end]);
                }
            }
        }
        expanded.push_str(rest);
        Ok(Expanded {
            text: expanded,
            secrets,
            malformed,
        })
    }

    /// Splits a text at the next reference: the text before it, its opening, and the rest.
    fn next<'t>(&self, text: &'t str) -> Option<(&'t str, &'static str, &'t str)> {
        let at = |opening: &'static str| text.find(opening).map(|at| (at, opening));
        let dollar = at("${");
        let bare = if self.bare { at(BARE) } else { None };
        let (start, opening) = match (dollar, bare) {
            // `${env:VAR}` has both.
            (Some(dollar), Some(bare)) if bare.0 < dollar.0 => bare,
            (Some(dollar), _) => dollar,
            (None, bare) => bare?,
        };
        Some((&text[..start], opening, &text[start + opening.len()..]))
    }

    fn value<'r>(&self, reference: &Reference<'r>) -> Result<Value<'r>, Missing> {
        let name = reference.name;
        if name == CLIENT_VARIABLE {
            // Expanded for each connection.
            return Ok(Value::Default(CLIENT_PLACEHOLDER));
        }
        if reference.is_input {
            return Err(Missing::Input(name.to_owned()));
        }
        // The inner `}` would end the outer reference.
        if reference
            .default
            .is_some_and(|default| default.contains("${"))
        {
            return Err(Missing::Nested(name.to_owned()));
        }
        let value = (self.lookup)(name).or_else(|| match name {
            "userHome" => (self.lookup)("HOME"),
            _ => None,
        });
        match (value, reference.default) {
            (Some(value), None) => Ok(Value::Variable(value)),
            (Some(value), Some(_)) if !value.is_empty() => Ok(Value::Variable(value)),
            (_, Some(default)) => Ok(Value::Default(default)),
            (None, None) if EDITOR_VARIABLES.contains(&name) => {
                Err(Missing::EditorOnly(name.to_owned()))
            }
            (None, None) if is_not_utf8(name) => Err(Missing::NotUtf8(name.to_owned())),
            (None, None) => Err(Missing::Unset(name.to_owned())),
        }
    }
}

/// Whether a variable is set to a value that is not UTF-8, so that it is not reported as unset.
fn is_not_utf8(name: &str) -> bool {
    matches!(std::env::var(name), Err(VarError::NotUnicode(_)))
}

/// The opening of a variable in opencode.
const BARE: &str = "{env:";

enum Value<'r> {
    Variable(String),
    Default(&'r str),
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// Whether an editor would prompt a person for it.
    is_input: bool,
}

impl<'a> Reference<'a> {
    fn read(inside: &'a str, opening: &str) -> Option<Self> {
        let input = inside.strip_prefix("input:").filter(|_| opening != BARE);
        if let Some(id) = input {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            return id.chars().all(plain).then_some(Self {
                name: id,
                default: None,
                is_input: true,
            });
        }
        let inside = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (starts && plain).then_some(Self {
            name,
            default,
            is_input: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, Missing> {
        expanded(text).map(|expanded| expanded.text)
    }

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/ada".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn expanded(text: &str) -> Result<Expanded, Missing> {
        Variables::new(&lookup).expand(text)
    }

    #[test]
    fn variables_are_expanded_anywhere_in_a_text() {
        assert_eq!(
            expand("${HOME}/a/${HOME}").unwrap(),
            "/home/ada/a//home/ada"
        );
        assert_eq!(expand("${NOPE:-x y}!").unwrap(), "x y!");
        assert_eq!(expand("[${EMPTY}]").unwrap(), "[]");
        assert_eq!(expand("${EMPTY:-default}").unwrap(), "default");
    }

    #[test]
    fn the_spellings_of_editors_are_expanded() {
        assert_eq!(expand("${env:HOME}/a").unwrap(), "/home/ada/a");
        assert_eq!(expand("${userHome}").unwrap(), "/home/ada");
        let bare = Variables {
            bare: true,
            ..Variables::new(&lookup)
        };
        let bare = |text| bare.expand(text).unwrap().text;
        assert_eq!(bare("a {env:HOME} ${env:HOME}"), "a /home/ada /home/ada");
        assert_eq!(bare("{env:HOME"), "{env:HOME");
        assert_eq!(expand("{env:HOME}").unwrap(), "{env:HOME}");
    }

    #[test]
    fn the_value_of_a_variable_is_a_secret_and_a_default_is_not() {
        let expanded = expanded("a ${HOME} b ${NOPE:-default}").unwrap();
        assert_eq!(expanded.secrets, [Secret::new("/home/ada".to_owned())]);
        assert_eq!(expanded.text, "a /home/ada b default");
    }

    #[test]
    fn a_missing_variable_is_named() {
        assert_eq!(
            expand("a ${NOPE} b"),
            Err(Missing::Unset("NOPE".to_owned()))
        );
        assert_eq!(
            expand("${input:api-key}"),
            Err(Missing::Input("api-key".to_owned()))
        );
        assert_eq!(
            expand("${workspaceFolder}/x"),
            Err(Missing::EditorOnly("workspaceFolder".to_owned()))
        );
    }

    #[test]
    fn a_malformed_variable_is_reported() {
        let malformed = |text: &str| expanded(text).unwrap().malformed;
        for text in ["${", "a ${HOME} ${open"] {
            assert_eq!(malformed(text), Some(Malformed::Unclosed), "{text}");
        }
        for text in ["${}", "${A B}", "${ HOME }", "${A B} ${HOME}"] {
            assert_eq!(malformed(text), Some(Malformed::InvalidName), "{text}");
        }
        // These may be meant for a shell.
        for text in [
            "${#x}",
            "${1}",
            "${x%% *}",
            "${x-a b}",
            "$HOME",
            "${HOME}",
            "${X:-a b}",
        ] {
            assert_eq!(malformed(text), None, "{text}");
        }
        for text in [
            "${NOPE:-${HOME}}",
            "${HOME:-${NOPE}}",
            "${env:X_Y:-${HOME}/a}",
        ] {
            assert!(matches!(expand(text), Err(Missing::Nested(_))), "{text}");
        }
    }

    #[test]
    fn a_text_without_variables_is_unchanged() {
        for text in ["$HOME", "${#x}", "${open", "${}", "100 $", "${input:a b}"] {
            assert_eq!(expand(text).unwrap(), text);
        }
    }
}
