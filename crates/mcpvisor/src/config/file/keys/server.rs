//! Our own keys: the transport and the supervision of a server.

use mcpvisor_core::GovernorSettings;
use mcpvisor_core::connection_places::MAX_CONNECTIONS;
use mcpvisor_core::instance_choice::MAX_INSTANCES;
use mcpvisor_core::settings::MessageSettings;

use super::{AUTH, Key, Kind, at_least, within};
use crate::config::ResultCheck;

/// Transport keys. They have no fleet-wide default.
pub(in super::super) const TRANSPORT: &[Key] = &[
    Key::new(
        "type",
        Kind::Text(|raw| &mut raw.kind),
        "How the server is reached: \"stdio\", \"http\" (Streamable HTTP, or HTTP+SSE if the server speaks only that) or \"sse\" (HTTP+SSE alone). Without it, a \"command\" means stdio and a \"url\" means http.",
    ),
    Key::new(
        "command",
        Kind::Command,
        "The program to start; without a / it is searched in PATH.",
    ),
    Key::new(
        "args",
        Kind::Texts(|raw| &mut raw.args),
        "The arguments of the program.",
    ),
    Key::new(
        "env",
        Kind::Env(|raw| &mut raw.env),
        "Variables of the program's environment. The values are secrets: they are never shown.",
    ),
    Key::new(
        "cwd",
        Kind::Text(|raw| &mut raw.cwd),
        "The working folder of the program.",
    ),
    Key::new(
        "url",
        Kind::Text(|raw| &mut raw.url),
        "The address of the server: for Streamable HTTP, or that of the event stream for HTTP+SSE.",
    ),
    Key::new(
        "socketPath",
        Kind::Text(|raw| &mut raw.socket_path),
        "A Unix socket that the server listens on. The \"url\" provides the path and the Host header; neither DNS nor a proxy is used.",
    ),
    Key::new(
        "headers",
        Kind::Headers(|raw| &mut raw.headers),
        "Headers of every request. The values are secrets: they are never shown.",
    ),
    Key::new(
        "bearerTokenEnvVar",
        Kind::Name(|raw| &mut raw.bearer_token_env),
        "The variable that holds a bearer token. It is read again for every connection and at every reload.",
    ),
    Key::new(
        "clientCertificate",
        Kind::Text(|raw| &mut raw.client_certificate),
        "A PEM file with the client certificate and its key.",
    ),
    Key::new(
        "auth",
        Kind::Auth(AUTH),
        "How the server is authorized, where the default does not find out.",
    ),
];

/// Supervision keys, per server or in "defaults".
pub(in super::super) const SETTINGS: &[Key] = &[
    Key::new(
        "enabled",
        Kind::MaybeFlag(|raw| &mut raw.enabled),
        "Whether the server is started; it can be enabled later. Default: true.",
    ),
    Key::new(
        "required",
        Kind::Flag(|raw| &mut raw.required),
        "Whether the fleet is ready only when this server is. Default: false.",
    ),
    Key::new(
        "start",
        Kind::Start,
        "When the server is connected: \"eager\", as soon as the runtime starts, or \"lazy\", at its first call. Default: \"eager\".",
    ),
    Key::new(
        "sleepAfter",
        Kind::MaybeDuration(|raw| &mut raw.settings.rest.sleep_after),
        "After this time without a call the connection is closed until the next call. Default: never.",
    ),
    Key::new(
        "scope",
        Kind::Scope,
        "Which clients share a connection: \"shared\", all of them, or \"client\": each has its own, so that a server that keeps state keeps it for each client. Default: \"shared\".",
    ),
    Key::new(
        "maxConnections",
        Kind::Size(within(1, MAX_CONNECTIONS as u64), |raw| {
            &mut raw.settings.connections.max_connections
        }),
        "With \"scope\": \"client\", how many connections may be open at once. The least recently used one without calls is closed when another is needed. Default: 32.",
    ),
    Key::new(
        "instances",
        Kind::Size(within(1, MAX_INSTANCES as u64), |raw| {
            &mut raw.settings.connections.instances
        }),
        "The number of instances of the server, which share its calls: for a server that answers one call at a time. Default: 1.",
    ),
    Key::new(
        "affinity",
        Kind::Flag(|raw| &mut raw.settings.connections.affinity),
        "Whether a client stays on one instance as long as that one is available. Default: false.",
    ),
    Key::new("tools", Kind::Section(TOOLS), "Which tools callers see."),
    Key::new(
        "pin",
        Kind::Flag(|raw| &mut raw.pin),
        "Hold back tools whose definition changed since a person approved them. Default: false.",
    ),
    Key::new(
        "checkArguments",
        Kind::Flag(|raw| &mut raw.check_arguments),
        "Check the arguments of calls against the tool's schema before they are sent. Default: false.",
    ),
    Key::new(
        "checkResults",
        Kind::Choice(ResultCheck::WORDS, |raw| &mut raw.check_results),
        "Check structured results against the tool's output schema: \"off\", \"warn\" (log and count a mismatch, and deliver the result) or \"fail\" (the call fails). Default: \"off\".",
    ),
    Key::new(
        "protocol",
        Kind::Protocol,
        "Use only this version of the protocol, instead of negotiating one.",
    ),
    Key::new(
        "preferOlderProtocol",
        Kind::Flag(|raw| &mut raw.prefer_older_protocol),
        "Prefer a version before 2026-07-28 if the server supports both: for a server whose tools request input (elicitation, sampling) and cannot in 2026-07-28, such as one of FastMCP 4. Default: false.",
    ),
    Key::new(
        "trusted",
        Kind::Flag(|raw| &mut raw.settings.retry.trusted),
        "Trust the server's annotations that a tool is read-only or idempotent: such calls are retried once. Default: false.",
    ),
    Key::new(
        "idempotentTools",
        Kind::Names(|raw| &mut raw.settings.retry.idempotent_tools),
        "Tools that may be retried, whatever their annotations.",
    ),
    Key::new(
        "retryExpiredCalls",
        Kind::Flag(|raw| &mut raw.settings.retry.retry_expired_calls),
        "Retry a tool call that was refused because the session had expired. Default: true.",
    ),
    Key::new(
        "inheritEnv",
        Kind::Names(|raw| &mut raw.inherit_env),
        "Further variables that the program inherits.",
    ),
    Key::new(
        "rootCertificates",
        Kind::Texts(|raw| &mut raw.root_certificates),
        "PEM files with certificates that are trusted in addition to those of the system.",
    ),
    Key::new("reconnect", Kind::Section(RECONNECT), "When to reconnect."),
    Key::new("timeouts", Kind::Section(TIMEOUTS), "Timeouts."),
    Key::new(
        "health",
        Kind::Section(HEALTH),
        "When failures lead to a reconnect, and how an idle connection is checked.",
    ),
    Key::new(
        "limits",
        Kind::Section(LIMITS),
        "Limits of calls, lists and messages.",
    ),
    Key::new(
        "listing",
        Kind::Section(LISTING),
        "How often changed lists are fetched.",
    ),
    Key::new("close", Kind::Section(CLOSE), "How a connection is closed."),
];

/// The fields of the patterns of tools, which have a name of their own in most clients.
pub(super) const ALLOWED_TOOLS: Kind = Kind::Names(|raw| &mut raw.tools.allow);
pub(super) const DENIED_TOOLS: Kind = Kind::Names(|raw| &mut raw.tools.deny);

const TOOLS: &[Key] = &[
    Key::new(
        "allow",
        ALLOWED_TOOLS,
        "Patterns of visible tools; * matches any text, ? any character. Default: every tool.",
    ),
    Key::new(
        "deny",
        DENIED_TOOLS,
        "Patterns of hidden tools; they take precedence over \"allow\".",
    ),
];

const RECONNECT: &[Key] = &[
    Key::new(
        "attempts",
        Kind::Count(|raw| &mut raw.settings.budget.attempts),
        "Connects within the window, including the first. Default: 10.",
    ),
    Key::new(
        "within",
        Kind::Duration(|raw| &mut raw.settings.budget.within),
        "The window. Default: 5m.",
    ),
    Key::new(
        "initialDelay",
        Kind::Duration(|raw| &mut raw.settings.backoff.initial),
        "The first delay after the immediate retry. Default: 500ms.",
    ),
    Key::new(
        "maxDelay",
        Kind::Duration(|raw| &mut raw.settings.backoff.max),
        "The longest delay, including jitter. Default: 30s.",
    ),
    Key::new(
        "multiplier",
        Kind::Number(at_least(1.0), |raw| &mut raw.settings.backoff.multiplier),
        "The factor by which delays grow. Default: 2.",
    ),
    Key::new(
        "jitter",
        Kind::Number(within(0.0, 1.0), |raw| &mut raw.settings.backoff.jitter),
        "The fraction by which a delay may vary, either way. Default: 0.2.",
    ),
    Key::new(
        "immediateEvery",
        Kind::Duration(|raw| &mut raw.settings.backoff.immediate_every),
        "At most one immediate retry of a proven connection within this time. Default: 5s.",
    ),
    Key::new(
        "maxRetryAfter",
        Kind::Duration(|raw| &mut raw.settings.backoff.max_retry_after),
        "A server's Retry-After is honoured up to this. Default: 2m.",
    ),
    Key::new(
        "provenAfter",
        Kind::Duration(|raw| &mut raw.settings.budget.proven_after),
        "A connection that stays up this long, or answers a call, restores the budget. Default: 30s.",
    ),
    Key::new(
        "firstProbe",
        Kind::Duration(|raw| &mut raw.settings.budget.first_probe),
        "When the budget is spent, the server is probed after this. Default: 30s.",
    ),
    Key::new(
        "maxProbe",
        Kind::Duration(|raw| &mut raw.settings.budget.max_probe),
        "The interval of probes doubles up to this. Default: 5m.",
    ),
    Key::new(
        "wakeOnCall",
        Kind::Flag(|raw| &mut raw.settings.budget.wake_on_call),
        "Whether a call wakes a server whose budget is spent. Default: true.",
    ),
    Key::new(
        "wakeEvery",
        Kind::Duration(|raw| &mut raw.settings.budget.wake_every),
        "Minimum time between connects that calls cause then. Default: 1s.",
    ),
];

const TIMEOUTS: &[Key] = &[
    Key::new(
        "connect",
        Kind::Duration(|raw| &mut raw.settings.timeouts.connect),
        "Opening the connection, including the handshake. Default: 30s.",
    ),
    Key::new(
        "call",
        Kind::Duration(|raw| &mut raw.settings.timeouts.call),
        "The deadline of a call: queueing, connecting, retry and the call itself. Default: 5m.",
    ),
    Key::new(
        "idle",
        Kind::Duration(|raw| &mut raw.settings.timeouts.idle),
        "A call in flight may be silent this long; progress restarts it. Default: 60s.",
    ),
    Key::new(
        "reconnectWait",
        Kind::Duration(|raw| &mut raw.settings.timeouts.reconnect_wait),
        "A call waits this long for a reconnect. Default: 15s.",
    ),
    Key::new(
        "listing",
        Kind::Duration(|raw| &mut raw.settings.timeouts.listing),
        "One page of a listing, or one restored subscription. Default: 30s.",
    ),
];

const HEALTH: &[Key] = &[
    Key::new(
        "threshold",
        Kind::Count(|raw| &mut raw.settings.health.threshold),
        "Consecutive soft failures before a ping decides. Default: 3.",
    ),
    Key::new(
        "keepalive",
        Kind::Duration(|raw| &mut raw.settings.health.keepalive),
        "A connection that was silent this long is checked. Default: 60s.",
    ),
    Key::new(
        "keepaliveTimeout",
        Kind::Duration(|raw| &mut raw.settings.health.keepalive_timeout),
        "The timeout of the check. Default: 10s.",
    ),
];

const LIMITS: &[Key] = &[
    Key::new(
        "inFlight",
        Kind::Size(at_least(1), |raw| &mut raw.settings.admission.in_flight),
        "Concurrent calls. Default: 64.",
    ),
    Key::new(
        "waiting",
        Kind::Size(at_least(0), |raw| &mut raw.settings.admission.waiting),
        "Queued calls. Default: 1024.",
    ),
    Key::new(
        "pages",
        Kind::Size(at_least(1), |raw| &mut raw.settings.listing.max_pages),
        "Pages of one listing. Default: 100.",
    ),
    Key::new(
        "items",
        Kind::Size(at_least(1), |raw| &mut raw.settings.listing.max_items),
        "Items of one listing. Default: 10000.",
    ),
    Key::new(
        "messageBytes",
        Kind::Size(
            within(
                MessageSettings::LEAST_BYTES as u64,
                MessageSettings::MOST_BYTES as u64,
            ),
            |raw| &mut raw.settings.messages.max_bytes,
        ),
        "Bytes of one message from the server: a line, a body or an event. Reading it takes at most three times as much memory. Default: 16777216 (16 MiB).",
    ),
    Key::new(
        "nesting",
        Kind::Size(
            within(
                MessageSettings::LEAST_DEPTH as u64,
                MessageSettings::MOST_DEPTH as u64,
            ),
            |raw| &mut raw.settings.messages.max_depth,
        ),
        "Nesting depth of objects and arrays in one message. Default: 128.",
    ),
    Key::new(
        "values",
        Kind::Size(
            within(
                MessageSettings::LEAST_VALUES as u64,
                MessageSettings::MOST_VALUES as u64,
            ),
            |raw| &mut raw.settings.messages.max_values,
        ),
        "JSON values in one message. Default: 262144.",
    ),
    Key::new(
        "stderrBytes",
        Kind::Size(
            within(
                MessageSettings::LEAST_STDERR as u64,
                MessageSettings::MOST_STDERR as u64,
            ),
            |raw| &mut raw.settings.messages.stderr_bytes,
        ),
        "Bytes of the program's stderr that are kept, the newest. Default: 65536 (64 KiB).",
    ),
];

const LISTING: &[Key] = &[
    Key::new(
        "refreshEvery",
        Kind::Duration(|raw| &mut raw.settings.listing.refresh_every),
        "Minimum time between two refreshes of one list. Default: 100ms.",
    ),
    Key::new(
        "refreshRetry",
        Kind::Duration(|raw| &mut raw.settings.listing.refresh_retry),
        "A failed refresh is retried after this, doubling. Default: 1s.",
    ),
    Key::new(
        "maxRefreshRetry",
        Kind::Duration(|raw| &mut raw.settings.listing.max_refresh_retry),
        "The longest delay of such a retry. Default: 1m.",
    ),
    Key::new(
        "beforeCalls",
        Kind::Flag(|raw| &mut raw.settings.listing.before_calls),
        "Calls wait until the tools are listed on their connection, as they do with \"pin\". Default: false.",
    ),
];

const CLOSE: &[Key] = &[
    Key::new(
        "drain",
        Kind::Duration(|raw| &mut raw.settings.close.drain),
        "Calls in flight may finish for this long before a close. Default: 5s.",
    ),
    Key::new(
        "stdin",
        Kind::Duration(|raw| &mut raw.settings.close.stdin),
        "A program may take this long to exit once its stdin is closed. Default: 2s.",
    ),
    Key::new(
        "terminate",
        Kind::Duration(|raw| &mut raw.settings.close.terminate),
        "A program may take this long to exit after SIGTERM; then SIGKILL. Default: 2s.",
    ),
];

/// Limits of concurrent connects, at the top of a config.
pub(in super::super) const CONNECTS: &[Key] = &[
    Key::new(
        "atOnce",
        Kind::Size(within(1, GovernorSettings::MOST as u64), |raw| {
            &mut raw.connects.max_connects
        }),
        "Concurrent connects. Default: 32.",
    ),
    Key::new(
        "stdioAtOnce",
        Kind::MaybeSize(within(1, GovernorSettings::MOST as u64), |raw| {
            &mut raw.stdio_at_once
        }),
        "Concurrent starts of programs among them. Default: four times the number of cores.",
    ),
    Key::new(
        "hold",
        Kind::Duration(|raw| &mut raw.connects.hold),
        "A silent server no longer counts as connecting after this. Default: 2s.",
    ),
    Key::new(
        "burst",
        Kind::Size(within(1, GovernorSettings::MOST as u64), |raw| {
            &mut raw.connects.burst_floor
        }),
        "Reconnects that may start within the window, however small the fleet. Default: 5.",
    ),
    Key::new(
        "burstShare",
        Kind::Number(within(0.0, 1.0), |raw| &mut raw.connects.burst_share),
        "The fraction of the fleet that may reconnect within the window, if that is more. Default: 0.1.",
    ),
    Key::new(
        "burstWindow",
        Kind::Duration(|raw| &mut raw.connects.burst_window),
        "The window. Default: 100ms.",
    ),
];
