//! Keys of other clients: those that mean one of ours, those that mean something which is not done,
//! and those that mean nothing here.

use super::{Key, Kind};

/// Why what others do about authorization is not done.
const AUTH: &str = "signing in is not supported; write \"headers\" or \"bearerTokenEnvVar\"";

/// Old spellings of our own keys, per server or in \"defaults\".
pub(in super::super) const OLD_SPELLINGS: &[Key] = &[Key {
    about: "The old spelling of \"sleepAfter\".",
    ..Key::alias(
        "idleTimeout",
        "sleepAfter",
        Kind::MaybeDuration(|draft| &mut draft.sleep_after),
    )
}];

/// Keys of other clients.
pub(in super::super) const FOREIGN: &[Key] = &[
    // fastmcp, langchain
    Key::alias("transport", "type", Kind::Text(|draft| &mut draft.kind)),
    // opencode
    Key::alias("environment", "env", Kind::Env(|draft| &mut draft.env)),
    // codex
    Key::alias(
        "env_vars",
        "inheritEnv",
        Kind::Names(|draft| &mut draft.inherit_env),
    ),
    Key::alias(
        "http_headers",
        "headers",
        Kind::Headers(|draft| &mut draft.headers),
    ),
    Key::new(
        "env_http_headers",
        Kind::EnvHeaders(|draft| &mut draft.env_headers),
        "Headers whose values are in these variables.",
    ),
    Key::alias(
        "bearer_token_env_var",
        "bearerTokenEnvVar",
        Kind::Name(|draft| &mut draft.bearer_token_env),
    ),
    Key::alias(
        "startup_timeout_sec",
        "timeouts.connect",
        Kind::Seconds(|draft, timeout| draft.settings.timeouts.connect = timeout),
    ),
    Key::alias(
        "startup_timeout_ms",
        "timeouts.connect",
        Kind::Millis(|draft, timeout| draft.settings.timeouts.connect = timeout),
    ),
    Key::new(
        "tool_timeout_sec",
        Kind::Seconds(|draft, timeout| draft.set_call_timeout(timeout)),
        "Seconds for \"timeouts.call\" and \"timeouts.idle\".",
    ),
    Key::alias(
        "enabled_tools",
        "tools.allow",
        Kind::Names(|draft| &mut draft.tools.allow),
    ),
    Key::alias(
        "disabled_tools",
        "tools.deny",
        Kind::Names(|draft| &mut draft.tools.deny),
    ),
    // gemini
    Key::new(
        "httpUrl",
        Kind::Text(|draft| &mut draft.http_url),
        "The Streamable HTTP address of the server; counts before \"url\".",
    ),
    Key::alias(
        "includeTools",
        "tools.allow",
        Kind::Names(|draft| &mut draft.tools.allow),
    ),
    Key::alias(
        "excludeTools",
        "tools.deny",
        Kind::Names(|draft| &mut draft.tools.deny),
    ),
    // Windsurf
    Key::new(
        "serverUrl",
        Kind::Text(|draft| &mut draft.server_url),
        "The Streamable HTTP address of the server; counts before \"url\".",
    ),
    // cline, Kiro, Roo, Windsurf
    Key::new(
        "disabled",
        Kind::MaybeFlag(|draft| &mut draft.disabled),
        "The opposite of \"enabled\".",
    ),
    Key::alias(
        "allowedTools",
        "tools.allow",
        Kind::Names(|draft| &mut draft.tools.allow),
    ),
    Key::alias(
        "disabledTools",
        "tools.deny",
        Kind::Names(|draft| &mut draft.tools.deny),
    ),
    // Seconds for some, milliseconds for others
    Key::new(
        "timeout",
        Kind::Timeout,
        "For \"timeouts.call\" and \"timeouts.idle\". Milliseconds from 1000 on, seconds below: better write those.",
    ),
    // Zed
    Key::new(
        "source",
        Kind::Name(|draft| &mut draft.source),
        "Who provides the server; only \"custom\" can be started.",
    ),
    // Means something that is not done
    Key::alias("auth", "", Kind::Unsupported(AUTH)),
    Key::alias("authentication", "", Kind::Unsupported(AUTH)),
    Key::alias("oauth", "", Kind::Unsupported(AUTH)),
    Key::alias("authProviderType", "", Kind::Unsupported(AUTH)),
    Key::alias(
        "headersHelper",
        "",
        Kind::Unsupported("write \"headers\" with ${VAR} instead"),
    ),
    Key::alias(
        "envFile",
        "",
        Kind::Unsupported("write its variables under \"env\""),
    ),
    Key::alias(
        "sandbox",
        "",
        Kind::Unsupported("start the program in a sandbox of its own"),
    ),
    Key::alias(
        "sandboxEnabled",
        "",
        Kind::Unsupported("start the program in a sandbox of its own"),
    ),
    // Means nothing here: what a person may be asked, shown or told
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
    Key::alias("oauth_resource", "", Kind::Ignored),
    Key::alias("scopes", "", Kind::Ignored),
    Key::alias("settings", "", Kind::Ignored),
    Key::alias("supports_parallel_tool_calls", "", Kind::Ignored),
    Key::alias("trust", "", Kind::Ignored),
    Key::alias("version", "", Kind::Ignored),
];

/// The keys of a command that is an object, as in older settings of Zed.
pub(in super::super) const EDITOR_COMMAND: &[Key] = &[
    Key::new(
        "path",
        Kind::Text(|draft| &mut draft.program),
        "The program.",
    ),
    Key::new(
        "args",
        Kind::Texts(|draft| &mut draft.args),
        "Its arguments.",
    ),
    Key::new("env", Kind::Env(|draft| &mut draft.env), "Its variables."),
];
