//! Applies fetched lists to the catalog of a server and publishes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::listing::FetchOutcome;
use mcpvisor_core::machine::{Fault, FaultClass, MAX_FAULT_MESSAGE, truncate_text};
use mcpvisor_core::{Generation, Input, ListKind, StateName};

use super::actor::ServerState;
use super::list_processing::{FetchedList, ProcessedList, VisibleChange};
use super::message::FetchFailure;
use crate::api::events::EventKind;
use crate::catalog::{ListItems, ServerCatalog};
use crate::log_limit::log_limited;

/// The actor's records about fetched lists.
#[derive(Debug, Default)]
pub(super) struct ListProgress {
    /// The connection on which the tools were last fetched.
    pub(super) tools_fetched_on: Generation,
    /// Grows with every change of the approvals.
    pub(super) approvals_revision: u64,
    /// Who the lists of the present connection belong to, once its credential is known.
    #[cfg(feature = "http")]
    pub(super) owner: Option<String>,
    /// Why a list could not be fetched, and on which connection.
    pub(super) failures: BTreeMap<ListKind, (Generation, Fault)>,
}

impl ServerState {
    /// A fetch ended. Only the present connection may change the catalog; a failed fetch keeps the
    /// last good one, marked stale.
    pub(super) fn list_fetched(
        &mut self,
        generation: Generation,
        list: ListKind,
        owner: String,
        result: Result<(ListItems, Option<Duration>), FetchFailure>,
    ) {
        let (outcome, class, problem) = match result {
            Ok((items, time_to_live)) => {
                return self.process_list(generation, list, owner, items, time_to_live);
            }
            Err(FetchFailure::Refused(problem)) => {
                (FetchOutcome::Refused, FaultClass::Discovery, problem)
            }
            Err(FetchFailure::Unauthorized(problem)) => {
                (FetchOutcome::Refused, FaultClass::Authorization, problem)
            }
            Err(FetchFailure::Failed(problem)) => {
                (FetchOutcome::Failed, FaultClass::Discovery, problem)
            }
        };
        let problem = self.note_fetch_failure(generation, list, class, problem);
        log_limited!(self.slot.log_limit, WARN, server = %self.slot.name(), %list, ?outcome, problem, "cannot fetch a list");
        self.fetch_ended(generation, list, outcome);
    }

    /// Processes a complete list, off the actor's thread if it is large.
    fn process_list(
        &mut self,
        generation: Generation,
        list: ListKind,
        owner: String,
        items: ListItems,
        time_to_live: Option<Duration>,
    ) {
        if !self.is_current(generation) {
            return self.fetch_succeeded(generation, list, time_to_live);
        }
        let connection = self.connection_of(generation);
        let config = connection.map(|connection| Arc::clone(&connection.config));
        let catalog = ServerCatalog::of(generation, items);
        let is_large = catalog.is_large();
        let fetched = FetchedList {
            generation,
            list,
            time_to_live,
            catalog,
            config: config.unwrap_or_else(|| self.slot.config()),
            owner,
            attempts: 0,
        };
        if is_large {
            self.process_off_thread(fetched);
        } else {
            self.process_inline(fetched);
        }
    }

    fn fetch_succeeded(
        &mut self,
        generation: Generation,
        list: ListKind,
        time_to_live: Option<Duration>,
    ) {
        self.fetch_ended(generation, list, FetchOutcome::Fetched);
        if let Some(after) = time_to_live {
            self.step(Input::ListExpires {
                generation,
                list,
                after,
            });
        }
    }

    fn fetch_ended(&mut self, generation: Generation, list: ListKind, outcome: FetchOutcome) {
        // Staleness is known only after the step.
        self.draft.mark_changed();
        self.step(Input::ListFetched {
            generation,
            list,
            outcome,
        });
        self.update_staleness();
    }

    /// Records why a list could not be fetched, for the status. Returns the redacted text.
    fn note_fetch_failure(
        &mut self,
        generation: Generation,
        list: ListKind,
        class: FaultClass,
        problem: String,
    ) -> String {
        let mut problem = self.slot.redact(problem).into_owned();
        truncate_text(&mut problem, MAX_FAULT_MESSAGE);
        let message = format!("its {list} cannot be listed: {problem}");
        let fault = Fault::new(class, message);
        self.lists.failures.insert(list, (generation, fault));
        problem
    }

    /// Applies a processed list, unless its connection was replaced.
    pub(super) fn apply_list(&mut self, processed: ProcessedList) {
        let FetchedList {
            generation,
            list,
            time_to_live,
            config,
            owner,
            ..
        } = processed.fetched;
        if self.is_current(generation) {
            self.lists.failures.remove(&list);
            {
                let known = &mut self.slot.restart_state().lists;
                known.set_owner(list, owner);
                known.fetched = Arc::new(processed.all);
                known.fetched_with = config;
            }
            if list == ListKind::Tools {
                self.lists.tools_fetched_on = generation;
                self.approve_first_tools();
            }
            self.slot.schedule_save();
            self.apply_visible(list, processed.visible);
        }
        self.fetch_succeeded(generation, list, time_to_live);
    }

    /// Replaces the catalog that callers see, and announces how it changed.
    pub(super) fn apply_visible(&mut self, list: ListKind, visible: VisibleChange) {
        let (mut next, diff) = (visible.catalog, visible.diff);
        let old = Arc::clone(&self.slot.restart_state().lists.visible);
        self.announce_held_tools(next.generation, visible.newly_held);
        next.stale = old.stale;
        next.revision = old.revision;
        if !diff.is_empty() {
            next.revision += 1;
            let revision = next.revision;
            self.draft.emit(
                next.generation,
                EventKind::CatalogChanged {
                    list,
                    diff,
                    revision,
                },
            );
        }
        self.set_visible(next);
    }

    /// The catalog is stale until every list was fetched on the present connection.
    fn update_staleness(&mut self) {
        if let Some(catalog) = self.with_present_staleness() {
            self.set_visible(catalog);
        }
    }

    /// The visible catalog with its staleness corrected, if it has to be.
    fn with_present_staleness(&self) -> Option<ServerCatalog> {
        let stale = !self.machine.is_fresh();
        let state = self.slot.restart_state();
        let visible = &state.lists.visible;
        (visible.stale != stale).then(|| ServerCatalog {
            stale,
            ..ServerCatalog::clone(visible)
        })
    }

    /// Stores the visible catalog, and publishes it if the present state publishes one.
    fn set_visible(&mut self, catalog: ServerCatalog) {
        let catalog = Arc::new(catalog);
        self.slot.restart_state().lists.visible = Arc::clone(&catalog);
        if self.machine.state().name().publishes() {
            self.slot.published.publish_catalog(catalog, true);
        }
        self.draft.mark_changed();
    }

    /// Publishes the visible catalog in a state that publishes one, else an empty one.
    pub(super) fn publish_catalog_of_state(&mut self, state: StateName) {
        if let Some(catalog) = self.with_present_staleness() {
            self.slot.restart_state().lists.visible = Arc::new(catalog);
        }
        let mut catalog = Arc::clone(&self.slot.restart_state().lists.visible);
        if !state.publishes() {
            catalog = Arc::new(ServerCatalog {
                revision: catalog.revision,
                generation: catalog.generation,
                stale: true,
                ..ServerCatalog::default()
            });
        }
        let published = &self.slot.published;
        published.publish_catalog(catalog, state.publishes());
    }
}
