//! Property tests: no input of servers or users panics, hides text, or changes a value.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use crate::output::{Table, TextFormat, printable, printable_json, printable_lines};
use crate::request::arguments::Arguments;
use crate::request::target::{NoTarget, Target};

/// The number of cases; `just fuzz` sets more through the environment.
fn budget(cases: u32) -> ProptestConfig {
    let requested = std::env::var("MCPVISOR_FUZZ_CASES").ok();
    let requested = requested.and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: requested.unwrap_or(cases),
        ..ProptestConfig::default()
    }
}

/// Text with many characters that control a terminal.
fn hostile() -> impl Strategy<Value = String> {
    let sharp = select(
        &[
            "\u{1b}[2J",
            "\u{1b}]0;",
            "\u{7}",
            "\u{9b}",
            "\u{202e}",
            "\u{2066}",
            "\u{200b}",
            "\u{feff}",
            "\u{e0041}",
            "\u{85}",
            "\u{2028}",
            "\u{fe0f}",
            "⚠",
            "\r",
            "\n",
            "\t",
            "\\",
            "\"",
            "word",
        ][..],
    );
    vec(
        prop_oneof![sharp.prop_map(str::to_owned), any::<String>()],
        0..8,
    )
    .prop_map(|parts| parts.concat())
}

/// A control or invisible character. The emoji selector is allowed in text.
fn acts(c: char) -> bool {
    c.is_control() || "\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{2028}".contains(c)
}

fn schema() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        select(
            &[
                "string", "integer", "number", "boolean", "object", "array", "null", "x"
            ][..]
        )
        .prop_map(|kind| json!({ "type": kind })),
        Just(json!({ "enum": [1, "a", null, [2]] })),
        select(&["#/$defs/D", "#/properties/a", "#", "#/", "https://x"][..])
            .prop_map(|to| json!({ "$ref": to })),
        Just(json!(true)),
    ];
    let part = leaf.prop_recursive(4, 20, 4, |inner| {
        let keyword = select(&["anyOf", "oneOf", "allOf", "type"][..]);
        prop_oneof![
            (keyword, vec(inner.clone(), 0..4))
                .prop_map(|(keyword, parts)| json!({ keyword: parts })),
            inner.prop_map(|items| json!({ "type": "array", "items": items })),
        ]
    });
    (part.clone(), part).prop_map(|(a, d)| {
        let schema =
            json!({ "properties": { "a": a, "s": { "type": "string" } }, "$defs": { "D": d } });
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    })
}

proptest! {
    #![proptest_config(budget(500))]

    #[test]
    fn no_output_controls_the_terminal(text in hostile()) {
        let line = printable(&text);
        prop_assert!(!line.chars().any(acts), "{line:?}");
        prop_assert_eq!(printable(&line), line.clone(), "printable text is unchanged");
        let lines = printable_lines(&text);
        prop_assert!(!lines.chars().any(|c| acts(c) && !matches!(c, '\n' | '\t')), "{lines:?}");
        let mut table = Table::new(["A", "B"]);
        table.row([text.clone(), text]);
        prop_assert_eq!(table.render(TextFormat::pipe()).lines().count(), 2);
    }

    #[test]
    fn escaped_json_keeps_its_value(text in hostile()) {
        for document in [json!([text]).to_string(), format!("{:#}", json!({ text.clone(): text }))] {
            let printed = printable_json(&document);
            prop_assert!(!printed.chars().any(|c| acts(c) && c != '\n'), "{printed:?}");
            let read = |text: &str| serde_json::from_str::<Value>(text).ok();
            prop_assert_eq!(read(&printed), read(&document));
        }
    }

    #[test]
    fn parsing_arguments_never_panics(
        words in vec(prop_oneof![any::<String>(), "[as]:?=[0-9a\\[\\]{}\",]{0,6}"], 0..4),
        whole in proptest::option::of(prop_oneof![any::<String>(), "\\{\"a\":[0-9\\[\\]]{0,4}\\}"]),
        schema in schema(),
    ) {
        if let Ok(arguments) = Arguments::parse(&words, whole.as_deref()) {
            let _ = arguments.checked("tool", &schema);
        }
    }

    #[test]
    fn a_string_is_sent_as_typed(text in any::<String>(), schema in schema()) {
        let arguments = Arguments::parse(&[format!("s={text}")], None);
        let sent = arguments.and_then(|arguments| arguments.typed(&schema));
        prop_assert_eq!(sent.map(Value::Object), Ok(json!({ "s": text })));
    }

    #[test]
    fn a_target_is_made_of_the_words(words in vec("[ab._:/=]{0,6}", 0..4), servers in vec("[ab._]{1,3}", 0..3)) {
        let is_server = |name: &str| servers.iter().any(|server| server == name);
        match Target::parse(&words, is_server) {
            Ok(target) => {
                prop_assert!(is_server(target.server));
                prop_assert!(words[0].starts_with(target.server));
                prop_assert!(words.iter().any(|word| word.ends_with(target.tool)));
                prop_assert!(target.rest.len() < words.len());
            }
            Err(NoTarget::NoTool(server)) => prop_assert!(is_server(server)),
            Err(NoTarget::Ambiguous(readings)) => prop_assert!(readings.len() > 1),
            Err(NoTarget::NoServer(server)) => {
                prop_assert!(words.first().map_or("", String::as_str).starts_with(server));
            }
        }
    }
}
