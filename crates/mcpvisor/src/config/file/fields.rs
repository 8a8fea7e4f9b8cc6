//! The keys of one object of a config, taken one by one.
//!
//! What nobody took is unknown and warned about. A complaint names the key, never the value: the
//! value may be a secret.

#[cfg(feature = "stdio")]
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::duration::parse_duration;
use super::variables::Variables;
use crate::secret::Secret;

/// Something that makes an entry useless, as `key` and problem.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?} {problem}")]
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) problem: String,
}

/// One object, with the keys that were asked for so far.
pub(super) struct Fields<'a> {
    /// What stands before the keys of this object in a complaint: empty, or `reconnect.`.
    prefix: String,
    values: Map<String, Value>,
    known: Vec<&'static str>,
    variables: &'a Variables<'a>,
    /// What came from variables so far.
    secrets: Vec<Secret<String>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(values: Map<String, Value>, variables: &'a Variables<'a>) -> Self {
        Self {
            prefix: String::new(),
            values,
            known: Vec::new(),
            variables,
            secrets: Vec::new(),
        }
    }

    /// Whether the key is there, taken or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Drops a key that is known but not read, and says whether it was there.
    pub(super) fn skip(&mut self, key: &'static str) -> bool {
        self.take(key).is_some()
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => self.expand(key, &text).map(Some),
            Some(_) => Err(self.wrong(key, "must be a text in quotes")),
        }
    }

    #[cfg(feature = "stdio")]
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, Wrong> {
        let names = self.names(key)?;
        names.iter().map(|text| self.expand(key, text)).collect()
    }

    /// A list of names. They are shown, so no variable is replaced in them.
    pub(super) fn names(&mut self, key: &'static str) -> Result<Vec<String>, Wrong> {
        let wrong = "must be a list of texts in quotes";
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values
                .into_iter()
                .map(|value| match value {
                    Value::String(text) => Ok(text),
                    _ => Err(self.wrong(key, wrong)),
                })
                .collect(),
            Some(_) => Err(self.wrong(key, wrong)),
        }
    }

    #[cfg(feature = "stdio")]
    pub(super) fn text_map(
        &mut self,
        key: &'static str,
    ) -> Result<BTreeMap<String, String>, Wrong> {
        match self.take(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(values)) => values
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(text) => Ok((name, self.expand(key, &text)?)),
                    _ => Err(self.wrong(&format!("{key}.{name}"), "must be a text in quotes")),
                })
                .collect(),
            Some(_) => Err(self.wrong(key, "must be an object of texts")),
        }
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(key, "must be true or false, without quotes")),
        }
    }

    pub(super) fn count<N: TryFrom<u64>>(&mut self, key: &'static str) -> Result<Option<N>, Wrong> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let count = value.as_u64().and_then(|count| N::try_from(count).ok());
        let wrong = || self.wrong(key, "must be a whole number, without quotes");
        count.ok_or_else(wrong).map(Some)
    }

    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<f64>, Wrong> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let wrong = || self.wrong(key, "must be a number, without quotes");
        value.as_f64().ok_or_else(wrong).map(Some)
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => parse_duration(&self.expand(key, &text)?)
                .map(Some)
                .map_err(|problem| self.wrong(key, &problem.to_string())),
            Some(Value::Number(_)) => Err(self.wrong(
                key,
                "has no unit; write \"500ms\", \"30s\", \"2m\" or \"1h\"",
            )),
            Some(_) => Err(self.wrong(key, "must be a duration such as \"30s\"")),
        }
    }

    /// The object under a key; an absent one is empty.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Fields<'a>, Wrong> {
        let values = match self.take(key) {
            None => Map::new(),
            Some(Value::Object(values)) => values,
            Some(_) => return Err(self.wrong(key, "must be an object")),
        };
        Ok(Fields {
            prefix: format!("{}{key}.", self.prefix),
            values,
            known: Vec::new(),
            variables: self.variables,
            secrets: Vec::new(),
        })
    }

    /// One warning per key that nobody asked for.
    pub(super) fn finish(self) -> Vec<String> {
        let warn = |key: &String| match nearest(key, self.known.iter().copied()) {
            Some(near) => format!(
                "\"{0}{key}\" is unknown and ignored; did you mean \"{0}{near}\"?",
                self.prefix
            ),
            None => format!("\"{}{key}\" is unknown and ignored", self.prefix),
        };
        self.values.keys().map(warn).collect()
    }

    /// `null` is as good as absent.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key).filter(|value| !value.is_null())
    }

    /// What came from variables in the texts that were taken so far.
    #[cfg(feature = "stdio")]
    pub(super) fn take_secrets(&mut self) -> Vec<Secret<String>> {
        std::mem::take(&mut self.secrets)
    }

    fn expand(&mut self, key: &str, text: &str) -> Result<String, Wrong> {
        let expanded = self.variables.expand(text).map_err(|name| {
            let problem = format!(
                "needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}"
            );
            self.wrong(key, &problem)
        })?;
        self.secrets.extend(expanded.secrets);
        Ok(expanded.text)
    }

    fn wrong(&self, key: &str, problem: &str) -> Wrong {
        Wrong {
            key: format!("{}{key}", self.prefix),
            problem: problem.to_owned(),
        }
    }
}

/// The likeliest of some names for one that is unknown, if any is close.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    /// Closer than a third of the letters is a slip of the fingers.
    const CLOSE: f64 = 0.66;
    /// No key is so long, in bytes, and comparing such names takes long.
    const MAX_LENGTH: usize = 200;
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    names
        .filter(|known| name.len().max(known.len()) <= MAX_LENGTH)
        .map(|known| {
            (
                strsim::normalized_damerau_levenshtein(&plain(name), &plain(known)),
                known,
            )
        })
        .filter(|(likeness, _)| *likeness > CLOSE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
