//! The catalog of a server as a whole: what callers without a connection of their own see.
//!
//! The instances of a pool share it. Each publishes its lists here; the fleet's catalog gets those of
//! one instance, so that the failure of another changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use mcpvisor_core::ServerName;

use crate::catalog::{CatalogMerger, ChangeSignal, ServerCatalog};
use crate::mutex::lock;

/// The public catalog of one server.
#[derive(Debug)]
pub(crate) struct PublicCatalog {
    name: ServerName,
    current: ArcSwap<ServerCatalog>,
    pub(crate) changed: ChangeSignal,
    instances: Mutex<Instances>,
    /// The catalog of the fleet, which includes this one.
    fleet: Arc<CatalogMerger>,
}

#[derive(Debug, Default)]
struct Instances {
    /// What each instance publishes, by its number.
    published: BTreeMap<u32, Arc<ServerCatalog>>,
    /// The server was removed: nothing is published any more.
    ended: bool,
}

impl PublicCatalog {
    pub(super) fn new(name: ServerName, fleet: Arc<CatalogMerger>) -> Self {
        Self {
            name,
            current: ArcSwap::default(),
            changed: ChangeSignal::default(),
            instances: Mutex::default(),
            fleet,
        }
    }

    pub(super) fn name(&self) -> &ServerName {
        &self.name
    }

    pub(crate) fn load(&self) -> Arc<ServerCatalog> {
        self.current.load_full()
    }

    /// Publishes the catalog of an instance; an empty one if its state publishes none.
    pub(super) fn publish(&self, instance: u32, catalog: Arc<ServerCatalog>, publishes: bool) {
        let mut instances = lock(&self.instances);
        if publishes {
            instances.published.insert(instance, Arc::clone(&catalog));
        } else {
            instances.published.remove(&instance);
        }
        self.publish_best(&instances, catalog);
    }

    /// An instance ended; the others go on.
    pub(super) fn remove(&self, instance: u32) {
        let mut instances = lock(&self.instances);
        if instances.published.remove(&instance).is_some() {
            self.publish_best(&instances, Arc::default());
        }
    }

    /// The server ended.
    pub(super) fn end(&self) {
        let mut instances = lock(&self.instances);
        if !std::mem::replace(&mut instances.ended, true) {
            instances.published.clear();
            self.current.store(Arc::default());
            self.fleet.remove(&self.name);
            self.changed.close();
        }
    }

    /// Publishes the catalog of one instance: one that is up to date, if there is one, and the first
    /// of those. Locked meanwhile, so that instances publish in order.
    fn publish_best(&self, instances: &Instances, otherwise: Arc<ServerCatalog>) {
        if instances.ended {
            return;
        }
        let published = instances.published.values();
        let best = published.min_by_key(|it| (it.revision == 0, it.stale));
        let mut best = best.map_or(otherwise, Arc::clone);
        let before = self.current.load();
        if best.revision < before.revision {
            // Another instance than before, with a revision of its own.
            Arc::make_mut(&mut best).revision = before.revision;
        }
        drop(before);
        self.current.store(Arc::clone(&best));
        self.fleet.update(&self.name, best);
        self.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::Tool;
    use serde_json::Map;

    use super::*;

    fn catalog(tool: &'static str, revision: u64, stale: bool) -> Arc<ServerCatalog> {
        Arc::new(ServerCatalog {
            revision,
            stale,
            tools: [Tool::new(tool, "", Map::new())].into(),
            ..ServerCatalog::default()
        })
    }

    fn shown(public: &PublicCatalog) -> (String, u64) {
        let catalog = public.load();
        let fleet = public.fleet.catalog();
        let tools = fleet.tools().map(|tool| tool.name().to_owned());
        let tools: Vec<_> = tools.collect();
        let own = catalog.tools.iter().map(|tool| tool.name.to_string());
        assert_eq!(tools, own.collect::<Vec<_>>());
        (tools.join(" "), catalog.revision)
    }

    #[test]
    fn a_pool_shows_an_instance_that_is_up_to_date_until_none_publishes() {
        let name = ServerName::new("a").unwrap();
        let public = PublicCatalog::new(name, Arc::default());
        public.publish(0, catalog("first", 5, false), true);
        public.publish(3, catalog("third", 2, false), true);
        assert_eq!(shown(&public), ("first".to_owned(), 5));
        public.publish(0, catalog("first", 5, true), true);
        assert_eq!(shown(&public), ("third".to_owned(), 5), "never less");
        public.publish(3, catalog("third", 3, true), true);
        assert_eq!(shown(&public).0, "first", "all are stale");
        public.publish(0, Arc::default(), false);
        assert_eq!(shown(&public).0, "third", "the first has failed");
        public.remove(3);
        assert_eq!(shown(&public).0, "");
        public.publish(0, catalog("first", 6, false), true);
        public.end();
        public.publish(0, catalog("first", 7, false), true);
        assert_eq!(shown(&public).0, "", "it was removed");
    }

    #[test]
    fn an_instance_that_has_listed_nothing_hides_no_lists_of_another() {
        let name = ServerName::new("a").unwrap();
        let public = PublicCatalog::new(name, Arc::default());
        public.publish(1, catalog("tool", 1, true), true);
        public.publish(0, Arc::default(), true);
        assert_eq!(shown(&public).0, "tool");
    }
}
