use std::time::Duration;

use super::*;
use crate::config::{Config, Severity};

/// Appears in every place where a secret can be, and must appear in no message.
const CANARY: &str = "s3cret-canary";

fn read(text: &str) -> Config {
    Config::from_json(text, |name| (name == "TOKEN").then(|| CANARY.to_owned())).unwrap()
}

fn entry(text: &str) -> Config {
    read(&format!(r#"{{ "mcpServers": {{ "one": {text} }} }}"#))
}

fn the_problem(config: &Config) -> (Severity, &str) {
    match config.problems.as_slice() {
        [one] => (one.severity, &one.message),
        other => panic!("one problem expected: {other:?}"),
    }
}

#[test]
fn a_config_as_other_clients_write_it_is_read() {
    let config = read(
        r#"{
          // the fleet
          "mcpServers": {
            "zeta":  { "type": "stdio", "command": "npx", "args": ["-y", "files", "."], "env": { "K": "v" } },
            "alpha": { "command": "uvx", "disabled": true, "required": true, },
          },
          "theme": "dark",
        }"#,
    );
    assert_eq!(config.problems, []);
    let names: Vec<_> = config
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(names, ["zeta", "alpha"], "the order of the file");
    assert!(config.servers[0].enabled && !config.servers[0].required);
    assert!(!config.servers[1].enabled && config.servers[1].required);
    assert_eq!(
        config.servers[0].settings,
        mcpvisor_core::ServerSettings::default()
    );
}

#[test]
fn every_setting_can_be_set() {
    let config = entry(
        r#"{ "command": "x", "trusted": true, "idempotentTools": ["put"], "retryExpiredCalls": false,
             "reconnect": { "attempts": 4, "within": "2m", "initialDelay": "100ms", "maxDelay": "1s",
                            "multiplier": 1.5, "jitter": 0, "firstProbe": "10s", "maxProbe": "1m",
                            "provenAfter": "5s", "wakeOnCall": false },
             "timeouts": { "connect": "1s", "call": "2s", "idle": "3s", "reconnectWait": "4s", "listing": "5s" },
             "limits": { "inFlight": 2, "waiting": 0, "pages": 3, "items": 4, "messageBytes": 2097152,
                         "nesting": 20, "values": 5000, "stderrBytes": 4096 },
             "health": { "threshold": 1, "keepalive": "9s", "keepaliveTimeout": "8s" },
             "close": { "drain": "1s", "stdin": "2s", "terminate": "3s" } }"#,
    );
    assert_eq!(config.problems, []);
    let settings = &config.servers[0].settings;
    let secs = Duration::from_secs;
    assert!(settings.retry.trusted && !settings.retry.retry_expired_calls);
    assert_eq!(settings.retry.idempotent_tools, ["put"]);
    let budget = &settings.budget;
    assert_eq!(
        (budget.attempts, budget.within, budget.proven_after),
        (4, secs(120), secs(5))
    );
    assert_eq!((budget.first_probe, budget.max_probe), (secs(10), secs(60)));
    assert!(!budget.wake_on_call);
    let backoff = &settings.backoff;
    assert_eq!(
        (backoff.initial, backoff.max),
        (Duration::from_millis(100), secs(1))
    );
    assert_eq!((backoff.multiplier, backoff.jitter), (1.5, 0.0));
    let timeouts = &settings.timeouts;
    assert_eq!(
        (timeouts.connect, timeouts.call, timeouts.idle),
        (secs(1), secs(2), secs(3))
    );
    assert_eq!(
        (timeouts.reconnect_wait, timeouts.listing),
        (secs(4), secs(5))
    );
    assert_eq!(
        (settings.admission.in_flight, settings.admission.waiting),
        (2, 0)
    );
    assert_eq!(settings.health.threshold, 1);
    assert_eq!(
        (settings.health.keepalive, settings.health.keepalive_timeout),
        (secs(9), secs(8))
    );
    assert_eq!(settings.close.total(), secs(6));
    assert_eq!(
        (settings.listing.max_pages, settings.listing.max_items),
        (3, 4)
    );
    let messages = &settings.messages;
    assert_eq!((messages.max_bytes, messages.max_depth), (2_097_152, 20));
    assert_eq!((messages.max_values, messages.stderr_bytes), (5_000, 4_096));
}

#[test]
fn the_old_spelling_of_sleep_after_is_read() {
    let config = read(
        r#"{ "defaults": { "idleTimeout": "1m" }, "mcpServers": {
            "a": { "command": "x" }, "b": { "command": "x", "idleTimeout": "2m" } } }"#,
    );
    let read: Vec<_> = config
        .servers
        .iter()
        .map(|it| it.settings.rest.sleep_after)
        .collect();
    assert_eq!(read, [60, 120].map(|it| Some(Duration::from_secs(it))));
    assert_eq!(config.problems, []);
}

#[test]
fn connect_limits_are_set_at_the_top() {
    let connects = |text: &str| {
        let text = format!(r#"{{ "connects": {text}, "mcpServers": {{}} }}"#);
        Config::from_json(&text, |_| None)
    };
    let all = r#"{ "atOnce": 7, "stdioAtOnce": 3, "hold": "1s", "burst": 2, "burstShare": 0.5,
                   "burstWindow": "1s" }"#;
    let mut expected = mcpvisor_core::GovernorSettings::default();
    expected.max_connects = 7;
    expected.max_stdio = 3;
    expected.hold = Duration::from_secs(1);
    expected.burst_floor = 2;
    expected.burst_share = 0.5;
    expected.burst_window = Duration::from_secs(1);
    assert_eq!(connects(all).unwrap().connects, Some(expected));
    assert_eq!(read(r#"{ "mcpServers": {} }"#).connects, None);
    // Unset keys have the same defaults as without the section.
    let usual = crate::api::runtime::default_governor();
    assert_eq!(connects("{}").unwrap().connects, Some(usual));
    for (wrong, named) in [
        (r#"{ "atOnce": 0 }"#, "connects.atOnce"),
        (r#"{ "stdioAtOnce": 0 }"#, "connects.stdioAtOnce"),
        (r#"{ "hold": "0s" }"#, "connects.hold"),
        (r#"{ "burstShare": 2 }"#, "connects.burstShare"),
        (r#"7"#, "connects"),
    ] {
        let error = connects(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("{named:?} must be")), "{error}");
    }
    let config = connects(r#"{ "atonce": 1 }"#).unwrap();
    assert!(
        the_problem(&config)
            .1
            .contains("did you mean \"connects.atOnce\"?")
    );
}

#[test]
fn a_bad_entry_costs_that_server_only() {
    let bad = [
        (r#"7"#, "must be an object"),
        (r#"{}"#, r#"needs a "command""#),
        (r#"{ "command": "" }"#, r#"needs a "command""#),
        (
            r#"{ "command": 7 }"#,
            r#""command" must be a quoted string"#,
        ),
        (
            r#"{ "command": "x", "args": "y" }"#,
            r#""args" must be a list"#,
        ),
        (
            r#"{ "command": "x", "args": [1] }"#,
            r#""args" must be a list"#,
        ),
        (
            r#"{ "command": "x", "env": { "K": 1 } }"#,
            r#""env.K" must be a quoted string"#,
        ),
        (
            r#"{ "command": "x", "env": { "A=B": "1" } }"#,
            r#"contains '='"#,
        ),
        (
            r#"{ "command": "x", "args": ["${NOPE}"] }"#,
            "variable NOPE, which is not set",
        ),
        (
            r#"{ "command": "x", "enabled": true, "disabled": true }"#,
            "keep one",
        ),
        (
            r#"{ "command": "x", "reconnect": { "within": 30 } }"#,
            r#""reconnect.within" has no unit"#,
        ),
        (
            r#"{ "command": "x", "reconnect": { "attempts": 0 } }"#,
            "must be at least 1",
        ),
        (
            r#"{ "command": "x", "timeouts": 5 }"#,
            r#""timeouts" must be an object"#,
        ),
        (r#"{ "type": "http", "command": "x" }"#, r#"needs a "url""#),
        (r#"{ "type": "sse", "command": "x" }"#, r#"needs a "url""#),
        (
            r#"{ "url": "http://a.example", "socketPath": "" }"#,
            r#""socketPath" must be the path of a socket"#,
        ),
        (
            r#"{ "type": "ftp", "url": "https://a.example" }"#,
            "must be",
        ),
        (r#"{ "url": "ftp://a.example" }"#, "must be an address"),
        (
            r#"{ "url": "https://a.example", "command": "x" }"#,
            "keep one",
        ),
        (
            r#"{ "url": "https://a.example", "headers": { "A B": "x" } }"#,
            "no header",
        ),
        (
            r#"{ "url": "https://a.example", "headers": { "A": "x\ny" } }"#,
            "line break",
        ),
        (
            r#"{ "command": "x", "env": { "A": "${input:a}" } }"#,
            "which needs a terminal; use ${VAR}",
        ),
        (r#"{ "command": "x", "start": "soon" }"#, "eager"),
        (r#"{ "command": "x", "protocol": "1" }"#, "2025-11-25"),
    ];
    for (entry, expected) in bad {
        let config = read(&format!(
            r#"{{ "mcpServers": {{ "bad": {entry}, "good": {{ "command": "x" }} }} }}"#
        ));
        assert_eq!(config.servers.len(), 1, "{entry}");
        assert_eq!(config.servers[0].name.as_str(), "good");
        assert_eq!(config.problems[0].server.as_deref(), Some("bad"));
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Excluded);
        assert!(message.contains(expected), "{entry}: {message}");
    }
}

#[test]
fn a_server_name_that_cannot_be_exposed_is_left_out() {
    for (name, reason) in [("a__b", "contains \"__\""), ("mcpvisor", "is reserved")] {
        let text = format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#);
        let config = read(&text);
        assert!(config.servers.is_empty());
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Excluded);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn unknown_keys_warn_with_the_nearest_known_one() {
    let config = entry(r#"{ "command": "x", "inherit_env": ["A"] }"#);
    assert_eq!(config.servers.len(), 1);
    let expected = r#"unknown key "inherit_env" is ignored; did you mean "inheritEnv"?"#;
    assert_eq!(the_problem(&config), (Severity::Warning, expected));
    let config = entry(r#"{ "command": "x", "reconnect": { "attempst": 3 } }"#);
    assert!(
        the_problem(&config)
            .1
            .contains(r#"did you mean "reconnect.attempts"?"#)
    );
    let config = entry(r#"{ "command": "x", "zzz": 1 }"#);
    assert_eq!(the_problem(&config).1, r#"unknown key "zzz" is ignored"#);
}

#[test]
fn a_huge_key_is_not_compared() {
    let key = "command".repeat(200_000);
    let config = entry(&format!(r#"{{ "command": "x", "{key}": 1 }}"#));
    assert!(the_problem(&config).1.ends_with("is ignored"));
}

#[test]
fn the_last_of_two_entries_is_used_with_a_warning() {
    let config = read(
        r#"{ "mcpServers": { "one": { "command": "x" }, "one": { "command": "y", "required": true } } }"#,
    );
    assert_eq!(config.servers.len(), 1);
    assert!(config.servers[0].required);
    assert_eq!(the_problem(&config).0, Severity::Warning);
}

#[test]
fn duplicate_keys_at_the_top_warn() {
    let config = read(r#"{ "mcpServers": { "a": { "command": "x" } }, "mcpServers": {} }"#);
    assert_eq!(config.servers.len(), 0);
    let (severity, message) = the_problem(&config);
    assert_eq!(severity, Severity::Warning);
    assert!(message.contains("\"mcpServers\" is set twice"), "{message}");
    let config = read(r#"{ "defaults": {}, "defaults": {}, "x": 1, "x": 2, "servers": {} }"#);
    assert!(the_problem(&config).1.contains("\"defaults\" is set twice"));
}

/// A superseded entry must not run because its successor is unusable.
#[test]
fn the_last_of_two_entries_is_used_even_if_it_is_unusable() {
    let texts = [r#"{ "command": "true" }"#, r#"{ "command": 5 }"#];
    for (first, second, expected) in [(0, 1, 0), (1, 0, 1), (0, 0, 1)] {
        let (first, second) = (texts[first], texts[second]);
        let config = read(&format!(
            r#"{{ "mcpServers": {{ "a": {first}, "b": {{ "command": "b" }}, "a": {second} }} }}"#
        ));
        let names = config.servers.iter().map(|it| it.name.as_str());
        let there = names.filter(|name| *name == "a").count();
        assert_eq!((there, config.servers.len()), (expected, expected + 1));
        let problems: Vec<_> = config.problems.iter().map(|it| it.severity).collect();
        let mut severities = vec![Severity::Warning];
        severities.extend((expected == 0).then_some(Severity::Excluded));
        assert_eq!(problems, severities, "{:?}", config.problems);
        assert!(config.problems[0].message.contains("configured twice"));
    }
    let config = read(r#"{ "mcpServers": { "a": { "command": "true" }, "a": null } }"#);
    assert_eq!(config.servers.len(), 1, "null means absent");
}

#[test]
fn a_duplicate_variable_or_header_warns() {
    for (text, named) in [
        (
            r#"{ "command": "x", "env": { "K": "1", "k": "2", "K": "3" } }"#,
            "env.K",
        ),
        (
            r#"{ "url": "http://a/", "headers": { "Key": "1", "key": "2" } }"#,
            "headers.key",
        ),
        (
            r#"{ "url": "http://a/", "env_http_headers": { "Key": "TOKEN", "KEY": "TOKEN" } }"#,
            "env_http_headers.KEY",
        ),
    ] {
        let config = entry(text);
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Warning);
        let expected = format!("{named:?} is set twice; the last one is used");
        assert_eq!(message, expected);
        assert_eq!(config.servers.len(), 1);
    }
    let config = entry(
        r#"{ "url": "http://a/", "http_headers": { "Key": "1" }, "env_http_headers": { "KEY": "TOKEN" } }"#,
    );
    let message = the_problem(&config).1;
    assert!(message.contains("also in \"headers\""), "{message}");
}

#[test]
fn null_means_absent_everywhere() {
    let servers = r#"{ "a": { "command": "x", "args": null } }"#;
    for text in [
        format!(r#"{{ "mcpServers": null, "servers": {servers} }}"#),
        format!(r#"{{ "mcpServers": {servers}, "mcpServers": null }}"#),
        format!(r#"{{ "defaults": null, "stateDir": null, "mcpServers": {servers} }}"#),
    ] {
        let config = read(&text);
        assert_eq!(
            (config.servers.len(), config.problems.len()),
            (1, 0),
            "{text}"
        );
    }
    let config = read(r#"{ "mcpServers": { "a": { "command": "x" }, "a": null, "b": null } }"#);
    assert_eq!(config.servers.len(), 1);
    for problem in &config.problems {
        assert_eq!(problem.severity, Severity::Warning);
        assert!(problem.message.contains("null"), "{problem}");
    }
    let none = Config::from_json(r#"{ "mcpServers": null }"#, |_| None).unwrap_err();
    assert!(
        none.to_string().contains("write { \"mcpServers\""),
        "{none}"
    );
}

#[test]
fn a_missing_and_an_unknown_key_are_reported_together() {
    let config = entry(r#"{ "comand": "python3" }"#);
    let (severity, message) = the_problem(&config);
    assert_eq!(severity, Severity::Excluded);
    assert!(message.contains("needs a \"command\""), "{message}");
    assert!(message.contains("did you mean \"command\"?"), "{message}");
}

#[test]
fn no_timeout_is_zero() {
    for key in ["connect", "call", "idle", "listing"] {
        let config = entry(&format!(
            r#"{{ "command": "x", "timeouts": {{ "{key}": "0s" }} }}"#
        ));
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Excluded);
        assert!(
            message.contains(&format!("\"timeouts.{key}\" must be longer than 0")),
            "{message}"
        );
    }
    let config = entry(r#"{ "command": "x", "timeouts": { "reconnectWait": "0s" } }"#);
    assert_eq!(config.problems, [], "a call need not wait");
}

#[test]
fn a_malformed_variable_warns_or_is_rejected() {
    let config = entry(r#"{ "command": "x", "args": ["${A B}"] }"#);
    assert_eq!(the_problem(&config).0, Severity::Warning);
    let config = entry(r#"{ "command": "x", "args": ["${NOPE:-${TOKEN}}"] }"#);
    let (severity, message) = the_problem(&config);
    assert_eq!(severity, Severity::Excluded);
    assert!(message.contains("the default of NOPE"), "{message}");
}

#[test]
fn a_config_that_cannot_be_read_says_where_and_why() {
    let read = |text: &str| Config::from_json(text, |_| None).unwrap_err();
    match read("{\n  \"mcpServers\": {\n    oops }\n}") {
        ConfigError::Syntax { location, .. } => {
            assert_eq!((location.line, location.column), (3, 5));
            assert_eq!(location.source, "    *** }");
        }
        other => panic!("{other}"),
    }
    assert!(
        read(r#"{ "mcp-server": {} }"#)
            .to_string()
            .contains("did you mean")
    );
    assert!(read("{}").to_string().contains("has no \"mcpServers\""));
    assert!(
        read(r#"{ "mcpServers": [] }"#)
            .to_string()
            .contains("must hold an object")
    );
    assert!(read(r#""text""#).to_string().contains("one object"));
    let missing = Config::load("/nonexistent/mcp.json").unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/mcp.json"));
}

#[test]
fn no_secret_is_in_debug_or_in_a_problem() {
    let shown = [
        format!(
            "{:?}",
            entry(
                r#"{ "command": "${TOKEN}/x", "cwd": "/${TOKEN}", "env": { "K": "${TOKEN}" }, "args": ["${TOKEN}"],
                     "inheritEnv": ["${TOKEN}"], "idempotentTools": ["${TOKEN}"], "type": "${TOKEN:-stdio}" }"#
            )
        ),
        format!(
            "{:?}",
            entry(&format!(
                r#"{{ "command": "x", "env": {{ "K": "{CANARY}" }} }}"#
            ))
        ),
        format!(
            "{:?}",
            entry(&format!(
                r#"{{ "command": ["{CANARY}"], "env": "{CANARY}" }}"#
            ))
        ),
        format!(
            "{:?}",
            entry(r#"{ "command": "x", "timeouts": { "call": "${TOKEN}" } }"#)
        ),
        Config::from_json(&format!("\"{CANARY}\""), |_| None)
            .unwrap_err()
            .to_string(),
        Config::from_json(&format!(r#"{{"mcpServers": "{CANARY}" }}"#), |_| None)
            .unwrap_err()
            .to_string(),
        Config::from_json(&format!(r#"{{"a": {CANARY} }}"#), |_| None)
            .unwrap_err()
            .to_string(),
    ];
    for text in shown {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[test]
fn a_variable_in_the_defaults_is_secret_in_every_server() {
    let config = read(
        r#"{
          "defaults": { "rootCertificates": ["/nope/${TOKEN}/ca.pem"] },
          "mcpServers": { "web": { "url": "https://localhost/" }, "child": { "command": "x" } },
        }"#,
    );
    for server in &config.servers {
        let hidden = server.transport.secrets().redact(CANARY).into_owned();
        assert_eq!(hidden, "***", "{}", server.name);
    }
    let written = config.to_json(Arguments::Shown).to_string();
    assert!(!written.contains(CANARY), "{written}");
    assert!(written.contains("/nope/${WEB_SECRET}/ca.pem"), "{written}");
}

#[test]
fn a_token_in_place_of_its_variable_is_not_shown() {
    for key in ["bearerTokenEnvVar", "bearer_token_env_var"] {
        let config = entry(&format!(r#"{{ "url": "http://x/", "{key}": "{CANARY}" }}"#));
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Warning);
        assert!(
            message.contains("must be the name of a variable"),
            "{message}"
        );
        let transport = &config.servers[0].transport;
        let written = config.to_json(Arguments::Shown);
        let said = format!("{:?} {transport} {written}", config.problems);
        assert!(!said.contains(CANARY), "{said}");
    }
    for name in ["GITHUB_TOKEN", "TOKEN", "K"] {
        let config = entry(&format!(
            r#"{{ "url": "http://x/", "bearerTokenEnvVar": "{name}" }}"#
        ));
        assert_eq!(config.problems, []);
        let written = config.to_json(Arguments::Shown);
        assert_eq!(written["mcpServers"]["one"]["bearerTokenEnvVar"], name);
    }
}

#[test]
fn an_unusable_entry_that_is_disabled_is_no_error() {
    for off in [
        r#"{ "command": "x", "disabled": true, "env": { "T": "${UNSET_TOKEN}" } }"#,
        r#"{ "env": { "T": "${UNSET_TOKEN}" }, "command": "x", "enabled": false }"#,
        r#"{ "type": "sse", "disabled": true }"#,
    ] {
        let config = entry(off);
        assert_eq!(config.servers.len(), 0, "{off}");
        assert_eq!(the_problem(&config).0, Severity::Disabled, "{off}");
    }
    let defaults = r#"{ "defaults": { "enabled": false }, "mcpServers": {
        "a": { "type": "sse" }, "b": { "type": "sse", "enabled": true } } }"#;
    let severities = read(defaults).problems.into_iter().map(|it| it.severity);
    assert_eq!(
        severities.collect::<Vec<_>>(),
        [Severity::Disabled, Severity::Excluded]
    );
}

#[test]
fn a_zero_timeout_is_reported_under_the_key_in_the_file() {
    for zero in ["0", "0.0", "\"0s\""] {
        let config = entry(&format!(r#"{{ "command": "x", "timeout": {zero} }}"#));
        let (severity, message) = the_problem(&config);
        assert_eq!(severity, Severity::Excluded);
        assert!(
            message.starts_with("\"timeout\" must be longer than 0"),
            "{message}"
        );
        let line = config.problems[0].render();
        assert!(
            line.lines()
                .any(|line| line.contains("\"timeout\"") && line.contains('|')),
            "{line}"
        );
    }
}

#[test]
fn suggestions_are_in_the_format_of_the_file() {
    let text = "[mcp_servers.a]\ncommand = \"x\"\ntimeout = 30\n";
    let config = Config::from_toml(text, |_| None).unwrap();
    let (_, message) = the_problem(&config);
    assert!(
        message.ends_with(r#"write timeouts = { call = "30s", idle = "30s" }"#),
        "{message}"
    );
}
