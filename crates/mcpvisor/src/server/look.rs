//! What comes of a list that was fetched: all lists with it, and what callers see of them.
//!
//! To find that out takes as long as the list is large: it is compared, scanned, and hashed where tools
//! are pinned. So a large one is looked at on a thread of its own, and the actor takes what came of it
//! if the rules and the other lists are still those by which it was looked at.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{Generation, ListKind};

use super::actor::ServerState;
use super::configured::CurrentConfig;
use super::message::{FetchFailure, ServerMessage};
use super::slot::ServerSlot;
use crate::catalog::{ListDiff, ServerCatalog};

/// So often a large list is looked at anew on a thread of its own, because something else changed
/// meanwhile. After that the actor waits for it: a server whose other lists never rest would keep it
/// for ever.
const MOST_LOOKS: u32 = 3;

/// A list that was fetched.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(super) generation: Generation,
    pub(super) list: ListKind,
    /// How long the server says it is good.
    pub(super) good_for: Option<Duration>,
    /// It alone.
    pub(super) alone: ServerCatalog,
    /// The config of the connection that it came from.
    pub(super) with: CurrentConfig,
    /// How often it was looked at in vain.
    pub(super) looks: u32,
}

/// By what a list is looked at.
#[derive(Debug)]
pub(super) struct Basis {
    listed: Arc<ServerCatalog>,
    last_good: Arc<ServerCatalog>,
    config: CurrentConfig,
    approvals: u64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(super) fetched: Fetched,
    basis: Basis,
    /// All lists, as they were fetched.
    pub(super) listed: ServerCatalog,
    /// What callers see.
    pub(super) seen: ServerCatalog,
    pub(super) diff: ListDiff,
}

impl Basis {
    /// Whether what was found out by it still holds.
    fn is_same(&self, other: &Self) -> bool {
        self.approvals == other.approvals
            && Arc::ptr_eq(&self.config, &other.config)
            && Arc::ptr_eq(&self.listed, &other.listed)
            && self.last_good.shares_all(&other.last_good)
    }
}

impl Looked {
    /// Looks at a list. Not on an async worker where it is large.
    fn at(slot: &ServerSlot, basis: Basis, fetched: Fetched) -> Self {
        let Fetched { list, alone, .. } = &fetched;
        let mut listed = basis.listed.taking(*list, alone);
        listed.share(&basis.listed);
        let mut seen = slot.look_at(&listed);
        let diff = ListDiff::of(*list, &basis.last_good, &seen);
        seen.share(&basis.last_good);
        Self {
            fetched,
            basis,
            listed,
            seen,
            diff,
        }
    }
}

impl ServerState {
    fn basis(&self) -> Basis {
        let memory = self.slot.memory();
        Basis {
            listed: Arc::clone(&memory.listed),
            last_good: Arc::clone(&memory.last_good),
            config: self.slot.config(),
            approvals: self.approvals,
        }
    }

    /// Looks at a list here, while everybody waits.
    pub(super) fn look_here(&self, fetched: Fetched) -> Looked {
        Looked::at(&self.slot, self.basis(), fetched)
    }

    /// Looks at a list on a thread of its own, and comes back with a message.
    pub(super) fn look_elsewhere(&self, fetched: Fetched) {
        let (generation, list) = (fetched.generation, fetched.list);
        let (slot, basis) = (Arc::clone(&self.slot), self.basis());
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let looked = tokio::task::spawn_blocking(move || Looked::at(&slot, basis, fetched));
            let message = match looked.await {
                Ok(looked) => ServerMessage::ListLooked(Box::new(looked)),
                Err(problem) => ServerMessage::ListFetched {
                    generation,
                    list,
                    result: Err(FetchFailure::Failed(problem.to_string())),
                    good_for: None,
                },
            };
            let _ = myself.send_message(message);
        });
    }

    /// A large list was looked at. Where something changed meanwhile that is done again.
    pub(super) fn list_looked(&mut self, looked: Looked) {
        if !self.is_live(looked.fetched.generation) || looked.basis.is_same(&self.basis()) {
            return self.adopt(looked);
        }
        let mut fetched = looked.fetched;
        fetched.looks += 1;
        if fetched.looks < MOST_LOOKS {
            self.look_elsewhere(fetched);
        } else {
            let looked = self.look_here(fetched);
            self.adopt(looked);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "in-process")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rmcp::model::{
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerInfo, Tool,
    };
    use rmcp::service::RequestContext;
    use rmcp::{ErrorData, RoleServer, ServerHandler};

    use super::*;
    use crate::{Runtime, ServerConfig, Transport};

    const DEADLINE: Duration = Duration::from_secs(40);

    /// A server with one tool, whose description is so long.
    #[derive(Clone, Default)]
    struct Wordy {
        length: Arc<AtomicUsize>,
        listed: Arc<AtomicUsize>,
    }

    impl ServerHandler for Wordy {
        fn get_info(&self) -> ServerInfo {
            let tools = ServerCapabilities::builder().enable_tools().build();
            ServerInfo::new(tools)
        }

        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            let description = "x".repeat(self.length.load(Ordering::Relaxed));
            let tool = Tool::new("talk", description, serde_json::Map::new());
            self.listed.fetch_add(1, Ordering::Relaxed);
            Ok(ListToolsResult::with_all_items(vec![tool]))
        }
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let waited = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waited).await.expect(what);
    }

    /// The rules are held by somebody else, so that the look takes as long as the test wants.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_go_on_while_a_large_list_is_looked_at() {
        let wordy = Wordy::default();
        let config = ServerConfig::new("a", Transport::in_process(wordy.clone())).unwrap();
        let runtime = Runtime::builder().server(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let handle = runtime.server("a").unwrap();
        let length = 2 * 1024 * 1024;
        wordy.length.store(length, Ordering::Relaxed);
        let (taken, is_taken) = tokio::sync::oneshot::channel();
        let (give_back, is_wanted) = std::sync::mpsc::channel::<()>();
        let slot = Arc::clone(&handle.slot);
        let holder = std::thread::spawn(move || {
            let _rules = slot.pins.approval();
            taken.send(()).unwrap();
            let _ = is_wanted.recv_timeout(DEADLINE);
        });
        is_taken.await.unwrap();
        runtime.reconnect("a").await.unwrap();
        let listed = || wordy.listed.load(Ordering::Relaxed) == 2;
        until("it is listed again", listed).await;
        for _ in 0..200 {
            let ping = handle.ping().deadline(DEADLINE / 4);
            ping.await.unwrap();
        }
        let seen = || {
            handle.catalog().tools[0]
                .description
                .as_ref()
                .map(|it| it.len())
        };
        assert_eq!(seen(), Some(0), "it is still being looked at");
        give_back.send(()).unwrap();
        until("it is seen", || seen() == Some(length)).await;
        assert!(!handle.catalog().stale);
        holder.join().unwrap();
        runtime.shutdown(DEADLINE).await;
    }
}
