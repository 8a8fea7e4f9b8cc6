//! Realistic config files: broken ones with their diagnostics, unmodified files of other clients,
//! and our own, which must match the JSON Schema.

#![cfg(all(feature = "diagnostics", feature = "stdio", feature = "http"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcpvisor::config::{Arguments, ConfigSource, Severity, schema};
use mcpvisor::{Config, ServerConfig};
use serde_json::{Value, json};

/// A fake secret in every broken file, which no diagnostic may show.
const CANARY: &str = "c4n4ry-7f3a";

/// The command that updates the snapshots and the schema.
const RENEW: &str = "INSTA_UPDATE=always MCPVISOR_RENEW=1 cargo test -p mcpvisor --test configs";

fn folder(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("configs").join(name)
}

/// The files of a folder, by name, with paths as if they were in the working directory.
fn files(name: &str) -> BTreeMap<String, ConfigSource> {
    let entries = std::fs::read_dir(folder(name)).unwrap();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let source = ConfigSource::read(entry.path()).unwrap();
        (name.clone(), ConfigSource::new(name, source.text()))
    };
    entries.map(|entry| read(entry.unwrap())).collect()
}

/// The values of the variables in the fixtures.
fn variable(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/ada".to_owned()),
        "TICKETS_TOKEN" | "BUILDS_KEY" | "TOOLS_KEY" | "TEAM" => Some(format!("{name}-{CANARY}")),
        _ => None,
    }
}

fn read(source: &ConfigSource) -> Config {
    Config::from_source_with(source, variable).unwrap_or_else(|error| panic!("{error}"))
}

fn diagnostic(source: &ConfigSource) -> String {
    match Config::from_source_with(source, variable) {
        Ok(config) => {
            assert!(!config.problems.is_empty(), "{source:?} has no problem");
            let shown = format!("{config:?} {:?}", config.problems);
            assert!(!shown.contains(CANARY), "{shown}");
            let rendered = config.problems.iter().map(|problem| problem.render());
            rendered.collect::<Vec<_>>().join("\n\n")
        }
        Err(error) => {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{shown}");
            error.render()
        }
    }
}

#[test]
fn every_broken_config_has_its_diagnostic_and_none_tells_a_secret() {
    let broken = files("broken");
    assert!(broken.len() >= 40);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder("diagnostics"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let _bound = settings.bind_to_scope();
    let mut canaries = 0;
    for (name, source) in &broken {
        canaries += usize::from(source.text().contains(CANARY));
        let diagnostic = diagnostic(source);
        assert!(!diagnostic.contains("c4n4ry"), "{name}: {diagnostic}");
        assert!(
            diagnostic.contains(&format!("{name}:")),
            "the file is named: {diagnostic}"
        );
        insta::assert_snapshot!(name.as_str(), diagnostic);
    }
    assert!(
        canaries >= 40,
        "the search has something to find: {canaries}"
    );
}

#[test]
fn every_snapshot_has_its_broken_config() {
    let broken = files("broken");
    for entry in std::fs::read_dir(folder("diagnostics")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let config = name.strip_suffix(".snap");
        let known = config.is_some_and(|config| broken.contains_key(config));
        assert!(known, "{name} belongs to nothing: remove it");
    }
}

#[test]
fn a_broken_entry_leaves_the_good_one_alone() {
    let mut seen = 0;
    for (name, source) in files("broken") {
        if source.text().contains("good") {
            let config = read(&source);
            let good = config.servers.iter().any(|one| one.name.as_str() == "good");
            assert!(good, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 20);
}

/// The servers of a file (name, transport, whether enabled) and its warnings.
fn summary(config: &Config) -> (Vec<String>, Vec<&str>) {
    let server = |server: &ServerConfig| {
        let off = if server.enabled { "" } else { " off" };
        format!("{} {}{off}", server.name, server.transport.label())
    };
    let said = config.problems.iter().map(|problem| {
        assert_eq!(problem.severity, Severity::Warning, "{problem}");
        problem.message.as_str()
    });
    (config.servers.iter().map(server).collect(), said.collect())
}

/// The expected servers and warnings of each file.
fn expected() -> BTreeMap<&'static str, (&'static [&'static str], Vec<String>)> {
    let read_as = |unit, text| {
        format!(
            "\"timeout\" has no unit and is read as {unit}; write \"timeouts\": \
             {{ \"call\": \"{text}\", \"idle\": \"{text}\" }}"
        )
    };
    let quiet: [(&str, &[&str]); 12] = [
        ("claude-desktop.json", &["files stdio", "weather stdio"]),
        (
            "claude-project.mcp.json",
            &["tickets http", "database stdio"],
        ),
        (
            "codex.toml",
            &["docs stdio", "figures http", "old stdio off"],
        ),
        ("cursor.json", &["builds stdio", "remote http"]),
        ("fastmcp.json", &["weather http", "assistant stdio"]),
        ("kiro.json", &["web stdio", "api http"]),
        ("langchain.json", &["math stdio", "weather http"]),
        ("opencode.json", &["local stdio", "remote http off"]),
        ("vscode-settings.json", &["clock stdio"]),
        ("vscode.json", &["browser stdio", "issues http"]),
        ("windsurf.json", &["deploys http", "shell stdio off"]),
        ("zed.json", &["search stdio", "older stdio", "far http off"]),
    ];
    let mut expected: BTreeMap<_, (&[&str], Vec<String>)> = quiet
        .into_iter()
        .map(|(name, servers)| (name, (servers, Vec::new())))
        .collect();
    expected.insert(
        "cline.json",
        (
            &["local stdio", "remote http off"],
            vec![read_as("seconds", "1m")],
        ),
    );
    let milliseconds = ["15s", "5s"].map(|text| read_as("milliseconds", text));
    expected.insert(
        "gemini.json",
        (&["python stdio", "web http"], milliseconds.to_vec()),
    );
    expected
}

#[test]
fn the_files_of_other_clients_are_read_as_they_are() {
    let mut expected = expected();
    for (name, source) in files("real") {
        let config = read(&source);
        let (servers, said) = summary(&config);
        let (names, warnings) = expected
            .remove(name.as_str())
            .unwrap_or_else(|| panic!("{name}"));
        assert_eq!(servers, names, "{name}");
        assert_eq!(said, warnings, "{name}");
    }
    assert!(expected.is_empty(), "{expected:?}");
}

fn server(file: &str, name: &str) -> ServerConfig {
    let config = read(&files("real")[file]);
    let mut servers = config.servers.into_iter();
    servers.find(|server| server.name.as_str() == name).unwrap()
}

#[test]
fn what_other_clients_say_is_understood() {
    let secs = Duration::from_secs_f64;
    let docs = server("codex.toml", "docs");
    assert_eq!(docs.settings.timeouts.connect, secs(20.0));
    assert_eq!(docs.settings.timeouts.call, secs(45.5));
    assert_eq!(docs.settings.timeouts.idle, secs(45.5));
    assert_eq!(docs.tools.allow, ["search", "open"]);
    assert_eq!(docs.tools.deny, ["open"]);
    let old = server("codex.toml", "old");
    assert_eq!(old.settings.timeouts.connect, secs(20.0));
    assert!(server("codex.toml", "figures").required);
    let python = server("gemini.json", "python");
    assert_eq!(python.settings.timeouts.call, secs(15.0));
    assert_eq!(python.tools.allow, ["read", "list"]);
    assert_eq!(python.tools.deny, ["list"]);
    assert_eq!(server("windsurf.json", "shell").tools.deny, ["run"]);
    assert_eq!(server("kiro.json", "web").tools.deny, ["post"]);
}

/// The entry as JSON, including its arguments.
fn written(file: &str, name: &str) -> Value {
    server(file, name).to_json(Arguments::Shown).unwrap()
}

#[test]
fn commands_and_addresses_are_those_of_the_file() {
    assert_eq!(
        written("zed.json", "older"),
        json!({
            "type": "stdio", "command": "acme-older", "args": ["serve"],
            "env": { "A": "${OLDER_A}" },
        })
    );
    assert_eq!(
        written("opencode.json", "local"),
        json!({
            "type": "stdio", "command": "npx", "args": ["-y", "acme-local"],
            "env": { "KEY": "${LOCAL_KEY}" },
        })
    );
    assert_eq!(
        written("codex.toml", "figures"),
        json!({
            "type": "http",
            "url": "https://figures.example.com/mcp",
            "headers": { "X-Region": "${FIGURES_X_REGION}", "X-Team": "${FIGURES_X_TEAM}" },
            "bearerTokenEnvVar": "FIGURES_TOKEN",
            "required": true,
        })
    );
    assert_eq!(
        written("windsurf.json", "deploys")["url"],
        "https://deploys.example.com/mcp"
    );
    assert_eq!(
        written("claude-project.mcp.json", "tickets")["url"],
        "https://tickets.example.com/mcp"
    );
}

#[test]
fn what_a_variable_of_a_file_holds_is_not_shown() {
    let mut used = 0;
    for (name, source) in files("real") {
        let config = read(&source);
        used += usize::from(source.text().contains("TICKETS_TOKEN"));
        for shown in [
            format!("{config:?} {:#?}", config.problems),
            config.to_json(Arguments::Hidden).to_string(),
            config.to_json(Arguments::Shown).to_string(),
        ] {
            assert!(!shown.contains(CANARY), "{name}: {shown}");
        }
    }
    assert!(used > 3);
}

#[test]
fn our_own_files_are_read_without_a_word() {
    for (name, source) in files("own") {
        let config = read(&source);
        assert_eq!(config.problems, [], "{name}");
    }
}

#[test]
fn the_defaults_of_the_fleet_hold_where_a_server_says_nothing() {
    for file in ["full.json", "full.toml"] {
        let config = read(&files("own")[file]);
        let [files, github] = config.servers.as_slice() else {
            panic!("{config:?}")
        };
        assert_eq!(github.settings.timeouts.connect, Duration::from_secs(10));
        assert!(github.settings.retry.trusted);
        assert!(files.settings.rest.lazy);
        assert_eq!(
            files.settings.rest.sleep_after,
            Some(Duration::from_secs(600))
        );
        assert_eq!(
            config.state_dir.as_deref(),
            Some(Path::new("/home/ada/state/mcpvisor"))
        );
    }
    let config = read(&files("own")["full.json"]);
    let files = &config.servers[0];
    assert!(!files.settings.retry.trusted, "its own word counts");
    assert_eq!(files.settings.timeouts.connect, Duration::from_secs(20));
    assert_eq!(config.servers[1].tools.deny, ["*_everything"]);
}

#[test]
fn a_server_knows_where_it_comes_from() {
    let config = read(&files("own")["full.toml"]);
    let github = &config.origins[&config.servers[1].name];
    assert_eq!(github.to_string(), "full.toml:19:13");
}

#[test]
fn what_is_written_down_is_read_as_the_same_fleet() {
    for (name, source) in files("own").into_iter().chain(files("real")) {
        let config = read(&source);
        let written = config.to_json(Arguments::Hidden);
        let again =
            Config::from_json(&written.to_string(), |name| Some(format!("<{name}>"))).unwrap();
        assert_eq!(again.problems, [], "{name}: {written}");
        assert_eq!(again.to_json(Arguments::Hidden), written, "{name}");
        let settings = |config: &Config| {
            let servers = config.servers.iter();
            servers.map(|one| one.settings.clone()).collect::<Vec<_>>()
        };
        // JSON objects are unordered.
        let sorted = |mut config: Config| {
            config
                .servers
                .sort_by(|one, other| one.name.cmp(&other.name));
            settings(&config)
        };
        assert_eq!(sorted(again), sorted(config), "{name}");
    }
}

fn kept_schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json")
}

#[test]
fn the_schema_in_the_documentation_is_that_of_the_reader() {
    if std::env::var_os("MCPVISOR_RENEW").is_some() {
        let text = serde_json::to_string_pretty(&schema()).unwrap();
        std::fs::write(kept_schema(), text + "\n").unwrap();
    }
    let kept = std::fs::read_to_string(kept_schema()).unwrap_or_default();
    let kept: Value = serde_json::from_str(&kept).unwrap_or_default();
    assert!(
        kept == schema(),
        "docs/config.schema.json is stale; renew it with: {RENEW}"
    );
}

/// A JSON file as the value for a validator.
fn plain(source: &ConfigSource) -> Value {
    let parsed =
        jsonc_parser::parse_to_ast(source.text(), &Default::default(), &Default::default());
    parsed.unwrap().value.unwrap().into()
}

#[test]
fn the_schema_knows_our_files_and_those_of_other_clients() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let mut checked = 0;
    for (name, source) in files("own").into_iter().chain(files("real")) {
        if name.ends_with(".toml") {
            continue;
        }
        let value = plain(&source);
        let errors = validator.iter_errors(&value);
        let errors: Vec<String> = errors
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        checked += 1;
    }
    assert!(checked >= 12, "{checked}");
}

#[test]
fn the_schema_refuses_what_the_reader_warns_about_or_refuses() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for entry in [
        json!({ "command": "x", "comand": "y" }),
        json!({ "command": "x", "reconnect": { "attempts": 0 } }),
        json!({ "command": "x", "timeouts": { "call": 30 } }),
        json!({ "command": "x", "timeouts": { "call": "30" } }),
        json!({ "command": "x", "start": "soon" }),
        json!({ "command": "x", "type": "ftp" }),
        json!({ "command": "x", "env": { "A": 1 } }),
    ] {
        let config = json!({ "mcpServers": { "a": entry } });
        assert!(!validator.is_valid(&config), "{config}");
        let read = Config::from_json(&config.to_string(), |_| None).unwrap();
        assert_eq!(read.problems.len(), 1, "{config}");
    }
}

#[test]
fn every_key_is_documented() {
    let documentation = include_str!("../../../docs/config.md");
    let schema = schema();
    let properties = schema["$defs"]["server"]["properties"].as_object();
    for (name, property) in properties.unwrap() {
        let inner = property["properties"].as_object();
        let inner = inner.into_iter().flat_map(|inner| inner.keys());
        for key in std::iter::once(name).chain(inner) {
            let written = documentation.contains(&format!("`{key}`"));
            assert!(written, "{key} is not in docs/config.md");
        }
    }
}

/// The settings of `docs/config.md` as a config entry: each key with its documented default.
fn documented_defaults() -> Value {
    let documentation = include_str!("../../../docs/config.md");
    let (_, settings) = documentation.split_once("## Settings").unwrap();
    let (settings, _) = settings.split_once("## Connects of the fleet").unwrap();
    let mut entry = json!({ "command": "x" });
    let mut section = None;
    for line in settings.lines() {
        if let Some(name) = line.strip_prefix('`') {
            section = name.strip_suffix("`:");
        }
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [key, .., default] = cells.as_slice() else {
            continue;
        };
        let Some(key) = key.strip_prefix('`').and_then(|key| key.strip_suffix('`')) else {
            continue;
        };
        // A default in words, such as "never", means that the key is absent.
        if ["never", "all", "none", "found out"].contains(default) {
            continue;
        }
        let value = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
        match section {
            Some(section) => entry[section][key] = value,
            None => entry[key] = value,
        }
    }
    entry
}

#[test]
fn the_documented_defaults_are_those_of_the_settings() {
    let documented = documented_defaults();
    let read = |entry: &Value| {
        let config = json!({ "mcpServers": { "a": entry } });
        let config = Config::from_json(&config.to_string(), |_| None).unwrap();
        assert!(config.problems.is_empty(), "{:?}", config.problems);
        format!("{:?}", config.servers[0])
    };
    assert!(documented["reconnect"]["jitter"].is_number());
    assert_eq!(read(&documented), read(&json!({ "command": "x" })));
}
