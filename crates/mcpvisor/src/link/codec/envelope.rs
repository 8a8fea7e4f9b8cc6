//! The outermost members of a JSON-RPC message, found without reading what they contain.

use mcpvisor_core::CallId;
use rmcp::model::RequestId;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::link::call_id;

/// The members that say what a message is, each as it was written.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) version: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// Whether a result or an error was at least begun.
    pub(super) answers: bool,
}

impl<'a> Envelope<'a> {
    /// Reads a line. What was found before an error stays, so that a reply which is cut off can
    /// still be told from noise.
    pub(super) fn read(&mut self, line: &'a str) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_str(line);
        Fill(self).deserialize(&mut deserializer)?;
        deserializer.end()
    }

    /// Whether it claims to be JSON-RPC at all.
    pub(super) fn is_json_rpc(&self) -> bool {
        self.version
            .is_some_and(|version| version.get() == r#""2.0""#)
    }

    /// The id, if it could be one that we gave: a number, or a number in a string.
    pub(super) fn call_id(&self) -> Option<CallId> {
        let text = self.id?.get();
        if let Some(number) = plain_number(text) {
            return Some(CallId(number));
        }
        call_id(&self.request_id()?)
    }

    /// The id as rmcp reads it, which takes `7.0` for 7.
    pub(super) fn request_id(&self) -> Option<RequestId> {
        serde_json::from_str(self.id?.get()).ok()
    }

    /// What it asks for or says. Some servers escape the slashes in it.
    pub(super) fn method(&self) -> Option<String> {
        serde_json::from_str(self.method?.get()).ok()
    }

    /// The error member, unless it is null, which some servers write beside a result.
    pub(super) fn error(&self) -> Option<&'a str> {
        self.error
            .map(RawValue::get)
            .filter(|error| *error != "null")
    }
}

/// The number of a text that has digits only, which nearly every id is.
fn plain_number(text: &str) -> Option<u64> {
    // `parse` takes a leading plus, which is no JSON.
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

impl<'a> DeserializeSeed<'a> for Fill<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Fill<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut next = map.next_key()?;
        while let Some(member) = next {
            self.0.answers |= matches!(member, Member::Result | Member::Error);
            if matches!(member, Member::Other) {
                map.next_value::<IgnoredAny>()?;
                next = map.next_key()?;
                continue;
            }
            let value = Some(map.next_value()?);
            // A member counts once something follows it: a number that was cut off is another one.
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
