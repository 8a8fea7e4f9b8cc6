//! What all slots of one server share: its main slot, the instances of its pool, those of clients.

use std::sync::Arc;

use mcpvisor_core::ServerName;

use super::places::Places;
use super::public_catalog::PublicCatalog;
use crate::catalog::CatalogMerger;
use crate::fleet::host::Host;
use crate::state::era_cache::EraWriteQueue;
use crate::state::pins::PinStore;

/// The shared part of the slots of one server.
#[derive(Debug)]
pub(crate) struct ServerShared {
    /// What callers without a connection of their own see.
    pub(crate) public: PublicCatalog,
    /// Writes of the era cache that are under way.
    pub(crate) era_writes: EraWriteQueue,
    /// Bounds its connections, if each client has its own.
    pub(super) places: Arc<Places>,
    /// The tools that a person approved.
    pub(super) pins: Arc<PinStore>,
}

impl ServerShared {
    pub(super) fn new(name: &ServerName, host: &Host, fleet: Arc<CatalogMerger>) -> Self {
        Self {
            public: PublicCatalog::new(name.clone(), fleet),
            era_writes: EraWriteQueue::default(),
            places: Arc::default(),
            pins: Arc::new(PinStore::new(name.clone(), host.state.clone())),
        }
    }
}
