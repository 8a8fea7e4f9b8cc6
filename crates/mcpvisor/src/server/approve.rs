//! What the actor does about tools that wait for the approval of a person.

use std::sync::Arc;

use mcpvisor_core::{Generation, ListKind};
use tokio::sync::oneshot;

use super::actor::ServerState;
use super::call::Call;
use crate::catalog::ServerCatalog;
use crate::error::ControlError;
use crate::events::EventKind;
use crate::pins::{Approval, HeldTool, Lock};
use crate::reply::Failure;

/// Where the names of the approved tools go.
pub(crate) type ApproveReply = oneshot::Sender<Result<Vec<String>, ControlError>>;

impl ServerState {
    /// What a server offers when it is seen for the first time is approved; not what was offered by
    /// one that was reached in another way.
    pub(super) fn approve_first_sight(&mut self) {
        let config = self.slot.config();
        let pins = &self.slot.pins;
        let mut approval = pins.approval();
        if !config.pin || !matches!(*approval, Approval::FirstSight) {
            return;
        }
        let (listed, with) = {
            let memory = self.slot.memory();
            (Arc::clone(&memory.listed), Arc::clone(&memory.listed_with))
        };
        if with.fingerprint() != config.fingerprint() {
            return;
        }
        let name = self.slot.name().as_str();
        let lock = Lock::of(name, &listed.tools, config.fingerprint());
        *approval = Approval::Known(lock);
        drop(approval);
        pins.save_later(|_| {});
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
        let approved: Vec<&HeldTool> = shown.held.iter().filter(is_wanted).collect();
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
        let config = self.slot.config();
        let mut approval = self.slot.pins.approval();
        let mut lock = match &*approval {
            Approval::Known(lock) => lock.clone(),
            Approval::Unknown | Approval::FirstSight | Approval::Unreadable => {
                Lock::new(self.slot.name().as_str())
            }
        };
        for held in &approved {
            lock.approve(&held.tool, held.offered.clone(), config.fingerprint());
        }
        let names = approved.iter().map(|it| it.tool.clone()).collect();
        *approval = Approval::Known(lock);
        drop(approval);
        self.look_again(ListKind::Tools);
        self.settle();
        let server = self.slot.name().clone();
        self.slot.pins.save_later(move |saved| {
            let saved = saved.map_err(|problem| ControlError::NotSaved {
                server,
                problem: problem.to_string(),
            });
            let _ = reply.send(saved.map(|()| names));
        });
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
