//! What the actor does about tools that wait for the approval of a person.

use std::sync::Arc;

use mcpvisor_core::Generation;
use tokio::sync::oneshot;

use super::actor::ServerState;
use super::call::Call;
use super::list_processing::Waiting;
use super::message::ServerMessage;
use crate::api::error::ControlError;
use crate::api::events::EventKind;
use crate::api::reply::Failure;
use crate::log_limit::log_limited;
use crate::state::pins::HeldReason;

/// Where the names of the approved tools go.
pub(crate) type ApproveReply = oneshot::Sender<Result<Vec<String>, ControlError>>;

/// An approval that is kept, or could not be, and who waits for it.
#[derive(Debug)]
pub(crate) struct Approved {
    reply: ApproveReply,
    outcome: Result<Vec<String>, ControlError>,
}

impl ServerState {
    /// What a server offers when it is seen for the first time is approved; not what was offered by
    /// one that was reached in another way. Mostly it was when it was listed: this is for tools that
    /// were listed before they were pinned.
    pub(super) fn approve_first_sight(&mut self) {
        if self.slot.config().pin && !self.slot.pins.is_settled() {
            self.slot.see_listed_later();
        }
    }

    /// Approves what is held back, as it is shown: one tool, or all of them, whose definition has a
    /// hash if one is named.
    pub(super) fn approve(
        &mut self,
        tool: Option<String>,
        hash: Option<String>,
        reply: ApproveReply,
    ) {
        let shown = Arc::clone(&self.slot.memory().last_good);
        let (slot, actor) = (Arc::clone(&self.slot), self.myself.clone());
        tokio::spawn(async move {
            let outcome = slot.approve(shown, tool, hash).await;
            let approved = Some(Approved { reply, outcome });
            if let Err(ractor::MessagingErr::SendErr(ServerMessage::PinsChanged { approved })) =
                actor.send_message(ServerMessage::PinsChanged { approved })
            {
                // Nobody is there to show it, and it is kept all the same.
                tell(approved);
            }
        });
    }

    /// Shows what is approved now, before those hear of it who asked for it.
    pub(super) fn pins_changed(&mut self, approved: Option<Approved>) {
        self.approvals += 1;
        self.look_again(Waiting::Approval(approved));
    }

    /// Announces which tools are held back since the last look.
    pub(super) fn tell_of_held(&mut self, generation: Generation, tools: Vec<String>) {
        self.tell_of_problem(generation);
        self.slot.memory().held_announced = true;
        if tools.is_empty() {
            return;
        }
        log_limited!(self.slot.log_limit, WARN, server = %self.slot.name(), ?tools, "tools are held back until a person approves them");
        self.emit(generation, EventKind::ToolsHeld { tools });
    }

    /// Announces a problem with the approvals, once while it lasts. Its text may change meanwhile.
    fn tell_of_problem(&mut self, generation: Generation) {
        let problem = self.slot.pins.problem();
        let problem = problem.filter(|_| self.slot.config().pin);
        let lasting = problem.is_some();
        let announced = std::mem::replace(&mut self.slot.memory().problem_announced, lasting);
        if let Some(problem) = problem.filter(|_| !announced) {
            self.emit(generation, EventKind::ApprovalsUnavailable { problem });
        }
    }

    /// Why a call must not be sent now, on the connection that would take it.
    pub(super) fn held_back(&self, call: &Call, generation: Generation) -> Option<Failure> {
        let name = call.tool_name()?;
        if !self.slot.config().pin {
            return None;
        }
        let catalog = self.slot.published();
        if let Some(held) = catalog.held(name) {
            let problem = match held.reason {
                HeldReason::Unreadable | HeldReason::Missing => self.slot.pins.problem(),
                HeldReason::New | HeldReason::Changed | HeldReason::Moved => None,
            };
            let reason = held.reason.to_string();
            return Some(Failure::HeldBack(match problem {
                Some(problem) => format!("{reason}: {problem}"),
                None => reason,
            }));
        }
        if self.listed_on != generation {
            let reason = "the server's tools could not be listed on this connection";
            return Some(Failure::HeldBack(reason.to_owned()));
        }
        if catalog.tool(name).is_none() {
            return Some(Failure::HeldBack("the server does not list it".to_owned()));
        }
        None
    }
}

pub(super) fn tell(approved: Option<Approved>) {
    if let Some(Approved { reply, outcome }) = approved {
        let _ = reply.send(outcome);
    }
}
