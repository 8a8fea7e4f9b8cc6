//! Property tests of the config reader: no input makes it panic, drop a server silently, or show
//! the value of a variable.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::syntax_tree::{Member, Node, Value as Tree};
use super::variables::Variables;
use super::{json as parser, parse_duration};
use crate::config::{Arguments, ConfigError, ConfigProblem, InvalidDuration, MAX_DURATION};
use crate::config::{Config, Severity};
use crate::fuzz::{budget, json, text};

const SEEDS: &[&str] = &[
    r#"{ // a comment
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "${PACKAGE:-files}", "."], "env": { "TOKEN": "${SECRET}" }, },
    /* another */ "off": { "command": "uvx", "disabled": true, "cwd": "${SECRET}/x", "inheritEnv": ["A"] },
  },
}"#,
    r#"{"mcpServers":{"a":{"type":"stdio","command":"x","timeouts":{"call":"1m30s","idle":"500ms"},"reconnect":{"attempts":3,"within":"2m"}}}}"#,
    r#"{"mcpServers":{"a":{"url":"https://example.com"},"a":{"command":"${SECRET}"},"b__c":{"command":"x"}}}"#,
    "\u{feff}{\"mcpServers\":{}}",
    r#"{"servers":{"a":{"url":"https://u:${SECRET}@example.com/?k=${SECRET}","headers":{"Authorization":"Bearer ${env:SECRET}"},"timeout":30}},"inputs":[],"defaults":{"pin":true}}"#,
    "[mcp_servers.a]\ncommand = \"x\" # a comment\nargs = [\"${SECRET}\"]\nenv = { K = '''a\nb''' }\n[mcp_servers.b]\nurl = \"https://example.com\"\ntool_timeout_sec = 1.5\n",
];

/// The value of every variable. Nothing else in these tests contains it.
const SECRET: &str = "s3cr3t-c4n4ry";

fn lookup(name: &str) -> Option<String> {
    name.len().is_multiple_of(2).then(|| SECRET.to_owned())
}

/// The properties that hold for every text.
fn check(text: &str) -> Result<(), TestCaseError> {
    checked(Config::from_json(text, lookup))?;
    checked(Config::from_toml(text, lookup))
}

fn checked(read: Result<Config, ConfigError>) -> Result<(), TestCaseError> {
    let shown = match read {
        Ok(config) => {
            for server in &config.servers {
                prop_assert!(server.settings.validate().is_ok(), "{:?}", server.settings);
            }
            let rendered: Vec<_> = config.problems.iter().map(ConfigProblem::render).collect();
            let written = config.to_json(Arguments::Hidden);
            format!("{config:?} {rendered:?} {written}")
        }
        Err(error) => format!("{error} {error:?} {}", error.render()),
    };
    prop_assert!(!shown.contains(SECRET), "{shown}");
    Ok(())
}

/// Texts that may contain variables.
fn value_text() -> impl Strategy<Value = Value> {
    let parts = select(
        &[
            "${SECRET}",
            "${SECRET:-x}",
            "${ODD:-default}",
            "${ODD}",
            "${",
            "}",
            "$",
            "x",
            "/",
            " ",
            "2m",
            "30s",
        ][..],
    );
    vec(parts, 0..4).prop_map(|parts| Value::from(parts.concat()))
}

/// An entry with known keys and values that may be invalid.
fn entry() -> impl Strategy<Value = Value> {
    let key = select(
        &[
            "command",
            "args",
            "env",
            "cwd",
            "inheritEnv",
            "type",
            "transport",
            "url",
            "enabled",
            "disabled",
            "required",
            "trusted",
            "idempotentTools",
            "timeouts",
            "reconnect",
            "limits",
            "health",
            "close",
            "headers",
            "tools",
            "zzz",
        ][..],
    );
    let inner = select(
        &[
            "attempts",
            "within",
            "call",
            "idle",
            "inFlight",
            "multiplier",
            "jitter",
            "K",
            "drain",
        ][..],
    );
    let object = (inner, value_text()).prop_map(|(key, value)| json!({ key: value }));
    let value = prop_oneof![
        3 => value_text(),
        2 => vec(value_text(), 0..3).prop_map(Value::from),
        2 => object,
        1 => any::<bool>().prop_map(Value::from),
        1 => json(),
    ];
    let command = any::<bool>().prop_map(|there| there.then(|| ("command", json!("${SECRET}/x"))));
    (command, vec((key, value), 0..5)).prop_map(|(command, members)| {
        let members = command.into_iter().chain(members);
        let members = members.map(|(key, value)| (key.to_owned(), value));
        Value::Object(members.collect::<Map<_, _>>())
    })
}

/// White space and comments of JSON with comments.
fn space() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        1 => "[ \t\r\n]{1,3}",
        1 => "//[^\n\r]{0,8}\n",
        1 => r"/\*[^*]{0,8}\*/",
    ]
}

/// A value as text, with comments and trailing commas between its parts.
fn commented(value: &Value, spaces: &mut impl Iterator<Item = String>, comma: bool) -> String {
    let mut space = || spaces.next().unwrap_or_default();
    let before = space();
    let (parts, open, close) = match value {
        Value::Array(values) => {
            let parts: Vec<_> = values.iter().map(|value| (None, value)).collect();
            (parts, '[', ']')
        }
        Value::Object(members) => {
            let parts: Vec<_> = members
                .iter()
                .map(|(key, value)| (Some(key), value))
                .collect();
            (parts, '{', '}')
        }
        leaf => return format!("{before}{leaf}{}", space()),
    };
    let mut text = format!("{before}{open}");
    for (index, (key, value)) in parts.iter().enumerate() {
        if let Some(key) = key {
            let key = Value::from(key.as_str());
            let (before, after) = (
                spaces.next().unwrap_or_default(),
                spaces.next().unwrap_or_default(),
            );
            text.push_str(&format!("{before}{key}{after}:"));
        }
        text.push_str(&commented(value, spaces, comma));
        if comma || index + 1 < parts.len() {
            text.push(',');
        }
    }
    let (within, after) = (
        spaces.next().unwrap_or_default(),
        spaces.next().unwrap_or_default(),
    );
    format!("{text}{within}{close}{after}")
}

/// Whether two trees are equal, ignoring positions.
fn same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Tree::List(one), Tree::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Tree::Object(one), Tree::Object(other)) => {
            let member = |(one, other): (&Member, &Member)| {
                one.key == other.key && same(&one.node, &other.node)
            };
            one.len() == other.len() && one.iter().zip(other).all(member)
        }
        (one, other) => format!("{one:?}") == format!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(budget(400))]

    #[test]
    fn no_text_makes_the_reader_panic_or_tell_a_secret(text in text(SEEDS)) {
        check(&text)?;
    }

    #[test]
    fn every_server_is_read_or_complained_about(entries in vec(("[a-c_\\PC]{0,4}", entry()), 0..4)) {
        let servers: Map<String, Value> = entries.into_iter().collect();
        let text = json!({ "mcpServers": servers }).to_string();
        check(&text)?;
        let config = Config::from_json(&text, lookup).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let left_out = config.problems.iter().filter(|problem| problem.severity != Severity::Warning);
        let left_out = left_out.filter_map(|problem| problem.server.as_deref());
        let read = config.servers.iter().map(|server| server.name.as_str());
        let accounted: BTreeSet<&str> = read.chain(left_out).collect();
        prop_assert_eq!(accounted, servers.keys().map(String::as_str).collect::<BTreeSet<_>>());
    }

    #[test]
    fn comments_and_trailing_commas_change_nothing(
        value in json(),
        spaces in vec(space(), 0..40),
        comma in any::<bool>(),
    ) {
        let text = commented(&value, &mut spaces.into_iter(), comma);
        let read = parser::parse(&text)
            .map_err(|error| TestCaseError::fail(format!("{}: {text}", error.problem)))?;
        // Compare with the parse of the plain text: floats do not keep every digit.
        let plain = parser::parse(&value.to_string())
            .map_err(|error| TestCaseError::fail(error.problem))?;
        prop_assert!(same(&read, &plain), "{text}");
    }

    #[test]
    fn variables_are_the_only_thing_that_is_replaced(parts in vec(prop_oneof![
        "[^$]{0,6}".prop_map(|text| (text.clone(), text)),
        Just(("${EVEN}".to_owned(), SECRET.to_owned())),
        "[^}$]{0,4}".prop_map(|default| (format!("${{ODD:-{default}}}"), default)),
        "[ #!?.-][^}$]{0,3}".prop_map(|other| (format!("${{{other}}}"), format!("${{{other}}}"))),
    ], 0..6)) {
        let (written, meant): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let expanded = Variables::new(&lookup).expand(&written.concat());
        let expanded = expanded.map_err(|missing| TestCaseError::fail(missing.to_string()))?;
        prop_assert_eq!(expanded.text, meant.concat());
    }

    #[test]
    fn a_duration_is_within_bounds_or_refused(text in prop_oneof![
        any::<String>(),
        "[0-9.eE+-]{0,8} ?(ms|s|m|h|d|inf|nan)?( ?[0-9]{1,20}(ms|s|m|h))?",
    ]) {
        match parse_duration(&text) {
            Ok(duration) => prop_assert!(duration <= MAX_DURATION),
            Err(InvalidDuration::Empty) => prop_assert!(text.trim().is_empty()),
            Err(_) => {}
        }
    }

    #[test]
    fn a_duration_that_is_written_down_is_read_back(hours in 0..99_u64, minutes in 0..99_u64, ms in 0..99_999_u64) {
        let expected = std::time::Duration::from_millis((hours * 60 + minutes) * 60_000 + ms);
        let read = parse_duration(&format!("{hours}h {minutes}m{ms}ms"));
        let off = read.map(|read| read.abs_diff(expected));
        prop_assert!(off.as_ref().is_ok_and(|off| off.as_micros() < 1), "{off:?}");
    }
}
