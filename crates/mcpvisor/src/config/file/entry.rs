//! One entry, as a server.
//!
//! What its keys are is in [`super::keys`], how they are read in [`super::reader`]; here it is
//! decided what they mean together.

use mcpvisor_core::{InvalidSetting, ServerName};

use super::draft::Draft;
use super::keys::{ENTRY, HTTP, STDIO};
use super::reader::{Reader, Said};
use super::text::Text;
use super::tree::{Member, Value};
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
    defaults: &Draft,
    variables: &Variables<'_>,
    text: &Text<'_>,
) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
    let problem = |severity, said: Said| ConfigProblem {
        server: Some(super::reader::shown(&entry.key)),
        message: said.message,
        severity,
        location: Some(text.locate(&said.span)),
    };
    let mut reader = Reader::new(variables);
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
            (None, vec![problem(severity, Said { message, ..said })])
        }
    }
}

fn server(entry: &Member, mut draft: Draft, reader: &mut Reader<'_>) -> Result<ServerConfig, Said> {
    let about_entry = |message: String| Said {
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
    let usually = enabled(&draft).ok().flatten().unwrap_or(true);
    (draft.enabled, draft.disabled) = (None, None);
    reader.object(members, &ENTRY, "", &mut draft)?;
    let enabled = enabled(&draft).map_err(about_entry)?.unwrap_or(usually);
    doubts(&draft, reader);
    let transport = Way::of(&draft, reader, entry)?.transport(&draft, reader, entry)?;
    let valid = match reader.is_as_written() {
        true => Ok(()),
        false => draft.validate().and_then(|()| transport.check()),
    };
    valid.map_err(|invalid| Said {
        message: setting(&invalid),
        span: reader.place(invalid.name).unwrap_or(entry.key_span.clone()),
    })?;
    Ok(ServerConfig {
        name,
        transport,
        settings: draft.settings,
        enabled,
        required: draft.required,
        tools: draft.tools,
        start: draft.start,
        sleep_after: draft.sleep_after,
        pin: draft.pin,
        protocol: draft.protocol,
        prefer_older_protocol: draft.prefer_older_protocol,
        check_arguments: draft.check_arguments,
    })
}

/// Whether an entry switches its server off, as far as that can be told of one that cannot be read.
fn is_off(entry: &Member, defaults: &Draft) -> bool {
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
    let said = Draft {
        enabled: flag("enabled"),
        disabled: flag("disabled"),
        ..Draft::default()
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

fn enabled(draft: &Draft) -> Result<Option<bool>, String> {
    match (draft.enabled, draft.disabled) {
        (Some(enabled), Some(disabled)) if enabled == disabled => {
            Err("is \"enabled\" and \"disabled\" at once; keep one of them".to_owned())
        }
        (Some(enabled), _) => Ok(Some(enabled)),
        (None, disabled) => Ok(disabled.map(|disabled| !disabled)),
    }
}

/// What is read, but perhaps not as it was meant.
fn doubts(draft: &Draft, reader: &mut Reader<'_>) {
    if draft.tools.allow.is_empty()
        && let Some(place) = reader.place("tools.allow")
    {
        let message = "the list of allowed tools is empty, which allows every tool; \
                       write \"tools\": { \"deny\": [\"*\"] } to allow none";
        reader.warn(place, message);
    }
    let only_gemini = ["includeTools", "excludeTools", "trust"];
    let of_gemini = only_gemini.iter().any(|key| reader.key(key).is_some());
    if of_gemini
        && draft.kind.is_none()
        && draft.http_url.is_none()
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
    fn of(draft: &Draft, reader: &mut Reader<'_>, entry: &Member) -> Result<Self, Said> {
        let about = |key: &str, message: &str| Said {
            message: message.to_owned(),
            span: reader.place(key).unwrap_or(entry.key_span.clone()),
        };
        if draft.source.as_deref().is_some_and(|by| by != "custom") {
            return Err(about(
                "source",
                "is provided by an extension of an editor; write the \"command\" that it starts",
            ));
        }
        let has_url = address(draft).is_some();
        let kind = draft.kind.as_deref();
        match kind.filter(|kind| !reader.is_as_written() || !kind.contains("${")) {
            Some(kind) if STDIO.contains(&kind) => Ok(Self::Stdio),
            Some(kind) if HTTP.contains(&kind) => Ok(Self::Http),
            Some("sse") => Err(about(
                "type",
                "speaks the older HTTP+SSE, which is not supported; if the server has a Streamable \
                 HTTP address (often it ends in /mcp), write \"type\": \"http\" and that as \"url\"",
            )),
            Some(_) => Err(about("type", "\"type\" must be \"stdio\" or \"http\"")),
            None if has_url && draft.program.is_some() => Err(about(
                "url",
                "has a \"command\" and a \"url\"; keep one, or say which with \"type\"",
            )),
            None if has_url => Ok(Self::Http),
            None if draft.program.is_some() => Ok(Self::Stdio),
            None => Err(Said {
                message: "needs a \"command\", the program to start, or a \"url\"".to_owned(),
                span: entry.key_span.clone(),
            }),
        }
    }

    fn transport(
        self,
        draft: &Draft,
        reader: &mut Reader<'_>,
        entry: &Member,
    ) -> Result<Transport, Said> {
        match self {
            Self::Stdio => stdio(draft, reader, entry),
            Self::Http => http(draft, reader, entry),
        }
    }
}

/// The address that counts, with its key. Those of one client alone come first.
fn address(draft: &Draft) -> Option<(&'static str, &str)> {
    let addresses = [
        ("httpUrl", &draft.http_url),
        ("serverUrl", &draft.server_url),
        ("url", &draft.url),
    ];
    let mut addresses = addresses.into_iter();
    addresses.find_map(|(key, url)| Some((key, url.as_deref()?)))
}

#[cfg(feature = "stdio")]
fn stdio(draft: &Draft, reader: &mut Reader<'_>, entry: &Member) -> Result<Transport, Said> {
    let program = draft.program.as_deref();
    let program = program.filter(|program| check::is_program(program));
    let program = program.ok_or_else(|| Said {
        message: "needs a \"command\", the program to start".to_owned(),
        span: reader.place("command").unwrap_or(entry.key_span.clone()),
    })?;
    let mut command = Transport::stdio(program)
        .args(&draft.command_args)
        .args(&draft.args);
    for (name, value) in &draft.env {
        command = command.env(name, value);
    }
    for name in &draft.inherit_env {
        command = command.inherit_env(name);
    }
    if let Some(folder) = &draft.cwd {
        command = command.cwd(folder);
    }
    for secret in draft.secrets.iter().chain(&reader.secrets) {
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
fn stdio(_: &Draft, _: &mut Reader<'_>, entry: &Member) -> Result<Transport, Said> {
    Err(Said {
        message: "is a stdio server, which this build does not support".to_owned(),
        span: entry.key_span.clone(),
    })
}

#[cfg(feature = "http")]
fn http(draft: &Draft, reader: &mut Reader<'_>, entry: &Member) -> Result<Transport, Said> {
    let (key, url) = address(draft).ok_or_else(|| Said {
        message: "needs a \"url\", the address of the server".to_owned(),
        span: reader.place("type").unwrap_or(entry.key_span.clone()),
    })?;
    let place = reader.place(key).unwrap_or(entry.key_span.clone());
    if !reader.is_as_written() && !check::is_address(url) {
        return Err(Said {
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
    for (name, value) in draft.headers.iter().chain(&draft.env_headers) {
        endpoint = endpoint.header(name, value);
    }
    if let Some(variable) = &draft.bearer_token_env {
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
    for file in &draft.root_certificates {
        endpoint = endpoint.root_certificate(file);
    }
    if let Some(file) = &draft.client_certificate {
        endpoint = endpoint.client_certificate(file);
    }
    for secret in draft.secrets.iter().chain(&reader.secrets) {
        endpoint = endpoint.secret(secret.expose());
    }
    for other in ["url", "serverUrl"] {
        if other != key
            && let Some(place) = reader.key(other)
        {
            reader.warn(place, format!("{other:?} is ignored: {key:?} counts"));
        }
    }
    warn_headers_twice(draft, reader);
    warn_unused(reader, &["command", "args", "env", "cwd"], "http");
    Ok(endpoint.into())
}

#[cfg(not(feature = "http"))]
fn http(_: &Draft, _: &mut Reader<'_>, entry: &Member) -> Result<Transport, Said> {
    Err(Said {
        message: "is an HTTP server, which this build does not support".to_owned(),
        span: entry.key_span.clone(),
    })
}

/// A header of codex that has a value already; [`Reader`] sees those of one object.
#[cfg(feature = "http")]
fn warn_headers_twice(draft: &Draft, reader: &mut Reader<'_>) {
    let known = |name: &str| {
        draft
            .headers
            .iter()
            .any(|it| it.0.eq_ignore_ascii_case(name))
    };
    for (name, _) in draft.env_headers.iter().filter(|it| known(&it.0)) {
        if let Some(place) = reader.key("env_http_headers") {
            let path = format!("env_http_headers.{}", super::reader::shown(name));
            let message = format!("{path:?} is in \"headers\" too; this one counts");
            reader.warn(place, message);
        }
    }
}

/// Keys that mean nothing for this way to reach a server.
fn warn_unused(reader: &mut Reader<'_>, keys: &[&str], way: &str) {
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
