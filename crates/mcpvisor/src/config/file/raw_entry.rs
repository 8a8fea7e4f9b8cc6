//! The values of an entry as written, before they are checked together.

use std::time::Duration;

use mcpvisor_core::{GovernorSettings, InvalidSetting, ServerSettings};
use rmcp::model::ProtocolVersion;

use super::raw_auth::RawAuth;
use crate::api::runtime::default_governor;
use crate::config::{ResultCheck, ServerConfig, ToolFilter};
use crate::secret::Secret;

/// All values that an entry can hold. The fleet's defaults are one too, and every entry starts as a
/// copy of them.
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
    pub(super) check_results: Option<&'static str>,

    /// Limits of concurrent connects, which only the fleet has.
    pub(super) connects: GovernorSettings,
    /// The default depends on the machine.
    pub(super) stdio_at_once: Option<usize>,

    /// `type`, or `transport`.
    pub(super) kind: Option<String>,
    /// The provider of a Zed server.
    pub(super) source: Option<String>,

    pub(super) program: Option<String>,
    pub(super) args: Vec<String>,
    /// Arguments from a `command` that is a list.
    pub(super) command_args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) inherit_env: Vec<String>,
    pub(super) cwd: Option<String>,

    pub(super) url: Option<String>,
    pub(super) http_url: Option<String>,
    pub(super) server_url: Option<String>,
    pub(super) socket_path: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) env_headers: Vec<(String, String)>,
    pub(super) bearer_token_env: Option<String>,
    pub(super) root_certificates: Vec<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) auth: RawAuth,

    /// Values of variables in the defaults. They are secret in every server that uses the defaults.
    pub(super) secrets: Vec<Secret<String>>,
}

impl RawEntry {
    /// The settings of a server, as an entry.
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
            check_results: (server.check_results != ResultCheck::Off)
                .then(|| server.check_results.word()),
            ..Self::default()
        }
    }

    /// The connect limits of a fleet, as an entry.
    pub(super) fn of_connects(connects: &GovernorSettings) -> Self {
        Self {
            connects: connects.clone(),
            stdio_at_once: Some(connects.max_stdio),
            ..Self::default()
        }
    }

    /// The limits of concurrent connects.
    pub(super) fn connects(self) -> Result<GovernorSettings, InvalidSetting> {
        let mut connects = self.connects;
        let default = || default_governor().max_stdio;
        connects.max_stdio = self.stdio_at_once.unwrap_or_else(default);
        connects.validate().map(|()| connects)
    }

    /// Sets one timeout of calls, as other clients have it: both the deadline and the idle timeout.
    pub(super) fn set_call_timeout(&mut self, timeout: Duration) {
        self.settings.timeouts.call = timeout;
        self.settings.timeouts.idle = timeout;
    }
}
