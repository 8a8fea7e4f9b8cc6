//! One entry, as a server.
//!
//! What its keys are is in [`super::keys`], how they are read in [`super::entry_reader`]; here it is
//! decided what they mean together.

use mcpvisor_core::{InvalidSetting, ServerName};

use super::entry_reader::{Diagnostic, EntryReader};
use super::keys::{ENTRY, HTTP, STDIO};
use super::raw_entry::RawEntry;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::{Member, Value};
use super::variables::Variables;
use crate::api::transport::Transport;
#[cfg(any(feature = "stdio", feature = "http"))]
use crate::api::transport::check;
use crate::config::{ConfigProblem, ServerConfig, Severity};

/// So many unknown keys are named beside what an entry lacks.
const MAX_HINTS: usize = 3;

/// Reads an entry: the server, unless it has to be left out, and what is to be said about it.
pub(super) fn read(
    entry: &Member,
    defaults: &RawEntry,
    variables: &Variables<'_>,
    text: &SourceText<'_>,
) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
    let problem = |severity, said: Diagnostic| ConfigProblem {
        server: Some(super::entry_reader::shown(&entry.key)),
        message: said.message,
        severity,
        location: Some(text.locate(&said.span)),
    };
    let mut reader = EntryReader::new(variables);
    reader.toml = text.toml;
    let server = server(entry, defaults.clone(), &mut reader);
    let warnings = std::mem::take(&mut reader.warnings).into_iter();
    match server {
        Ok(server) => {
            let warn = |said| problem(Severity::Warning, said);
            (Some(server), warnings.map(warn).collect())
        }
        // What else is odd about it matters once it is read at all, but for a key that is perhaps
        // the one that is missing.
        Err(said) => {
            let mut parts = vec![said.message];
            parts.extend(reader.unknown.drain(..).take(MAX_HINTS));
            let message = parts.join("; ");
            let severity = match is_off(entry, defaults) {
                true => Severity::Off,
                false => Severity::LeftOut,
            };
            (
                None,
                vec![problem(severity, Diagnostic { message, ..said })],
            )
        }
    }
}

fn server(
    entry: &Member,
    mut raw: RawEntry,
    reader: &mut EntryReader<'_>,
) -> Result<ServerConfig, Diagnostic> {
    let about_entry = |message: String| Diagnostic {
        message,
        span: entry.key_span.clone(),
    };
    let name = ServerName::new(entry.key.as_str()).map_err(|error| {
        let long = matches!(error, mcpvisor_core::InvalidServerName::TooLong(_));
        about_entry(match long {
            true => "has a name that is longer than 64 bytes; shorten it".to_owned(),
            false => error.to_string(),
        })
    })?;
    let Value::Object(members) = &entry.node.value else {
        return Err(about_entry(
            "must be an object with a \"command\" or a \"url\"".to_owned(),
        ));
    };
    let usually = enabled(&raw).ok().flatten().unwrap_or(true);
    (raw.enabled, raw.disabled) = (None, None);
    reader.object(members, &ENTRY, "", &mut raw)?;
    let enabled = enabled(&raw).map_err(about_entry)?.unwrap_or(usually);
    doubts(&raw, reader);
    let transport = Way::of(&raw, reader, entry)?.transport(&raw, reader, entry)?;
    let valid = match reader.is_as_written() {
        true => Ok(()),
        false => raw.validate().and_then(|()| transport.check()),
    };
    valid.map_err(|invalid| Diagnostic {
        message: setting(&invalid),
        span: reader.place(invalid.name).unwrap_or(entry.key_span.clone()),
    })?;
    Ok(ServerConfig {
        name,
        transport,
        settings: raw.settings,
        enabled,
        required: raw.required,
        tools: raw.tools,
        pin: raw.pin,
        protocol: raw.protocol,
        prefer_older_protocol: raw.prefer_older_protocol,
        check_arguments: raw.check_arguments,
    })
}

/// Whether an entry switches its server off, as far as that can be told of one that cannot be read.
fn is_off(entry: &Member, defaults: &RawEntry) -> bool {
    let flag = |name: &str| {
        let Value::Object(members) = &entry.node.value else {
            return None;
        };
        let member = members.iter().rfind(|member| member.key == name)?;
        match member.node.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    };
    let said = RawEntry {
        enabled: flag("enabled"),
        disabled: flag("disabled"),
        ..RawEntry::default()
    };
    match enabled(&said) {
        Ok(Some(enabled)) => !enabled,
        Ok(None) => enabled(defaults) == Ok(Some(false)),
        Err(_) => false,
    }
}

/// A complaint about a setting, in the words that complaints about keys have.
pub(super) fn setting(invalid: &InvalidSetting) -> String {
    format!("{:?} {}", invalid.name, invalid.problem)
}

fn enabled(raw: &RawEntry) -> Result<Option<bool>, String> {
    match (raw.enabled, raw.disabled) {
        (Some(enabled), Some(disabled)) if enabled == disabled => {
            Err("is \"enabled\" and \"disabled\" at once; keep one of them".to_owned())
        }
        (Some(enabled), _) => Ok(Some(enabled)),
        (None, disabled) => Ok(disabled.map(|disabled| !disabled)),
    }
}

/// What is read, but perhaps not as it was meant.
fn doubts(raw: &RawEntry, reader: &mut EntryReader<'_>) {
    if raw.tools.allow.is_empty()
        && let Some(place) = reader.place("tools.allow")
    {
        let message = "the list of allowed tools is empty, which allows every tool; \
                       write \"tools\": { \"deny\": [\"*\"] } to allow none";
        reader.warn(place, message);
    }
    let only_gemini = ["includeTools", "excludeTools", "trust"];
    let of_gemini = only_gemini.iter().any(|key| reader.key(key).is_some());
    if of_gemini
        && raw.kind.is_none()
        && raw.http_url.is_none()
        && let Some(place) = reader.key("url")
    {
        let message = "\"url\" is read as a Streamable HTTP address; if it is one of the older \
                       HTTP+SSE, which is not spoken, write \"httpUrl\" with the other";
        reader.warn(place, message);
    }
}

/// How a server is reached, as the entry says it.
enum Way {
    Stdio,
    Http,
}

impl Way {
    fn of(
        raw: &RawEntry,
        reader: &mut EntryReader<'_>,
        entry: &Member,
    ) -> Result<Self, Diagnostic> {
        let about = |key: &str, message: &str| Diagnostic {
            message: message.to_owned(),
            span: reader.place(key).unwrap_or(entry.key_span.clone()),
        };
        if raw.source.as_deref().is_some_and(|by| by != "custom") {
            return Err(about(
                "source",
                "is provided by an extension of an editor; write the \"command\" that it starts",
            ));
        }
        let has_url = address(raw).is_some();
        let kind = raw.kind.as_deref();
        match kind.filter(|kind| !reader.is_as_written() || !kind.contains("${")) {
            Some(kind) if STDIO.contains(&kind) => Ok(Self::Stdio),
            Some(kind) if HTTP.contains(&kind) => Ok(Self::Http),
            Some("sse") => Err(about(
                "type",
                "speaks the older HTTP+SSE, which is not supported; if the server has a Streamable \
                 HTTP address (often it ends in /mcp), write \"type\": \"http\" and that as \"url\"",
            )),
            Some(_) => Err(about("type", "\"type\" must be \"stdio\" or \"http\"")),
            None if has_url && raw.program.is_some() => Err(about(
                "url",
                "has a \"command\" and a \"url\"; keep one, or say which with \"type\"",
            )),
            None if has_url => Ok(Self::Http),
            None if raw.program.is_some() => Ok(Self::Stdio),
            None => Err(Diagnostic {
                message: "needs a \"command\", the program to start, or a \"url\"".to_owned(),
                span: entry.key_span.clone(),
            }),
        }
    }

    fn transport(
        self,
        raw: &RawEntry,
        reader: &mut EntryReader<'_>,
        entry: &Member,
    ) -> Result<Transport, Diagnostic> {
        match self {
            Self::Stdio => stdio(raw, reader, entry),
            Self::Http => http(raw, reader, entry),
        }
    }
}

/// The address that counts, with its key. Those of one client alone come first.
fn address(raw: &RawEntry) -> Option<(&'static str, &str)> {
    let addresses = [
        ("httpUrl", &raw.http_url),
        ("serverUrl", &raw.server_url),
        ("url", &raw.url),
    ];
    let mut addresses = addresses.into_iter();
    addresses.find_map(|(key, url)| Some((key, url.as_deref()?)))
}

#[cfg(feature = "stdio")]
fn stdio(
    raw: &RawEntry,
    reader: &mut EntryReader<'_>,
    entry: &Member,
) -> Result<Transport, Diagnostic> {
    let program = raw.program.as_deref();
    let program = program.filter(|program| check::is_program(program));
    let program = program.ok_or_else(|| Diagnostic {
        message: "needs a \"command\", the program to start".to_owned(),
        span: reader.place("command").unwrap_or(entry.key_span.clone()),
    })?;
    let mut command = Transport::stdio(program)
        .args(&raw.command_args)
        .args(&raw.args);
    for (name, value) in &raw.env {
        command = command.env(name, value);
    }
    for name in &raw.inherit_env {
        command = command.inherit_env(name);
    }
    if let Some(folder) = &raw.cwd {
        command = command.cwd(folder);
    }
    for secret in raw.secrets.iter().chain(&reader.secrets) {
        command = command.secret(secret.expose());
    }
    let unused = [
        "url",
        "httpUrl",
        "serverUrl",
        "headers",
        "bearerTokenEnvVar",
    ];
    warn_unused(reader, &unused, "stdio");
    Ok(command.into())
}

#[cfg(not(feature = "stdio"))]
fn stdio(_: &RawEntry, _: &mut EntryReader<'_>, entry: &Member) -> Result<Transport, Diagnostic> {
    Err(Diagnostic {
        message: "is a stdio server, which this build does not support".to_owned(),
        span: entry.key_span.clone(),
    })
}

#[cfg(feature = "http")]
fn http(
    raw: &RawEntry,
    reader: &mut EntryReader<'_>,
    entry: &Member,
) -> Result<Transport, Diagnostic> {
    let (key, url) = address(raw).ok_or_else(|| Diagnostic {
        message: "needs a \"url\", the address of the server".to_owned(),
        span: reader.place("type").unwrap_or(entry.key_span.clone()),
    })?;
    let place = reader.place(key).unwrap_or(entry.key_span.clone());
    if !reader.is_as_written() && !check::is_address(url) {
        return Err(Diagnostic {
            message: format!("{key:?} {}", check::ADDRESS),
            span: place,
        });
    }
    if path_of(url).ends_with("/sse") {
        let message = format!(
            "{key:?} ends in /sse, as addresses of the older HTTP+SSE do, which is not spoken; \
             often the same server answers at /mcp"
        );
        reader.warn(place, message);
    }
    let mut endpoint = Transport::http(url);
    for (name, value) in raw.headers.iter().chain(&raw.env_headers) {
        endpoint = endpoint.header(name, value);
    }
    if let Some(variable) = &raw.bearer_token_env {
        if reader.is_no_variable(variable)
            && let Some(place) = reader.place("bearerTokenEnvVar")
        {
            let message = "\"bearerTokenEnvVar\" must be the name of a variable, and no such \
                           variable is set; if it is the token itself, put that into a variable, \
                           and write the name of the variable";
            reader.warn(place, message);
        }
        endpoint = endpoint.bearer_token_env(variable);
    }
    for file in &raw.root_certificates {
        endpoint = endpoint.root_certificate(file);
    }
    if let Some(file) = &raw.client_certificate {
        endpoint = endpoint.client_certificate(file);
    }
    for secret in raw.secrets.iter().chain(&reader.secrets) {
        endpoint = endpoint.secret(secret.expose());
    }
    for other in ["url", "serverUrl"] {
        if other != key
            && let Some(place) = reader.key(other)
        {
            reader.warn(place, format!("{other:?} is ignored: {key:?} counts"));
        }
    }
    warn_headers_twice(raw, reader);
    warn_unused(reader, &["command", "args", "env", "cwd"], "http");
    Ok(endpoint.into())
}

#[cfg(not(feature = "http"))]
fn http(_: &RawEntry, _: &mut EntryReader<'_>, entry: &Member) -> Result<Transport, Diagnostic> {
    Err(Diagnostic {
        message: "is an HTTP server, which this build does not support".to_owned(),
        span: entry.key_span.clone(),
    })
}

/// A header of codex that has a value already; [`EntryReader`] sees those of one object.
#[cfg(feature = "http")]
fn warn_headers_twice(raw: &RawEntry, reader: &mut EntryReader<'_>) {
    let known = |name: &str| raw.headers.iter().any(|it| it.0.eq_ignore_ascii_case(name));
    for (name, _) in raw.env_headers.iter().filter(|it| known(&it.0)) {
        if let Some(place) = reader.key("env_http_headers") {
            let path = format!("env_http_headers.{}", super::entry_reader::shown(name));
            let message = format!("{path:?} is in \"headers\" too; this one counts");
            reader.warn(place, message);
        }
    }
}

/// Keys that mean nothing for this way to reach a server.
fn warn_unused(reader: &mut EntryReader<'_>, keys: &[&str], way: &str) {
    for key in keys {
        if let Some(place) = reader.place(key) {
            let message = format!("{key:?} is ignored: the server is reached over {way}");
            reader.warn(place, message);
        }
    }
}

#[cfg(feature = "http")]
fn path_of(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    url[..end].trim_end_matches('/')
}
