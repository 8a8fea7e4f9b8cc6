//! Binds lists to who saw them: the server, its account, and the credential.
//!
//! A server may list something else for another account, or with other scopes. So cached lists are
//! used only with the credential that they were fetched with. Eras and approvals are bound to the
//! server and its account, by [`ActiveConfig::fingerprint`](super::active_config::ActiveConfig).

use std::sync::Arc;

use mcpvisor_core::ListKind;
#[cfg(feature = "http")]
use mcpvisor_core::{Input, StateName};

use super::actor::ServerState;
use super::list_processing::VisibleChange;
use super::restart_state::KnownLists;
use super::slot::ServerSlot;
use crate::catalog::{ListDiff, ServerCatalog};
use crate::state::fingerprint;

impl ServerSlot {
    /// Who lists belong to that are fetched now: a hash of the server, its account, and what
    /// identifies the credential. That is the issuer and the granted scopes of a token, or the
    /// headers of the config.
    pub(super) fn catalog_owner(&self) -> String {
        let config = self.config();
        let credential = config.transport.static_credential().into_iter();
        #[cfg(feature = "http")]
        let credential =
            credential.chain(self.auth().identity().into_iter().map(String::into_bytes));
        let credential: Vec<Vec<u8>> = credential.collect();
        let server = config.fingerprint();
        if credential.is_empty() {
            return server.to_owned();
        }
        let credential = credential.iter().map(Vec::as_slice);
        fingerprint::of_parts(std::iter::once(server.as_bytes()).chain(credential))
    }
}

impl KnownLists {
    /// Sets who fetched this list. Of another owner before, the other lists remain until they are
    /// fetched too.
    pub(super) fn set_owner(&mut self, list: ListKind, owner: String) {
        if self.owner != owner {
            let lists = ListKind::ALL.into_iter();
            self.foreign = lists.filter(|it| self.fetched.lists_any(*it)).collect();
            self.owner = owner;
        }
        self.foreign.remove(&list);
    }
}

impl ServerState {
    /// The credential changed. Lists of another one are fetched again; without a connection they
    /// are dropped.
    #[cfg(feature = "http")]
    pub(super) fn update_catalog_owner(&mut self) {
        let owner = self.slot.catalog_owner();
        if self.machine.state().name() != StateName::Connected {
            if self.slot.restart_state().lists.owner != owner {
                self.drop_lists();
            }
            return;
        }
        let before = self.lists.owner.replace(owner.clone());
        // A new connection fetches its lists anyway.
        if before.is_some_and(|before| before != owner) {
            let generation = self.slot.generation();
            for list in ListKind::ALL {
                self.step(Input::ListChanged { generation, list });
            }
        }
    }

    /// Drops the lists of another account, after a reload.
    pub(super) fn drop_lists_of_other_account(&mut self) {
        let (_, with) = self.slot.fetched_lists();
        if with.transport.account() != self.slot.config().transport.account() {
            self.drop_lists();
        }
    }

    fn drop_lists(&mut self) {
        let owner = self.slot.catalog_owner();
        let visible = {
            let lists = &mut self.slot.restart_state().lists;
            lists.fetched = Arc::default();
            lists.foreign.clear();
            lists.owner = owner;
            Arc::clone(&lists.visible)
        };
        let empty = ServerCatalog {
            generation: visible.generation,
            ..ServerCatalog::default()
        };
        for list in ListKind::ALL {
            let diff = ListDiff::of(list, &visible, &empty);
            let catalog = empty.clone();
            self.apply_visible(list, VisibleChange::dropped(catalog, diff));
        }
    }
}
