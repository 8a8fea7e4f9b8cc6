//! The top-level members of a JSON-RPC message, located without decoding their values.

use mcpvisor_core::CallId;
use rmcp::model::RequestId;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::link::outgoing::call_id;

/// The members that identify a message, as raw JSON.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) version: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// Whether a result or an error was at least started.
    pub(super) has_outcome: bool,
}

impl<'a> Envelope<'a> {
    /// Reads a line. Members found before an error are kept, so that a truncated reply can still be
    /// identified.
    pub(super) fn read(&mut self, line: &'a str) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_str(line);
        deserializer.deserialize_map(Fill(self))?;
        deserializer.end()
    }

    /// Whether the message claims to be JSON-RPC 2.0.
    pub(super) fn is_json_rpc(&self) -> bool {
        self.version
            .is_some_and(|version| version.get() == r#""2.0""#)
    }

    /// The id, if it has a form that we send: a number, or the same number as a string.
    pub(super) fn call_id(&self) -> Option<CallId> {
        let text = self.id?.get();
        if let Some(number) = parse_digits(text) {
            return Some(CallId(number));
        }
        call_id(&self.request_id()?)
    }

    /// The id as rmcp decodes it, which reads `7.0` as 7.
    pub(super) fn request_id(&self) -> Option<RequestId> {
        serde_json::from_str(self.id?.get()).ok()
    }

    /// The decoded method; some servers escape its slashes.
    pub(super) fn method(&self) -> Option<String> {
        serde_json::from_str(self.method?.get()).ok()
    }

    /// The error, unless it is null, which some servers write beside a result.
    pub(super) fn error(&self) -> Option<&'a str> {
        self.error
            .map(RawValue::get)
            .filter(|error| *error != "null")
    }
}

/// Parses an id of digits only, which nearly every id is.
fn parse_digits(text: &str) -> Option<u64> {
    // `parse` accepts a leading plus, which JSON does not.
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Member {
    JsonRpc,
    Id,
    Method,
    Result,
    Error,
    #[serde(other)]
    Other,
}

struct Fill<'e, 'a>(&'e mut Envelope<'a>);

impl<'a> Visitor<'a> for Fill<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut next = map.next_key()?;
        while let Some(member) = next {
            self.0.has_outcome |= matches!(member, Member::Result | Member::Error);
            if matches!(member, Member::Other) {
                map.next_value::<IgnoredAny>()?;
                next = map.next_key()?;
                continue;
            }
            let value = Some(map.next_value()?);
            // A member counts only once the next token is read: a truncated number is a different
            // one.
            next = map.next_key()?;
            match member {
                Member::JsonRpc => self.0.version = value,
                Member::Id => self.0.id = value,
                Member::Method => self.0.method = value,
                Member::Result => self.0.result = value,
                Member::Error => self.0.error = value,
                Member::Other => {}
            }
        }
        Ok(())
    }
}
