//! Keys of other clients: aliases of ours, unsupported ones and ignored ones.

use super::auth::{HEADERS_HELPER, RESOURCE, SCOPES};
use super::server::{ALLOWED_TOOLS, DENIED_TOOLS};
use super::{Key, Kind, OAUTH};

/// The alternative to other clients' authorization keys.
const AUTH_INSTEAD: &str = "write \"auth\", \"headers\" or \"bearerTokenEnvVar\"";

/// Old spellings of our own keys, per server or in "defaults".
pub(in super::super) const OLD_SPELLINGS: &[Key] = &[Key {
    about: "The old spelling of \"sleepAfter\".",
    ..Key::alias(
        "idleTimeout",
        "sleepAfter",
        Kind::MaybeDuration(|raw| &mut raw.settings.rest.sleep_after),
    )
}];

/// Keys of other clients.
pub(in super::super) const FOREIGN: &[Key] = &[
    // fastmcp, langchain
    Key::alias("transport", "type", Kind::Text(|raw| &mut raw.kind)),
    // opencode
    Key::alias("environment", "env", Kind::Env(|raw| &mut raw.env)),
    // codex
    Key::alias(
        "env_vars",
        "inheritEnv",
        Kind::Names(|raw| &mut raw.inherit_env),
    ),
    Key::alias(
        "http_headers",
        "headers",
        Kind::Headers(|raw| &mut raw.headers),
    ),
    Key::new(
        "env_http_headers",
        Kind::EnvHeaders(|raw| &mut raw.env_headers),
        "Headers whose values are in these variables.",
    ),
    Key::alias(
        "bearer_token_env_var",
        "bearerTokenEnvVar",
        Kind::Name(|raw| &mut raw.bearer_token_env),
    ),
    Key::alias(
        "startup_timeout_sec",
        "timeouts.connect",
        Kind::Seconds(|raw, timeout| raw.settings.timeouts.connect = timeout),
    ),
    Key::alias(
        "startup_timeout_ms",
        "timeouts.connect",
        Kind::Millis(|raw, timeout| raw.settings.timeouts.connect = timeout),
    ),
    Key::new(
        "tool_timeout_sec",
        Kind::Seconds(|raw, timeout| raw.set_call_timeout(timeout)),
        "Seconds for \"timeouts.call\" and \"timeouts.idle\".",
    ),
    Key::alias("enabled_tools", "tools.allow", ALLOWED_TOOLS),
    Key::alias("disabled_tools", "tools.deny", DENIED_TOOLS),
    // gemini
    Key::new(
        "httpUrl",
        Kind::Text(|raw| &mut raw.http_url),
        "The Streamable HTTP address of the server; counts before \"url\".",
    ),
    Key::alias("includeTools", "tools.allow", ALLOWED_TOOLS),
    Key::alias("excludeTools", "tools.deny", DENIED_TOOLS),
    // Windsurf
    Key::new(
        "serverUrl",
        Kind::Text(|raw| &mut raw.server_url),
        "The Streamable HTTP address of the server; counts before \"url\".",
    ),
    // cline, Kiro, Roo, Windsurf
    Key::new(
        "disabled",
        Kind::MaybeFlag(|raw| &mut raw.disabled),
        "The opposite of \"enabled\".",
    ),
    Key::alias("allowedTools", "tools.allow", ALLOWED_TOOLS),
    Key::alias("disabledTools", "tools.deny", DENIED_TOOLS),
    // Seconds for some, milliseconds for others
    Key::new(
        "timeout",
        Kind::Timeout,
        "For \"timeouts.call\" and \"timeouts.idle\". Milliseconds from 1000 on, seconds below: better write those.",
    ),
    // Zed
    Key::new(
        "source",
        Kind::Name(|raw| &mut raw.source),
        "Who provides the server; only \"custom\" can be started.",
    ),
    // Claude, codex, gemini, opencode
    Key::new(
        "oauth",
        Kind::Auth(OAUTH),
        "Authorization, as other clients write \"auth\".",
    ),
    // Claude
    Key::alias("headersHelper", "auth.headersHelper", HEADERS_HELPER),
    // codex
    Key::alias("scopes", "auth.scopes", SCOPES),
    Key::alias("oauth_resource", "auth.resource", RESOURCE),
    // Unsupported
    Key::unsupported("authentication", AUTH_INSTEAD),
    Key::unsupported("authProviderType", AUTH_INSTEAD),
    Key::unsupported("envFile", "write its variables under \"env\""),
    Key::unsupported("sandbox", "start the program in a sandbox of its own"),
    Key::unsupported(
        "sandboxEnabled",
        "start the program in a sandbox of its own",
    ),
    // Ignored: they only affect the user interface of other clients
    Key::alias("alwaysAllow", "", Kind::Ignored),
    Key::alias("alwaysLoad", "", Kind::Ignored),
    Key::alias("autoApprove", "", Kind::Ignored),
    Key::alias("default_tools_approval_mode", "", Kind::Ignored),
    Key::alias("description", "", Kind::Ignored),
    Key::alias("dev", "", Kind::Ignored),
    Key::alias("gallery", "", Kind::Ignored),
    Key::alias("icon", "", Kind::Ignored),
    Key::alias("keep_alive", "", Kind::Ignored),
    Key::alias("name", "", Kind::Ignored),
    Key::alias("settings", "", Kind::Ignored),
    Key::alias("supports_parallel_tool_calls", "", Kind::Ignored),
    Key::alias("trust", "", Kind::Ignored),
    Key::alias("version", "", Kind::Ignored),
];

/// Keys of a command that is an object, as in older Zed settings.
pub(in super::super) const EDITOR_COMMAND: &[Key] = &[
    Key::new("path", Kind::Text(|raw| &mut raw.program), "The program."),
    Key::new("args", Kind::Texts(|raw| &mut raw.args), "Its arguments."),
    Key::new("env", Kind::Env(|raw| &mut raw.env), "Its variables."),
];
