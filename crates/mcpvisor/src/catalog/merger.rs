//! Who writes the catalog of a fleet: one place, one server's change at a time.
//!
//! Each server's actor hands in what its callers may see, which costs what its own server has. The
//! first reader after that merges all that was handed in, so that a large fleet which starts is not
//! copied once for every change of every server; the others load a pointer. What a client sees of it
//! is made when that client reads, so that nobody waits for the views of others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use mcpvisor_core::{Filter, ServerName, exposed_name};

use super::changes::{CatalogChanges, ChangeSignal};
use super::fleet::{FleetCatalog, ServerView};
use super::server::ServerCatalog;

/// The catalog of a fleet, and what was handed in for it.
#[derive(Debug, Default)]
pub(crate) struct CatalogMerger {
    fleet: ArcSwap<FleetCatalog>,
    /// Something was handed in that is not merged yet.
    behind: AtomicBool,
    /// Held for a moment by whoever hands in, or takes what was handed in.
    desk: Mutex<Desk>,
    /// Held by whoever merges. No server waits for it.
    merging: Mutex<()>,
    /// Wakes those who wait for a change.
    changed: ChangeSignal,
}

/// What the writers share.
#[derive(Debug, Default)]
struct Desk {
    changed: Changed,
    /// Changes since the beginning, merged or not.
    revision: u64,
}

/// The newest views of servers that changed since the last merge; none for one that is gone.
type Changed = BTreeMap<ServerName, Option<Arc<ServerView>>>;

/// What one client sees: the tools that pass its filter.
#[derive(Debug)]
pub(crate) struct ClientView {
    pub(crate) filter: Filter,
    published: ArcSwap<Narrowed>,
    merger: Arc<CatalogMerger>,
    /// Held by whoever narrows.
    narrowing: Mutex<()>,
}

/// The catalog of a fleet as a client saw it last.
#[derive(Debug, Default)]
struct Narrowed {
    catalog: Arc<FleetCatalog>,
    /// What each view in it was made of. Nothing that the fleet has given up is kept alive by it.
    of: Vec<Weak<ServerView>>,
}

impl ClientView {
    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        self.merger.catch_up();
        let revision = self.merger.fleet.load().revision;
        let seen = self.published.load();
        if seen.catalog.revision == revision {
            return Arc::clone(&seen.catalog);
        }
        drop(seen);
        self.catch_up()
    }

    /// Changes of what this client sees.
    pub(crate) fn changes(self: &Arc<Self>) -> CatalogChanges<FleetCatalog> {
        let view = Arc::clone(self);
        CatalogChanges::of_fleet(&self.merger.changed, move || view.catalog())
    }

    /// The catalog of one server, as this client sees it.
    pub(crate) fn server(&self, name: &ServerName) -> Arc<ServerCatalog> {
        let catalog = self.catalog();
        let view = catalog.server(name.as_str());
        view.map_or_else(Arc::default, |view| Arc::clone(view.catalog()))
    }

    /// Narrows what changed since the client looked last.
    fn catch_up(&self) -> Arc<FleetCatalog> {
        let _turn = held(&self.narrowing);
        let fleet = self.merger.fleet.load_full();
        let before = self.published.load_full();
        if before.catalog.revision == fleet.revision {
            return Arc::clone(&before.catalog);
        }
        let servers = fleet.servers.iter().map(|view| self.again(view, &before));
        let catalog = Arc::new(FleetCatalog {
            revision: fleet.revision,
            servers: servers.collect(),
        });
        self.published.store(Arc::new(Narrowed {
            catalog: Arc::clone(&catalog),
            of: fleet.servers.iter().map(Arc::downgrade).collect(),
        }));
        catalog
    }

    /// What the client sees of one server, taken over where that did not change.
    fn again(&self, view: &Arc<ServerView>, before: &Narrowed) -> Arc<ServerView> {
        match before.catalog.find(view.server().as_str()) {
            Ok(index) if before.of[index].as_ptr() == Arc::as_ptr(view) => {
                Arc::clone(&before.catalog.servers[index])
            }
            Ok(index) => self.narrow(view, Some(&before.catalog.servers[index])),
            Err(_) => self.narrow(view, None),
        }
    }

    /// What the client sees of one server.
    fn narrow(&self, view: &Arc<ServerView>, before: Option<&ServerView>) -> Arc<ServerView> {
        let passes = |name: &str| self.filter.passes(name);
        let all = view.tools().iter().all(|tool| passes(tool.exposed()));
        if all && view.catalog().held.is_empty() {
            return Arc::clone(view);
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

impl CatalogMerger {
    /// The catalog of the whole fleet.
    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        self.catch_up();
        self.fleet.load_full()
    }

    /// Changes of the catalog of the whole fleet.
    pub(crate) fn changes(self: &Arc<Self>) -> CatalogChanges<FleetCatalog> {
        let merger = Arc::clone(self);
        CatalogChanges::of_fleet(&self.changed, move || merger.catalog())
    }

    /// The runtime has ended: there are no further changes.
    pub(crate) fn close(&self) {
        self.changed.close();
    }

    /// Hands in what a server shows. Its actor does that, and nobody else: what it showed before stays
    /// while the view is made, and nobody waits for that.
    pub(crate) fn update(&self, server: &ServerName, catalog: Arc<ServerCatalog>) {
        let before = self.last_view(server);
        let view = Arc::new(ServerView::new(server, catalog, before.as_deref()));
        self.hand_in(server, Some(view));
    }

    /// The newest view of a server, merged or not; while it is being merged, the one before it.
    fn last_view(&self, server: &ServerName) -> Option<Arc<ServerView>> {
        if let Some(view) = held(&self.desk).changed.get(server) {
            return view.clone();
        }
        let fleet = self.fleet.load();
        let index = fleet.find(server.as_str()).ok()?;
        Some(Arc::clone(&fleet.servers[index]))
    }

    /// A server is gone.
    pub(crate) fn remove(&self, server: &ServerName) {
        self.hand_in(server, None);
    }

    fn hand_in(&self, server: &ServerName, view: Option<Arc<ServerView>>) {
        let mut desk = held(&self.desk);
        desk.revision += 1;
        let overtaken = desk.changed.insert(server.clone(), view);
        self.behind.store(true, Ordering::Release);
        drop(desk);
        self.changed.notify();
        // It may be large, so nobody waits until it is taken apart.
        drop(overtaken);
    }

    /// The view of a client from now on.
    pub(crate) fn view(self: &Arc<Self>, filter: Filter) -> Arc<ClientView> {
        Arc::new(ClientView {
            filter,
            published: ArcSwap::default(),
            merger: Arc::clone(self),
            narrowing: Mutex::default(),
        })
    }

    /// Merges what was handed in into the catalog of the fleet.
    fn catch_up(&self) {
        if !self.behind.load(Ordering::Acquire) {
            return;
        }
        let _turn = held(&self.merging);
        let (changed, revision) = {
            let mut desk = held(&self.desk);
            (std::mem::take(&mut desk.changed), desk.revision)
        };
        if !changed.is_empty() {
            self.merge(revision, changed);
        }
        // Not before the merge: another reader, who may know of the change already, waits for it. What
        // was handed in meanwhile is left to the next reader.
        let desk = held(&self.desk);
        if desk.changed.is_empty() {
            self.behind.store(false, Ordering::Release);
        }
    }

    fn merge(&self, revision: u64, changed: Changed) {
        let mut next = FleetCatalog::clone(&self.fleet.load());
        next.revision = revision;
        for (server, view) in changed {
            match (next.find(server.as_str()), view) {
                (Ok(index), Some(view)) => next.servers[index] = view,
                (Err(index), Some(view)) => next.servers.insert(index, view),
                (Ok(index), None) => drop(next.servers.remove(index)),
                (Err(_), None) => {}
            }
        }
        self.fleet.store(Arc::new(next));
    }
}

/// A panic of a writer leaves the catalog before it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
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
        let merger = Arc::new(CatalogMerger::default());
        let view = || merger.view(Filter::default());
        let stay: Vec<_> = (0..100).map(|_| view()).collect();
        (0..10_000).for_each(|_| drop(view()));
        let left = Arc::strong_count(&merger) + Arc::weak_count(&merger);
        assert_eq!(left, stay.len() + 1);
        merger.update(&name("a"), some(&["x"]));
        let all = stay.iter().map(|view| view.catalog());
        assert!(all.into_iter().all(|it| exposed(&it) == ["a__x"]));
    }

    #[test]
    fn a_change_of_one_server_shares_the_views_of_all_others() {
        let merger = Arc::new(CatalogMerger::default());
        merger.update(&name("b"), some(&["x"]));
        merger.update(&name("a"), some(&["y"]));
        let first = merger.catalog();
        assert_eq!(exposed(&first), ["a__y", "b__x"]);
        merger.update(&name("b"), some(&["x", "z"]));
        let second = merger.catalog();
        assert_eq!(exposed(&second), ["a__y", "b__x", "b__z"]);
        assert!(second.revision() > first.revision());
        assert!(Arc::ptr_eq(&first.servers[0], &second.servers[0]));
        assert_eq!(
            exposed(&first),
            ["a__y", "b__x"],
            "who holds one keeps what it saw"
        );
        merger.remove(&name("a"));
        assert_eq!(exposed(&merger.catalog()), ["b__x", "b__z"]);
    }

    #[test]
    fn a_tool_is_found_by_its_exposed_name_whatever_it_is_called() {
        let merger = Arc::new(CatalogMerger::default());
        merger.update(&name("a b"), some(&["x.y"]));
        merger.update(&name("a.b"), some(&["x.y", "x y"]));
        let catalog = merger.catalog();
        assert_eq!(catalog.tool_count(), 3);
        for tool in catalog.tools() {
            let found = catalog.tool(tool.exposed()).unwrap();
            assert_eq!((found.server(), found.name()), (tool.server(), tool.name()));
        }
        assert!(catalog.tool("a_b__x_y").is_none());
    }

    #[test]
    fn a_client_sees_what_passes_its_filter_now_and_later() {
        let merger = Arc::new(CatalogMerger::default());
        merger.update(&name("git"), some(&["search", "delete_repo"]));
        let view = merger.view(Filter::from_patterns(["git__*", "!*delete*"]));
        assert_eq!(exposed(&view.catalog()), ["git__search"]);
        merger.update(&name("files"), some(&["read"]));
        merger.update(&name("git"), some(&["search", "fork", "delete_user"]));
        assert_eq!(exposed(&view.catalog()), ["git__search", "git__fork"]);
        assert_eq!(view.server(&name("git")).tools.len(), 2);
        assert_eq!(view.catalog().revision(), merger.catalog().revision());
        let last = Arc::downgrade(&view.catalog().servers[1]);
        merger.remove(&name("git"));
        assert_eq!(exposed(&view.catalog()), [""; 0]);
        drop(view);
        assert_eq!(Arc::strong_count(&merger), 1);
        assert!(last.upgrade().is_none(), "what is gone is kept for nobody");
    }

    #[test]
    fn a_catalog_whose_tools_did_not_change_is_published_without_looking_at_them() {
        let merger = Arc::new(CatalogMerger::default());
        let first = some(&["x"]);
        merger.update(&name("a"), Arc::clone(&first));
        let before = merger.catalog();
        let stale = ServerCatalog {
            stale: true,
            ..ServerCatalog::clone(&first)
        };
        merger.update(&name("a"), Arc::new(stale));
        let after = merger.catalog();
        assert!(after.server("a").unwrap().catalog().stale);
        assert!(std::ptr::eq(
            before.tools().next().unwrap(),
            after.tools().next().unwrap()
        ));
    }

    #[test]
    fn who_knows_of_a_change_sees_it_though_another_reader_merges_it() {
        let merger = Arc::new(CatalogMerger::default());
        // Something to do for whoever merges.
        let views = ["!*1*", "!*2*", "!*3*", "!*4*"];
        let views = views.map(|it| merger.view(Filter::from_patterns([it])));
        let names = || (0..200).map(|number| format!("t{number}"));
        let over = Arc::new(AtomicBool::new(false));
        let other = {
            let (merger, over) = (Arc::clone(&merger), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    merger.catalog();
                }
            })
        };
        let mut behind = 0;
        for round in 0..100 {
            // Without digits, so that it passes every filter.
            let tool = if round % 2 == 0 { "new" } else { "newer" };
            merger.update(&name("a"), tools(names().chain([tool.to_owned()])));
            // By now the other has begun, and in some of the rounds it is not done.
            std::thread::sleep(Duration::from_micros(20 * round as u64));
            let seen = views[3].catalog();
            behind += usize::from(seen.tools().all(|it| it.name() != tool));
        }
        over.store(true, Ordering::Relaxed);
        other.join().unwrap();
        assert_eq!(behind, 0);
    }

    #[test]
    fn a_client_shares_what_did_not_change_since_it_looked_last() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::from_patterns(["!*secret*"]));
        merger.update(&name("a"), some(&["x", "secret"]));
        merger.update(&name("b"), some(&["x", "secret"]));
        let first = view.catalog();
        merger.update(&name("b"), some(&["x", "y", "secret"]));
        let second = view.catalog();
        assert_eq!(exposed(&second), ["a__x", "b__x", "b__y"]);
        assert!(Arc::ptr_eq(&first.servers[0], &second.servers[0]));
        assert!(Arc::ptr_eq(&second, &view.catalog()));
    }

    /// Whoever merges or narrows may take its time.
    #[test]
    fn a_server_publishes_while_others_merge_and_narrow() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::default());
        let (_merging, _narrowing) = (held(&merger.merging), held(&view.narrowing));
        let (done, is_done) = std::sync::mpsc::channel();
        let server = Arc::clone(&merger);
        std::thread::spawn(move || {
            server.update(&name("a"), some(&["x"]));
            server.remove(&name("b"));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    /// One agent that reads, or a server that publishes, does not pay for what all others see.
    #[test]
    fn whoever_reads_makes_no_view_but_its_own() {
        let merger = Arc::new(CatalogMerger::default());
        let filter = || Filter::from_patterns(["!*t7*"]);
        let views: Vec<_> = (0..100).map(|_| merger.view(filter())).collect();
        let many = |from: usize| tools((from..from + 500).map(|number| format!("t{number}")));
        let rounds = (0..5).map(|round| {
            let catalog = many(round);
            let began = Instant::now();
            merger.update(&name("a"), catalog);
            assert_eq!(merger.catalog().tool_count(), 500);
            let alone = began.elapsed();
            let began = Instant::now();
            for view in &views {
                assert!(view.catalog().tool_count() < 500);
            }
            (alone, began.elapsed())
        });
        let rounds: Vec<_> = rounds.collect();
        let cheap = |(alone, all): &(Duration, Duration)| *alone * 10 < *all;
        assert!(rounds.iter().any(cheap), "{rounds:?}");
    }

    /// 200 servers of 200 tools: the merge after a change of one, and a read. The figures are those of
    /// a release build; without optimization and on a busy machine only the order is asserted.
    #[test]
    fn a_large_fleet_is_published_in_milliseconds_and_read_in_nanoseconds() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::from_patterns(["!*t7*"]));
        let many = |from: usize| tools((from..from + 200).map(|number| format!("t{number}")));
        for number in 0..200 {
            merger.update(&name(&format!("server{number}")), many(0));
        }
        let mut publishes: Vec<Duration> = (1..=20)
            .map(|round| {
                let catalog = many(round);
                let began = Instant::now();
                merger.update(&name("server100"), catalog);
                // The first reader after a change merges it.
                merger.catalog();
                began.elapsed()
            })
            .collect();
        publishes.sort_unstable();
        // The best of many short looks: what others do on the machine takes none of its time.
        let read = (0..100).map(|_| {
            let began = Instant::now();
            for _ in 0..100 {
                std::hint::black_box(merger.catalog());
                std::hint::black_box(view.catalog());
            }
            began.elapsed() / 200
        });
        let read = read.min().expect("there are some");
        assert_eq!(merger.catalog().tool_count(), 40_000);
        let (median, slack) = (publishes[10], if cfg!(debug_assertions) { 25 } else { 1 });
        eprintln!(
            "publish {median:?} (worst {:?}), read {read:?}",
            publishes[19]
        );
        assert!(median <= Duration::from_millis(2) * slack, "{median:?}");
        assert!(read <= Duration::from_nanos(100) * slack, "{read:?}");
    }
}
