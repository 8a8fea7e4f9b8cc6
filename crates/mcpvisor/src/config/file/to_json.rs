//! Writes a config as JSON, with its secrets replaced by variables.
//!
//! `${GITHUB_AUTHORIZATION}` replaces the header of a server `github`, for instance. Read back with
//! those variables set, it is the same fleet.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

#[cfg(feature = "auth")]
use super::keys::AUTH_STORE;
use super::keys::{CONNECTS, FLEET_CONNECTS, Key, Kind, SERVERS, SETTINGS, STATE_DIR, TRANSPORT};
#[cfg(feature = "auth")]
use super::raw_auth::RawAuth;
use super::raw_entry::RawEntry;
use crate::api::transport::TransportKind;
use crate::config::{Config, ServerConfig};
use crate::secret::Secret;
#[cfg(feature = "auth")]
use crate::secret::is_shown_variable;

/// Whether the arguments of programs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// Each is replaced by a variable, since any may be a token.
    Hidden,
    /// They are written, except for known secrets: values of a `${VAR}`, and those named by
    /// [`StdioCommand::secret`](crate::StdioCommand::secret).
    Shown,
}

impl Config {
    /// The config as JSON in the format of config files, with its secrets replaced by variables.
    ///
    /// Values of environment variables and headers, user info and query of addresses, and
    /// everything that came from a `${VAR}` become variables, named after the server and their
    /// purpose. Read back with those set, it is the same fleet. In-process, channel and stream servers
    /// are left out, and so are comments.
    ///
    /// ```
    /// use mcpvisor::config::Arguments;
    /// use mcpvisor::{Config, ServerConfig, Transport};
    ///
    /// let github = Transport::http("https://example.com/mcp?key=abc").header("Authorization", "Bearer abc");
    /// let config = Config::new().server(ServerConfig::new("github", github)?);
    /// assert_eq!(
    ///     config.to_json(Arguments::Hidden),
    ///     serde_json::json!({ "mcpServers": { "github": {
    ///         "type": "http",
    ///         "url": "https://example.com/mcp?${GITHUB_QUERY}",
    ///         "headers": { "Authorization": "${GITHUB_AUTHORIZATION}" },
    ///     } } })
    /// );
    /// # Ok::<(), mcpvisor::InvalidServerName>(())
    /// ```
    pub fn to_json(&self, arguments: Arguments) -> Value {
        self.written(arguments, &mut VariableNames::default())
    }

    pub(super) fn written(&self, arguments: Arguments, names: &mut VariableNames) -> Value {
        let mut servers = Map::new();
        for server in &self.servers {
            names.reserve(server);
        }
        for server in &self.servers {
            if let Some(entry) = entry(server, arguments, names) {
                servers.insert(server.name.to_string(), Value::Object(entry));
            }
        }
        let mut document = Map::new();
        if let Some(folder) = &self.state_dir {
            document.insert(STATE_DIR.to_owned(), folder.to_string_lossy().into());
        }
        if let Some(connects) = &self.connects {
            let mut section = Map::new();
            write(CONNECTS, &mut RawEntry::of_connects(connects), &mut section);
            document.insert(FLEET_CONNECTS.to_owned(), section.into());
        }
        #[cfg(feature = "auth")]
        if let Some(store) = &self.auth_store {
            document.insert(AUTH_STORE.to_owned(), json!(store));
        }
        document.insert(SERVERS[0].to_owned(), servers.into());
        document.into()
    }
}

impl ServerConfig {
    /// The entry of this server as [`Config::to_json`] writes it; `None` for one that no file can
    /// describe.
    pub fn to_json(&self, arguments: Arguments) -> Option<Value> {
        let mut names = VariableNames::default();
        names.reserve(self);
        entry(self, arguments, &mut names).map(Value::Object)
    }
}

fn entry(
    server: &ServerConfig,
    arguments: Arguments,
    names: &mut VariableNames,
) -> Option<Map<String, Value>> {
    let mut raw = RawEntry::of(server);
    let mut replacer = SecretReplacer::new(server.name.as_str(), names);
    match &server.transport.0 {
        #[cfg(feature = "stdio")]
        TransportKind::Stdio(it) => stdio(&it.parts(), arguments, &mut replacer, &mut raw),
        #[cfg(feature = "http")]
        TransportKind::Http(it) => {
            http(&it.parts(), &mut replacer, &mut raw);
            #[cfg(feature = "auth")]
            auth(&it.auth, arguments, &mut replacer, &mut raw);
        }
        #[cfg(feature = "stream")]
        TransportKind::Stream(_) => return None,
        TransportKind::Channel { .. } => return None,
    }
    let mut entry = Map::new();
    write(TRANSPORT, &mut raw, &mut entry);
    write(SETTINGS, &mut raw, &mut entry);
    Some(entry)
}

#[cfg(feature = "stdio")]
fn stdio(
    parts: &crate::link::stdio::CommandParts<'_>,
    arguments: Arguments,
    replacer: &mut SecretReplacer<'_>,
    raw: &mut RawEntry,
) {
    replacer.add_secrets(parts.secrets.iter().cloned());
    raw.kind = Some("stdio".to_owned());
    raw.program = Some(replacer.redact(&parts.program));
    let mut number = 0;
    let args = parts.args.iter().map(|arg| match arguments {
        Arguments::Shown => replacer.redact(arg),
        Arguments::Hidden => {
            number += 1;
            replacer.replace(&format!("ARG_{number}"), arg)
        }
    });
    raw.args = args.collect();
    let env = parts.env.iter();
    let env = env.map(|(name, value)| (name.clone(), replacer.replace(name, value)));
    raw.env = env.collect();
    raw.cwd = parts.cwd.as_ref().map(|cwd| replacer.redact(cwd));
    raw.inherit_env.clone_from(&parts.inherit);
}

#[cfg(feature = "http")]
fn http(
    parts: &crate::link::http::EndpointParts<'_>,
    replacer: &mut SecretReplacer<'_>,
    raw: &mut RawEntry,
) {
    replacer.add_secrets(parts.secrets.iter().cloned());
    let kind = if parts.is_sse { "sse" } else { "http" };
    raw.kind = Some(kind.to_owned());
    let socket = parts.unix_socket.as_ref();
    raw.socket_path = socket.map(|path| replacer.redact(path));
    raw.url = Some(replacer.address(parts.url));
    let headers = parts.headers.iter();
    let headers = headers.map(|(name, value)| ((*name).to_owned(), replacer.replace(name, value)));
    raw.headers = headers.collect();
    // A text that is not a valid name may be the token itself.
    let shown = parts.shown_bearer_env.unwrap_or("***");
    raw.bearer_token_env = parts.bearer_env.map(|_| shown.to_owned());
    let certificate = parts.client_certificate.as_ref();
    raw.client_certificate = certificate.map(|file| replacer.redact(file));
    let certificates = parts.root_certificates.iter();
    raw.root_certificates = certificates.map(|file| replacer.redact(file)).collect();
}

#[cfg(feature = "auth")]
fn auth(
    config: &crate::auth::AuthConfig,
    arguments: Arguments,
    replacer: &mut SecretReplacer<'_>,
    raw: &mut RawEntry,
) {
    let mut auth = RawAuth::of(config);
    for text in auth.texts() {
        *text = replacer.redact(text);
    }
    for variable in auth.variables() {
        // A text that is not a valid name may be the secret itself.
        if !is_shown_variable(variable) {
            "***".clone_into(variable);
        }
    }
    if let Some(secret) = &mut auth.client_secret {
        *secret = replacer.replace("CLIENT_SECRET", secret);
    }
    for (number, word) in auth.headers_helper.iter_mut().enumerate() {
        *word = match arguments {
            Arguments::Hidden if number > 0 => {
                replacer.replace(&format!("HELPER_ARG_{number}"), word)
            }
            _ => replacer.redact(word),
        };
    }
    raw.auth = auth;
}

/// Writes the values that differ from the defaults.
fn write(keys: &[Key], raw: &mut RawEntry, object: &mut Map<String, Value>) {
    let default = &mut RawEntry::default();
    for key in keys {
        let value = value(key, raw);
        if value != self::value(key, default)
            && let Some(value) = value
        {
            object.insert(key.name.to_owned(), value);
        }
    }
}

fn value(key: &Key, raw: &mut RawEntry) -> Option<Value> {
    let texts = |texts: &[String]| (!texts.is_empty()).then(|| json!(texts));
    match &key.kind {
        Kind::Flag(at) => Some((*at(raw)).into()),
        Kind::MaybeFlag(at) => at(raw).map(Value::from),
        Kind::Count(at) => Some((*at(raw)).into()),
        Kind::Size(_, at) => Some((*at(raw)).into()),
        Kind::MaybeSize(_, at) => at(raw).map(Value::from),
        Kind::Number(_, at) => Some((*at(raw)).into()),
        Kind::Duration(at) => Some(duration_text(*at(raw)).into()),
        Kind::MaybeDuration(at) => at(raw).map(|duration| duration_text(duration).into()),
        Kind::Names(at) | Kind::Texts(at) | Kind::CommandLine(at) => texts(at(raw)),
        Kind::Name(at) | Kind::Text(at) => at(raw).clone().map(Value::from),
        Kind::Choice(_, at) => at(raw).map(Value::from),
        Kind::Scopes(at) => at(raw).as_ref().map(|scopes| json!(scopes)),
        Kind::Port(at) => at(raw).map(Value::from),
        Kind::Section(keys) | Kind::Auth(keys) => {
            let mut section = Map::new();
            write(keys, raw, &mut section);
            (!section.is_empty()).then(|| section.into())
        }
        Kind::Scope => Some(match raw.settings.connections.is_per_client() {
            true => "client".into(),
            false => "shared".into(),
        }),
        Kind::Start => Some(match raw.settings.rest.lazy {
            false => "eager".into(),
            true => "lazy".into(),
        }),
        Kind::Protocol => raw.protocol.as_ref().map(|version| version.as_str().into()),
        // Written by the functions of the transports, or keys of other clients.
        Kind::Env(at) | Kind::Headers(at) => {
            let pairs = at(raw).iter().cloned();
            let pairs: Map<String, Value> = pairs.map(|(name, it)| (name, it.into())).collect();
            (!pairs.is_empty()).then(|| pairs.into())
        }
        Kind::Command => raw.program.clone().map(Value::from),
        Kind::EnvHeaders(_)
        | Kind::Seconds(_)
        | Kind::Millis(_)
        | Kind::Timeout
        | Kind::Unsupported(_)
        | Kind::Ignored => None,
    }
}

/// The names of the variables that replace secrets, across all servers of a config.
#[derive(Default)]
pub(super) struct VariableNames {
    taken: HashSet<String>,
    /// The value of each.
    pub(super) values: Vec<(String, Secret<String>)>,
}

impl VariableNames {
    /// Reserves the names of variables that a server reads itself.
    fn reserve(&mut self, server: &ServerConfig) {
        match &server.transport.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => self.taken.extend(command.parts().inherit),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => {
                let bearer = endpoint.parts().bearer_env;
                self.taken.extend(bearer.map(str::to_owned));
                #[cfg(feature = "auth")]
                self.taken
                    .extend(endpoint.auth.variables().map(str::to_owned));
            }
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => {}
            TransportKind::Channel { .. } => {}
        }
    }

    /// Takes a name, unless it is taken here or inherited by every program.
    fn take(&mut self, name: &str) -> bool {
        #[cfg(feature = "stdio")]
        if crate::link::stdio::is_inherited(name) {
            return false;
        }
        self.taken.insert(name.to_owned())
    }
}

/// Replaces the secrets of one server by variables.
struct SecretReplacer<'n> {
    server: String,
    names: &'n mut VariableNames,
    /// Values that are secret anywhere, the longest first, with their variable once they have one.
    secrets: Vec<(String, Option<String>)>,
}

impl<'n> SecretReplacer<'n> {
    fn new(server: &str, names: &'n mut VariableNames) -> Self {
        Self {
            server: as_variable(server),
            names,
            secrets: Vec::new(),
        }
    }

    fn add_secrets(&mut self, secrets: impl Iterator<Item = String>) {
        let mut secrets: Vec<String> = secrets.filter(|secret| !secret.is_empty()).collect();
        secrets.sort_unstable_by(|one, other| {
            other.len().cmp(&one.len()).then_with(|| one.cmp(other))
        });
        secrets.dedup();
        self.secrets = secrets.into_iter().map(|secret| (secret, None)).collect();
    }

    /// Replaces a value by a new variable; returns the reference to it.
    fn replace(&mut self, purpose: &str, value: &str) -> String {
        let base = format!("{}_{}", self.server, as_variable(purpose));
        let mut name = base.clone();
        let mut number = 1;
        while !self.names.take(&name) {
            number += 1;
            name = format!("{base}_{number}");
        }
        let reference = format!("${{{name}}}");
        self.names
            .values
            .push((name, Secret::new(value.to_owned())));
        reference
    }

    /// A text with its secrets replaced.
    fn redact(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let found = self
                .secrets
                .iter()
                .position(|(secret, _)| rest.starts_with(secret));
            let Some(index) = found else {
                shown.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            let secret = self.secrets[index].0.clone();
            let reference = match self.secrets[index].1.clone() {
                Some(reference) => reference,
                None => self.replace("SECRET", &secret),
            };
            self.secrets[index].1 = Some(reference.clone());
            shown.push_str(&reference);
            rest = &rest[secret.len()..];
        }
        shown
    }

    /// An address with its user info and query replaced.
    #[cfg(feature = "http")]
    fn address(&mut self, url: &str) -> String {
        // A secret may span several parts of an address.
        let url = self.redact(url);
        let url = url.as_str();
        let (address, query) = match url.find(['?', '#']) {
            Some(at) => url.split_at(at),
            None => (url, ""),
        };
        let (scheme, rest) = match address.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), address),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mut shown = scheme;
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = self.original(user);
                shown.push_str(&self.replace("USERINFO", &user));
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(authority),
        }
        shown.push_str(path);
        if let Some(mark) = query.chars().next() {
            let query = self.original(&query[mark.len_utf8()..]);
            shown.push(mark);
            shown.push_str(&self.replace("QUERY", &query));
        }
        shown
    }

    /// A text with its variables replaced by their values.
    #[cfg(feature = "http")]
    fn original(&self, shown: &str) -> String {
        let values = self.names.values.iter();
        values.fold(shown.to_owned(), |text, (name, secret)| {
            text.replace(&format!("${{{name}}}"), secret.expose())
        })
    }
}

/// Converts a text to the name of a variable: `X_API_KEY` for `X-Api-Key`.
fn as_variable(text: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let name: String = text.chars().map(plain).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name,
    }
}

/// Formats a duration in the largest unit that is exact.
pub(super) fn duration_text(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match (seconds, nanos) {
        (0, 0) => "0s".to_owned(),
        (seconds, 0) if seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        (seconds, 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (seconds, 0) => format!("{seconds}s"),
        (_, nanos) if nanos % 1_000_000 == 0 => format!("{}ms", duration.as_millis()),
        (seconds, nanos) => format!("{seconds}.{nanos:09}s"),
    }
}
