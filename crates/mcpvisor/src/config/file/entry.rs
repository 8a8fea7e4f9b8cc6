//! One entry of `mcpServers`, as a server.
//!
//! Every key is read here, once. Whether the values make sense together is for
//! [`ServerSettings::validate`].

use mcpvisor_core::{ServerName, ServerSettings};
use serde_json::Value;

use super::fields::{Fields, Wrong};
use super::variables::Variables;
use crate::config::{ConfigProblem, ServerConfig, Severity, StartMode, ToolFilter};
use crate::transport::Transport;

/// Keys of other clients that mean something which this version does not do.
const NOT_YET: [&str; 17] = [
    "headers",
    "http_headers",
    "env_http_headers",
    "bearerTokenEnvVar",
    "bearer_token_env_var",
    "tools",
    "enabled_tools",
    "disabled_tools",
    "includeTools",
    "excludeTools",
    "allowedTools",
    "disabledTools",
    "timeout",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "tool_timeout_sec",
    "auth",
];

/// Keys under which clients write the address of a server.
const ADDRESSES: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// Reads an entry: the server, unless it has to be left out, and what is to be said about it.
pub(super) fn read(
    name: &str,
    value: Value,
    variables: &Variables<'_>,
) -> (Option<ServerConfig>, Vec<ConfigProblem>) {
    let problem = |severity, message: String| ConfigProblem {
        server: Some(name.to_owned()),
        message,
        severity,
    };
    match server(name, value, variables) {
        Ok((server, warnings)) => {
            let warn = |message| problem(Severity::Warning, message);
            (Some(server), warnings.into_iter().map(warn).collect())
        }
        Err(message) => (None, vec![problem(Severity::LeftOut, message)]),
    }
}

fn server(
    name: &str,
    value: Value,
    variables: &Variables<'_>,
) -> Result<(ServerConfig, Vec<String>), String> {
    let name = ServerName::new(name).map_err(|error| error.to_string())?;
    let Value::Object(values) = value else {
        return Err("must be an object with a \"command\"".to_owned());
    };
    let mut fields = Fields::new(values, variables);
    let transport = transport(&mut fields)?;
    let said = |wrong: Wrong| wrong.to_string();
    let enabled = enabled(&mut fields)?;
    let required = fields.flag("required").map_err(said)?.unwrap_or(false);
    let mut warnings = Vec::new();
    let settings = settings(&mut fields, &mut warnings).map_err(said)?;
    settings.validate().map_err(|error| error.to_string())?;
    for key in NOT_YET {
        if fields.skip(key) {
            warnings.push(format!(
                "{key:?} is not supported yet by this version, and ignored"
            ));
        }
    }
    warnings.extend(fields.finish());
    let server = ServerConfig {
        name,
        transport,
        settings,
        enabled,
        required,
        tools: ToolFilter::default(),
        start: StartMode::default(),
        sleep_after: None,
        pin: false,
        protocol: None,
        check_arguments: false,
    };
    Ok((server, warnings))
}

fn transport(fields: &mut Fields<'_>) -> Result<Transport, String> {
    let said = |wrong: Wrong| wrong.to_string();
    let kind = fields.text("type").map_err(said)?;
    let kind = kind.or(fields.text("transport").map_err(said)?);
    let over_http = kind.as_deref().is_some_and(|kind| kind != "stdio");
    if over_http || ADDRESSES.iter().any(|key| fields.has(key)) {
        return Err("HTTP servers are not supported yet by this version".to_owned());
    }
    stdio(fields)
}

#[cfg(feature = "stdio")]
fn stdio(fields: &mut Fields<'_>) -> Result<Transport, String> {
    let said = |wrong: Wrong| wrong.to_string();
    let program = fields.text("command").map_err(said)?;
    let program = program
        .filter(|program| !program.trim().is_empty())
        .ok_or("needs a \"command\", the program to start")?;
    let mut command = Transport::stdio(program).args(fields.texts("args").map_err(said)?);
    for (name, value) in fields.text_map("env").map_err(said)? {
        if !is_variable(&name) {
            return Err("\"env\" holds a name that is empty or contains '='".to_owned());
        }
        command = command.env(name, value);
    }
    for name in fields.names("inheritEnv").map_err(said)? {
        command = command.inherit_env(name);
    }
    if let Some(folder) = fields.text("cwd").map_err(said)? {
        command = command.cwd(folder);
    }
    for secret in fields.take_secrets() {
        command = command.secret(secret.expose());
    }
    Ok(command.into())
}

#[cfg(not(feature = "stdio"))]
fn stdio(_: &mut Fields<'_>) -> Result<Transport, String> {
    Err("is a stdio server, which this build does not support".to_owned())
}

/// What an operating system accepts as the name of a variable.
#[cfg(feature = "stdio")]
fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn enabled(fields: &mut Fields<'_>) -> Result<bool, String> {
    let said = |wrong: Wrong| wrong.to_string();
    let enabled = fields.flag("enabled").map_err(said)?;
    let disabled = fields.flag("disabled").map_err(said)?;
    match (enabled, disabled) {
        (Some(enabled), Some(disabled)) if enabled == disabled => {
            Err("is \"enabled\" and \"disabled\" at once; keep one of them".to_owned())
        }
        (Some(enabled), _) => Ok(enabled),
        (None, disabled) => Ok(!disabled.unwrap_or(false)),
    }
}

fn settings(fields: &mut Fields<'_>, warnings: &mut Vec<String>) -> Result<ServerSettings, Wrong> {
    let mut settings = ServerSettings::default();
    let retry = &mut settings.retry;
    set(&mut retry.trusted, fields.flag("trusted")?);
    set(
        &mut retry.retry_expired_calls,
        fields.flag("retryExpiredCalls")?,
    );
    retry.idempotent_tools = fields.names("idempotentTools")?;
    warnings.extend(reconnect(fields.section("reconnect")?, &mut settings)?);
    warnings.extend(timeouts(fields.section("timeouts")?, &mut settings)?);
    warnings.extend(limits(fields.section("limits")?, &mut settings)?);
    warnings.extend(health(fields.section("health")?, &mut settings)?);
    warnings.extend(close(fields.section("close")?, &mut settings)?);
    Ok(settings)
}

fn reconnect(mut part: Fields<'_>, settings: &mut ServerSettings) -> Result<Vec<String>, Wrong> {
    let budget = &mut settings.budget;
    set(&mut budget.attempts, part.count("attempts")?);
    set(&mut budget.within, part.duration("within")?);
    set(&mut budget.proven_after, part.duration("provenAfter")?);
    set(&mut budget.first_probe, part.duration("firstProbe")?);
    set(&mut budget.max_probe, part.duration("maxProbe")?);
    set(&mut budget.wake_on_call, part.flag("wakeOnCall")?);
    let backoff = &mut settings.backoff;
    set(&mut backoff.initial, part.duration("initialDelay")?);
    set(&mut backoff.max, part.duration("maxDelay")?);
    set(&mut backoff.multiplier, part.number("multiplier")?);
    set(&mut backoff.jitter, part.number("jitter")?);
    Ok(part.finish())
}

fn timeouts(mut part: Fields<'_>, settings: &mut ServerSettings) -> Result<Vec<String>, Wrong> {
    let timeouts = &mut settings.timeouts;
    set(&mut timeouts.connect, part.duration("connect")?);
    set(&mut timeouts.call, part.duration("call")?);
    set(&mut timeouts.idle, part.duration("idle")?);
    set(
        &mut timeouts.reconnect_wait,
        part.duration("reconnectWait")?,
    );
    set(&mut timeouts.listing, part.duration("listing")?);
    Ok(part.finish())
}

fn limits(mut part: Fields<'_>, settings: &mut ServerSettings) -> Result<Vec<String>, Wrong> {
    set(&mut settings.admission.in_flight, part.count("inFlight")?);
    set(&mut settings.admission.waiting, part.count("waiting")?);
    Ok(part.finish())
}

fn health(mut part: Fields<'_>, settings: &mut ServerSettings) -> Result<Vec<String>, Wrong> {
    let health = &mut settings.health;
    set(&mut health.threshold, part.count("threshold")?);
    set(&mut health.keepalive, part.duration("keepalive")?);
    set(
        &mut health.keepalive_timeout,
        part.duration("keepaliveTimeout")?,
    );
    Ok(part.finish())
}

fn close(mut part: Fields<'_>, settings: &mut ServerSettings) -> Result<Vec<String>, Wrong> {
    set(&mut settings.close.drain, part.duration("drain")?);
    set(&mut settings.close.stdin, part.duration("stdin")?);
    set(&mut settings.close.terminate, part.duration("terminate")?);
    Ok(part.finish())
}

/// What the config says wins over the default.
fn set<T>(setting: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *setting = said;
    }
}
