//! The arguments of a call: `KEY=VALUE`, `KEY:=JSON` and a whole JSON object.
//!
//! A plain value gets its type from the tool's schema; what cannot be read as its type stays the text
//! that it is. Whether the whole fits is looked at in [`schema_check`].

use serde_json::{Map, Value};

use super::typed_value::{Rounded, Schema};
use super::{exact_integers, schema_check};

/// What was written, before the tool's schema is known.
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
    /// Reads the words after the tool, and the object of `--args`; the words win.
    pub(crate) fn read(words: &[String], whole: Option<&str>) -> Result<Self, String> {
        Ok(Self {
            whole: whole.map_or_else(|| Ok(Map::new()), object)?,
            pairs: words
                .iter()
                .map(|word| pair(word))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether an argument of this name was written.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.whole.contains_key(name) || self.pairs.iter().any(|pair| pair.key() == name)
    }

    /// Whether a schema is needed to say what was meant: a plain value is a text or a number.
    pub(crate) fn need_types(&self) -> bool {
        let mut pairs = self.pairs.iter();
        pairs.any(|pair| matches!(pair, Pair::Text { .. }))
    }

    /// The object to send, typed by the tool's schema and checked against it. What does not fit is
    /// named, with the schema in short.
    pub(crate) fn fitting(self, schema: &Map<String, Value>) -> Result<Map<String, Value>, String> {
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
        Err(format!(
            "{}; it takes: {}",
            problems.join("; "),
            schema_check::usage(schema)
        ))
    }

    /// The object to send where every argument is a text, as those of prompts are: what was written
    /// as JSON is its text.
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
            // A key that is written twice is a list that grows.
            match (arguments.get_mut(&key), value) {
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                _ => return Err(format!("{key:?} is there twice, and is no list")),
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

/// Refuses what would be rounded.
fn exactly(json: &str) -> Result<(), String> {
    match exact_integers::too_large(json) {
        Some(number) => Err(format!(
            "{number} is too large to be sent exactly; write it as a text in quotes, or with a point \
             if it may be rounded"
        )),
        None => Ok(()),
    }
}

fn pair(word: &str) -> Result<Pair, String> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(format!(
            "{word:?} is no argument; write KEY=VALUE or KEY:=JSON"
        ));
    };
    let (key, json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    if key.is_empty() {
        return Err(format!("{word:?} has no key; write KEY=VALUE"));
    }
    let key = key.to_owned();
    if !json {
        let value = value.to_owned();
        return Ok(Pair::Text { key, value });
    }
    match serde_json::from_str(value) {
        Ok(read) => exactly(value).map(|()| Pair::Json { key, value: read }),
        Err(error) => Err(format!("the value of {key:?} is not valid JSON: {error}")),
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
        let arguments = Arguments::read(&words, whole)?;
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
    fn where_all_are_texts_json_is_one_too() {
        let words = ["a=5", "b:=5", "c:=\"x\"", "d:={\"y\":[1]}"].map(str::to_owned);
        let texts = Arguments::read(&words, None).unwrap().texts().unwrap();
        let expected = json!({"a": "5", "b": "5", "c": "x", "d": "{\"y\":[1]}"});
        assert_eq!(Value::Object(texts), expected);
    }

    #[test]
    fn a_list_grows_with_every_word_and_other_keys_may_stand_once() {
        assert_eq!(
            typed(&["tags=a", "tags=b"], None).unwrap(),
            json!({"tags": ["a", "b"]})
        );
        assert!(typed(&["n=1", "n=2"], None).unwrap_err().contains("twice"));
    }

    #[test]
    fn what_is_no_argument_is_refused_before_anything_starts() {
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
