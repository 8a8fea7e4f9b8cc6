//! Input generators for the fuzz tests of the parsers.
//!
//! Random bytes rarely get past the first brace, so most inputs are mutated seeds, or JSON with
//! known keys in wrong places. The tests are next to the parsers, in files named `fuzz.rs`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

/// The number of cases, unless `MCPVISOR_FUZZ_CASES` overrides it (`just fuzz`).
pub(crate) fn budget(cases: u32) -> ProptestConfig {
    let cases_override = std::env::var("MCPVISOR_FUZZ_CASES").ok();
    let cases_override = cases_override.and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases_override.unwrap_or(cases),
        ..ProptestConfig::default()
    }
}

/// Random bytes, or a mutated seed.
pub(crate) fn bytes(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..200),
        4 => (select(seeds), vec(mutation(), 0..5)).prop_map(|(seed, mutations)| {
            let mut bytes = seed.as_bytes().to_vec();
            for mutation in mutations {
                mutation.apply(&mut bytes);
            }
            bytes
        }),
    ]
}

/// The same as text.
pub(crate) fn text(seeds: &'static [&'static str]) -> impl Strategy<Value = String> {
    bytes(seeds).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Any JSON value of a reasonable size.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(KNOWN_STRINGS).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            select(KNOWN_STRINGS).prop_map(str::to_owned),
            any::<String>()
        ];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Writes an object with its members in this order, which may repeat a key.
pub(crate) fn object(members: &[(String, Value)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Keys and values that the parsers know.
const KNOWN_STRINGS: &[&str] = &[
    "2.0",
    "id",
    "jsonrpc",
    "method",
    "params",
    "result",
    "error",
    "code",
    "message",
    "content",
    "type",
    "text",
    "tools",
    "name",
    "_meta",
    "progressToken",
    "notifications/progress",
    "notifications/message",
    "ping",
    "sampling/createMessage",
];

/// One change of an input.
#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Cut(Index, Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let syntax = select(&b"{}[]\",:\\/*$\n\r\t 0-.e\0\xff\xc3\xed"[..]);
    let piece = prop_oneof![
        vec(syntax.clone(), 1..4),
        select(KNOWN_STRINGS).prop_map(|word| format!("\"{word}\"").into_bytes()),
        vec(any::<u8>(), 1..8),
    ];
    prop_oneof![
        (any::<Index>(), syntax).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        any::<(Index, Index)>().prop_map(|(from, to)| Mutation::Cut(from, to)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        any::<(Index, Index)>().prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

impl Mutation {
    fn apply(self, bytes: &mut Vec<u8>) {
        let place = |at: Index| at.index(bytes.len() + 1);
        let range = |one: Index, other: Index| {
            let (one, other) = (place(one), place(other));
            one.min(other)..one.max(other)
        };
        match self {
            Self::Set(at, byte) => {
                let at = place(at);
                if let Some(hit) = bytes.get_mut(at) {
                    *hit = byte;
                }
            }
            Self::Cut(from, to) => drop(bytes.drain(range(from, to))),
            Self::Insert(at, piece) => {
                let at = place(at);
                drop(bytes.splice(at..at, piece));
            }
            Self::Repeat(from, to) => bytes.extend_from_within(range(from, to)),
        }
    }
}
