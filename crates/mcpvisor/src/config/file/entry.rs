//! Turns an entry into a server.
//!
//! [`super::keys`] has its keys and [`super::entry_reader`] reads them; this module decides what
//! they mean together.

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

/// Unknown keys that are named beside a missing one.
const MAX_HINTS: usize = 3;

/// Reads an entry: the server, unless it cannot be used, and the problems.
pub(super) fn read(
    entry: &Member,
    defaults: &RawEntry,
    variables: &Variables<'_>,
    text: &SourceText<'_>,
) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
    let problem = |severity, diagnostic: Diagnostic| ConfigProblem {
        server: Some(super::entry_reader::shown(&entry.key)),
        message: diagnostic.message,
        severity,
        location: Some(text.locate(&diagnostic.span)),
    };
    let mut reader = EntryReader::new(variables);
    reader.toml = text.toml;
    let server = server(entry, defaults.clone(), &mut reader);
    let warnings = std::mem::take(&mut reader.warnings).into_iter();
    match server {
        Ok(server) => {
            let warn = |diagnostic| problem(Severity::Warning, diagnostic);
            (Some(server), warnings.map(warn).collect())
        }
        // Other warnings matter only once the entry can be used, except for an unknown key that may
        // be the missing one.
        Err(diagnostic) => {
            let mut parts = vec![diagnostic.message];
            parts.extend(reader.unknown.drain(..).take(MAX_HINTS));
            let message = parts.join("; ");
            let severity = match is_off(entry, defaults) {
                true => Severity::Off,
                false => Severity::LeftOut,
            };
            (
                None,
                vec![problem(
                    severity,
                    Diagnostic {
                        message,
                        ..diagnostic
                    },
                )],
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
            true => "name is longer than 64 bytes".to_owned(),
            false => error.to_string(),
        })
    })?;
    let Value::Object(members) = &entry.node.value else {
        return Err(about_entry(
            "must be an object with a \"command\" or a \"url\"".to_owned(),
        ));
    };
    let default = enabled(&raw).ok().flatten().unwrap_or(true);
    (raw.enabled, raw.disabled) = (None, None);
    reader.object(members, &ENTRY, "", &mut raw)?;
    let enabled = enabled(&raw).map_err(about_entry)?.unwrap_or(default);
    warn_ambiguous(&raw, reader);
    let transport = TransportType::of(&raw, reader, entry)?.transport(&raw, reader, entry)?;
    let valid = match reader.is_as_written() {
        true => Ok(()),
        false => raw.validate().and_then(|()| transport.check()),
    };
    valid.map_err(|invalid| Diagnostic {
        message: setting(&invalid),
        span: reader
            .value_span(invalid.name)
            .unwrap_or(entry.key_span.clone()),
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

/// Whether an unusable entry disables its server.
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
    let raw = RawEntry {
        enabled: flag("enabled"),
        disabled: flag("disabled"),
        ..RawEntry::default()
    };
    match enabled(&raw) {
        Ok(Some(enabled)) => !enabled,
        Ok(None) => enabled(defaults) == Ok(Some(false)),
        Err(_) => false,
    }
}

/// The message about an invalid setting, in the form of messages about keys.
pub(super) fn setting(invalid: &InvalidSetting) -> String {
    format!("{:?} {}", invalid.name, invalid.problem)
}

fn enabled(raw: &RawEntry) -> Result<Option<bool>, String> {
    match (raw.enabled, raw.disabled) {
        (Some(enabled), Some(disabled)) if enabled == disabled => {
            Err("has both \"enabled\" and \"disabled\"; keep one".to_owned())
        }
        (Some(enabled), _) => Ok(Some(enabled)),
        (None, disabled) => Ok(disabled.map(|disabled| !disabled)),
    }
}

/// Warns about values that are perhaps not read as intended.
fn warn_ambiguous(raw: &RawEntry, reader: &mut EntryReader<'_>) {
    if raw.tools.allow.is_empty()
        && let Some(span) = reader.value_span("tools.allow")
    {
        let message = "an empty list of allowed tools allows every tool; \
                       write \"tools\": { \"deny\": [\"*\"] } to allow none";
        reader.warn(span, message);
    }
    let only_gemini = ["includeTools", "excludeTools", "trust"];
    let of_gemini = only_gemini.iter().any(|key| reader.key_span(key).is_some());
    if of_gemini
        && raw.kind.is_none()
        && raw.http_url.is_none()
        && let Some(span) = reader.key_span("url")
    {
        let message = "\"url\" is read as a Streamable HTTP address; HTTP+SSE is not supported, \
                       so write a Streamable HTTP address as \"httpUrl\" if it is one";
        reader.warn(span, message);
    }
}

/// The kind of transport that an entry selects.
enum TransportType {
    Stdio,
    Http,
}

impl TransportType {
    fn of(
        raw: &RawEntry,
        reader: &mut EntryReader<'_>,
        entry: &Member,
    ) -> Result<Self, Diagnostic> {
        let about = |key: &str, message: &str| Diagnostic {
            message: message.to_owned(),
            span: reader.value_span(key).unwrap_or(entry.key_span.clone()),
        };
        if raw.source.as_deref().is_some_and(|by| by != "custom") {
            return Err(about(
                "source",
                "is provided by an editor extension; write its \"command\" instead",
            ));
        }
        let has_url = address(raw).is_some();
        let kind = raw.kind.as_deref();
        match kind.filter(|kind| !reader.is_as_written() || !kind.contains("${")) {
            Some(kind) if STDIO.contains(&kind) => Ok(Self::Stdio),
            Some(kind) if HTTP.contains(&kind) => Ok(Self::Http),
            Some("sse") => Err(about(
                "type",
                "uses HTTP+SSE, which is not supported; if the server has a Streamable HTTP address \
                 (often ending in /mcp), write \"type\": \"http\" and that \"url\"",
            )),
            Some(_) => Err(about("type", "\"type\" must be \"stdio\" or \"http\"")),
            None if has_url && raw.program.is_some() => Err(about(
                "url",
                "has both \"command\" and \"url\"; keep one, or set \"type\"",
            )),
            None if has_url => Ok(Self::Http),
            None if raw.program.is_some() => Ok(Self::Stdio),
            None => Err(Diagnostic {
                message: "needs a \"command\" or a \"url\"".to_owned(),
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

/// The URL with its key. Keys that only one client uses take precedence.
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
        message: "needs a \"command\"".to_owned(),
        span: reader
            .value_span("command")
            .unwrap_or(entry.key_span.clone()),
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
        message: "stdio servers are not supported by this build".to_owned(),
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
        message: "needs a \"url\"".to_owned(),
        span: reader.value_span("type").unwrap_or(entry.key_span.clone()),
    })?;
    let span = reader.value_span(key).unwrap_or(entry.key_span.clone());
    if !reader.is_as_written() && !check::is_address(url) {
        return Err(Diagnostic {
            message: format!("{key:?} {}", check::ADDRESS),
            span,
        });
    }
    if path_of(url).ends_with("/sse") {
        let message = format!(
            "{key:?} ends in /sse, but HTTP+SSE is not supported; the server may offer \
             Streamable HTTP at /mcp"
        );
        reader.warn(span, message);
    }
    let mut endpoint = Transport::http(url);
    for (name, value) in raw.headers.iter().chain(&raw.env_headers) {
        endpoint = endpoint.header(name, value);
    }
    if let Some(variable) = &raw.bearer_token_env {
        if reader.is_invalid_variable(variable)
            && let Some(span) = reader.value_span("bearerTokenEnvVar")
        {
            let message = "\"bearerTokenEnvVar\" must be the name of a variable that is set, not the \
                           token itself";
            reader.warn(span, message);
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
            && let Some(span) = reader.key_span(other)
        {
            reader.warn(
                span,
                format!("{other:?} is ignored: {key:?} takes precedence"),
            );
        }
    }
    warn_duplicate_headers(raw, reader);
    warn_unused(reader, &["command", "args", "env", "cwd"], "http");
    Ok(endpoint.into())
}

#[cfg(not(feature = "http"))]
fn http(_: &RawEntry, _: &mut EntryReader<'_>, entry: &Member) -> Result<Transport, Diagnostic> {
    Err(Diagnostic {
        message: "HTTP servers are not supported by this build".to_owned(),
        span: entry.key_span.clone(),
    })
}

/// Warns about a codex header that is also in `headers`; [`EntryReader`] only compares within one
/// object.
#[cfg(feature = "http")]
fn warn_duplicate_headers(raw: &RawEntry, reader: &mut EntryReader<'_>) {
    let known = |name: &str| raw.headers.iter().any(|it| it.0.eq_ignore_ascii_case(name));
    for (name, _) in raw.env_headers.iter().filter(|it| known(&it.0)) {
        if let Some(span) = reader.key_span("env_http_headers") {
            let path = format!("env_http_headers.{}", super::entry_reader::shown(name));
            let message = format!("{path:?} is also in \"headers\"; this one is used");
            reader.warn(span, message);
        }
    }
}

/// Warns about keys that do not apply to the transport.
fn warn_unused(reader: &mut EntryReader<'_>, keys: &[&str], transport: &str) {
    for key in keys {
        if let Some(span) = reader.value_span(key) {
            let message = format!("{key:?} is ignored: it does not apply to {transport}");
            reader.warn(span, message);
        }
    }
}

#[cfg(feature = "http")]
fn path_of(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    url[..end].trim_end_matches('/')
}
