//! `${VAR}` and `${VAR:-default}` in the values of a config, and how editors write the same.
//!
//! Anything else between `${` and `}` is left as it is: it may be meant for a shell. What a variable
//! holds is taken for a secret, a default is not: it stands in the file for everyone to read.

use std::env::VarError;

use crate::secret::{Secret, is_env_var_name};

/// Variables that only an editor knows.
const OF_EDITORS: [&str; 6] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "file",
    "cwd",
    "pathSeparator",
];

/// A text with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// What came from variables.
    pub(super) secrets: Vec<Secret<String>>,
    /// What looks like a variable and was left as it is.
    pub(super) odd: Option<Odd>,
}

impl Expanded {
    /// A text in which nothing was replaced.
    fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            secrets: Vec::new(),
            odd: None,
        }
    }
}

/// What was perhaps meant as a variable, and is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Odd {
    /// A `${` without a `}`.
    Open,
    /// Between them stands no name, nor anything that a shell would take.
    NoName,
}

impl Odd {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Open => "has a \"${\" that is never closed, so nothing is replaced; add a }",
            Self::NoName => {
                "has a \"${…}\" that holds no name, so it is left as it is; \
                 a name has letters, digits and _ alone"
            }
        }
    }

    /// Whether this is what stands between `${` and `}`.
    fn is_no_name(inside: &str) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ' ';
        inside.is_empty() || inside.contains(' ') && inside.chars().all(word)
    }
}

/// Why a text cannot be expanded. It holds names, never values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Missing {
    #[error("needs the variable {0}, which is not set; set it, or write ${{{0}:-default}}")]
    Unset(String),
    #[error("needs the variable {0}, whose value is no text in UTF-8; set another one")]
    NoText(String),
    /// What stands where a name should may be the value itself, so only what looks like a name is
    /// shown.
    #[error("names the variable {0}, which is not set; set it")]
    Named(String),
    #[error("must be the name of a variable that is set; write a value under \"headers\" instead")]
    NoName,
    #[error(
        "asks for the input {0:?}, which only an editor can ask for; set a variable, and write ${{ITS_NAME}} instead"
    )]
    Input(String),
    #[error("needs ${{{0}}}, which only an editor knows; write it out, or set a variable {0}")]
    OfEditor(String),
    #[error(
        "has a variable within the default of {0}, which is not replaced; write the default out, or set {0}"
    )]
    Nested(String),
}

/// Looks up variables; a name that is not set is an error, never an empty text.
pub(super) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Whether `{env:VAR}` is a variable too, as it is for opencode.
    bare: bool,
    /// Whether references stay as they are written.
    as_written: bool,
}

impl<'a> Variables<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            bare: false,
            as_written: false,
        }
    }

    /// Replaces nothing: a person who reviews a config reads the references and their defaults.
    pub(super) fn as_written() -> Self {
        Self {
            lookup: &|name| Some(format!("${{{name}}}")),
            bare: false,
            as_written: true,
        }
    }

    /// Whether references stay as they are written.
    pub(super) fn are_as_written(&self) -> bool {
        self.as_written
    }

    /// Looks up one variable.
    pub(super) fn lookup(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    /// Replaces `{env:VAR}` too.
    pub(super) fn with_bare(self) -> Self {
        Self { bare: true, ..self }
    }

    /// The value of a variable that is named without `${` and `}`.
    pub(super) fn named(&self, name: &str) -> Result<Expanded, Missing> {
        if self.as_written {
            return Ok(Expanded::plain(name));
        }
        let value = (self.lookup)(name).ok_or_else(|| match is_env_var_name(name) {
            true if is_no_text(name) => Missing::NoText(name.to_owned()),
            true => Missing::Named(name.to_owned()),
            false => Missing::NoName,
        })?;
        Ok(Expanded {
            text: value.clone(),
            secrets: vec![Secret::new(value)],
            odd: None,
        })
    }

    /// The text with its variables replaced.
    pub(super) fn expand(&self, text: &str) -> Result<Expanded, Missing> {
        if self.as_written {
            return Ok(Expanded::plain(text));
        }
        let mut expanded = String::with_capacity(text.len());
        let mut secrets = Vec::new();
        let mut odd = None;
        let mut rest = text;
        while let Some((before, opening, reference)) = self.next(rest) {
            expanded.push_str(before);
            let Some(end) = reference.find('}') else {
                odd = Some(Odd::Open);
                expanded.push_str(opening);
                rest = reference;
                break;
            };
            rest = &reference[end + 1..];
            let inside = &reference[..end];
            odd = odd.or(Odd::is_no_name(inside).then_some(Odd::NoName));
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
            odd,
        })
    }

    /// What is before the next reference, how it opens, and what follows.
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
        if reference.is_input {
            return Err(Missing::Input(name.to_owned()));
        }
        // Its end would be taken for that of the whole.
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
            (None, None) if OF_EDITORS.contains(&name) => Err(Missing::OfEditor(name.to_owned())),
            (None, None) if is_no_text(name) => Err(Missing::NoText(name.to_owned())),
            (None, None) => Err(Missing::Unset(name.to_owned())),
        }
    }
}

/// Whether the environment has a variable that a config cannot take, which is not the same as none.
fn is_no_text(name: &str) -> bool {
    matches!(std::env::var(name), Err(VarError::NotUnicode(_)))
}

/// How a variable opens for opencode.
const BARE: &str = "{env:";

enum Value<'r> {
    Variable(String),
    Default(&'r str),
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// Whether an editor would ask a person for it.
    is_input: bool,
}

impl<'a> Reference<'a> {
    fn read(inside: &'a str, opening: &str) -> Option<Self> {
        let asked = inside.strip_prefix("input:").filter(|_| opening != BARE);
        if let Some(id) = asked {
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
    fn variables_are_replaced_wherever_they_stand() {
        assert_eq!(
            expand("${HOME}/a/${HOME}").unwrap(),
            "/home/ada/a//home/ada"
        );
        assert_eq!(expand("${NOPE:-x y}!").unwrap(), "x y!");
        assert_eq!(expand("[${EMPTY}]").unwrap(), "[]");
        assert_eq!(expand("${EMPTY:-default}").unwrap(), "default");
    }

    #[test]
    fn variables_are_read_as_editors_write_them() {
        assert_eq!(expand("${env:HOME}/a").unwrap(), "/home/ada/a");
        assert_eq!(expand("${userHome}").unwrap(), "/home/ada");
        let bare = Variables::new(&lookup).with_bare();
        let bare = |text| bare.expand(text).unwrap().text;
        assert_eq!(bare("a {env:HOME} ${env:HOME}"), "a /home/ada /home/ada");
        assert_eq!(bare("{env:HOME"), "{env:HOME");
        assert_eq!(expand("{env:HOME}").unwrap(), "{env:HOME}");
    }

    #[test]
    fn what_a_variable_holds_is_a_secret_and_what_the_file_says_is_not() {
        let expanded = expanded("a ${HOME} b ${NOPE:-default}").unwrap();
        assert_eq!(expanded.secrets, [Secret::new("/home/ada".to_owned())]);
        assert_eq!(expanded.text, "a /home/ada b default");
    }

    #[test]
    fn what_is_missing_is_named() {
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
            Err(Missing::OfEditor("workspaceFolder".to_owned()))
        );
    }

    #[test]
    fn what_was_perhaps_meant_as_a_variable_is_said() {
        let odd = |text: &str| expanded(text).unwrap().odd;
        for text in ["${", "a ${HOME} ${open"] {
            assert_eq!(odd(text), Some(Odd::Open), "{text}");
        }
        for text in ["${}", "${A B}", "${ HOME }", "${A B} ${HOME}"] {
            assert_eq!(odd(text), Some(Odd::NoName), "{text}");
        }
        // A shell may be meant.
        for text in [
            "${#x}",
            "${1}",
            "${x%% *}",
            "${x-a b}",
            "$HOME",
            "${HOME}",
            "${X:-a b}",
        ] {
            assert_eq!(odd(text), None, "{text}");
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
    fn what_is_no_variable_is_left_to_others() {
        for text in ["$HOME", "${#x}", "${open", "${}", "100 $", "${input:a b}"] {
            assert_eq!(expand(text).unwrap(), text);
        }
    }
}
