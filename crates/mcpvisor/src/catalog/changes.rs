//! Waits for changes of a catalog.
//!
//! Writers only send a signal. The waiting reader computes whether it sees a difference, so that a
//! fleet without readers pays only for the signal.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Waits for changes of a catalog: of the fleet ([`Runtime::catalog_changes`]), of what one agent
/// sees ([`Client::catalog_changes`]), or of one server ([`ServerHandle::catalog_changes`]).
///
/// A change is a tool, prompt, resource or template that was added, changed or removed, or a tool
/// that is held back. A reconnect with the same lists is not a change; the
/// [`status`](crate::ServerHandle::watch) reports it. Changes may be coalesced, but the last one is
/// never missed. It does not keep the runtime alive.
///
/// [`Runtime::catalog_changes`]: crate::Runtime::catalog_changes
/// [`Client::catalog_changes`]: crate::Client::catalog_changes
/// [`ServerHandle::catalog_changes`]: crate::ServerHandle::catalog_changes
pub struct CatalogChanges<C> {
    signal: watch::Receiver<bool>,
    read: Box<dyn Fn() -> Arc<C> + Send + Sync>,
    same: fn(&C, &C) -> bool,
    seen: Arc<C>,
}

impl<C> CatalogChanges<C> {
    pub(crate) fn new(
        signal: &ChangeSignal,
        read: impl Fn() -> Arc<C> + Send + Sync + 'static,
        same: fn(&C, &C) -> bool,
    ) -> Self {
        // Subscribe before the first read, so that no change between the two is missed.
        let signal = signal.0.subscribe();
        let seen = read();
        Self {
            signal,
            read: Box::new(read),
            same,
            seen,
        }
    }

    /// The catalog at the start, or the last one that [`changed`](Self::changed) returned.
    pub fn seen(&self) -> &Arc<C> {
        &self.seen
    }

    /// Waits until the catalog differs from [`seen`](Self::seen), and returns it. `None` once the
    /// runtime has ended or the server was removed.
    ///
    /// Cancel-safe: no change is lost when the future is dropped.
    pub async fn changed(&mut self) -> Option<Arc<C>> {
        loop {
            if *self.signal.borrow_and_update() {
                return None;
            }
            let now = (self.read)();
            let same = Arc::ptr_eq(&now, &self.seen) || (self.same)(&now, &self.seen);
            self.seen = Arc::clone(&now);
            if !same {
                return Some(now);
            }
            self.signal.changed().await.ok()?;
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for CatalogChanges<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogChanges")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// Wakes readers that wait for a catalog. The value is true once there are no further changes.
#[derive(Debug)]
pub(crate) struct ChangeSignal(watch::Sender<bool>);

impl Default for ChangeSignal {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl ChangeSignal {
    /// Signals that the catalog may have changed.
    pub(crate) fn notify(&self) {
        self.0.send_modify(|_| {});
    }

    /// Signals that there are no further changes.
    pub(crate) fn close(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use mcpvisor_core::{Filter, ServerName};
    use rmcp::model::Tool;
    use serde_json::json;

    use super::*;
    use crate::catalog::{CatalogMerger, ServerCatalog};

    fn name(name: &str) -> ServerName {
        ServerName::new(name).unwrap()
    }

    fn some(names: &[&'static str]) -> Arc<ServerCatalog> {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let tools = names
            .iter()
            .map(|name| Tool::new(*name, "", schema.clone()));
        Arc::new(ServerCatalog {
            tools: tools.collect(),
            ..ServerCatalog::default()
        })
    }

    fn stale(catalog: &Arc<ServerCatalog>) -> Arc<ServerCatalog> {
        Arc::new(ServerCatalog {
            stale: true,
            ..ServerCatalog::clone(catalog)
        })
    }

    #[test]
    fn several_changes_are_coalesced_and_the_last_is_never_missed() {
        let merger = Arc::new(CatalogMerger::default());
        merger.update(&name("a"), some(&["x"]));
        let mut changes = merger.changes();
        assert_eq!(changes.seen().tool_count(), 1);
        assert!(changes.changed().now_or_never().is_none(), "nothing yet");
        merger.update(&name("a"), some(&["x", "y"]));
        merger.update(&name("b"), some(&["z"]));
        let catalog = changes.changed().now_or_never().unwrap().unwrap();
        assert_eq!(catalog.tool_count(), 3);
        assert!(changes.changed().now_or_never().is_none(), "one for both");
        merger.remove(&name("a"));
        let catalog = changes.changed().now_or_never().unwrap().unwrap();
        assert_eq!(catalog.tool_count(), 1);
    }

    #[test]
    fn a_reconnect_with_the_same_lists_is_not_a_change() {
        let merger = Arc::new(CatalogMerger::default());
        let tools = some(&["x"]);
        merger.update(&name("a"), Arc::clone(&tools));
        let mut changes = merger.changes();
        merger.update(&name("a"), stale(&tools));
        assert!(changes.changed().now_or_never().is_none(), "only stale");
        merger.update(&name("a"), some(&["x"]));
        merger.update(&name("empty"), Arc::default());
        assert!(changes.changed().now_or_never().is_none());
    }

    #[test]
    fn a_client_sees_no_change_of_hidden_tools() {
        let merger = Arc::new(CatalogMerger::default());
        merger.update(&name("git"), some(&["search", "delete"]));
        let view = merger.view(Filter::from_patterns(["git__*", "!*delete*"]), None);
        let mut changes = view.changes();
        merger.update(&name("git"), some(&["search", "delete", "delete_all"]));
        merger.update(&name("files"), some(&["read"]));
        assert!(changes.changed().now_or_never().is_none());
        merger.update(&name("git"), some(&["search", "fork", "delete_all"]));
        let catalog = changes.changed().now_or_never().unwrap().unwrap();
        let exposed: Vec<_> = catalog.tools().map(|tool| tool.exposed()).collect();
        assert_eq!(exposed, ["git__search", "git__fork"]);
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_for_each_change_and_at_the_end() {
        let merger = Arc::new(CatalogMerger::default());
        let mut changes = merger.changes();
        let (seen, mut counts) = tokio::sync::mpsc::unbounded_channel();
        let waiting = tokio::spawn(async move {
            while let Some(catalog) = changes.changed().await {
                seen.send(catalog.tool_count()).unwrap();
            }
        });
        for count in 1..=100 {
            merger.update(&name("a"), some(&["x", "y"].repeat(count)));
            tokio::task::yield_now().await;
        }
        let last = async { while counts.recv().await.unwrap() != 200 {} };
        tokio::time::timeout(Duration::from_secs(30), last)
            .await
            .unwrap();
        merger.close();
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap()
            .unwrap();
        assert!(merger.changes().changed().await.is_none());
    }
}
