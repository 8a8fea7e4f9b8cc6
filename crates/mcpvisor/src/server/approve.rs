//! What the actor does about tools that wait for the approval of a person.

use std::sync::Arc;

use mcpvisor_core::{Generation, ListKind};
use tokio::sync::oneshot;

use super::actor::ServerState;
use super::call::Call;
use super::message::ServerMessage;
use crate::catalog::ServerCatalog;
use crate::error::ControlError;
use crate::events::EventKind;
use crate::pins::HeldTool;
use crate::reply::Failure;

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
        let config = self.slot.config();
        if !config.pin || self.slot.pins.is_settled() {
            return;
        }
        let (listed, with) = {
            let memory = self.slot.memory();
            (Arc::clone(&memory.listed), Arc::clone(&memory.listed_with))
        };
        if with.fingerprint() != config.fingerprint() {
            return;
        }
        let (slot, actor) = (Arc::clone(&self.slot), self.myself.clone());
        tokio::task::spawn_blocking(move || {
            slot.pins.see(&listed.tools, config.fingerprint());
            let _ = actor.send_message(ServerMessage::PinsChanged { approved: None });
        });
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
        let is_wanted = |it: &&HeldTool| {
            tool.as_ref().is_none_or(|tool| *tool == it.tool)
                && hash.as_ref().is_none_or(|hash| *hash == it.hash())
        };
        let approved: Vec<HeldTool> = shown.held.iter().filter(is_wanted).cloned().collect();
        if approved.is_empty() {
            // What is approved may not be known here, so that it must not be written anew.
            let server = self.slot.name().clone();
            let nothing = tool.map_or_else(
                || Ok(Vec::new()),
                |tool| Err(ControlError::NotHeld { server, tool }),
            );
            let _ = reply.send(nothing);
            return;
        }
        let (slot, actor) = (Arc::clone(&self.slot), self.myself.clone());
        let config = slot.config();
        tokio::task::spawn_blocking(move || {
            let kept = slot.pins.approve(&approved, config.fingerprint());
            let names = approved.into_iter().map(|it| it.tool).collect();
            let outcome = kept.map(|()| names).map_err(|problem| {
                let server = slot.name().clone();
                let problem = problem.to_string();
                ControlError::NotSaved { server, problem }
            });
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
        self.look_again(ListKind::Tools);
        self.settle();
        tell(approved);
    }

    /// Says which tools are held back since the last look.
    pub(super) fn tell_of_held(&mut self, old: &ServerCatalog, new: &ServerCatalog) {
        let fresh = |it: &&HeldTool| old.held(&it.tool) != Some(*it);
        let tools: Vec<String> = new
            .held
            .iter()
            .filter(fresh)
            .map(|it| it.tool.clone())
            .collect();
        if !tools.is_empty() {
            tracing::warn!(server = %self.slot.name(), ?tools, "tools are held back until a person approves them");
            self.emit(new.generation, EventKind::ToolsHeld { tools });
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
            return Some(Failure::HeldBack(held.reason.to_string()));
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

fn tell(approved: Option<Approved>) {
    if let Some(Approved { reply, outcome }) = approved {
        let _ = reply.send(outcome);
    }
}
