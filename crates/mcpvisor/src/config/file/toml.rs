//! Parses TOML.

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::syntax_tree::{Member, Node, Span, SyntaxError, Value, without_mark};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let (plain, offset) = without_mark(text);
    let parsed = DeTable::parse(plain).map_err(|error| SyntaxError {
        // The parser's message quotes nothing of the text.
        problem: error.message().to_owned(),
        span: shifted(error.span().unwrap_or(0..0), offset),
    })?;
    let span = offset..offset;
    Ok(Node {
        value: table(parsed.get_ref(), offset),
        span,
    })
}

fn node(value: &Spanned<DeValue<'_>>, offset: usize) -> Node {
    let span = shifted(value.span(), offset);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other, |number| Value::Number(number as f64)),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other, Value::Number),
        DeValue::Datetime(_) => Value::Other,
        DeValue::Array(list) => Value::List(list.iter().map(|value| node(value, offset)).collect()),
        DeValue::Table(members) => table(members, offset),
    };
    Node { value, span }
}

fn table(members: &DeTable<'_>, offset: usize) -> Value {
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        Member {
            key: key.get_ref().clone().into_owned(),
            key_span: shifted(key.span(), offset),
            node: node(value, offset),
        }
    };
    let mut members: Vec<Member> = members.iter().map(member).collect();
    // The parser sorts by name; the order of the file is that of the places.
    members.sort_by_key(|member| member.key_span.start);
    Value::Object(members)
}

fn shifted(span: Span, offset: usize) -> Span {
    span.start + offset..span.end + offset
}
