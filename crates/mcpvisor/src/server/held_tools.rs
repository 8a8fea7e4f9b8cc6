//! The actor's part in approvals: holds calls of unapproved tools back, and announces those tools.

use std::sync::Arc;

use mcpvisor_core::Generation;
use ractor::MessagingErr;

use super::actor::ServerState;
use super::call::Call;
use super::list_processing::ReplyWhenPublished;
use super::message::{ApproveReply, ServerMessage};
use crate::api::events::EventKind;
use crate::api::reply::Failure;
use crate::log_limit::log_limited;
use crate::state::pins::HeldReason;

impl ServerState {
    /// Approves the tools of a server that was never seen before. Usually that is done when they
    /// are fetched; this is for tools that were fetched before they were pinned.
    pub(super) fn approve_first_tools(&mut self) {
        if self.slot.config().pin && !self.slot.shared.pins.is_established() {
            self.slot.spawn_first_approval();
        }
    }

    /// Approves held tools as published: one or all of them, only those with this hash if one is
    /// given.
    pub(super) fn approve(
        &mut self,
        tool: Option<String>,
        hash: Option<String>,
        reply: ApproveReply,
    ) {
        let published = Arc::clone(&self.slot.restart_state().lists.visible);
        let (slot, actor) = (Arc::clone(&self.slot), self.myself.clone());
        tokio::spawn(async move {
            let outcome = slot.approve(published, tool, hash).await;
            let reply = Some(ReplyWhenPublished::Approved(reply, outcome));
            let sent = actor.send_message(ServerMessage::ApprovalsChanged(reply));
            // Without an actor the approval is still saved.
            if let Err(MessagingErr::SendErr(ServerMessage::ApprovalsChanged(Some(reply)))) = sent {
                reply.send();
            }
        });
    }

    /// Publishes the approved tools, then replies to the request that approved them.
    pub(super) fn approvals_changed(&mut self, reply: Option<ReplyWhenPublished>) {
        self.lists.approvals_revision += 1;
        self.refilter_tools(reply);
    }

    /// Announces tools that are held since the last announcement.
    pub(super) fn announce_held_tools(&mut self, generation: Generation, tools: Vec<String>) {
        self.announce_problem(generation);
        self.slot.restart_state().lists.held_announced = true;
        if tools.is_empty() {
            return;
        }
        log_limited!(self.slot.log_limit, WARN, server = %self.slot.name(), ?tools, "tools are held back until a person approves them");
        self.draft.emit(generation, EventKind::ToolsHeld { tools });
    }

    /// Announces a problem with the approvals once while it lasts. Its text may change meanwhile.
    fn announce_problem(&mut self, generation: Generation) {
        let problem = self.slot.shared.pins.problem();
        let problem = problem.filter(|_| self.slot.config().pin);
        let announced = std::mem::replace(
            &mut self.slot.restart_state().lists.problem_announced,
            problem.is_some(),
        );
        if let Some(problem) = problem.filter(|_| !announced) {
            self.draft
                .emit(generation, EventKind::ApprovalsUnavailable { problem });
        }
    }

    /// Why a call must not be sent on this connection, if its tool is held or unknown.
    pub(super) fn hold_back(&self, call: &Call, generation: Generation) -> Option<Failure> {
        let name = call.tool_name()?;
        if !self.slot.config().pin {
            return None;
        }
        let catalog = self.slot.published.catalog();
        if let Some(held) = catalog.held(name) {
            let problem = match held.reason {
                HeldReason::Unreadable | HeldReason::Missing => self.slot.shared.pins.problem(),
                HeldReason::New | HeldReason::Changed | HeldReason::Moved => None,
            };
            let reason = held.reason.to_string();
            return Some(Failure::HeldBack(match problem {
                Some(problem) => format!("{reason}: {problem}"),
                None => reason,
            }));
        }
        if self.lists.tools_fetched_on != generation {
            let reason = "the server's tools could not be listed on this connection";
            return Some(Failure::HeldBack(reason.to_owned()));
        }
        if catalog.tool(name).is_none() {
            return Some(Failure::HeldBack("the server does not list it".to_owned()));
        }
        None
    }
}
