//! Saves the lists of a server to the catalog cache, and loads them at the next start.

use std::sync::Arc;

use super::slot::ServerSlot;
use crate::state::catalog_cache::{CatalogCache, SAVE_DELAY};
use crate::state::file_ops::{READ_TIMEOUT, WRITE_TIMEOUT, was_already_hung};

impl ServerSlot {
    /// Loads the cached catalog of the previous run. No tool of a pinned server is approved until
    /// the approvals are loaded. A catalog that is read too late is dropped, since the server may
    /// have listed its own by then.
    pub(crate) async fn load_cached_catalog(self: &Arc<Self>, publish: bool) {
        let config = self.config();
        if config.pin {
            self.load_approvals().await;
        }
        #[cfg(feature = "http")]
        if self.catalog_cache.is_enabled() {
            // Without the token in time, no list of an authorized server is known to be its own.
            let _ = tokio::time::timeout(READ_TIMEOUT, self.auth().load()).await;
        }
        let owner = self.catalog_owner();
        let (slot, with) = (Arc::clone(self), owner.clone());
        let read = self.catalog_cache.run_within(READ_TIMEOUT, move |cache| {
            let Some(fetched) = cache.read(&with) else {
                return Ok(None);
            };
            let mut visible = slot.visible_part(&fetched);
            visible.revision = 1;
            Ok(Some((Arc::new(fetched), Arc::new(visible))))
        });
        let (fetched, visible) = match read.await {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(problem) => {
                tracing::warn!(server = %self.name(), %problem, "cannot read the cached catalog");
                return;
            }
        };
        {
            let lists = &mut self.restart_state().lists;
            lists.fetched = fetched;
            lists.fetched_with = Arc::clone(&config);
            lists.owner = owner;
            lists.visible = Arc::clone(&visible);
        }
        if publish && config.enabled {
            self.published.publish_catalog(visible, true);
        }
    }

    /// Saves the lists once they have not changed for a while.
    pub(super) fn schedule_save(self: &Arc<Self>) {
        if !self.catalog_cache.is_enabled() {
            return;
        }
        let mut pending = self.catalog_cache.pending();
        pending.dirty = true;
        if pending.task.is_none() {
            pending.task = Some(tokio::spawn(Arc::clone(self).save_until_quiet()));
        }
    }

    /// Changes during a write are written next.
    async fn save_until_quiet(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SAVE_DELAY).await;
            self.save().await;
            let mut pending = self.catalog_cache.pending();
            if !pending.dirty {
                pending.task = None;
                return;
            }
        }
    }

    /// Runs a scheduled save now, and waits for writes that are under way.
    pub(crate) async fn flush(self: &Arc<Self>) {
        let pending = self.catalog_cache.pending().task.take();
        if let Some(task) = pending {
            task.abort();
            self.save().await;
        }
        self.shared.era_writes.finish().await;
    }

    async fn save(self: &Arc<Self>) {
        self.catalog_cache.pending().dirty = false;
        let (fetched, owner) = {
            let lists = &self.restart_state().lists;
            if !lists.foreign.is_empty() {
                // Saved once they are fetched by the present owner too.
                return;
            }
            (Arc::clone(&lists.fetched), lists.owner.clone())
        };
        let write = move |cache: &CatalogCache| {
            cache.write(&owner, &fetched);
            Ok(None::<()>)
        };
        if let Err(problem) = self.catalog_cache.run_within(WRITE_TIMEOUT, write).await
            && !was_already_hung(&problem)
        {
            tracing::warn!(server = %self.name(), %problem, "cannot write the catalog cache");
        }
    }
}
