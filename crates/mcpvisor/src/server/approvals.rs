//! Reads and writes the approvals of a pinned server's tools.
//!
//! Every access to the file has a time limit, since the file system may hang. What an operation
//! changes after its limit is published when it ends.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::Generation;
use rmcp::model::Tool;

use super::active_config::ActiveConfig;
use super::actor::now;
use super::message::ServerMessage;
use super::slot::ServerSlot;
use crate::api::error::ControlError;
use crate::catalog::ServerCatalog;
use crate::state::file_ops::{READ_TIMEOUT, WRITE_TIMEOUT, is_unresponsive, was_already_hung};
use crate::state::pins::{HeldTool, PinStore};

/// Limit of reading the approvals for a call of a held tool.
const CALL_READ_LIMIT: Duration = Duration::from_secs(1);

/// Limit of reading the approvals for a fetched list of tools.
const LIST_READ_LIMIT: Duration = Duration::from_secs(5);

impl ServerSlot {
    /// Loads the approvals, unless they are loaded.
    pub(crate) async fn load_approvals(self: &Arc<Self>) {
        let load = |pins: &PinStore| {
            pins.load();
            Ok(())
        };
        let late = self.publish_late();
        let loaded = self.shared.pins.run_within(READ_TIMEOUT, load, late).await;
        self.log_unanswered(loaded);
    }

    /// Publishes what a file operation changed that ended after its time limit.
    fn publish_late(self: &Arc<Self>) -> impl FnOnce(io::Result<()>) + Send + 'static {
        let slot = Arc::downgrade(self);
        move |_| {
            if let Some(slot) = slot.upgrade() {
                slot.approve_fetched_if_new();
                slot.notify_approvals_changed();
            }
        }
    }

    /// The lists as they were fetched, and the config of the connection that fetched them.
    pub(super) fn fetched_lists(&self) -> (Arc<ServerCatalog>, Arc<ActiveConfig>) {
        let lists = &self.restart_state().lists;
        (Arc::clone(&lists.fetched), Arc::clone(&lists.fetched_with))
    }

    /// Approves the fetched tools of a server that was never seen before; not those cached by an
    /// earlier run, nor those of a server whose transport changed. Blocks, so it runs within a file
    /// operation.
    fn approve_fetched_if_new(&self) {
        let config = self.config();
        if !config.pin || self.shared.pins.is_established() {
            return;
        }
        let (fetched, with) = self.fetched_lists();
        let is_fetched = fetched.generation != Generation::NONE;
        if is_fetched && with.fingerprint() == config.fingerprint() {
            self.shared
                .pins
                .approve_first_listing(&fetched.tools, config.fingerprint());
        }
    }

    /// Approves in a task the tools that were fetched before they were pinned, if the server was
    /// never seen before, and publishes them.
    pub(super) fn spawn_first_approval(self: &Arc<Self>) {
        let slot = Arc::clone(self);
        tokio::spawn(async move {
            let in_operation = Arc::clone(&slot);
            let approve = move |_: &PinStore| {
                in_operation.approve_fetched_if_new();
                Ok(())
            };
            let late = slot.publish_late();
            let approved = slot
                .shared
                .pins
                .run_within(WRITE_TIMEOUT, approve, late)
                .await;
            slot.log_unanswered(approved);
            slot.notify_approvals_changed();
        });
    }

    /// Approves held tools as published: one or all of them, only those with this hash if one is
    /// given. Returns their names.
    pub(super) async fn approve(
        self: &Arc<Self>,
        published: Arc<ServerCatalog>,
        tool: Option<String>,
        hash: Option<String>,
    ) -> Result<Vec<String>, ControlError> {
        let server = || self.name().clone();
        let name = tool.clone();
        // Definitions are hashed and copied, and may be large.
        let matching = tokio::task::spawn_blocking(move || {
            let matches = |it: &&HeldTool| {
                tool.as_ref().is_none_or(|tool| *tool == it.tool)
                    && hash.as_ref().is_none_or(|hash| *hash == it.hash())
            };
            let matching: Vec<_> = published.held.iter().filter(matches).cloned().collect();
            matching
        });
        let matching = matching.await;
        let matching = matching.map_err(|_| ControlError::Interrupted(server()))?;
        if matching.is_empty() {
            // The file is left alone: the approvals may not be loaded, and would be overwritten.
            let server = server();
            return name.map_or_else(
                || Ok(Vec::new()),
                |tool| Err(ControlError::NotHeld { server, tool }),
            );
        }
        let names = matching.iter().map(|it| it.tool.clone()).collect();
        let config = self.config();
        let approve = move |pins: &PinStore| pins.approve(&matching, config.fingerprint());
        let saved = self
            .shared
            .pins
            .run_within(WRITE_TIMEOUT, approve, self.publish_late());
        let saved = saved.await;
        self.notify_siblings_of_approvals();
        match saved {
            Ok(()) => Ok(names),
            Err(problem) if is_unresponsive(&problem) => Err(ControlError::NotApproved {
                server: server(),
                problem: problem.to_string(),
            }),
            Err(problem) => Err(ControlError::NotSaved {
                server: server(),
                problem: problem.to_string(),
            }),
        }
    }

    pub(super) fn notify_approvals_changed(self: &Arc<Self>) {
        self.send(ServerMessage::ApprovalsChanged(None));
        self.notify_siblings_of_approvals();
    }

    /// All slots of the server share the approvals.
    fn notify_siblings_of_approvals(self: &Arc<Self>) {
        self.send_to_siblings(|| ServerMessage::ApprovalsChanged(None));
    }

    /// Logs that the approval file does not answer, once per time that it stops answering.
    fn log_unanswered<T>(&self, outcome: io::Result<T>) {
        if let Err(problem) = outcome
            && !was_already_hung(&problem)
        {
            tracing::warn!(server = %self.name(), %problem, "cannot read which tools are approved");
        }
    }

    /// Updates the approvals before fetched tools are published. The tools are approved if no
    /// process ever saw the server, unless its transport changed meanwhile.
    pub(super) async fn update_approvals(self: &Arc<Self>, tools: &[Tool], with: &ActiveConfig) {
        let config = self.config();
        if !config.pin {
            return;
        }
        let same = with.fingerprint() == config.fingerprint();
        let first = (same && !self.shared.pins.is_established()).then(|| tools.to_vec());
        let slot = Arc::clone(self);
        let update = move |pins: &PinStore| {
            match first {
                Some(tools) => pins.approve_first_listing(&tools, config.fingerprint()),
                None => pins.refresh(|| slot.notify_siblings_of_approvals()),
            }
            Ok(())
        };
        // On a timeout the approvals stay as they were.
        let late = self.publish_late();
        let updated = self
            .shared
            .pins
            .run_within(LIST_READ_LIMIT, update, late)
            .await;
        self.log_unanswered(updated);
    }

    /// Before a call of a held tool: checks whether another process approved it meanwhile.
    pub(crate) async fn refresh_approval(self: &Arc<Self>, tool: &str, deadline: Instant) {
        if !self.config().pin || self.published.catalog().held(tool).is_none() {
            return;
        }
        let slot = Arc::clone(self);
        let refresh = move |pins: &PinStore| {
            let mut changed = false;
            pins.refresh(|| changed = true);
            slot.approve_fetched_if_new();
            if changed {
                slot.notify_approvals_changed();
            }
            Ok(())
        };
        let limit = deadline
            .saturating_duration_since(now())
            .min(CALL_READ_LIMIT);
        // Boxed, to keep the future of other calls small.
        let refreshed = Box::pin(self.shared.pins.run_within(limit, refresh, |_| {})).await;
        self.log_unanswered(refreshed);
    }
}
