//! Reads the members of an object into a [`RawEntry`], by the tables of keys.
//!
//! A message names the key, never the value, which may be a secret.

use std::collections::HashSet;
use std::time::Duration;

use mcpvisor_core::settings::ConnectionScope;
use rmcp::model::ProtocolVersion;

use super::duration::{MAX_DURATION, parse_duration};
use super::keys::{EDITOR_COMMAND, Key, Kind, PROTOCOLS};
use super::nearest::nearest_name;
use super::raw_entry::RawEntry;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::{Member, Node, Span, Value};
use super::to_json::duration_text;
use super::variables::{Expanded, Missing, Variables};
use crate::api::transport::check;
use crate::config::{ConfigProblem, Severity};
use crate::secret::Secret;

/// Unknown keys of one object that are named.
const MAX_UNKNOWN: usize = 20;

/// Characters of a key that a message shows.
const MAX_SHOWN_KEY: usize = 80;

/// A message about a range of the text.
#[derive(Debug)]
pub(super) struct Diagnostic {
    pub(super) message: String,
    pub(super) span: Span,
}

impl Diagnostic {
    pub(super) fn new(span: &Span, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span: span.clone(),
        }
    }

    /// The problem with its location: of a server, or of the whole file.
    pub(super) fn into_problem(
        self,
        server: Option<&str>,
        severity: Severity,
        text: &SourceText<'_>,
    ) -> ConfigProblem {
        ConfigProblem {
            server: server.map(shown),
            message: self.message,
            severity,
            location: Some(text.locate(&self.span)),
        }
    }
}

/// Reads one entry and collects warnings.
pub(super) struct EntryReader<'a> {
    variables: &'a Variables<'a>,
    pub(super) warnings: Vec<Diagnostic>,
    /// Warnings about unknown keys: one of them may be the missing key, misspelled.
    pub(super) unknown: Vec<String>,
    /// The values of variables so far.
    pub(super) secrets: Vec<Secret<String>>,
    seen: Vec<SeenKey>,
    /// Whether suggestions are written in TOML.
    toml: bool,
}

/// A key that was read.
struct SeenKey {
    /// Our name of the key.
    means: String,
    /// The key as spelled in the file.
    spelling: String,
    key: Span,
    value: Span,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(variables: &'a Variables<'a>, text: &SourceText<'_>) -> Self {
        Self {
            variables,
            warnings: Vec::new(),
            unknown: Vec::new(),
            secrets: Vec::new(),
            seen: Vec::new(),
            toml: text.toml,
        }
    }

    /// Whether variables are not expanded, so that values cannot be checked.
    pub(super) fn is_as_written(&self) -> bool {
        self.variables.as_written
    }

    /// The position of a value, by our name of its key.
    pub(super) fn value_span(&self, means: &str) -> Option<Span> {
        let seen = self.seen.iter().rfind(|seen| seen.means == means);
        seen.map(|seen| seen.value.clone())
    }

    /// The position of a key, by its spelling in the file.
    pub(super) fn key_span(&self, spelling: &str) -> Option<Span> {
        let seen = self.seen.iter().rfind(|seen| seen.spelling == spelling);
        seen.map(|seen| seen.key.clone())
    }

    /// A message about a value, by our name of its key; about `entry` if the value is not there.
    pub(super) fn diagnose(
        &self,
        means: &str,
        entry: &Span,
        message: impl Into<String>,
    ) -> Diagnostic {
        let value = self.value_span(means);
        Diagnostic::new(value.as_ref().unwrap_or(entry), message)
    }

    /// Whether a text that should be the name of a variable is neither set nor a valid name.
    #[cfg(feature = "http")]
    pub(super) fn is_invalid_variable(&self, name: &str) -> bool {
        matches!(self.variables.named(name), Err(Missing::InvalidName))
    }

    pub(super) fn warn(&mut self, span: Span, message: impl Into<String>) {
        self.warnings.push(Diagnostic::new(&span, message));
    }

    /// Reads all members. `prefix` precedes their keys in messages: empty, or `reconnect.`.
    pub(super) fn object(
        &mut self,
        members: &[Member],
        tables: &[&'static [Key]],
        prefix: &str,
        raw: &mut RawEntry,
    ) -> Result<(), Diagnostic> {
        let mut unknown = 0;
        for member in members {
            let path = format!("{prefix}{}", shown(&member.key));
            let keys = || tables.iter().copied().flatten();
            let Some(key) = keys().find(|key| key.name == member.key) else {
                unknown += 1;
                if unknown <= MAX_UNKNOWN {
                    let names = keys().filter(|key| !matches!(key.kind, Kind::Ignored));
                    let message = unknown_key(prefix, &path, &member.key, names);
                    self.unknown.push(message.clone());
                    self.warn(member.key_span.clone(), message);
                } else if unknown == MAX_UNKNOWN + 1 {
                    let message = format!("{path:?} and further unknown keys are ignored");
                    self.warn(member.key_span.clone(), message);
                }
                continue;
            };
            // `null` means the same as absent.
            if member.node.is_null() {
                continue;
            }
            self.record(key, &path, member, prefix);
            self.value(key, &path, &member.node, raw)?;
        }
        Ok(())
    }

    /// Records a key, and warns if it was set before, under this or another spelling.
    fn record(&mut self, key: &Key, path: &str, member: &Member, prefix: &str) {
        let means = match key.means {
            "" => format!("{prefix}{}", key.name),
            means => means.to_owned(),
        };
        let earlier = self.seen.iter().find(|seen| seen.means == means);
        let message = earlier.map(|earlier| match earlier.spelling == path {
            true => format!("{path:?} is set twice; the last one is used"),
            false => format!(
                "{path:?} means the same as {:?}; the last one is used",
                earlier.spelling
            ),
        });
        if let Some(message) = message {
            self.warn(member.key_span.clone(), message);
        }
        self.seen.push(SeenKey {
            means,
            spelling: path.to_owned(),
            key: member.key_span.clone(),
            value: member.node.span.clone(),
        });
    }

    fn value(
        &mut self,
        key: &Key,
        path: &str,
        node: &Node,
        raw: &mut RawEntry,
    ) -> Result<(), Diagnostic> {
        match &key.kind {
            Kind::Flag(at) => *at(raw) = flag(path, node)?,
            Kind::MaybeFlag(at) => *at(raw) = Some(flag(path, node)?),
            Kind::Count(at) => *at(raw) = count(path, node)?,
            Kind::Size(_, at) => *at(raw) = count(path, node)?,
            Kind::MaybeSize(_, at) => *at(raw) = Some(count(path, node)?),
            Kind::Number(_, at) => *at(raw) = number(path, node)?,
            Kind::Duration(at) => *at(raw) = self.duration(path, node)?,
            Kind::MaybeDuration(at) => *at(raw) = Some(self.duration(path, node)?),
            Kind::Names(at) => *at(raw) = names(path, node)?,
            Kind::Name(at) => *at(raw) = Some(name(path, node)?),
            Kind::Texts(at) => *at(raw) = self.texts(path, node)?,
            Kind::Text(at) => *at(raw) = Some(self.text(path, node)?),
            Kind::Env(at) => *at(raw) = self.env(path, node)?,
            Kind::Headers(at) => *at(raw) = self.headers(path, node)?,
            Kind::EnvHeaders(at) => *at(raw) = self.env_headers(path, node)?,
            Kind::Section(keys) => {
                let members = object(path, node)?;
                self.object(members, &[keys], &format!("{path}."), raw)?;
            }
            Kind::Auth(keys) => self.auth(keys, path, node, raw)?,
            Kind::Choice(words, at) => *at(raw) = Some(choice(words, path, node)?),
            Kind::Scopes(at) => *at(raw) = Some(self.scopes(path, node)?),
            Kind::Port(at) => *at(raw) = Some(port(path, node)?),
            Kind::CommandLine(at) => *at(raw) = self.command_line(path, node)?,
            Kind::Scope => raw.settings.connections.scope = read_scope(path, node)?,
            Kind::Start => raw.settings.rest.lazy = is_lazy(path, node)?,
            Kind::Protocol => raw.protocol = Some(protocol(path, node)?),
            Kind::Command => self.command(path, node, raw)?,
            Kind::Seconds(set) => set(raw, foreign_duration(path, node, 1.0)?),
            Kind::Millis(set) => set(raw, foreign_duration(path, node, 0.001)?),
            Kind::Timeout => self.timeout(path, node, raw)?,
            Kind::Unsupported(instead) => {
                self.warn(node.span.clone(), format!("{path:?} is ignored: {instead}"));
            }
            Kind::Ignored => {}
        }
        Ok(())
    }

    fn command(&mut self, path: &str, node: &Node, raw: &mut RawEntry) -> Result<(), Diagnostic> {
        match &node.value {
            Value::List(_) => {
                let mut texts = self.texts(path, node)?.into_iter();
                raw.program = texts.next();
                raw.command_args = texts.collect();
            }
            Value::Object(members) => {
                self.object(members, &[EDITOR_COMMAND], &format!("{path}."), raw)?;
            }
            _ => raw.program = Some(self.text(path, node)?),
        }
        Ok(())
    }

    /// Reads a section of authorization. Other clients write `"auth": "oauth"` and `"oauth": true`,
    /// which is the default here.
    fn auth(
        &mut self,
        keys: &'static [Key],
        path: &str,
        node: &Node,
        raw: &mut RawEntry,
    ) -> Result<(), Diagnostic> {
        match &node.value {
            Value::Object(members) => self.object(members, &[keys], &format!("{path}."), raw),
            Value::Flag(true) => Ok(()),
            Value::Flag(false) => {
                let message =
                    format!("{path:?} is ignored: a server is authorized only if it requires it");
                self.warn(node.span.clone(), message);
                Ok(())
            }
            Value::Text(text) if text == "oauth" => Ok(()),
            _ => Err(wrong(
                path,
                node,
                "must be an object; a token is written as \"bearerTokenEnvVar\" or in \"headers\"",
            )),
        }
    }

    fn scopes(&mut self, path: &str, node: &Node) -> Result<Vec<String>, Diagnostic> {
        let texts = match &node.value {
            Value::List(_) => self.texts(path, node)?,
            Value::Text(_) => vec![self.text(path, node)?],
            _ => {
                let problem = "must be a list of scopes, or one string with spaces between them";
                return Err(wrong(path, node, problem));
            }
        };
        let scopes = texts.iter().flat_map(|text| text.split_whitespace());
        Ok(scopes.map(str::to_owned).collect())
    }

    fn command_line(&mut self, path: &str, node: &Node) -> Result<Vec<String>, Diagnostic> {
        let problem = "must be a list of the program and its arguments, such as \
                       [\"/usr/bin/get-token\", \"--json\"]; it runs without a shell";
        let is_list = matches!(&node.value, Value::List(words) if !words.is_empty());
        let words = match is_list {
            true => self.texts(path, node)?,
            false => return Err(wrong(path, node, problem)),
        };
        match check::is_program(&words[0]) {
            true => Ok(words),
            false => Err(wrong(path, node, problem)),
        }
    }

    fn timeout(&mut self, path: &str, node: &Node, raw: &mut RawEntry) -> Result<(), Diagnostic> {
        const ZERO: &str = "must be longer than 0; leave it out for the default";
        if matches!(node.value, Value::Text(_)) {
            let timeout = self.duration(path, node)?;
            if timeout.is_zero() {
                return Err(wrong(path, node, ZERO));
            }
            raw.set_call_timeout(timeout);
            return Ok(());
        }
        let seconds = number(path, node)? < 1_000.0;
        let timeout = foreign_duration(path, node, if seconds { 1.0 } else { 0.001 })?;
        if timeout.is_zero() {
            return Err(wrong(path, node, ZERO));
        }
        let unit = if seconds { "seconds" } else { "milliseconds" };
        let text = duration_text(timeout);
        let instead = match self.toml {
            true => format!("timeouts = {{ call = \"{text}\", idle = \"{text}\" }}"),
            false => format!("\"timeouts\": {{ \"call\": \"{text}\", \"idle\": \"{text}\" }}"),
        };
        self.warn(
            node.span.clone(),
            format!("{path:?} has no unit and is read as {unit}; write {instead}"),
        );
        raw.set_call_timeout(timeout);
        Ok(())
    }

    fn duration(&mut self, path: &str, node: &Node) -> Result<Duration, Diagnostic> {
        match &node.value {
            Value::Text(text) => {
                let text = self.expand(path, node, text)?;
                if self.is_as_written() && text.contains("${") {
                    return Ok(Duration::ZERO);
                }
                parse_duration(&text).map_err(|problem| wrong(path, node, &problem.to_string()))
            }
            Value::Number(_) => Err(wrong(
                path,
                node,
                "has no unit; write \"500ms\", \"30s\", \"2m\" or \"1h\"",
            )),
            _ => Err(wrong(path, node, "must be a duration such as \"30s\"")),
        }
    }

    fn text(&mut self, path: &str, node: &Node) -> Result<String, Diagnostic> {
        let text = name(path, node)?;
        self.expand(path, node, &text)
    }

    fn texts(&mut self, path: &str, node: &Node) -> Result<Vec<String>, Diagnostic> {
        let nodes = list(path, node)?;
        let read = |node: &Node| match &node.value {
            Value::Text(text) => self.expand(path, node, text),
            _ => Err(wrong(path, node, NOT_TEXTS)),
        };
        nodes.iter().map(read).collect()
    }

    fn env(&mut self, path: &str, node: &Node) -> Result<Vec<(String, String)>, Diagnostic> {
        self.warn_duplicates(path, node, &str::to_owned)?;
        let refused = check::NOT_IN_VARIABLES;
        self.map(path, node, refused, &|member| {
            check_name(path, member, check::is_variable, check::VARIABLE)
        })
    }

    fn headers(&mut self, path: &str, node: &Node) -> Result<Vec<(String, String)>, Diagnostic> {
        self.warn_duplicates(path, node, &str::to_ascii_lowercase)?;
        let refused = check::NOT_IN_HEADERS;
        self.map(path, node, refused, &|member| {
            check_name(path, member, check::is_header, check::HEADER)
        })
    }

    fn env_headers(
        &mut self,
        path: &str,
        node: &Node,
    ) -> Result<Vec<(String, String)>, Diagnostic> {
        let mut headers = Vec::new();
        self.warn_duplicates(path, node, &str::to_ascii_lowercase)?;
        for member in object(path, node)? {
            check_name(path, member, check::is_header, check::HEADER)?;
            let path = format!("{path}.{}", shown(&member.key));
            let variable = name(&path, &member.node)?;
            let value = self.variables.named(&variable);
            let value = self.take(&path, &member.node, value)?;
            headers.push((member.key.clone(), value));
        }
        Ok(headers)
    }

    /// Warns about duplicate names after normalizing them: header names ignore case.
    fn warn_duplicates(
        &mut self,
        path: &str,
        node: &Node,
        normalize: &dyn Fn(&str) -> String,
    ) -> Result<(), Diagnostic> {
        let mut seen = HashSet::new();
        for member in object(path, node)? {
            if !seen.insert(normalize(&member.key)) {
                let path = format!("{path}.{}", shown(&member.key));
                let message = format!("{path:?} is set twice; the last one is used");
                self.warn(member.key_span.clone(), message);
            }
        }
        Ok(())
    }

    /// Reads an object of strings. Its keys are checked, and its values must not contain `refused`.
    fn map(
        &mut self,
        path: &str,
        node: &Node,
        refused: &[char],
        check: &dyn Fn(&Member) -> Result<(), Diagnostic>,
    ) -> Result<Vec<(String, String)>, Diagnostic> {
        let mut texts = Vec::new();
        for member in object(path, node)? {
            check(member)?;
            let path = format!("{path}.{}", shown(&member.key));
            let text = name(&path, &member.node)?;
            if looks_like_variable(&text) {
                let message = format!(
                    "{path:?} looks like a variable without braces, which is not expanded; write ${{NAME}}"
                );
                self.warn(member.node.span.clone(), message);
            }
            let text = self.expand(&path, &member.node, &text)?;
            if text.contains(refused) {
                return Err(wrong(&path, &member.node, check::VALUE));
            }
            texts.push((member.key.clone(), text));
        }
        Ok(texts)
    }

    fn expand(&mut self, path: &str, node: &Node, text: &str) -> Result<String, Diagnostic> {
        let expanded = self.variables.expand(text);
        self.take(path, node, expanded)
    }

    fn take(
        &mut self,
        path: &str,
        node: &Node,
        expanded: Result<Expanded, Missing>,
    ) -> Result<String, Diagnostic> {
        let expanded = expanded.map_err(|missing| wrong(path, node, &missing.to_string()))?;
        if let Some(malformed) = expanded.malformed {
            self.warn(
                node.span.clone(),
                format!("{path:?} {}", malformed.message()),
            );
        }
        self.secrets.extend(expanded.secrets);
        Ok(expanded.text)
    }
}

const NOT_TEXTS: &str = "must be a list of quoted strings";

pub(super) fn wrong(path: &str, node: &Node, problem: &str) -> Diagnostic {
    Diagnostic::new(&node.span, format!("{path:?} {problem}"))
}

pub(super) fn object<'n>(path: &str, node: &'n Node) -> Result<&'n [Member], Diagnostic> {
    match &node.value {
        Value::Object(members) => Ok(members),
        _ => Err(wrong(path, node, "must be an object")),
    }
}

fn list<'n>(path: &str, node: &'n Node) -> Result<&'n [Node], Diagnostic> {
    match &node.value {
        Value::List(nodes) => Ok(nodes),
        _ => Err(wrong(path, node, NOT_TEXTS)),
    }
}

/// A string in which no variable is expanded.
pub(super) fn name(path: &str, node: &Node) -> Result<String, Diagnostic> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(wrong(path, node, "must be a quoted string")),
    }
}

fn names(path: &str, node: &Node) -> Result<Vec<String>, Diagnostic> {
    let read = |node: &Node| match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(wrong(path, node, NOT_TEXTS)),
    };
    list(path, node)?.iter().map(read).collect()
}

fn flag(path: &str, node: &Node) -> Result<bool, Diagnostic> {
    match node.value {
        Value::Flag(flag) => Ok(flag),
        _ => Err(wrong(path, node, "must be true or false, without quotes")),
    }
}

fn number(path: &str, node: &Node) -> Result<f64, Diagnostic> {
    match node.value {
        Value::Number(number) if number.is_finite() => Ok(number),
        _ => Err(wrong(path, node, "must be a number, without quotes")),
    }
}

fn count<N: TryFrom<u64>>(path: &str, node: &Node) -> Result<N, Diagnostic> {
    /// The largest integer that a JSON number holds exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let wrong = || wrong(path, node, "must be a whole number, without quotes");
    match node.value {
        Value::Number(number) if number.fract() == 0.0 && (0.0..=EXACT).contains(&number) => {
            N::try_from(number as u64).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

fn foreign_duration(path: &str, node: &Node, unit: f64) -> Result<Duration, Diagnostic> {
    let seconds = number(path, node)? * unit;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= MAX_DURATION => Ok(duration),
        _ => Err(wrong(path, node, "must be a time between 0 and a year")),
    }
}

fn port(path: &str, node: &Node) -> Result<u16, Diagnostic> {
    let port = count::<u16>(path, node).ok().filter(|port| *port != 0);
    let problem = "must be a port from 1 to 65535, without quotes";
    port.ok_or_else(|| wrong(path, node, problem))
}

/// One of these words, in which no variable is expanded.
pub(super) fn choice(
    words: &[&'static str],
    path: &str,
    node: &Node,
) -> Result<&'static str, Diagnostic> {
    let known = match &node.value {
        Value::Text(text) => words.iter().find(|word| *word == text),
        _ => None,
    };
    let problem = || {
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!("must be one of {}", words.join(", "))
    };
    known.copied().ok_or_else(|| wrong(path, node, &problem()))
}

fn read_scope(path: &str, node: &Node) -> Result<ConnectionScope, Diagnostic> {
    match name(path, node)?.as_str() {
        "shared" => Ok(ConnectionScope::Shared),
        "client" => Ok(ConnectionScope::Client),
        _ => Err(wrong(path, node, "must be \"shared\" or \"client\"")),
    }
}

fn is_lazy(path: &str, node: &Node) -> Result<bool, Diagnostic> {
    match name(path, node)?.as_str() {
        "eager" => Ok(false),
        "lazy" => Ok(true),
        _ => Err(wrong(path, node, "must be \"eager\" or \"lazy\"")),
    }
}

fn protocol(path: &str, node: &Node) -> Result<ProtocolVersion, Diagnostic> {
    let version = name(path, node)?;
    let known = ProtocolVersion::KNOWN_VERSIONS.iter();
    let mut known = known.filter(|known| known.as_str() == version);
    let problem = || format!("must be one of {}", PROTOCOLS.join(", "));
    let version = known.next().cloned();
    version.ok_or_else(|| wrong(path, node, &problem()))
}

fn check_name(
    path: &str,
    member: &Member,
    is_valid: fn(&str) -> bool,
    problem: &str,
) -> Result<(), Diagnostic> {
    match is_valid(&member.key) {
        true => Ok(()),
        false => Err(Diagnostic::new(
            &member.key_span,
            format!("{path:?} {problem}"),
        )),
    }
}

/// `$TOKEN`, as some clients write a variable.
fn looks_like_variable(text: &str) -> bool {
    let name = text.strip_prefix('$').unwrap_or_default();
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(plain)
}

fn unknown_key<'k>(
    prefix: &str,
    path: &str,
    key: &str,
    known: impl Iterator<Item = &'k Key>,
) -> String {
    match nearest_name(key, known.map(|key| key.name)) {
        Some(near) => format!("unknown key {path:?} is ignored; did you mean \"{prefix}{near}\"?"),
        None => format!("unknown key {path:?} is ignored"),
    }
}

/// A key as messages show it, truncated.
pub(super) fn shown(key: &str) -> String {
    match key.char_indices().nth(MAX_SHOWN_KEY) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}
