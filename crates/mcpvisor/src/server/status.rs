//! Builds and publishes the status of a server, and the events that go with it.

use std::sync::Arc;
use std::time::SystemTime;

use mcpvisor_core::machine::{Action, Fault};
use mcpvisor_core::{Generation, ListKind, State, StateName};

use super::active_config::ActiveConfig;
use super::actor::{ServerState, now};
use super::message::InboundSummary;
use crate::api::events::EventKind;
use crate::api::status::{ListState, ServerStatus, UnsavedLogin};

/// What the next status needs beside the machine, and the events to emit after it.
pub(super) struct StatusDraft {
    /// When the present state began.
    pub(super) since: SystemTime,
    /// Invalid or unexpected messages of the server.
    strays: u64,
    /// Messages dropped unread because they exceeded the rate or size limit.
    dropped_flood: u64,
    /// Requests of the server that several clients may have caused.
    ambiguous_requests: u64,
    /// The login that exists only in memory.
    unsaved_login: Option<UnsavedLogin>,
    changed: bool,
    events: Vec<(Generation, EventKind)>,
}

impl StatusDraft {
    pub(super) fn new(since: SystemTime) -> Self {
        Self {
            since,
            strays: 0,
            dropped_flood: 0,
            ambiguous_requests: 0,
            unsaved_login: None,
            changed: true,
            events: Vec::new(),
        }
    }

    /// The status has to be published again.
    pub(super) fn mark_changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn count_dropped(&mut self, summary: &InboundSummary) {
        self.strays += summary.strays;
        self.dropped_flood += summary.dropped_flood;
        self.ambiguous_requests += summary.ambiguous_requests;
        let dropped = summary.strays + summary.dropped_flood + summary.ambiguous_requests;
        self.changed |= dropped > 0;
    }

    /// Publishes whether the login exists only in memory, with an event if that changed.
    #[cfg(feature = "http")]
    pub(super) fn set_unsaved_login(
        &mut self,
        generation: Generation,
        unsaved: Option<UnsavedLogin>,
    ) {
        if self.unsaved_login == unsaved {
            return;
        }
        let event = match (&self.unsaved_login, &unsaved) {
            (None, Some(unsaved)) => Some(EventKind::LoginUnsaved(unsaved.clone())),
            (Some(_), None) => Some(EventKind::LoginSaved),
            // It fails for another reason now.
            (Some(_), Some(_)) | (None, None) => None,
        };
        self.unsaved_login = unsaved;
        self.changed = true;
        if let Some(event) = event {
            self.emit(generation, event);
        }
    }

    /// Emits an event once the status is published.
    pub(super) fn emit(&mut self, generation: Generation, kind: EventKind) {
        self.events.push((generation, kind));
    }
}

impl ServerState {
    /// Publishes the status if it changed.
    pub(super) fn publish_status(&mut self) {
        if std::mem::take(&mut self.draft.changed) {
            self.slot.published.publish_status(self.status());
        }
    }

    pub(super) fn emit_events(&mut self) {
        for (generation, kind) in self.draft.events.drain(..) {
            self.slot.emit(generation, kind);
        }
    }

    fn status(&self) -> ServerStatus {
        let machine = &self.machine;
        let durable = machine.durable();
        let catalog = self.slot.published.catalog();
        let peer_info = self.slot.published.peer_info.load_full();
        let peer_info = peer_info.as_ref();
        let config = self.slot.config();
        let action = match machine.state() {
            State::PermanentlyFailed { failure, .. } => Some(failure.action.clone()),
            State::Disconnected(_) => Some(Action::FixServer),
            State::Connected(_) => self.action_while_connected(&config),
            State::Connecting(_)
            | State::Reconnecting(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled => None,
        };
        ServerStatus {
            name: self.slot.name().clone(),
            instance: self.slot.id.instance,
            client: self.slot.owner().map(|owner| Arc::clone(&owner.name)),
            state: machine.state().name(),
            generation: durable.generation,
            since: self.draft.since,
            attempt: machine.attempts(),
            attempts_used: durable.budget.used(now()),
            attempts_limit: durable.budget.limit(),
            retry_at: machine.retry_at(),
            protocol: peer_info.map(|info| info.protocol_version.as_str().to_owned()),
            server: peer_info.and_then(|info| info.server_info.clone()),
            transport: self.slot.transport_label(),
            tools: catalog.tools.len(),
            prompts: catalog.prompts.len(),
            resources: catalog.resources.len(),
            templates: catalog.resource_templates.len(),
            stale: !machine.is_fresh(),
            in_flight: machine.in_flight(),
            waiting: machine.waiting(),
            last_error: self.last_error(),
            action,
            required: config.required,
            restarts: self.slot.restart_state().restarts,
            dropped_late: machine.dropped_late(),
            strays: self.draft.strays,
            dropped_flood: self.draft.dropped_flood,
            ambiguous_requests: self.draft.ambiguous_requests,
            invalid_results: self.slot.published.invalid_results(),
            findings: catalog.findings.len(),
            held: catalog.held.len(),
            unsaved_login: self.draft.unsaved_login.clone(),
            lists: ListKind::ALL.map(|list| self.list_state(list)),
        }
    }

    fn action_while_connected(&self, config: &ActiveConfig) -> Option<Action> {
        let pins = config
            .pin
            .then(|| self.slot.shared.pins.problem())
            .flatten();
        let is_shared = !config.settings.connections.is_per_client();
        let separate = self.draft.ambiguous_requests > 0 && is_shared;
        pins.map(Action::RepairApprovals)
            .or(separate.then_some(Action::SeparateClients))
    }

    /// The last failed list of the present connection, else the last fault of the machine.
    fn last_error(&self) -> Option<Fault> {
        let mut failures = self.lists.failures.values();
        let present = failures.find(|(generation, _)| self.is_current(*generation));
        let present = present.map(|(_, fault)| fault);
        present.or(self.machine.last_fault()).cloned()
    }

    /// The state of a list on the present connection. A failed list stays failed while it is
    /// fetched again.
    fn list_state(&self, list: ListKind) -> ListState {
        if self.machine.state().name() != StateName::Connected {
            return ListState::Unlisted;
        }
        let failed = self.lists.failures.get(&list);
        let failed = failed.filter(|(generation, _)| self.is_current(*generation));
        match (self.machine.is_list_fresh(list), failed) {
            (None, _) => ListState::Missing,
            (Some(true), _) => ListState::Fresh,
            (Some(false), Some((_, fault))) => ListState::Failed(fault.clone()),
            (Some(false), None) => ListState::Pending,
        }
    }
}
