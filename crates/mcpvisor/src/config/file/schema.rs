//! Generates the JSON Schema of a config from the tables of keys.

use mcpvisor_core::RESERVED_SERVER_NAME;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::keys::{
    AUTH_STORE, Bounds, CONNECTS, DEFAULTS, EDITOR_COMMAND, ENTRY, FLEET, FLEET_CONNECTS, HTTP,
    Key, Kind, OLD_SPELLINGS, PROTOCOLS, SERVERS, SSE, STATE_DIR, STDIO, STORES,
};
use super::raw_entry::RawEntry;
use super::to_json::duration_text;

/// The JSON Schema of a config file, for editors. A copy is in `docs/config.schema.json`.
///
/// It rejects unknown keys, about which the reader only warns. At the top it allows any key: a
/// config may be part of an editor's settings.
pub fn schema() -> Value {
    let servers = json!({
        "type": "object",
        "propertyNames": {
            "minLength": 1,
            "maxLength": 64,
            "not": { "pattern": format!("__|^{RESERVED_SERVER_NAME}$") },
        },
        "additionalProperties": { "$ref": "#/$defs/server" },
    });
    let mut top = Map::new();
    for (index, key) in SERVERS.iter().enumerate() {
        let mut part = servers.clone();
        part["description"] = match index {
            0 => json!("The servers, by name."),
            _ => json!(format!(
                "The servers, as another client calls \"{}\".",
                SERVERS[0]
            )),
        };
        top.insert((*key).to_owned(), part);
    }
    // Holds servers for one client, and an object of servers for another.
    top.insert("mcp".to_owned(), json!({ "type": "object" }));
    top.insert(
        DEFAULTS.to_owned(),
        json!({ "description": "Settings of every server, unless its entry overrides them.", "$ref": "#/$defs/defaults" }),
    );
    top.insert(
        STATE_DIR.to_owned(),
        json!({ "description": "The folder in which the runtime saves its state; ~/ is the home folder. Without it nothing is saved.", "type": "string", "minLength": 1 }),
    );
    let mut connects = object(&[CONNECTS]);
    connects["description"] = json!("Limits of concurrent connects.");
    top.insert(FLEET_CONNECTS.to_owned(), connects);
    top.insert(
        AUTH_STORE.to_owned(),
        json!({ "description": "Where tokens are stored: \"keyring\", encrypted with a key in the system's keyring; \"file\", plain files that only their owner can read; \"auto\", how they are stored already, else the keyring if it works, else files. Default: \"auto\".", "enum": STORES, "default": STORES[0] }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mcpvisor config",
        "description": "A fleet of MCP servers.",
        "type": "object",
        "properties": top,
        "$defs": {
            "server": object(&ENTRY),
            "defaults": object(&FLEET),
            "duration": {
                "type": "string",
                "pattern": r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h)\s*)+$|\$\{",
                "examples": ["500ms", "30s", "2m", "1m30s"],
            },
        },
    })
}

fn object(tables: &[&[Key]]) -> Value {
    let keys = tables.iter().copied().flatten();
    let properties: Map<String, Value> = keys
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn property(key: &Key) -> Value {
    let mut property = shape(key);
    let about = match (&key.kind, key.means) {
        (Kind::Unsupported(instead), _) => format!("Ignored: {instead}."),
        (Kind::Ignored, _) => "Another client's key; has no effect.".to_owned(),
        (_, means) if key.about.is_empty() => format!("Another client's key for \"{means}\"."),
        _ => key.about.to_owned(),
    };
    property["description"] = about.into();
    let is_old_spelling = OLD_SPELLINGS.iter().any(|old| old.name == key.name);
    if is_old_spelling || matches!(key.kind, Kind::Unsupported(_)) {
        property["deprecated"] = true.into();
    }
    property
}

/// The shape of a number.
fn number<N: Serialize>(kind: &str, bounds: &Bounds<N>, default: Option<impl Serialize>) -> Value {
    let mut shape = json!({ "type": kind, "minimum": bounds.least });
    if let Some(default) = default {
        shape["default"] = json!(default);
    }
    if let Some(most) = &bounds.most {
        shape["maximum"] = json!(most);
    }
    shape
}

fn shape(key: &Key) -> Value {
    let raw = &mut RawEntry::default();
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    match &key.kind {
        Kind::Flag(at) => json!({ "type": "boolean", "default": *at(raw) }),
        Kind::MaybeFlag(_) => json!({ "type": "boolean" }),
        Kind::Count(at) => {
            json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX, "default": *at(raw) })
        }
        Kind::Size(bounds, at) => number("integer", bounds, Some(*at(raw))),
        Kind::MaybeSize(bounds, _) => number("integer", bounds, None::<usize>),
        Kind::Number(bounds, at) => number("number", bounds, Some(*at(raw))),
        Kind::Duration(at) => {
            json!({ "$ref": "#/$defs/duration", "default": duration_text(*at(raw)) })
        }
        Kind::MaybeDuration(_) => json!({ "$ref": "#/$defs/duration" }),
        Kind::Text(_) if key.name == "type" || key.means == "type" => {
            let known: Vec<&str> = STDIO.iter().chain(&HTTP).chain(&SSE).copied().collect();
            json!({ "anyOf": [{ "enum": known }, { "type": "string", "pattern": r"\$\{" }] })
        }
        Kind::Text(_) | Kind::Name(_) => json!({ "type": "string" }),
        Kind::Names(_) | Kind::Texts(_) => texts,
        Kind::Env(_) | Kind::Headers(_) | Kind::EnvHeaders(_) => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Kind::Section(keys) => object(&[keys]),
        Kind::Auth(keys) => {
            let mut section = object(&[keys]);
            section["type"] = json!(["object", "boolean", "string"]);
            section
        }
        Kind::Choice(words, _) => json!({ "enum": words }),
        Kind::Scopes(_) => json!({ "anyOf": [{ "type": "string" }, texts] }),
        Kind::Port(_) => json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX }),
        Kind::CommandLine(_) => {
            json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
        }
        Kind::Scope => json!({ "enum": ["shared", "client"], "default": "shared" }),
        Kind::Start => json!({ "enum": ["eager", "lazy"], "default": "eager" }),
        Kind::Protocol => json!({ "enum": PROTOCOLS }),
        Kind::Command => json!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            object(&[EDITOR_COMMAND]),
        ] }),
        Kind::Seconds(_) | Kind::Millis(_) => json!({ "type": "number", "minimum": 0 }),
        Kind::Timeout => {
            json!({ "anyOf": [{ "type": "number", "minimum": 0 }, { "$ref": "#/$defs/duration" }] })
        }
        Kind::Unsupported(_) | Kind::Ignored => json!({}),
    }
}
