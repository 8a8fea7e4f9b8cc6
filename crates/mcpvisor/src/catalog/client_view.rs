//! One client's view of the fleet: the tools that pass its filter, and the lists of its own
//! connections.
//!
//! A view is computed when its client reads, so that no other reader or server pays for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use mcpvisor_core::{Filter, ServerName, exposed_name};

use super::changes::CatalogChanges;
use super::fleet::{FleetCatalog, ServerView};
use super::merger::CatalogMerger;
use super::server::ServerCatalog;
use crate::mutex::lock;

/// The catalog that one client sees.
#[derive(Debug)]
pub(crate) struct ClientView {
    pub(crate) filter: Filter,
    /// The account that it uses, instead of that of a server's config.
    pub(crate) account: Option<Arc<str>>,
    /// The lists of its own connections, which replace those of the fleet.
    own: Mutex<BTreeMap<ServerName, Arc<ServerView>>>,
    /// Changes of the lists of its own connections so far.
    own_version: AtomicU64,
    filtered: ArcSwap<Filtered>,
    merger: Arc<CatalogMerger>,
    /// Locked while the catalog is filtered.
    pub(super) filtering: Mutex<()>,
}

/// The filtered catalog of the last read.
#[derive(Debug, Default)]
struct Filtered {
    catalog: Arc<FleetCatalog>,
    own_version: u64,
    /// The view that each filtered view was made from. Weak, so that it keeps no view
    /// alive that the fleet has dropped.
    sources: Vec<Weak<ServerView>>,
}

impl ClientView {
    pub(super) fn new(
        filter: Filter,
        account: Option<Arc<str>>,
        merger: Arc<CatalogMerger>,
    ) -> Self {
        Self {
            filter,
            account,
            own: Mutex::default(),
            own_version: AtomicU64::new(0),
            filtered: ArcSwap::default(),
            merger,
            filtering: Mutex::default(),
        }
    }

    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        let own = self.own_version.load(Ordering::Acquire);
        if own == 0 && self.account.is_none() && self.filter.is_open() {
            return self.merger.catalog();
        }
        let version = self.merger.version();
        let filtered = self.filtered.load();
        if filtered.catalog.version == version && filtered.own_version == own {
            return Arc::clone(&filtered.catalog);
        }
        drop(filtered);
        self.filter_changed()
    }

    /// What it would see without its filter. Computed anew if it has connections of its own.
    pub(crate) fn unfiltered(&self) -> Arc<FleetCatalog> {
        if self.filter.is_open() {
            return self.catalog();
        }
        let fleet = self.merger.catalog();
        let own = lock(&self.own).clone();
        if own.is_empty() && self.account.is_none() {
            return fleet;
        }
        let servers = self.with_own(&fleet, own);
        Arc::new(FleetCatalog {
            servers,
            ..FleetCatalog::clone(&fleet)
        })
    }

    /// Sets the lists of the client's own connection to a server. Without any it sees those of the
    /// fleet.
    pub(crate) fn set_own(&self, server: &ServerName, catalog: Option<Arc<ServerCatalog>>) {
        let view = catalog.map(|catalog| {
            // Clients with equal lists share the index of their names.
            let before = lock(&self.own).get(server).cloned();
            let before = before.or_else(|| self.merger.last_view(server));
            Arc::new(ServerView::new(server, catalog, before.as_deref()))
        });
        let mut own = lock(&self.own);
        let replaced = match view {
            Some(view) => own.insert(server.clone(), view),
            None => own.remove(server),
        };
        self.own_version.fetch_add(1, Ordering::Release);
        drop(own);
        drop(replaced);
        self.merger.changed.notify();
    }

    /// The views of a fleet, with those of its own connections in their places. What another account
    /// may see is left out.
    fn with_own(
        &self,
        fleet: &FleetCatalog,
        mut own: BTreeMap<ServerName, Arc<ServerView>>,
    ) -> Vec<Arc<ServerView>> {
        let views = fleet.servers.iter().filter_map(|view| {
            let own = own.remove(view.server());
            let public = || view.catalog().audience.includes(self.account.as_ref());
            own.or_else(|| public().then(|| Arc::clone(view)))
        });
        let mut views: Vec<_> = views.collect();
        if !own.is_empty() {
            // The fleet has not listed these servers.
            views.extend(own.into_values());
            views.sort_by(|a, b| a.server().cmp(b.server()));
        }
        views
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
        let (own, own_version) = {
            let own = lock(&self.own);
            (own.clone(), self.own_version.load(Ordering::Acquire))
        };
        let before = self.filtered.load_full();
        if before.catalog.version == fleet.version && before.own_version == own_version {
            return Arc::clone(&before.catalog);
        }
        let sources = self.with_own(&fleet, own);
        let servers = sources.iter().map(|view| self.filter_server(view, &before));
        // A client without a filter saw the catalog of the fleet until now.
        let is_first = before.own_version == 0 && self.filter.is_open() && self.account.is_none();
        let seen = if is_first { &fleet } else { &before.catalog };
        let mut catalog = FleetCatalog {
            version: fleet.version,
            revision: seen.revision,
            servers: servers.collect(),
        };
        catalog.revision += u64::from(!catalog.offers_same(seen));
        let catalog = Arc::new(catalog);
        self.filtered.store(Arc::new(Filtered {
            catalog: Arc::clone(&catalog),
            own_version,
            sources: sources.iter().map(Arc::downgrade).collect(),
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
        if all && (self.filter.is_open() || view.catalog().held.is_empty()) {
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
