//! Who writes the catalog of a fleet: one place, one server's change at a time.
//!
//! Each server's actor hands in what its callers may see, which costs what its own server has. The
//! first reader after that merges all that was handed in, so that a large fleet which starts is not
//! copied once for every change of every server; the others load a pointer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use mcpvisor_core::{Filter, ServerName, exposed_name};

use super::fleet::{FleetCatalog, ServerView};
use super::server::ServerCatalog;

/// The catalog of a fleet, and what some clients see of it.
#[derive(Debug, Default)]
pub(crate) struct CatalogPublisher {
    fleet: ArcSwap<FleetCatalog>,
    /// Something was handed in that is not merged yet.
    behind: AtomicBool,
    /// Held by whoever hands in or merges.
    desk: Mutex<Desk>,
}

/// So many views are not worth a look for those that nobody has any more.
const FEW_VIEWS: usize = 32;

/// What the writers share.
#[derive(Debug, Default)]
struct Desk {
    /// The newest views of servers that changed since the last merge; none for one that is gone.
    changed: BTreeMap<ServerName, Option<Arc<ServerView>>>,
    /// Changes since the beginning, merged or not.
    revision: u64,
    /// Clients that are gone leave at the next merge, or when there are twice as many as were left.
    views: Vec<Weak<ClientView>>,
    /// So many views there are before those of clients that are gone are looked for.
    enough: usize,
}

impl Desk {
    fn add_view(&mut self, view: &Arc<ClientView>) {
        if self.views.len() >= self.enough {
            self.views.retain(|view| view.strong_count() > 0);
            self.enough = (2 * self.views.len()).max(FEW_VIEWS);
        }
        self.views.push(Arc::downgrade(view));
    }
}

/// What one client sees: the tools that pass its filter.
#[derive(Debug)]
pub(crate) struct ClientView {
    pub(crate) filter: Filter,
    published: ArcSwap<FleetCatalog>,
    publisher: Arc<CatalogPublisher>,
}

impl ClientView {
    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        self.publisher.catch_up();
        self.published.load_full()
    }

    /// The catalog of one server, as this client sees it.
    pub(crate) fn server(&self, name: &ServerName) -> Arc<ServerCatalog> {
        let catalog = self.catalog();
        let view = catalog.server(name.as_str());
        view.map_or_else(Arc::default, |view| Arc::clone(view.catalog()))
    }

    /// What the client sees of one server.
    fn narrow(&self, view: &ServerView, before: Option<&ServerView>) -> Arc<ServerView> {
        let passes = |name: &str| self.filter.passes(name);
        let all = view.tools().iter().all(|tool| passes(tool.exposed()));
        if all && view.catalog().held.is_empty() {
            return Arc::new(view.clone());
        }
        let shown = view.tools().iter().filter(|tool| passes(tool.exposed()));
        let mut catalog = ServerCatalog::clone(view.catalog());
        catalog.tools = shown.map(|tool| tool.definition().clone()).collect();
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

impl CatalogPublisher {
    /// The catalog of the whole fleet.
    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        self.catch_up();
        self.fleet.load_full()
    }

    /// Hands in what a server shows. Its actor does that, and nobody else: what it showed before stays
    /// while the view is made, and nobody waits for that.
    pub(crate) fn publish(&self, server: &ServerName, catalog: Arc<ServerCatalog>) {
        let before = self.last_view(server);
        let view = Arc::new(ServerView::new(server, catalog, before.as_deref()));
        self.hand_in(&mut self.lock(), server, Some(view));
    }

    /// The newest view of a server, merged or not.
    fn last_view(&self, server: &ServerName) -> Option<Arc<ServerView>> {
        if let Some(view) = self.lock().changed.get(server) {
            return view.clone();
        }
        let fleet = self.fleet.load();
        let index = fleet.find(server.as_str()).ok()?;
        Some(Arc::clone(&fleet.servers[index]))
    }

    /// A server is gone.
    pub(crate) fn withdraw(&self, server: &ServerName) {
        self.hand_in(&mut self.lock(), server, None);
    }

    fn hand_in(&self, desk: &mut Desk, server: &ServerName, view: Option<Arc<ServerView>>) {
        desk.revision += 1;
        desk.changed.insert(server.clone(), view);
        self.behind.store(true, Ordering::Release);
    }

    /// The view of a client from now on.
    pub(crate) fn view(self: &Arc<Self>, filter: Filter) -> Arc<ClientView> {
        self.catch_up();
        let mut desk = self.lock();
        let fleet = self.fleet.load();
        let mut view = ClientView {
            filter,
            published: ArcSwap::default(),
            publisher: Arc::clone(self),
        };
        let servers = fleet.servers().map(|server| view.narrow(server, None));
        let narrowed = FleetCatalog {
            revision: fleet.revision,
            servers: servers.collect(),
        };
        view.published = ArcSwap::from_pointee(narrowed);
        let view = Arc::new(view);
        desk.add_view(&view);
        view
    }

    /// Merges what was handed in: the catalog of the fleet, then those of the clients.
    fn catch_up(&self) {
        if !self.behind.load(Ordering::Acquire) {
            return;
        }
        let mut desk = self.lock();
        let changed = std::mem::take(&mut desk.changed);
        if !changed.is_empty() {
            self.merge(&mut desk, &changed);
        }
        // Whoever hands in holds the desk, so nothing came meanwhile. Not before the merge: another
        // reader, who may know of the change already, waits for it.
        self.behind.store(false, Ordering::Release);
    }

    fn merge(&self, desk: &mut Desk, changed: &BTreeMap<ServerName, Option<Arc<ServerView>>>) {
        let revision = desk.revision;
        rewrite(&self.fleet, revision, changed, |view, _| Arc::clone(view));
        desk.views.retain(|view| {
            let Some(view) = view.upgrade() else {
                return false;
            };
            let narrow =
                |it: &Arc<ServerView>, before: Option<&ServerView>| view.narrow(it, before);
            rewrite(&view.published, revision, changed, narrow);
            true
        });
    }

    /// A panic of a writer leaves the catalog before it.
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rewrite(
    published: &ArcSwap<FleetCatalog>,
    revision: u64,
    changed: &BTreeMap<ServerName, Option<Arc<ServerView>>>,
    shown: impl Fn(&Arc<ServerView>, Option<&ServerView>) -> Arc<ServerView>,
) {
    let mut next = FleetCatalog::clone(&published.load());
    next.revision = revision;
    for (server, view) in changed {
        let place = next.find(server.as_str());
        match (place, view) {
            (Ok(index), Some(view)) => {
                next.servers[index] = shown(view, Some(&next.servers[index]));
            }
            (Err(index), Some(view)) => next.servers.insert(index, shown(view, None)),
            (Ok(index), None) => drop(next.servers.remove(index)),
            (Err(_), None) => {}
        }
    }
    published.store(Arc::new(next));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rmcp::model::Tool;
    use serde_json::json;

    use super::*;

    fn name(name: &str) -> ServerName {
        ServerName::new(name).unwrap()
    }

    fn tools(names: impl IntoIterator<Item = String>) -> Arc<ServerCatalog> {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let schema = Arc::new(schema);
        let tool = |name: String| Tool::new_with_raw(name, None, Arc::clone(&schema));
        Arc::new(ServerCatalog {
            tools: names.into_iter().map(tool).collect(),
            ..ServerCatalog::default()
        })
    }

    fn some(names: &[&str]) -> Arc<ServerCatalog> {
        tools(names.iter().map(|name| (*name).to_owned()))
    }

    fn exposed(catalog: &FleetCatalog) -> Vec<&str> {
        catalog.tools().map(|tool| tool.exposed()).collect()
    }

    /// A host may make a client for each of its own requests, while no server changes anything.
    #[test]
    fn clients_that_come_and_go_leave_nothing_behind() {
        let publisher = Arc::new(CatalogPublisher::default());
        let view = || publisher.view(Filter::default());
        let stay: Vec<_> = (0..100).map(|_| view()).collect();
        (0..10_000).for_each(|_| drop(view()));
        let left = publisher.lock().views.len();
        assert!((stay.len()..=2 * stay.len()).contains(&left), "{left}");
        publisher.publish(&name("a"), some(&["x"]));
        publisher.catch_up();
        let all = stay.iter().map(|view| view.published.load_full());
        assert!(all.into_iter().all(|it| exposed(&it) == ["a__x"]));
    }

    #[test]
    fn a_change_of_one_server_shares_the_views_of_all_others() {
        let publisher = Arc::new(CatalogPublisher::default());
        publisher.publish(&name("b"), some(&["x"]));
        publisher.publish(&name("a"), some(&["y"]));
        let first = publisher.catalog();
        assert_eq!(exposed(&first), ["a__y", "b__x"]);
        publisher.publish(&name("b"), some(&["x", "z"]));
        let second = publisher.catalog();
        assert_eq!(exposed(&second), ["a__y", "b__x", "b__z"]);
        assert!(second.revision() > first.revision());
        assert!(Arc::ptr_eq(&first.servers[0], &second.servers[0]));
        assert_eq!(
            exposed(&first),
            ["a__y", "b__x"],
            "who holds one keeps what it saw"
        );
        publisher.withdraw(&name("a"));
        assert_eq!(exposed(&publisher.catalog()), ["b__x", "b__z"]);
    }

    #[test]
    fn a_tool_is_found_by_its_exposed_name_whatever_it_is_called() {
        let publisher = Arc::new(CatalogPublisher::default());
        publisher.publish(&name("a b"), some(&["x.y"]));
        publisher.publish(&name("a.b"), some(&["x.y", "x y"]));
        let catalog = publisher.catalog();
        assert_eq!(catalog.tool_count(), 3);
        for tool in catalog.tools() {
            let found = catalog.tool(tool.exposed()).unwrap();
            assert_eq!((found.server(), found.name()), (tool.server(), tool.name()));
        }
        assert!(catalog.tool("a_b__x_y").is_none());
    }

    #[test]
    fn a_client_sees_what_passes_its_filter_now_and_later() {
        let publisher = Arc::new(CatalogPublisher::default());
        publisher.publish(&name("git"), some(&["search", "delete_repo"]));
        let view = publisher.view(Filter::from_patterns(["git__*", "!*delete*"]));
        assert_eq!(exposed(&view.catalog()), ["git__search"]);
        publisher.publish(&name("files"), some(&["read"]));
        publisher.publish(&name("git"), some(&["search", "fork", "delete_user"]));
        assert_eq!(exposed(&view.catalog()), ["git__search", "git__fork"]);
        assert_eq!(view.server(&name("git")).tools.len(), 2);
        assert_eq!(view.catalog().revision(), publisher.catalog().revision());
        drop(view);
        publisher.withdraw(&name("git"));
        publisher.catalog();
        assert!(
            publisher.lock().views.is_empty(),
            "a client that is gone is forgotten"
        );
    }

    #[test]
    fn a_catalog_whose_tools_did_not_change_is_published_without_looking_at_them() {
        let publisher = Arc::new(CatalogPublisher::default());
        let first = some(&["x"]);
        publisher.publish(&name("a"), Arc::clone(&first));
        let before = publisher.catalog();
        let stale = ServerCatalog {
            stale: true,
            ..ServerCatalog::clone(&first)
        };
        publisher.publish(&name("a"), Arc::new(stale));
        let after = publisher.catalog();
        assert!(after.server("a").unwrap().catalog().stale);
        assert!(std::ptr::eq(
            before.tools().next().unwrap(),
            after.tools().next().unwrap()
        ));
    }

    #[test]
    fn who_knows_of_a_change_sees_it_though_another_reader_merges_it() {
        let publisher = Arc::new(CatalogPublisher::default());
        // Something to do for whoever merges.
        let views = ["!*1*", "!*2*", "!*3*", "!*4*"];
        let views = views.map(|it| publisher.view(Filter::from_patterns([it])));
        let names = || (0..200).map(|number| format!("t{number}"));
        let over = Arc::new(AtomicBool::new(false));
        let other = {
            let (publisher, over) = (Arc::clone(&publisher), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    publisher.catalog();
                }
            })
        };
        let mut behind = 0;
        for round in 0..100 {
            // Without digits, so that it passes every filter.
            let tool = if round % 2 == 0 { "new" } else { "newer" };
            publisher.publish(&name("a"), tools(names().chain([tool.to_owned()])));
            // By now the other has begun, and in some of the rounds it is not done.
            std::thread::sleep(Duration::from_micros(20 * round as u64));
            let seen = views[3].catalog();
            behind += usize::from(seen.tools().all(|it| it.name() != tool));
        }
        over.store(true, Ordering::Relaxed);
        other.join().unwrap();
        assert_eq!(behind, 0);
    }

    /// 200 servers of 200 tools: the merge after a change of one, and a read. The figures are those of
    /// a release build; without optimization and on a busy machine only the order is asserted.
    #[test]
    fn a_large_fleet_is_published_in_milliseconds_and_read_in_nanoseconds() {
        let publisher = Arc::new(CatalogPublisher::default());
        let view = publisher.view(Filter::from_patterns(["!*t7*"]));
        let many = |from: usize| tools((from..from + 200).map(|number| format!("t{number}")));
        for number in 0..200 {
            publisher.publish(&name(&format!("server{number}")), many(0));
        }
        let mut publishes: Vec<Duration> = (1..=20)
            .map(|round| {
                let catalog = many(round);
                let began = Instant::now();
                publisher.publish(&name("server100"), catalog);
                // The first reader after a change merges it.
                publisher.catalog();
                began.elapsed()
            })
            .collect();
        publishes.sort_unstable();
        // The best of many short looks: what others do on the machine takes none of its time.
        let read = (0..100).map(|_| {
            let began = Instant::now();
            for _ in 0..100 {
                std::hint::black_box(publisher.catalog());
                std::hint::black_box(view.catalog());
            }
            began.elapsed() / 200
        });
        let read = read.min().expect("there are some");
        assert_eq!(publisher.catalog().tool_count(), 40_000);
        let (median, slack) = (publishes[10], if cfg!(debug_assertions) { 25 } else { 1 });
        eprintln!(
            "publish {median:?} (worst {:?}), read {read:?}",
            publishes[19]
        );
        assert!(median <= Duration::from_millis(2) * slack, "{median:?}");
        assert!(read <= Duration::from_nanos(100) * slack, "{read:?}");
    }
}
