//! One client's view of the fleet: the tools that pass its filter.
//!
//! A view is computed when its client reads, so that no other reader or server pays for it.

use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use mcpvisor_core::{Filter, ServerName, exposed_name};

use super::changes::CatalogChanges;
use super::fleet::{FleetCatalog, ServerView};
use super::merger::CatalogMerger;
use super::server::ServerCatalog;
use crate::mutex::lock;

/// The filtered catalog of one client.
#[derive(Debug)]
pub(crate) struct ClientView {
    pub(crate) filter: Filter,
    filtered: ArcSwap<Filtered>,
    merger: Arc<CatalogMerger>,
    /// Locked while the catalog is filtered.
    pub(super) filtering: Mutex<()>,
}

/// The filtered catalog of the last read.
#[derive(Debug, Default)]
struct Filtered {
    catalog: Arc<FleetCatalog>,
    /// The view of the fleet that each filtered view was made from. Weak, so that it keeps no view
    /// alive that the fleet has dropped.
    sources: Vec<Weak<ServerView>>,
}

impl ClientView {
    pub(super) fn new(filter: Filter, merger: Arc<CatalogMerger>) -> Self {
        Self {
            filter,
            filtered: ArcSwap::default(),
            merger,
            filtering: Mutex::default(),
        }
    }

    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        let version = self.merger.version();
        let filtered = self.filtered.load();
        if filtered.catalog.version == version {
            return Arc::clone(&filtered.catalog);
        }
        drop(filtered);
        self.filter_changed()
    }

    /// Changes of what this client sees.
    pub(crate) fn changes(self: &Arc<Self>) -> CatalogChanges<FleetCatalog> {
        let view = Arc::clone(self);
        let read = move || view.catalog();
        CatalogChanges::new(&self.merger.changed, read, FleetCatalog::offers_same)
    }

    /// The catalog of one server, as this client sees it.
    pub(crate) fn server(&self, name: &ServerName) -> Arc<ServerCatalog> {
        let catalog = self.catalog();
        let view = catalog.server(name.as_str());
        view.map_or_else(Arc::default, |view| Arc::clone(view.catalog()))
    }

    /// Filters the servers that changed since the last read.
    fn filter_changed(&self) -> Arc<FleetCatalog> {
        let _filtering = lock(&self.filtering);
        let fleet = self.merger.merged();
        let before = self.filtered.load_full();
        if before.catalog.version == fleet.version {
            return Arc::clone(&before.catalog);
        }
        let servers = fleet.servers.iter();
        let servers = servers.map(|view| self.filter_server(view, &before));
        let mut catalog = FleetCatalog {
            version: fleet.version,
            revision: before.catalog.revision,
            servers: servers.collect(),
        };
        catalog.revision += u64::from(!catalog.offers_same(&before.catalog));
        let catalog = Arc::new(catalog);
        self.filtered.store(Arc::new(Filtered {
            catalog: Arc::clone(&catalog),
            sources: fleet.servers.iter().map(Arc::downgrade).collect(),
        }));
        catalog
    }

    /// The filtered view of one server; the one of the last read if the server did not change.
    fn filter_server(&self, view: &Arc<ServerView>, before: &Filtered) -> Arc<ServerView> {
        match before.catalog.find(view.server().as_str()) {
            Ok(index) if before.sources[index].as_ptr() == Arc::as_ptr(view) => {
                Arc::clone(&before.catalog.servers[index])
            }
            Ok(index) => self.filter_view(view, Some(&before.catalog.servers[index])),
            Err(_) => self.filter_view(view, None),
        }
    }

    fn filter_view(&self, view: &Arc<ServerView>, before: Option<&ServerView>) -> Arc<ServerView> {
        let passes = |name: &str| self.filter.passes(name);
        let all = view.tools().iter().all(|tool| passes(tool.exposed()));
        if all && view.catalog().held.is_empty() {
            return Arc::clone(view);
        }
        let tools = view.tools().iter().filter(|tool| passes(tool.exposed()));
        let mut catalog = ServerCatalog::clone(view.catalog());
        catalog.tools = tools.map(|tool| tool.definition().clone()).collect();
        let held = catalog.held.iter();
        let held = held.filter(|it| passes(&exposed_name(view.server(), &it.tool)));
        catalog.held = held.cloned().collect();
        if let Some(before) = before
            && before.catalog().tools == catalog.tools
        {
            catalog.tools = Arc::clone(&before.catalog().tools);
        }
        Arc::new(ServerView::new(view.server(), Arc::new(catalog), before))
    }
}
