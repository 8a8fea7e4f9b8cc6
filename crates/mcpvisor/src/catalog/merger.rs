//! Merges the catalogs of all servers into that of the fleet.
//!
//! Each server's actor queues its change; the cost depends only on its own catalog. The first
//! reader after that merges all queued changes, so that a starting fleet is not copied once for
//! every change of every server; further readers load a pointer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use mcpvisor_core::{Filter, ServerName};

use super::changes::{CatalogChanges, ChangeSignal};
use super::client_view::ClientView;
use super::fleet::{FleetCatalog, ServerView};
use super::server::ServerCatalog;
use crate::mutex::lock;

/// The catalog of a fleet, and the changes that are not merged yet.
#[derive(Debug, Default)]
pub(crate) struct CatalogMerger {
    merged: ArcSwap<FleetCatalog>,
    /// Changes are queued.
    behind: AtomicBool,
    /// Locked only to queue changes or to take the queued ones.
    queue: Mutex<ChangeQueue>,
    /// Locked during a merge. No server waits for it.
    merging: Mutex<()>,
    pub(super) changed: ChangeSignal,
}

#[derive(Debug, Default)]
struct ChangeQueue {
    views: ChangedViews,
    /// Publications so far, merged or not.
    version: u64,
}

/// The newest views of servers that changed since the last merge; none for a removed one.
type ChangedViews = BTreeMap<ServerName, Option<Arc<ServerView>>>;

impl CatalogMerger {
    /// The catalog of the whole fleet.
    pub(crate) fn catalog(&self) -> Arc<FleetCatalog> {
        self.merge_queued();
        self.merged.load_full()
    }

    /// The version of the catalog of the fleet.
    pub(super) fn version(&self) -> u64 {
        self.merge_queued();
        self.merged.load().version
    }

    /// The catalog as of the last merge.
    pub(super) fn merged(&self) -> Arc<FleetCatalog> {
        self.merged.load_full()
    }

    /// Changes of the catalog of the whole fleet.
    pub(crate) fn changes(self: &Arc<Self>) -> CatalogChanges<FleetCatalog> {
        let merger = Arc::clone(self);
        let read = move || merger.catalog();
        CatalogChanges::new(&self.changed, read, FleetCatalog::offers_same)
    }

    /// The runtime has ended: there are no further changes.
    pub(crate) fn close(&self) {
        self.changed.close();
    }

    /// Queues the catalog that a server publishes. Only its actor calls this. The new view is built
    /// before the queue is locked, so that no other server waits for it.
    pub(crate) fn update(&self, server: &ServerName, catalog: Arc<ServerCatalog>) {
        let before = self.last_view(server);
        let view = Arc::new(ServerView::new(server, catalog, before.as_deref()));
        self.queue_change(server, Some(view));
    }

    /// Queues the removal of a server.
    pub(crate) fn remove(&self, server: &ServerName) {
        self.queue_change(server, None);
    }

    /// The newest view of a server, merged or not; during its merge, the one before it.
    pub(super) fn last_view(&self, server: &ServerName) -> Option<Arc<ServerView>> {
        if let Some(view) = lock(&self.queue).views.get(server) {
            return view.clone();
        }
        let merged = self.merged.load();
        let index = merged.find(server.as_str()).ok()?;
        Some(Arc::clone(&merged.servers[index]))
    }

    fn queue_change(&self, server: &ServerName, view: Option<Arc<ServerView>>) {
        let mut queue = lock(&self.queue);
        queue.version += 1;
        let replaced = queue.views.insert(server.clone(), view);
        self.behind.store(true, Ordering::Release);
        drop(queue);
        self.changed.notify();
        // It may be large, so it is freed after the lock is released.
        drop(replaced);
    }

    /// A new view for a client.
    pub(crate) fn view(
        self: &Arc<Self>,
        filter: Filter,
        account: Option<Arc<str>>,
    ) -> Arc<ClientView> {
        Arc::new(ClientView::new(filter, account, Arc::clone(self)))
    }

    /// Merges the queued changes into the catalog of the fleet.
    fn merge_queued(&self) {
        if !self.behind.load(Ordering::Acquire) {
            return;
        }
        let _merging = lock(&self.merging);
        let (views, version) = {
            let mut queue = lock(&self.queue);
            (std::mem::take(&mut queue.views), queue.version)
        };
        if !views.is_empty() {
            self.merge(version, views);
        }
        // Not before the merge: another reader that knows of the change has to wait for it. Changes
        // queued meanwhile are left to the next reader.
        let queue = lock(&self.queue);
        if queue.views.is_empty() {
            self.behind.store(false, Ordering::Release);
        }
    }

    fn merge(&self, version: u64, views: ChangedViews) {
        let before = self.merged.load();
        let mut next = FleetCatalog::clone(&before);
        next.version = version;
        for (server, view) in views {
            match (next.find(server.as_str()), view) {
                (Ok(index), Some(view)) => next.servers[index] = view,
                (Err(index), Some(view)) => next.servers.insert(index, view),
                (Ok(index), None) => drop(next.servers.remove(index)),
                (Err(_), None) => {}
            }
        }
        next.revision += u64::from(!next.offers_same(&before));
        self.merged.store(Arc::new(next));
    }
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

    /// A host may create a client per request while no server changes.
    #[test]
    fn dropped_clients_leave_nothing_behind() {
        let merger = Arc::new(CatalogMerger::default());
        let view = || merger.view(Filter::default(), None);
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
            "a snapshot does not change"
        );
        merger.remove(&name("a"));
        assert_eq!(exposed(&merger.catalog()), ["b__x", "b__z"]);
    }

    #[test]
    fn a_tool_is_found_by_its_exposed_name() {
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
        let view = merger.view(Filter::from_patterns(["git__*", "!*delete*"]), None);
        assert_eq!(exposed(&view.catalog()), ["git__search"]);
        merger.update(&name("files"), some(&["read"]));
        merger.update(&name("git"), some(&["search", "fork", "delete_user"]));
        assert_eq!(exposed(&view.catalog()), ["git__search", "git__fork"]);
        assert_eq!(view.server(&name("git")).tools.len(), 2);
        assert_eq!(view.catalog().version, merger.catalog().version);
        let last = Arc::downgrade(&view.catalog().servers[1]);
        merger.remove(&name("git"));
        assert_eq!(exposed(&view.catalog()), [""; 0]);
        drop(view);
        assert_eq!(Arc::strong_count(&merger), 1);
        assert!(last.upgrade().is_none(), "a removed view is freed");
    }

    #[test]
    fn the_revision_changes_with_what_a_reader_is_offered_and_with_nothing_else() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::from_patterns(["!*secret*"]), None);
        let revisions = || (merger.catalog().revision(), view.catalog().revision());
        let listed = some(&["x", "secret"]);
        merger.update(&name("a"), Arc::clone(&listed));
        let first = revisions();
        let stale = ServerCatalog {
            stale: true,
            ..ServerCatalog::clone(&listed)
        };
        merger.update(&name("a"), Arc::new(stale));
        merger.update(&name("a"), some(&["x", "secret"]));
        merger.update(&name("empty"), Arc::default());
        merger.remove(&name("empty"));
        assert_eq!(
            revisions(),
            first,
            "a reconnect, and a server without tools"
        );
        merger.update(&name("a"), some(&["x", "secret", "secret2"]));
        let second = revisions();
        assert!(second.0 > first.0 && second.1 == first.1, "{second:?}");
        merger.update(&name("a"), some(&["x", "y"]));
        let third = revisions();
        assert!(third.0 > second.0 && third.1 > second.1, "{third:?}");
        merger.remove(&name("a"));
        assert!(revisions().0 > third.0 && revisions().1 > third.1);
    }

    #[test]
    fn unchanged_tools_are_not_indexed_again() {
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
    fn a_reader_that_knows_of_a_change_sees_it_though_another_reader_merges_it() {
        let merger = Arc::new(CatalogMerger::default());
        // Views make the merge take longer.
        let views = ["!*1*", "!*2*", "!*3*", "!*4*"];
        let views = views.map(|it| merger.view(Filter::from_patterns([it]), None));
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
            let tool = if round % 2 == 0 { "even" } else { "odd" };
            merger.update(&name("a"), tools(names().chain([tool.to_owned()])));
            // By now the other reader has begun to merge, and in some rounds it is not done.
            std::thread::sleep(Duration::from_micros(20 * round as u64));
            let seen = views[3].catalog();
            behind += usize::from(seen.tools().all(|it| it.name() != tool));
        }
        over.store(true, Ordering::Relaxed);
        other.join().unwrap();
        assert_eq!(behind, 0);
    }

    #[test]
    fn a_client_shares_the_views_that_did_not_change_since_its_last_read() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::from_patterns(["!*secret*"]), None);
        merger.update(&name("a"), some(&["x", "secret"]));
        merger.update(&name("b"), some(&["x", "secret"]));
        let first = view.catalog();
        merger.update(&name("b"), some(&["x", "y", "secret"]));
        let second = view.catalog();
        assert_eq!(exposed(&second), ["a__x", "b__x", "b__y"]);
        assert!(Arc::ptr_eq(&first.servers[0], &second.servers[0]));
        assert!(Arc::ptr_eq(&second, &view.catalog()));
    }

    #[test]
    fn a_server_publishes_while_readers_merge_and_filter() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::default(), None);
        let (_merging, _filtering) = (lock(&merger.merging), lock(&view.filtering));
        let (done, is_done) = std::sync::mpsc::channel();
        let server = Arc::clone(&merger);
        std::thread::spawn(move || {
            server.update(&name("a"), some(&["x"]));
            server.remove(&name("b"));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(30)).unwrap();
    }

    /// A reader, or a server that publishes, does not pay for the views of other clients.
    #[test]
    fn a_read_computes_only_its_own_view() {
        let merger = Arc::new(CatalogMerger::default());
        let filter = || Filter::from_patterns(["!*t7*"]);
        let views: Vec<_> = (0..100).map(|_| merger.view(filter(), None)).collect();
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

    /// 200 servers of 200 tools: the merge after a change of one, and a read. The figures are those
    /// of a release build; without optimization only the order of magnitude is asserted.
    #[test]
    fn a_large_fleet_is_published_in_milliseconds_and_read_in_nanoseconds() {
        let merger = Arc::new(CatalogMerger::default());
        let view = merger.view(Filter::from_patterns(["!*t7*"]), None);
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
        // The fastest of many short runs, which excludes other load on the machine.
        let read = (0..100).map(|_| {
            let began = Instant::now();
            for _ in 0..100 {
                std::hint::black_box(merger.catalog());
                std::hint::black_box(view.catalog());
            }
            began.elapsed() / 200
        });
        let read = read.min().unwrap();
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
