//! What the actor shows to others: the status and the catalog.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::listing::FetchOutcome;
use mcpvisor_core::machine::{Fault, FaultClass, MAX_FAULT_MESSAGE, truncate_text};
use mcpvisor_core::{Generation, Input, ListKind, State, StateName};

use super::actor::{ServerState, now};
use super::list_processing::{Fetched, Looked, Seen};
use super::message::FetchFailure;
use crate::api::events::EventKind;
use crate::api::status::{ListState, ServerStatus};
use crate::catalog::{Listed, ServerCatalog};
use crate::log_limit::log_limited;

impl ServerState {
    /// A fetch ended. Only the current connection may change the catalog; a failed fetch leaves
    /// the last good one, and says that it is stale.
    pub(super) fn list_fetched(
        &mut self,
        generation: Generation,
        list: ListKind,
        result: Result<Listed, FetchFailure>,
        good_for: Option<Duration>,
    ) {
        let outcome = match result {
            Ok(listed) => return self.take_list(generation, list, listed, good_for),
            Err(FetchFailure::Refused(problem)) => {
                let problem = self.not_listed(generation, list, problem);
                log_limited!(self.slot.log_limit, WARN, server = %self.slot.name(), %list, problem, "listing refused");
                FetchOutcome::Refused
            }
            Err(FetchFailure::Failed(problem)) => {
                let problem = self.not_listed(generation, list, problem);
                log_limited!(self.slot.log_limit, WARN, server = %self.slot.name(), %list, problem, "listing failed");
                FetchOutcome::Failed
            }
        };
        self.fetch_ended(generation, list, outcome);
    }

    /// A list was fetched to its end.
    fn take_list(
        &mut self,
        generation: Generation,
        list: ListKind,
        listed: Listed,
        good_for: Option<Duration>,
    ) {
        if !self.is_live(generation) {
            return self.fetched(generation, list, good_for);
        }
        let held = self.held(generation).map(|held| Arc::clone(&held.config));
        let is_large = listed.is_large();
        let fetched = Fetched {
            generation,
            list,
            good_for,
            alone: ServerCatalog::default().with(generation, listed),
            with: held.unwrap_or_else(|| self.slot.config()),
            looks: 0,
        };
        if is_large {
            self.look_elsewhere(fetched);
        } else {
            let looked = self.look_here(fetched);
            self.adopt(looked);
        }
    }

    /// The machine hears of a list, and how long the server says it is good.
    fn fetched(&mut self, generation: Generation, list: ListKind, good_for: Option<Duration>) {
        self.fetch_ended(generation, list, FetchOutcome::Fetched);
        if let Some(after) = good_for {
            self.step(Input::ListExpires {
                generation,
                list,
                after,
            });
        }
    }

    fn fetch_ended(&mut self, generation: Generation, list: ListKind, outcome: FetchOutcome) {
        // Whether it is stale is known only after the step.
        self.dirty = true;
        self.step(Input::ListFetched {
            generation,
            list,
            outcome,
        });
        self.refresh_staleness();
    }

    /// Remembers why a list is not what it should be, for the status. Returns it as it may be shown.
    fn not_listed(&mut self, generation: Generation, list: ListKind, problem: String) -> String {
        let mut problem = self.slot.redact(problem).into_owned();
        truncate_text(&mut problem, MAX_FAULT_MESSAGE);
        let message = format!("its {list} cannot be listed: {problem}");
        let fault = Fault::new(FaultClass::Discovery, message);
        self.unlisted.insert(list, (generation, fault));
        problem
    }

    /// What went wrong: on the present connection, or before it.
    fn last_error(&self) -> Option<Fault> {
        let mut unlisted = self.unlisted.values();
        let present = unlisted.find(|(generation, _)| self.is_live(*generation));
        let present = present.map(|(_, fault)| fault);
        present.or(self.machine.last_fault()).cloned()
    }

    /// Takes a list and what came of it, if its connection is still the one that counts.
    pub(super) fn adopt(&mut self, looked: Looked) {
        let Fetched {
            generation, list, ..
        } = looked.fetched;
        let good_for = looked.fetched.good_for;
        if self.is_live(generation) {
            self.unlisted.remove(&list);
            {
                let mut memory = self.slot.memory();
                memory.listed = Arc::new(looked.listed);
                memory.listed_with = looked.fetched.with;
            }
            if list == ListKind::Tools {
                self.listed_on = generation;
                self.approve_first_sight();
            }
            self.slot.keep_later();
            self.show_seen(list, looked.seen);
        }
        self.fetched(generation, list, good_for);
    }

    /// Shows callers what they see from now on, and how it differs.
    pub(super) fn show_seen(&mut self, list: ListKind, seen: Seen) {
        let (mut next, diff) = (seen.catalog, seen.diff);
        let old = Arc::clone(&self.slot.memory().last_good);
        self.tell_of_held(next.generation, seen.held);
        next.stale = old.stale;
        next.revision = old.revision;
        if !diff.is_empty() {
            next.revision += 1;
            let revision = next.revision;
            self.emit(
                next.generation,
                EventKind::CatalogChanged {
                    list,
                    diff,
                    revision,
                },
            );
        }
        self.keep(next);
    }

    /// Stale until every list was fetched on the present connection.
    fn refresh_staleness(&mut self) {
        let stale = !self.machine.is_fresh();
        let old = Arc::clone(&self.slot.memory().last_good);
        if old.stale != stale {
            let mut next = ServerCatalog::clone(&old);
            next.stale = stale;
            self.keep(next);
        }
    }

    /// Keeps a catalog as the last good one, and publishes it where the state allows.
    fn keep(&mut self, catalog: ServerCatalog) {
        let catalog = Arc::new(catalog);
        self.slot.memory().last_good = Arc::clone(&catalog);
        if self.machine.state().name().publishes() {
            self.slot.show(catalog);
        }
        self.dirty = true;
    }

    /// A state that publishes shows the last good catalog; one that does not shows none.
    pub(super) fn publish_catalog_for(&mut self, state: StateName) {
        let mut catalog = Arc::clone(&self.slot.memory().last_good);
        let stale = !self.machine.is_fresh();
        if catalog.stale != stale {
            let mut next = ServerCatalog::clone(&catalog);
            next.stale = stale;
            catalog = Arc::new(next);
            self.slot.memory().last_good = Arc::clone(&catalog);
        }
        if state.publishes() {
            self.slot.show(catalog);
        } else {
            self.slot.show(Arc::new(ServerCatalog {
                revision: catalog.revision,
                generation: catalog.generation,
                stale: true,
                ..ServerCatalog::default()
            }));
        }
    }

    pub(super) fn publish(&mut self) {
        self.dirty = false;
        let status = self.status();
        self.slot.show_status(status);
    }

    fn status(&self) -> ServerStatus {
        let machine = &self.machine;
        let catalog = self.slot.published();
        let config = self.slot.config();
        let durable = machine.durable();
        let action = match machine.state() {
            State::PermanentlyFailed(failure) => Some(failure.action.clone()),
            State::Disconnected(_) => {
                Some("mend the server; it is probed slowly, or reconnect it".to_owned())
            }
            State::Connected(_) if config.pin => self.slot.pins.problem(),
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled => None,
        };
        ServerStatus {
            name: self.slot.name().clone(),
            instance: self.slot.slot.instance,
            state: machine.state().name(),
            generation: durable.generation,
            since: self.since,
            attempt: machine.attempts(),
            attempts_used: durable.budget.used(now()),
            attempts_limit: durable.budget.limit(),
            retry_at: machine.retry_at(),
            protocol: self
                .info
                .as_ref()
                .map(|info| info.protocol_version.as_str().to_owned()),
            server: self.info.as_ref().and_then(|info| info.server_info.clone()),
            transport: config.transport.label(),
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
            restarts: self.slot.memory().restarts,
            dropped_late: machine.dropped_late(),
            strays: self.strays,
            dropped_flood: self.dropped_flood,
            findings: catalog.findings.len(),
            held: catalog.held.len(),
            lists: ListKind::ALL.map(|list| self.list_state(list)),
        }
    }

    /// How far a list is on the present connection. One that failed stays so while it is tried again.
    fn list_state(&self, list: ListKind) -> ListState {
        if self.machine.state().name() != StateName::Connected {
            return ListState::Unlisted;
        }
        let failed = self.unlisted.get(&list);
        let failed = failed.filter(|(generation, _)| self.is_live(*generation));
        match (self.machine.is_list_fresh(list), failed) {
            (None, _) => ListState::Missing,
            (Some(true), _) => ListState::Fresh,
            (Some(false), Some((_, fault))) => ListState::Failed(fault.clone()),
            (Some(false), None) => ListState::Pending,
        }
    }
}
