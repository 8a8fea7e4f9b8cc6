//! Collects the members of a value that rmcp's types drop.
//!
//! A second pass over the text, which skips what is known. Only a few servers send more.

use std::borrow::Cow;
use std::fmt;

use rmcp::model::JsonObject;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::known::{self, Known, Member, Page};

/// The unknown members of an object; none of any other value.
pub(super) fn members<'de>(known: &'static Known, value: impl Deserializer<'de>) -> JsonObject {
    match Member::Object(known).deserialize(value) {
        Ok(Some(Value::Object(unknown))) => unknown,
        _ => JsonObject::new(),
    }
}

/// The unknown members of each item of a page.
pub(super) fn items<'de>(page: &'static Page, value: impl Deserializer<'de>) -> Vec<Value> {
    value.deserialize_map(page).unwrap_or_default()
}

impl<'de> Visitor<'de> for &'static Page {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut page: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = page.next_key::<Key<'_>>()? {
            if name.0 != self.list {
                page.next_value::<IgnoredAny>()?;
            } else if let Some(Value::Array(items)) =
                page.next_value_seed(Member::List(self.items))?
            {
                found = items;
            }
        }
        Ok(found)
    }
}

/// The name of a member, borrowed from the text if it has no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Reads what is unknown of a value: the unknown members of an object, or a list with those of each
/// item. `None` if nothing is.
impl<'de> DeserializeSeed<'de> for Member {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self {
            Self::Whole => deserializer
                .deserialize_ignored_any(IgnoredAny)
                .map(|_| None),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Member {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a definition or a result")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut unknown = JsonObject::new();
        match self {
            Self::Object(known) => {
                while let Some(Key(name)) = members.next_key()? {
                    let member = known.member(&name);
                    add(&mut unknown, name, member, &mut members)?;
                }
            }
            Self::Block => unknown = block(&mut members)?,
            Self::Whole | Self::Single | Self::List(_) | Self::Blocks => {
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            }
        }
        Ok((!unknown.is_empty()).then_some(Value::Object(unknown)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let item = match self {
            Self::List(known) => Self::Object(known),
            Self::Blocks => Self::Block,
            Self::Whole | Self::Single | Self::Object(_) | Self::Block => Self::Whole,
        };
        let mut found = Vec::new();
        let mut is_known = true;
        while let Some(unknown) = list.next_element_seed(item)? {
            is_known &= unknown.is_none();
            found.push(unknown.unwrap_or_else(|| Value::Object(JsonObject::new())));
        }
        Ok((!is_known).then_some(Value::Array(found)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // Whether its digits survive single precision.
        let is_kept = || (number as f32).to_string().parse() == Ok(number);
        let exact = match self {
            Self::Single if !is_kept() => Number::from_f64(number),
            _ => None,
        };
        Ok(exact.map(Value::Number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Adds what is unknown of a member.
fn add<'de, A: MapAccess<'de>>(
    unknown: &mut JsonObject,
    name: Cow<'de, str>,
    known: Option<Member>,
    members: &mut A,
) -> Result<(), A::Error> {
    let value = match known {
        None => Some(members.next_value()?),
        Some(known) => members.next_value_seed(known)?,
    };
    if let Some(value) = value {
        unknown.insert(name.into_owned(), value);
    }
    Ok(())
}

/// The unknown members of a block of content: all of them if its kind is unknown.
fn block<'de, A: MapAccess<'de>>(members: &mut A) -> Result<JsonObject, A::Error> {
    let mut unknown = JsonObject::new();
    // Servers send the kind first; what comes before it is collected as a whole.
    let mut kind = None;
    let mut early = Vec::new();
    while let Some(Key(name)) = members.next_key()? {
        match (&kind, &*name) {
            (None, "type") => {
                let word: Value = members.next_value()?;
                let known = known::content(word.as_str().unwrap_or_default());
                if known.is_none() {
                    unknown.insert(name.into_owned(), word);
                }
                kind = Some(known);
            }
            (None, _) => early.push((name.into_owned(), members.next_value::<Value>()?)),
            (Some(known), _) => {
                let member = known.and_then(|known| known.member(&name));
                add(&mut unknown, name, member, members)?;
            }
        }
    }
    for (name, value) in early {
        let member = kind.flatten().and_then(|known| known.member(&name));
        let value = match member {
            None => Some(value),
            Some(known) => known.deserialize(value).unwrap_or_default(),
        };
        if let Some(value) = value {
            unknown.insert(name, value);
        }
    }
    Ok(unknown)
}
