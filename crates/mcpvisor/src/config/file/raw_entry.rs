//! A server while its entry is being read: what was said, before it is known whether it makes sense.

use std::time::Duration;

use mcpvisor_core::{GovernorSettings, InvalidSetting, ServerSettings};
use rmcp::model::ProtocolVersion;

use crate::api::runtime::default_governor;
use crate::config::server_config::validate_settings;
use crate::config::{ServerConfig, ToolFilter};
use crate::secret::Secret;

/// All that an entry can say. The fleet's defaults are one too, and every server begins as a copy of
/// it.
#[derive(Clone, Default)]
pub(super) struct RawEntry {
    pub(super) settings: ServerSettings,
    pub(super) enabled: Option<bool>,
    pub(super) disabled: Option<bool>,
    pub(super) required: bool,
    pub(super) tools: ToolFilter,
    pub(super) pin: bool,
    pub(super) protocol: Option<ProtocolVersion>,
    pub(super) prefer_older_protocol: bool,
    pub(super) check_arguments: bool,

    /// How many servers connect at once: said of the fleet alone.
    pub(super) connects: GovernorSettings,
    /// The usual number depends on the machine.
    pub(super) stdio_at_once: Option<usize>,

    /// `type`, or `transport`.
    pub(super) kind: Option<String>,
    /// Who provides a server of Zed.
    pub(super) source: Option<String>,

    pub(super) program: Option<String>,
    pub(super) args: Vec<String>,
    /// Arguments that stand in one list with the program.
    pub(super) command_args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) inherit_env: Vec<String>,
    pub(super) cwd: Option<String>,

    pub(super) url: Option<String>,
    pub(super) http_url: Option<String>,
    pub(super) server_url: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) env_headers: Vec<(String, String)>,
    pub(super) bearer_token_env: Option<String>,
    pub(super) root_certificates: Vec<String>,
    pub(super) client_certificate: Option<String>,

    /// What came from variables in the defaults. It is secret in every server that takes them.
    pub(super) secrets: Vec<Secret<String>>,
}

impl RawEntry {
    /// What of a server can be said in `defaults`, as a raw that says it.
    pub(super) fn of(server: &ServerConfig) -> Self {
        Self {
            settings: server.settings.clone(),
            enabled: (!server.enabled).then_some(false),
            required: server.required,
            tools: server.tools.clone(),
            pin: server.pin,
            protocol: server.protocol.clone(),
            prefer_older_protocol: server.prefer_older_protocol,
            check_arguments: server.check_arguments,
            ..Self::default()
        }
    }

    /// What a fleet says of its connects, as a raw that says it.
    pub(super) fn of_connects(connects: &GovernorSettings) -> Self {
        Self {
            connects: connects.clone(),
            stdio_at_once: Some(connects.max_stdio),
            ..Self::default()
        }
    }

    /// What is said of connects.
    pub(super) fn connects(self) -> Result<GovernorSettings, InvalidSetting> {
        let mut connects = self.connects;
        let usual = || default_governor().max_stdio;
        connects.max_stdio = self.stdio_at_once.unwrap_or_else(usual);
        connects.validate().map(|()| connects)
    }

    /// Refuses what would make the runtime misbehave.
    pub(super) fn validate(&self) -> Result<(), InvalidSetting> {
        validate_settings(&self.settings)
    }

    /// One timeout for a call, as other clients have it: nothing may take longer, and no silence.
    pub(super) fn set_call_timeout(&mut self, timeout: Duration) {
        self.settings.timeouts.call = timeout;
        self.settings.timeouts.idle = timeout;
    }
}
