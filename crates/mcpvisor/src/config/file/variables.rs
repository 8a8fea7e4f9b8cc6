//! `${VAR}` and `${VAR:-default}` in the values of a config.
//!
//! Anything else between `${` and `}` is left as it is: it may be meant for a shell. What a variable
//! holds is taken for a secret, a default is not: it stands in the file for everyone to read.

use crate::secret::Secret;

/// A text with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// What came from variables.
    pub(super) secrets: Vec<Secret<String>>,
}

/// Looks up variables; a name that is not set is an error, never an empty text.
pub(super) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup }
    }

    /// The text with its variables replaced, or the name of the one that is missing.
    pub(super) fn expand(&self, text: &str) -> Result<Expanded, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut secrets = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, reference) = rest.split_at(start);
            expanded.push_str(before);
            let Some(end) = reference.find('}') else {
                rest = reference;
                break;
            };
            let inside = &reference[2..end];
            rest = &reference[end + 1..];
            match Reference::read(inside) {
                Some(reference) => match self.value(&reference)? {
                    Value::Variable(value) => {
                        expanded.push_str(&value);
                        secrets.push(Secret::new(value));
                    }
                    Value::Default(default) => expanded.push_str(default),
                },
                None => expanded.push_str(&reference[..=end]),
            }
        }
        expanded.push_str(rest);
        Ok(Expanded {
            text: expanded,
            secrets,
        })
    }

    fn value<'r>(&self, reference: &Reference<'r>) -> Result<Value<'r>, String> {
        let value = (self.lookup)(reference.name);
        match (value, reference.default) {
            (Some(value), None) => Ok(Value::Variable(value)),
            (Some(value), Some(_)) if !value.is_empty() => Ok(Value::Variable(value)),
            (_, Some(default)) => Ok(Value::Default(default)),
            (None, None) => Err(reference.name.to_owned()),
        }
    }
}

enum Value<'r> {
    Variable(String),
    Default(&'r str),
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn read(inside: &'a str) -> Option<Self> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (starts && plain).then_some(Self { name, default })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        expanded(text).map(|expanded| expanded.text)
    }

    fn expanded(text: &str) -> Result<Expanded, String> {
        let lookup = |name: &str| match name {
            "HOME" => Some("/home/ada".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
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
    fn what_a_variable_holds_is_a_secret_and_what_the_file_says_is_not() {
        let expanded = expanded("a ${HOME} b ${NOPE:-default}").unwrap();
        assert_eq!(expanded.secrets, [Secret::new("/home/ada".to_owned())]);
        assert_eq!(expanded.text, "a /home/ada b default");
    }

    #[test]
    fn a_missing_variable_is_named() {
        assert_eq!(expand("a ${NOPE} b"), Err("NOPE".to_owned()));
    }

    #[test]
    fn what_is_no_variable_is_left_to_others() {
        for text in ["$HOME", "${#x}", "${open", "${}", "100 $", "${env:HOME}"] {
            assert_eq!(expand(text).unwrap(), text);
        }
    }
}
