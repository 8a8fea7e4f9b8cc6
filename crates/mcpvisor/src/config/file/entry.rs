//! Turns an entry into a server.
//!
//! [`super::keys`] has its keys and [`super::entry_reader`] reads them; this module decides what
//! they mean together.

use mcpvisor_core::{InvalidServerName, InvalidSetting, ServerName};

use super::entry_reader::{Diagnostic, EntryReader};
use super::keys::{ENTRY, HTTP, SSE, STDIO};
use super::raw_entry::RawEntry;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::{Member, Value};
use super::variables::Variables;
use crate::api::transport::Transport;
#[cfg(any(feature = "stdio", feature = "http"))]
use crate::api::transport::check;
use crate::config::server_config::validate_settings;
use crate::config::{ConfigProblem, ResultCheck, ServerConfig, Severity};

/// Unknown keys that are named beside a missing one.
const MAX_HINTS: usize = 3;

/// Keys of authorization, as spelled in an entry.
const AUTH_KEYS: [&str; 5] = ["auth", "oauth", "headersHelper", "scopes", "oauth_resource"];

/// Reads an entry: the server, unless it cannot be used, and the problems.
pub(super) fn read(
    entry: &Member,
    defaults: &RawEntry,
    variables: &Variables<'_>,
    text: &SourceText<'_>,
) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
    let problem = |severity, diagnostic: Diagnostic| {
        diagnostic.into_problem(Some(&entry.key), severity, text)
    };
    let mut reader = EntryReader::new(variables, text);
    let server = server(entry, defaults.clone(), &mut reader);
    let warnings = std::mem::take(&mut reader.warnings).into_iter();
    match server {
        Ok(server) => {
            let warn = |diagnostic| problem(Severity::Warning, diagnostic);
            (Some(server), warnings.map(warn).collect())
        }
        // Other warnings matter only once the entry can be used, except for an unknown key that may
        // be the missing one.
        Err(mut diagnostic) => {
            for hint in reader.unknown.iter().take(MAX_HINTS) {
                diagnostic.message += "; ";
                diagnostic.message += hint;
            }
            let severity = match is_off(entry, defaults) {
                true => Severity::Disabled,
                false => Severity::Excluded,
            };
            (None, vec![problem(severity, diagnostic)])
        }
    }
}

fn server(
    entry: &Member,
    mut raw: RawEntry,
    reader: &mut EntryReader<'_>,
) -> Result<ServerConfig, Diagnostic> {
    let about_entry = |message: String| Diagnostic::new(&entry.key_span, message);
    let name = ServerName::new(entry.key.as_str()).map_err(|error| match error {
        InvalidServerName::TooLong(_) => about_entry("name is longer than 64 bytes".to_owned()),
        error => about_entry(error.to_string()),
    })?;
    let Value::Object(members) = &entry.node.value else {
        let message = "must be an object with a \"command\" or a \"url\"";
        return Err(about_entry(message.to_owned()));
    };
    let default = enabled(&raw).ok().flatten().unwrap_or(true);
    (raw.enabled, raw.disabled) = (None, None);
    reader.object(members, &ENTRY, "", &mut raw)?;
    let enabled = enabled(&raw).map_err(about_entry)?.unwrap_or(default);
    warn_ambiguous(&raw, reader);
    let transport = transport(&raw, reader, entry)?;
    if !reader.is_as_written()
        && let Err(invalid) = validate_settings(&raw.settings).and_then(|()| transport.check())
    {
        return Err(reader.diagnose(invalid.name, &entry.key_span, setting(&invalid)));
    }
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
        check_results: ResultCheck::of_word(raw.check_results),
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
}

/// The transport of the kind that an entry selects.
fn transport(
    raw: &RawEntry,
    reader: &mut EntryReader<'_>,
    entry: &Member,
) -> Result<Transport, Diagnostic> {
    let wrong =
        |key: &str, message: &str| Err(reader.diagnose(key, &entry.key_span, message.to_owned()));
    if raw.source.as_deref().is_some_and(|by| by != "custom") {
        return wrong(
            "source",
            "is provided by an editor extension; write its \"command\" instead",
        );
    }
    let has_url = address(raw).is_some();
    let kind = raw.kind.as_deref();
    match kind.filter(|kind| !reader.is_as_written() || !kind.contains("${")) {
        Some(kind) if STDIO.contains(&kind) => stdio(raw, reader, entry),
        Some(kind) if HTTP.contains(&kind) => http(raw, false, reader, entry),
        Some(kind) if SSE.contains(&kind) => http(raw, true, reader, entry),
        Some(_) => wrong("type", "\"type\" must be \"stdio\", \"http\" or \"sse\""),
        None if has_url && raw.program.is_some() => wrong(
            "url",
            "has both \"command\" and \"url\"; keep one, or set \"type\"",
        ),
        None if has_url => http(raw, false, reader, entry),
        None if raw.program.is_some() => stdio(raw, reader, entry),
        None => {
            let message = "needs a \"command\" or a \"url\"";
            Err(Diagnostic::new(&entry.key_span, message))
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
    let missing = || reader.diagnose("command", &entry.key_span, "needs a \"command\"");
    let program = program.ok_or_else(missing)?;
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
        "socketPath",
        "headers",
        "bearerTokenEnvVar",
    ];
    warn_unused(reader, &unused, "stdio");
    warn_auth_unused(reader, "it does not apply to stdio");
    Ok(command.into())
}

#[cfg(not(feature = "stdio"))]
fn stdio(_: &RawEntry, _: &mut EntryReader<'_>, entry: &Member) -> Result<Transport, Diagnostic> {
    let message = "stdio servers are not supported by this build";
    Err(Diagnostic::new(&entry.key_span, message))
}

#[cfg(feature = "http")]
fn http(
    raw: &RawEntry,
    is_sse: bool,
    reader: &mut EntryReader<'_>,
    entry: &Member,
) -> Result<Transport, Diagnostic> {
    let missing = || reader.diagnose("type", &entry.key_span, "needs a \"url\"");
    let (key, url) = address(raw).ok_or_else(missing)?;
    if !reader.is_as_written() && !check::is_address(url) {
        let message = format!("{key:?} {}", check::ADDRESS);
        return Err(reader.diagnose(key, &entry.key_span, message));
    }
    let mut endpoint = match is_sse {
        true => Transport::sse(url),
        false => Transport::http(url),
    };
    if let Some(path) = &raw.socket_path {
        endpoint = endpoint.unix_socket(path);
    }
    for (name, value) in raw.headers.iter().chain(&raw.env_headers) {
        endpoint = endpoint.header(name, value);
    }
    if let Some(variable) = &raw.bearer_token_env {
        warn_pasted(reader, "bearerTokenEnvVar", variable, "token");
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
    #[cfg(feature = "auth")]
    {
        endpoint = auth(endpoint, raw, reader);
    }
    #[cfg(not(feature = "auth"))]
    warn_auth_unused(reader, "this build does not support authorization");
    for other in ["url", "serverUrl"] {
        if other != key
            && let Some(span) = reader.key_span(other)
        {
            let message = format!("{other:?} is ignored: {key:?} takes precedence");
            reader.warn(span, message);
        }
    }
    warn_duplicate_headers(raw, reader);
    warn_unused(reader, &["command", "args", "env", "cwd"], "http");
    Ok(endpoint.into())
}

/// Warns if a value that should be the name of a variable may be the secret itself.
#[cfg(feature = "http")]
fn warn_pasted(reader: &mut EntryReader<'_>, key: &str, variable: &str, secret: &str) {
    if reader.is_invalid_variable(variable)
        && let Some(span) = reader.value_span(key)
    {
        let message =
            format!("{key:?} must be the name of a variable that is set, not the {secret} itself");
        reader.warn(span, message);
    }
}

/// Sets how the server is authorized.
#[cfg(feature = "auth")]
fn auth(
    endpoint: crate::HttpEndpoint,
    raw: &RawEntry,
    reader: &mut EntryReader<'_>,
) -> crate::HttpEndpoint {
    let raw = &raw.auth;
    let variables = [
        ("auth.clientSecretEnvVar", &raw.client_secret_env, "secret"),
        ("auth.idp.idTokenEnvVar", &raw.idp.id_token_env, "token"),
    ];
    for (key, variable, secret) in variables {
        if let Some(variable) = variable {
            warn_pasted(reader, key, variable, secret);
        }
    }
    if raw.headers_helper.is_empty() {
        if let Some(span) = reader.value_span("auth.headersHelperTtl") {
            let message = "\"auth.headersHelperTtl\" is ignored without \"headersHelper\"";
            reader.warn(span, message);
        }
        if endpoint.socket_path().is_some() {
            let reason = "a server behind a socket is authorized by \"headers\" or \
                          \"bearerTokenEnvVar\"";
            warn_auth_unused(reader, reason);
        } else if endpoint.has_static_credential()
            && raw.grant.or(raw.client_id.as_deref()).is_some()
        {
            warn_auth_unused(reader, "the entry has a credential already");
        }
    }
    endpoint.auth(raw.config())
}

/// Warns that the keys of authorization have no effect.
fn warn_auth_unused(reader: &mut EntryReader<'_>, reason: &str) {
    for key in AUTH_KEYS {
        if let Some(span) = reader.key_span(key) {
            reader.warn(span, format!("{key:?} is ignored: {reason}"));
        }
    }
}

#[cfg(not(feature = "http"))]
fn http(
    _: &RawEntry,
    _: bool,
    _: &mut EntryReader<'_>,
    entry: &Member,
) -> Result<Transport, Diagnostic> {
    let message = "HTTP servers are not supported by this build";
    Err(Diagnostic::new(&entry.key_span, message))
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
