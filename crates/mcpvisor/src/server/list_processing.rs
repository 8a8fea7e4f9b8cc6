//! What comes of a list that was fetched: all lists with it, and what callers see of them.
//!
//! To find that out takes as long as the list is large: it is compared, scanned, and hashed where tools
//! are pinned. So a large one is looked at on a thread of its own, and the actor takes what came of it
//! if the rules and the other lists are still those by which it was looked at.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{Generation, ListKind};

use super::active_config::ActiveConfig;
use super::actor::ServerState;
use super::approve::{Approved, tell};
use super::message::{ControlReply, FetchFailure, ServerMessage};
use super::slot::ServerSlot;
use crate::catalog::{ListDiff, ServerCatalog};
use crate::state::pins::HeldTool;

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
    pub(super) with: Arc<ActiveConfig>,
    /// How often it was looked at in vain.
    pub(super) looks: u32,
}

/// By what a list is looked at.
#[derive(Debug)]
pub(super) struct Basis {
    listed: Arc<ServerCatalog>,
    last_good: Arc<ServerCatalog>,
    held_announced: bool,
    config: Arc<ActiveConfig>,
    approvals: u64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(super) fetched: Fetched,
    basis: Basis,
    /// All lists, as they were fetched.
    pub(super) listed: ServerCatalog,
    pub(super) seen: Seen,
}

/// What callers see.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) catalog: ServerCatalog,
    /// How it differs from what they saw before.
    pub(super) diff: ListDiff,
    /// Tools that were not held back before in this run, or differ from what was held back.
    pub(super) held: Vec<String>,
}

impl Seen {
    fn of(slot: &ServerSlot, list: ListKind, listed: &ServerCatalog, basis: &Basis) -> Self {
        let mut catalog = slot.look_at(listed);
        let old = &*basis.last_good;
        let diff = ListDiff::of(list, old, &catalog);
        let announced = if basis.held_announced {
            &*old.held
        } else {
            &[]
        };
        let held = newly_held(announced, &catalog.held);
        catalog.share(old);
        Self {
            catalog,
            diff,
            held,
        }
    }
}

fn newly_held(old: &[HeldTool], new: &[HeldTool]) -> Vec<String> {
    // Of two tools of one name the first counts.
    let old: HashMap<&str, &HeldTool> = old.iter().rev().map(|it| (&*it.tool, it)).collect();
    let fresh = |it: &&HeldTool| old.get(&*it.tool) != Some(it);
    let fresh = new.iter().filter(fresh);
    fresh.map(|it| it.tool.clone()).collect()
}

/// What callers see of the tools by other rules.
#[derive(Debug)]
pub(crate) struct Judged {
    basis: Basis,
    seen: Seen,
}

/// Tools that are judged by other rules on a thread of their own.
#[derive(Debug)]
pub(crate) struct Judging {
    /// Nothing if that failed.
    judged: Option<Judged>,
    /// How often that was done, for want of rules that stay the same.
    looks: u32,
    waiting: Waiting,
}

/// A request that is answered when callers see the tools by the new rules.
#[derive(Debug)]
pub(crate) enum Waiting {
    Reconfigured(ControlReply),
    Approval(Option<Approved>),
}

impl Waiting {
    fn answer(self) {
        match self {
            Self::Reconfigured(reply) => {
                let _ = reply.send(Ok(()));
            }
            Self::Approval(approved) => tell(approved),
        }
    }
}

impl Judged {
    fn by(slot: &ServerSlot, basis: Basis) -> Self {
        let seen = Seen::of(slot, ListKind::Tools, &basis.listed, &basis);
        Self { basis, seen }
    }
}

impl Basis {
    /// Whether what was found out by it still holds.
    fn is_same(&self, other: &Self) -> bool {
        self.approvals == other.approvals
            && self.held_announced == other.held_announced
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
        let seen = Seen::of(slot, *list, &listed, &basis);
        Self {
            fetched,
            basis,
            listed,
            seen,
        }
    }
}

impl ServerState {
    fn basis(&self) -> Basis {
        let memory = self.slot.memory();
        Basis {
            listed: Arc::clone(&memory.listed),
            last_good: Arc::clone(&memory.last_good),
            held_announced: memory.held_announced,
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

    /// Works out what callers see, after the rules about tools changed, and answers the request for it
    /// then. Until that is done the old rules hold. Large lists are judged on a thread of their own.
    pub(super) fn look_again(&mut self, waiting: Waiting) {
        if self.slot.memory().listed.is_large() {
            self.judge_elsewhere(waiting, 0);
        } else {
            self.judge_here(waiting);
        }
    }

    fn judge_here(&mut self, waiting: Waiting) {
        let judged = Judged::by(&self.slot, self.basis());
        self.show_judged(judged, waiting);
    }

    fn judge_elsewhere(&self, waiting: Waiting, looks: u32) {
        let (slot, basis) = (Arc::clone(&self.slot), self.basis());
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let judged = tokio::task::spawn_blocking(move || Judged::by(&slot, basis));
            let judging = Judging {
                judged: judged.await.ok(),
                looks: looks + 1,
                waiting,
            };
            let _ = myself.send_message(ServerMessage::ToolsJudged(Box::new(judging)));
        });
    }

    /// A large list was judged by other rules. Where something changed meanwhile that is done again.
    pub(super) fn tools_judged(&mut self, judging: Judging) {
        let Judging {
            judged,
            looks,
            waiting,
        } = judging;
        match judged {
            Some(judged) if judged.basis.is_same(&self.basis()) => {
                self.show_judged(judged, waiting);
            }
            Some(_) if looks < MOST_LOOKS => self.judge_elsewhere(waiting, looks),
            Some(_) | None => self.judge_here(waiting),
        }
    }

    fn show_judged(&mut self, judged: Judged, waiting: Waiting) {
        self.show_seen(ListKind::Tools, judged.seen);
        self.settle();
        waiting.answer();
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
        // It is shown before it is fresh, in two steps of one message.
        until("it is fresh", || !handle.catalog().stale).await;
        holder.join().unwrap();
        runtime.shutdown(DEADLINE).await;
    }

    /// Holds the rules, so that judging by them takes as long as the test wants.
    struct Rules {
        give_back: std::sync::mpsc::Sender<()>,
        holder: std::thread::JoinHandle<()>,
    }

    impl Rules {
        async fn hold(slot: &Arc<ServerSlot>) -> Self {
            let (taken, is_taken) = tokio::sync::oneshot::channel();
            let (give_back, is_wanted) = std::sync::mpsc::channel::<()>();
            let slot = Arc::clone(slot);
            let holder = std::thread::spawn(move || {
                let _rules = slot.pins.approval();
                taken.send(()).unwrap();
                let _ = is_wanted.recv_timeout(DEADLINE);
            });
            is_taken.await.unwrap();
            Self { give_back, holder }
        }

        fn give_back(self) {
            self.give_back.send(()).unwrap();
            self.holder.join().unwrap();
        }
    }

    /// After a reload and after an approval all tools are judged again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_go_on_while_a_large_list_is_judged_by_other_rules() {
        let wordy = Wordy::default();
        wordy.length.store(2 * 1024 * 1024, Ordering::Relaxed);
        let config = ServerConfig::new("a", Transport::in_process(wordy.clone())).unwrap();
        let builder = Runtime::builder().server(config.clone());
        let runtime = builder.start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let handle = runtime.server("a").unwrap();
        let pings = async || {
            for _ in 0..100 {
                handle.ping().deadline(DEADLINE / 4).await.unwrap();
            }
        };

        let rules = Rules::hold(&handle.slot).await;
        let mut hidden = config.clone();
        hidden.tools = crate::ToolFilter::new([""; 0], ["talk"]);
        let reload = runtime.clone();
        let reload = tokio::spawn(async move {
            let config = crate::Config::new().server(hidden);
            reload.reload(config).await
        });
        let configured = || !handle.slot.config().tools.deny.is_empty();
        until("the reload is under way", configured).await;
        pings().await;
        assert!(!reload.is_finished(), "it is answered when it is seen");
        assert_eq!(handle.catalog().tools.len(), 1);
        rules.give_back();
        reload.await.unwrap().unwrap();
        assert_eq!(handle.catalog().tools.len(), 0, "the new rules hold");

        runtime
            .reload(crate::Config::new().server(config))
            .await
            .unwrap();
        assert_eq!(handle.catalog().tools.len(), 1);
        let rules = Rules::hold(&handle.slot).await;
        handle.slot.tell_pins_changed();
        pings().await;
        rules.give_back();
        runtime.shutdown(DEADLINE).await;
    }
}
