//! Arguments of a call: `KEY=VALUE`, `KEY:=JSON` and a whole JSON object.
//!
//! A plain value is typed by the tool's schema; if it does not parse as that type, it stays a string.
//! [`schema_check`] checks the result.

use serde_json::{Map, Value};

use super::typed_value::{Rounded, Schema};
use super::{exact_integers, schema_check};

/// Parsed arguments, before the tool's schema is known.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    whole: Map<String, Value>,
    pairs: Vec<Pair>,
}

#[derive(Debug)]
enum Pair {
    Text { key: String, value: String },
    Json { key: String, value: Value },
}

impl Pair {
    fn key(&self) -> &str {
        match self {
            Self::Text { key, .. } | Self::Json { key, .. } => key,
        }
    }
}

impl Arguments {
    /// Parses the words after the tool and the object of `--args`; the words take precedence.
    pub(crate) fn parse(words: &[String], whole: Option<&str>) -> Result<Self, String> {
        Ok(Self {
            whole: whole.map_or_else(|| Ok(Map::new()), object)?,
            pairs: words
                .iter()
                .map(|word| pair(word))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether there is an argument of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.whole.contains_key(name) || self.pairs.iter().any(|pair| pair.key() == name)
    }

    /// Whether a schema is needed: a plain value may be a string or a number.
    pub(crate) fn need_types(&self) -> bool {
        let mut pairs = self.pairs.iter();
        pairs.any(|pair| matches!(pair, Pair::Text { .. }))
    }

    /// The object to send, typed by the tool's schema and checked against it. The error names every
    /// problem and the usage of the tool.
    pub(crate) fn checked(
        self,
        tool: &str,
        schema: &Map<String, Value>,
    ) -> Result<Map<String, Value>, String> {
        let exact = self.pairs.iter().filter_map(|pair| match pair {
            Pair::Json { key, .. } => Some(key.clone()),
            Pair::Text { .. } => None,
        });
        let exact: Vec<String> = exact.collect();
        let arguments = self.typed(schema)?;
        let problems = schema_check::problems(&arguments, &exact, schema);
        if problems.is_empty() {
            return Ok(arguments);
        }
        let usage = schema_check::usage(tool, schema);
        Err(format!("{}. Usage: {usage}", problems.join("; ")))
    }

    /// The object to send for a prompt, whose arguments are strings. JSON values become their text.
    pub(crate) fn texts(self) -> Result<Map<String, Value>, String> {
        let arguments = self.typed(&Map::new())?.into_iter();
        let text = |value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let arguments = arguments.map(|(key, value)| (key, Value::String(text(value))));
        Ok(arguments.collect())
    }

    /// The object to send, typed by the tool's schema.
    pub(crate) fn typed(self, schema: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let mut arguments = self.whole;
        let mut written: Vec<String> = Vec::new();
        for pair in self.pairs {
            let (key, value) = match pair {
                Pair::Text { key, value } => {
                    let read = Schema::read_argument(schema, &key, &value);
                    let read = read.or_else(|Rounded| exactly(&value).map(|()| Value::Null))?;
                    (key, read)
                }
                Pair::Json { key, value } => (key, value),
            };
            if !written.contains(&key) {
                written.push(key.clone());
                arguments.insert(key, value);
                continue;
            }
            // A repeated key appends to a list.
            match (arguments.get_mut(&key), value) {
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                _ => return Err(format!("{key:?} is given twice and is not a list")),
            }
        }
        Ok(arguments)
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    let read = serde_json::from_str(text);
    if read.is_ok() {
        exactly(text)?;
    }
    match read {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("--args must be a JSON object".to_owned()),
        Err(error) => Err(format!("--args is not valid JSON: {error}")),
    }
}

/// Rejects integers that would be rounded.
fn exactly(json: &str) -> Result<(), String> {
    match exact_integers::too_large(json) {
        Some(number) => Err(format!(
            "{number} is too large to be sent exactly. Quote it, or add \".0\" if it may be rounded."
        )),
        None => Ok(()),
    }
}

fn pair(word: &str) -> Result<Pair, String> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(format!(
            "invalid argument {word:?}: expected KEY=VALUE or KEY:=JSON"
        ));
    };
    let (key, json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    if key.is_empty() {
        return Err(format!("invalid argument {word:?}: expected KEY=VALUE"));
    }
    let key = key.to_owned();
    if !json {
        let value = value.to_owned();
        return Ok(Pair::Text { key, value });
    }
    match serde_json::from_str(value) {
        Ok(read) => exactly(value).map(|()| Pair::Json { key, value: read }),
        Err(error) => Err(format!("{key:?} is not valid JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(words: &[&str], whole: Option<&str>) -> Result<Value, String> {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer" }, "tags": { "type": "array", "items": { "type": "string" } },
        } });
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let arguments = Arguments::parse(&words, whole)?;
        arguments
            .typed(schema.as_object().unwrap())
            .map(Value::Object)
    }

    #[test]
    fn pairs_and_the_whole_object_are_merged_and_pairs_win() {
        let merged = typed(
            &["n=2", "x:={\"y\":[1]}", "q=a=b"],
            Some(r#"{"n": 1, "z": null}"#),
        );
        assert_eq!(
            merged.unwrap(),
            json!({"n": 2, "x": {"y": [1]}, "q": "a=b", "z": null})
        );
    }

    #[test]
    fn json_arguments_of_a_prompt_become_strings() {
        let words = ["a=5", "b:=5", "c:=\"x\"", "d:={\"y\":[1]}"].map(str::to_owned);
        let texts = Arguments::parse(&words, None).unwrap().texts().unwrap();
        let expected = json!({"a": "5", "b": "5", "c": "x", "d": "{\"y\":[1]}"});
        assert_eq!(Value::Object(texts), expected);
    }

    #[test]
    fn a_repeated_key_extends_a_list_and_is_an_error_otherwise() {
        assert_eq!(
            typed(&["tags=a", "tags=b"], None).unwrap(),
            json!({"tags": ["a", "b"]})
        );
        assert!(typed(&["n=1", "n=2"], None).unwrap_err().contains("twice"));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (words, whole) in [
            (vec!["word"], None),
            (vec!["=x"], None),
            (vec!["k:=oops"], None),
            (vec![], Some("[1]")),
            (vec![], Some("oops")),
            (vec!["k:=99999999999999999999"], None),
            (vec![], Some(r#"{"k": [99999999999999999999]}"#)),
        ] {
            assert!(typed(&words, whole).is_err(), "{words:?} {whole:?}");
        }
    }
}
