//! The config of a server.

use std::time::Duration;

use mcpvisor_core::settings::{ConnectionScope, ConnectionSettings};
use mcpvisor_core::{InvalidServerName, InvalidSetting, ServerName, ServerSettings};
use rmcp::model::ProtocolVersion;

use crate::api::transport::Transport;

/// The config of a server: how it is reached and supervised.
///
/// A child process:
///
/// ```
/// use mcpvisor::{ServerConfig, StartMode, Transport};
///
/// let files = Transport::stdio("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let files = ServerConfig::new("files", files)?
///     .start(StartMode::Lazy)
///     .deny_tools("delete_*");
/// # Ok::<(), mcpvisor::InvalidServerName>(())
/// ```
///
/// A server over Streamable HTTP:
///
/// ```
/// use std::time::Duration;
/// use mcpvisor::{ServerConfig, Transport};
///
/// let github = Transport::http("https://example.com/mcp").bearer_token_env("GITHUB_TOKEN");
/// let mut github = ServerConfig::new("github", github)?.required(true);
/// github.settings.timeouts.connect = Duration::from_secs(10);
/// github.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A server in this process:
///
/// ```
/// use mcpvisor::{ServerConfig, Transport, rmcp};
///
/// #[derive(Clone)]
/// struct Clock;
/// impl rmcp::ServerHandler for Clock {}
///
/// let clock = ServerConfig::new("clock", Transport::in_process(Clock))?;
/// # Ok::<(), mcpvisor::InvalidServerName>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Its name.
    pub name: ServerName,
    /// How it is reached.
    pub transport: Transport,
    /// How it is supervised.
    pub settings: ServerSettings,
    /// Whether it is started; it can be enabled later.
    pub enabled: bool,
    /// Whether the fleet is ready only when this server is.
    pub required: bool,
    /// Which of its tools callers see.
    pub tools: ToolFilter,
    /// Hold back tools whose definition changed since a person approved them.
    pub pin: bool,
    /// Use only this version of the protocol, instead of negotiating one.
    pub protocol: Option<ProtocolVersion>,
    /// Prefer a version before 2026-07-28 if the server supports both:
    /// [`ServerConfig::prefer_older_protocol`].
    pub prefer_older_protocol: bool,
    /// Check the arguments of calls against the tool's schema before they are sent.
    pub check_arguments: bool,
    /// Whether structured results are checked against the tool's output schema.
    pub check_results: ResultCheck,
}

/// Whether the structured results of a server's tools are checked against their output schemas, and
/// what follows from a mismatch. A tool that declares an output schema has to return a structured
/// result that matches it. Results with `isError` are not checked. Needs the feature `schema-check`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultCheck {
    /// Not checked.
    #[default]
    Off,
    /// A mismatch is logged and counted in
    /// [`ServerStatus::invalid_results`](crate::ServerStatus::invalid_results), and the result is
    /// delivered.
    Warn,
    /// A mismatch is counted too, and the caller gets
    /// [`CallError::InvalidResult`](crate::CallError::InvalidResult), which has the result.
    Fail,
}

impl ResultCheck {
    /// The words of a config, in the order of the variants.
    #[cfg(feature = "config-files")]
    pub(super) const WORDS: &'static [&'static str] = &["off", "warn", "fail"];

    /// Its word in a config.
    #[cfg(feature = "config-files")]
    pub(super) fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// The check that a word of a config means.
    #[cfg(feature = "config-files")]
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("warn") => Self::Warn,
            Some("fail") => Self::Fail,
            _ => Self::Off,
        }
    }
}

/// When a server is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartMode {
    /// As soon as the runtime starts.
    #[default]
    Eager,
    /// At its first call.
    Lazy,
}

/// Which tools of a server callers see: those that match a pattern of `allow` (all if it is empty),
/// except those that match a pattern of `deny`. In a pattern `*` matches any text and `?` any
/// character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFilter {
    /// Patterns of visible tools; all tools if empty.
    pub allow: Vec<String>,
    /// Patterns of hidden tools; they take precedence over `allow`.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// A filter with these patterns.
    pub fn new<A, D>(allow: A, deny: D) -> Self
    where
        A: IntoIterator<Item: Into<String>>,
        D: IntoIterator<Item: Into<String>>,
    {
        Self {
            allow: allow.into_iter().map(Into::into).collect(),
            deny: deny.into_iter().map(Into::into).collect(),
        }
    }
}

impl ServerConfig {
    /// An enabled server with the default settings.
    pub fn new(
        name: impl Into<String>,
        transport: impl Into<Transport>,
    ) -> Result<Self, InvalidServerName> {
        Ok(Self {
            name: ServerName::new(name)?,
            transport: transport.into(),
            settings: ServerSettings::default(),
            enabled: true,
            required: false,
            tools: ToolFilter::default(),
            pin: false,
            protocol: None,
            prefer_older_protocol: false,
            check_arguments: false,
            check_results: ResultCheck::Off,
        })
    }

    /// Replaces the settings, except for a lazy start, a sleep and the number of connections that were
    /// set before.
    #[must_use]
    pub fn settings(mut self, settings: ServerSettings) -> Self {
        let before = std::mem::replace(&mut self.settings, settings);
        if self.settings.connections == ConnectionSettings::default() {
            self.settings.connections = before.connections;
        }
        let rest = before.rest;
        self.settings.rest.lazy |= rest.lazy;
        if rest.sleep_after.is_some() {
            self.settings.rest.sleep_after = rest.sleep_after;
        }
        self
    }

    /// Sets whether the server is started.
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Sets whether the fleet is ready only when this server is.
    #[must_use]
    pub fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    /// Adds a pattern of visible tools. Once there is one, all other tools are hidden.
    #[must_use]
    pub fn allow_tools(mut self, pattern: impl Into<String>) -> Self {
        self.tools.allow.push(pattern.into());
        self
    }

    /// Adds a pattern of hidden tools.
    #[must_use]
    pub fn deny_tools(mut self, pattern: impl Into<String>) -> Self {
        self.tools.deny.push(pattern.into());
        self
    }

    /// Sets when it is connected: `settings.rest.lazy`.
    #[must_use]
    pub fn start(mut self, start: StartMode) -> Self {
        self.settings.rest.lazy = start == StartMode::Lazy;
        self
    }

    /// Closes its connection after this time without a call, until the next call.
    #[must_use]
    pub fn sleep_after(mut self, idle: Duration) -> Self {
        self.settings.rest.sleep_after = Some(idle);
        self
    }

    /// Sets whether tools are held back whose definition changed since a person approved them.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Uses only this version of the protocol.
    #[must_use]
    pub fn protocol(mut self, version: ProtocolVersion) -> Self {
        self.protocol = Some(version);
        self
    }

    /// Sets whether a version before 2026-07-28 is preferred if the server supports both.
    ///
    /// Set it for a server whose tools request input (elicitation, sampling, roots) and cannot do
    /// so in 2026-07-28, where such a request is part of a reply. Servers of FastMCP 4 and of the
    /// Python SDK 2 that call `ctx.elicit()` or `ctx.sample()` behave so: they support both
    /// versions, advertise only the newer one, and fail the call there ("elicitation via
    /// server-initiated requests is unavailable on 2026-07-28 connections"). The runtime logs a
    /// warning then. A server that supports only 2026-07-28 still uses it;
    /// [`ServerConfig::protocol`] pins one version instead.
    ///
    /// ```
    /// use mcpvisor::{ServerConfig, Transport};
    ///
    /// # fn example() -> Result<(), mcpvisor::InvalidServerName> {
    /// let forms = Transport::stdio("fastmcp").args(["run", "forms.py"]);
    /// let forms = ServerConfig::new("forms", forms)?.prefer_older_protocol(true);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefer_older_protocol(mut self, prefer: bool) -> Self {
        self.prefer_older_protocol = prefer;
        self
    }

    /// Sets whether the arguments of calls are checked before they are sent.
    #[must_use]
    pub fn check_arguments(mut self, check: bool) -> Self {
        self.check_arguments = check;
        self
    }

    /// Sets whether structured results are checked against the tool's output schema.
    #[must_use]
    pub fn check_results(mut self, check: ResultCheck) -> Self {
        self.check_results = check;
        self
    }

    /// Runs a pool of instances, at most 64, for a server that answers one call at a time. Each is
    /// a connection of its own, with its own budget, limits and status; a call goes to the least
    /// loaded one. One instance that crashes costs only its own calls.
    ///
    /// ```
    /// use mcpvisor::{ServerConfig, Transport};
    ///
    /// # fn example() -> Result<(), mcpvisor::InvalidServerName> {
    /// let browser = ServerConfig::new("browser", Transport::stdio("mcp-browser"))?.instances(4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn instances(mut self, instances: usize) -> Self {
        self.settings.connections.instances = instances;
        self
    }

    /// Sets which clients share a connection. With [`ConnectionScope::Client`] each
    /// [client](crate::Runtime::client) has its own, which is opened at its first request, closed
    /// after `sleep_after` without a request (5 minutes unless set), and bounded in number by
    /// [`max_connections`](Self::max_connections). The server keeps its state for each client, and
    /// what it requests from a client belongs to that client.
    ///
    /// ```
    /// use mcpvisor::{ConnectionScope, ServerConfig, Transport};
    ///
    /// # fn example() -> Result<(), mcpvisor::InvalidServerName> {
    /// let memory = Transport::stdio("mcp-server-memory");
    /// let memory = ServerConfig::new("memory", memory)?.scope(ConnectionScope::Client);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scope(mut self, scope: ConnectionScope) -> Self {
        self.settings.connections.scope = scope;
        self
    }

    /// Sets how many connections may be open at once if each client has its own. The least recently
    /// used one without calls is closed when another is needed; while all have calls, requests wait.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.connections.max_connections = connections;
        self
    }

    /// Sets whether a [client](crate::Runtime::client) stays on the instance of a pool that it used
    /// first. It moves only while that one is unavailable.
    #[must_use]
    pub fn affinity(mut self, affinity: bool) -> Self {
        self.settings.connections.affinity = affinity;
        self
    }

    /// Applies the checks of a config file: rejects settings that would make the runtime misbehave,
    /// commands that cannot be started, and invalid addresses and headers. A runtime rejects a
    /// server with invalid settings; one with an invalid transport fails permanently when it is
    /// started.
    ///
    /// ```
    /// use mcpvisor::{ServerConfig, Transport};
    ///
    /// let files = ServerConfig::new("files", Transport::stdio("mcp-files").env("A=B", "c"))?;
    /// let problem = files.validate().unwrap_err();
    /// assert_eq!(
    ///     problem.to_string(),
    ///     "the setting env holds a name that is empty or contains '='; remove it"
    /// );
    /// # Ok::<(), mcpvisor::InvalidServerName>(())
    /// ```
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.validate_settings()?;
        self.transport.check()
    }

    /// Rejects settings that would make the runtime misbehave.
    pub(crate) fn validate_settings(&self) -> Result<(), InvalidSetting> {
        validate_settings(&self.settings)
    }
}

/// Checks the settings of the core and those that only the runtime uses.
pub(super) fn validate_settings(settings: &ServerSettings) -> Result<(), InvalidSetting> {
    settings.validate()?;
    let timeouts = &settings.timeouts;
    let timeouts = [
        ("timeouts.call", timeouts.call),
        ("timeouts.idle", timeouts.idle),
        ("timeouts.listing", timeouts.listing),
        ("health.keepaliveTimeout", settings.health.keepalive_timeout),
    ];
    // With a timeout of 0 every request would fail.
    let zero = timeouts.iter().find(|(_, timeout)| timeout.is_zero());
    zero.map_or(Ok(()), |(name, _)| {
        let problem = "must be longer than 0; leave it out for the default";
        Err(InvalidSetting::new(name, problem))
    })
}
