//! The deadlines of a request, and what its errors report.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::ClientId;
#[cfg(feature = "schema-check")]
use rmcp::model::CallToolResult;

#[cfg(feature = "schema-check")]
use super::result_check;
use super::{MAX_DEADLINE, Options};
use crate::api::error::{CallError, RequestContext};
use crate::api::reply::Failure;
use crate::config::ResultCheck;
use crate::server::active_config::ActiveConfig;
use crate::server::actor::now;
use crate::server::slot::ServerSlot;

/// What holds for a request from its first poll on.
#[derive(Debug)]
pub(super) struct Terms {
    /// The slot that it was sent to; before that, the one of its handle.
    pub(super) slot: Arc<ServerSlot>,
    pub(super) config: Arc<ActiveConfig>,
    client: ClientId,
    pub(super) method: Cow<'static, str>,
    pub(super) deadline: Duration,
    pub(super) idle: Duration,
    /// When the deadline passes.
    pub(super) due: Instant,
}

impl Terms {
    pub(super) fn new(options: &Options) -> Self {
        let slot = options.handle.present_slot();
        let config = slot.config();
        let timeouts = &config.settings.timeouts;
        let deadline = options.deadline.unwrap_or(timeouts.call);
        let idle = options.idle.unwrap_or(timeouts.idle);
        Self {
            slot,
            config,
            client: options.handle.client(),
            method: options.method.clone(),
            deadline,
            idle,
            due: now() + deadline.min(MAX_DEADLINE),
        }
    }

    /// Whether the results of tools are checked.
    pub(super) fn checks_results(&self) -> bool {
        cfg!(feature = "schema-check") && self.config.check_results != ResultCheck::Off
    }

    /// Checks the result of a tool.
    #[cfg(feature = "schema-check")]
    pub(super) async fn checked(
        &self,
        tool: Option<&str>,
        mut result: CallToolResult,
    ) -> Result<CallToolResult, CallError> {
        if let Some(tool) = tool {
            let mode = self.config.check_results;
            result_check::check(&self.slot, mode, tool, &mut result, self.due).await?;
        }
        Ok(result)
    }

    /// The error for a failure of the request.
    pub(super) fn error(&self, tool: Option<&str>, failure: Failure) -> CallError {
        let admission = &self.config.settings.admission;
        let context = RequestContext {
            server: self.slot.name().clone(),
            method: Arc::from(&*self.method),
            tool: tool.map(str::to_owned),
            deadline: self.deadline,
            idle: self.idle,
            limit: admission.in_flight.saturating_add(admission.waiting),
            expected_wait: self.slot.calls.expected_wait(self.client),
            obstacle: self.slot.published.obstacle(),
        };
        context.error(failure)
    }
}
