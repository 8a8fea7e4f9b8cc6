//! What the fuzz tests of the parsers share: inputs that are nearly right.
//!
//! Random bytes rarely get past the first brace, so most inputs are made of seeds with a few wounds,
//! or of JSON with the right words in the wrong places. The tests stand beside the parsers, in files
//! named `fuzz.rs`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

/// So many cases, or as many as the environment wants: `just fuzz`.
pub(crate) fn budget(cases: u32) -> ProptestConfig {
    let wanted = std::env::var("MCPVISOR_FUZZ_CASES").ok();
    let wanted = wanted.and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: wanted.unwrap_or(cases),
        ..ProptestConfig::default()
    }
}

/// Anything, or something that was right before it was hurt.
pub(crate) fn bytes(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..200),
        4 => (select(seeds), vec(wound(), 0..5)).prop_map(|(seed, wounds)| {
            let mut bytes = seed.as_bytes().to_vec();
            for wound in wounds {
                wound.hurt(&mut bytes);
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
        select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![select(WORDS).prop_map(str::to_owned), any::<String>()];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Members of an object as they are written: in any order, a key perhaps twice.
pub(crate) fn object(members: &[(String, Value)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Words that mean something to the parsers.
const WORDS: &[&str] = &[
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

/// One way to spoil an input.
#[derive(Debug, Clone)]
enum Wound {
    Set(Index, u8),
    Cut(Index, Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn wound() -> impl Strategy<Value = Wound> {
    let sharp = select(&b"{}[]\",:\\/*$\n\r\t 0-.e\0\xff\xc3\xed"[..]);
    let piece = prop_oneof![
        vec(sharp.clone(), 1..4),
        select(WORDS).prop_map(|word| format!("\"{word}\"").into_bytes()),
        vec(any::<u8>(), 1..8),
    ];
    prop_oneof![
        (any::<Index>(), sharp).prop_map(|(at, byte)| Wound::Set(at, byte)),
        any::<(Index, Index)>().prop_map(|(from, to)| Wound::Cut(from, to)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Wound::Insert(at, piece)),
        any::<(Index, Index)>().prop_map(|(from, to)| Wound::Repeat(from, to)),
    ]
}

impl Wound {
    fn hurt(self, bytes: &mut Vec<u8>) {
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
