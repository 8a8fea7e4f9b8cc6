//! Turns a fetched list into the catalog that callers see.
//!
//! The cost grows with the list: it is compared, scanned, and hashed where tools are pinned. So a
//! large list is processed on a blocking thread. The actor applies the result if its inputs
//! (config, approvals, other lists) have not changed meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{Generation, ListKind};

use super::active_config::ActiveConfig;
use super::actor::ServerState;
use super::message::{ApproveReply, ControlReply, FetchFailure, ServerMessage};
use super::slot::ServerSlot;
use crate::api::error::ControlError;
use crate::catalog::{ListDiff, ServerCatalog};
use crate::state::pins::HeldTool;

/// Off-thread attempts before falling back to the actor, so that a server whose other lists change
/// constantly cannot starve a large one.
const MAX_ATTEMPTS: u32 = 3;

/// A list as it was fetched.
#[derive(Debug, Clone)]
pub(crate) struct FetchedList {
    pub(super) generation: Generation,
    pub(super) list: ListKind,
    /// How long it stays valid, if the server says so.
    pub(super) time_to_live: Option<Duration>,
    /// A catalog with this list alone.
    pub(super) catalog: ServerCatalog,
    /// The config of the connection that fetched it.
    pub(super) config: Arc<ActiveConfig>,
    /// Who it belongs to.
    pub(super) owner: String,
    /// Off-thread attempts whose inputs changed meanwhile.
    pub(super) attempts: u32,
}

/// What the result of processing depends on, beside the list itself.
#[derive(Debug)]
struct Inputs {
    fetched: Arc<ServerCatalog>,
    visible: Arc<ServerCatalog>,
    held_announced: bool,
    config: Arc<ActiveConfig>,
    approvals_revision: u64,
}

/// The result of processing a fetched list.
#[derive(Debug)]
pub(crate) struct ProcessedList {
    pub(super) fetched: FetchedList,
    inputs: Inputs,
    /// All lists as they were fetched, with this one.
    pub(super) all: ServerCatalog,
    pub(super) visible: VisibleChange,
}

/// The catalog that callers are to see.
#[derive(Debug)]
pub(super) struct VisibleChange {
    pub(super) catalog: ServerCatalog,
    /// How it differs from the one before.
    pub(super) diff: ListDiff,
    /// Tools that were not held in this run, or differ from those that were.
    pub(super) newly_held: Vec<String>,
}

/// Tools that were filtered again, after a change of the config or of the approvals.
#[derive(Debug)]
pub(crate) struct RefilteredTools {
    /// None if the blocking thread panicked.
    result: Option<(Inputs, VisibleChange)>,
    attempts: u32,
    reply: Option<ReplyWhenPublished>,
}

/// A request that is answered when the new rules are published.
#[derive(Debug)]
pub(crate) enum ReplyWhenPublished {
    /// To a reload.
    Reconfigured(ControlReply),
    /// To a request to approve tools, with its outcome.
    Approved(ApproveReply, Result<Vec<String>, ControlError>),
}

impl ReplyWhenPublished {
    pub(super) fn send(self) {
        match self {
            Self::Reconfigured(reply) => drop(reply.send(Ok(()))),
            Self::Approved(reply, outcome) => drop(reply.send(outcome)),
        }
    }
}

impl Inputs {
    /// Whether both inputs give the same result.
    fn is_same(&self, other: &Self) -> bool {
        self.approvals_revision == other.approvals_revision
            && self.held_announced == other.held_announced
            && Arc::ptr_eq(&self.config, &other.config)
            && Arc::ptr_eq(&self.fetched, &other.fetched)
            && self.visible.shares_all(&other.visible)
    }
}

impl ProcessedList {
    /// Processes a list. Must not run on an async worker if the list is large.
    fn new(slot: &ServerSlot, inputs: Inputs, fetched: FetchedList) -> Self {
        let FetchedList { list, catalog, .. } = &fetched;
        let mut all = inputs.fetched.taking(*list, catalog);
        all.share(&inputs.fetched);
        let visible = VisibleChange::new(slot, *list, &all, &inputs);
        Self {
            fetched,
            inputs,
            all,
            visible,
        }
    }
}

impl VisibleChange {
    /// Lists that are dropped.
    pub(super) fn dropped(catalog: ServerCatalog, diff: ListDiff) -> Self {
        Self {
            catalog,
            diff,
            newly_held: Vec::new(),
        }
    }

    fn new(slot: &ServerSlot, list: ListKind, fetched: &ServerCatalog, inputs: &Inputs) -> Self {
        let mut catalog = slot.visible_part(fetched);
        let old = &*inputs.visible;
        let diff = ListDiff::of(list, old, &catalog);
        let announced = if inputs.held_announced {
            &*old.held
        } else {
            &[]
        };
        let newly_held = newly_held(announced, &catalog.held);
        catalog.share(old);
        Self {
            catalog,
            diff,
            newly_held,
        }
    }
}

fn newly_held(old: &[HeldTool], new: &[HeldTool]) -> Vec<String> {
    // Reversed, so that the first of two tools with the same name counts.
    let old: HashMap<&str, &HeldTool> = old.iter().rev().map(|it| (&*it.tool, it)).collect();
    let is_new = |it: &&HeldTool| old.get(&*it.tool) != Some(it);
    new.iter()
        .filter(is_new)
        .map(|it| it.tool.clone())
        .collect()
}

impl ServerState {
    fn processing_inputs(&self) -> Inputs {
        let state = self.slot.restart_state();
        Inputs {
            fetched: Arc::clone(&state.lists.fetched),
            visible: Arc::clone(&state.lists.visible),
            held_announced: state.lists.held_announced,
            config: self.slot.config(),
            approvals_revision: self.lists.approvals_revision,
        }
    }

    /// Processes a list on the actor's thread.
    pub(super) fn process_inline(&mut self, fetched: FetchedList) {
        let processed = ProcessedList::new(&self.slot, self.processing_inputs(), fetched);
        self.apply_list(processed);
    }

    /// Processes a list on a blocking thread, which reports back with a message.
    pub(super) fn process_off_thread(&self, fetched: FetchedList) {
        let (generation, list) = (fetched.generation, fetched.list);
        let owner = fetched.owner.clone();
        let (slot, inputs) = (Arc::clone(&self.slot), self.processing_inputs());
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let process = move || ProcessedList::new(&slot, inputs, fetched);
            let message = match tokio::task::spawn_blocking(process).await {
                Ok(processed) => ServerMessage::ListProcessed(Box::new(processed)),
                Err(problem) => ServerMessage::ListFetched {
                    generation,
                    list,
                    owner,
                    result: Err(FetchFailure::Failed(problem.to_string())),
                },
            };
            let _ = myself.send_message(message);
        });
    }

    /// Applies a large list, or processes it again if its inputs changed meanwhile.
    pub(super) fn list_processed(&mut self, processed: ProcessedList) {
        if !self.is_current(processed.fetched.generation)
            || processed.inputs.is_same(&self.processing_inputs())
        {
            return self.apply_list(processed);
        }
        let mut fetched = processed.fetched;
        fetched.attempts += 1;
        if fetched.attempts < MAX_ATTEMPTS {
            self.process_off_thread(fetched);
        } else {
            self.process_inline(fetched);
        }
    }

    /// Filters the tools again after a change of the rules, and replies when the result is
    /// published. Until then the old rules hold. Large lists are filtered on a blocking thread.
    pub(super) fn refilter_tools(&mut self, reply: Option<ReplyWhenPublished>) {
        if self.slot.restart_state().lists.fetched.is_large() {
            self.refilter_off_thread(reply, 0);
        } else {
            self.refilter_inline(reply);
        }
    }

    fn refilter_inline(&mut self, reply: Option<ReplyWhenPublished>) {
        let inputs = self.processing_inputs();
        let visible = VisibleChange::new(&self.slot, ListKind::Tools, &inputs.fetched, &inputs);
        self.publish_refiltered(visible, reply);
    }

    fn refilter_off_thread(&self, reply: Option<ReplyWhenPublished>, attempts: u32) {
        let (slot, inputs) = (Arc::clone(&self.slot), self.processing_inputs());
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let refilter = tokio::task::spawn_blocking(move || {
                let visible = VisibleChange::new(&slot, ListKind::Tools, &inputs.fetched, &inputs);
                (inputs, visible)
            });
            let refiltered = RefilteredTools {
                result: refilter.await.ok(),
                attempts: attempts + 1,
                reply,
            };
            let _ = myself.send_message(ServerMessage::ToolsRefiltered(Box::new(refiltered)));
        });
    }

    /// Publishes a large filtered list, or filters it again if its inputs changed meanwhile.
    pub(super) fn tools_refiltered(&mut self, refiltered: RefilteredTools) {
        let RefilteredTools {
            result,
            attempts,
            reply,
        } = refiltered;
        match result {
            Some((inputs, visible)) if inputs.is_same(&self.processing_inputs()) => {
                self.publish_refiltered(visible, reply);
            }
            Some(_) if attempts < MAX_ATTEMPTS => self.refilter_off_thread(reply, attempts),
            Some(_) | None => self.refilter_inline(reply),
        }
    }

    fn publish_refiltered(&mut self, visible: VisibleChange, reply: Option<ReplyWhenPublished>) {
        self.apply_visible(ListKind::Tools, visible);
        self.publish_changes();
        if let Some(reply) = reply {
            reply.send();
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

    /// A server with one tool, whose description has `length` characters.
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

    /// The test locks the approvals, so that the processing takes as long as the test needs.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_continue_while_a_large_list_is_processed() {
        let wordy = Wordy::default();
        let config = ServerConfig::new("a", Transport::in_process(wordy.clone())).unwrap();
        let runtime = Runtime::builder().server(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let handle = runtime.server("a").unwrap();
        let length = 2 * 1024 * 1024;
        wordy.length.store(length, Ordering::Relaxed);
        let approvals = LockedApprovals::lock(&handle.slot).await;
        runtime.reconnect("a").await.unwrap();
        let listed = || wordy.listed.load(Ordering::Relaxed) == 2;
        until("listed again", listed).await;
        for _ in 0..200 {
            let ping = handle.ping().deadline(DEADLINE / 4);
            ping.await.unwrap();
        }
        let published = || {
            handle.catalog().tools[0]
                .description
                .as_ref()
                .map(|it| it.len())
        };
        assert_eq!(published(), Some(0), "still being processed");
        approvals.unlock();
        until("published", || published() == Some(length)).await;
        // One message publishes the list first, then that it is fresh.
        until("fresh", || !handle.catalog().stale).await;
        runtime.shutdown(DEADLINE).await;
    }

    /// Locks the approvals, so that filtering by them takes as long as the test needs.
    struct LockedApprovals {
        unlock: std::sync::mpsc::Sender<()>,
        thread: std::thread::JoinHandle<()>,
    }

    impl LockedApprovals {
        async fn lock(slot: &Arc<ServerSlot>) -> Self {
            let (locked, is_locked) = tokio::sync::oneshot::channel();
            let (unlock, unlocked) = std::sync::mpsc::channel::<()>();
            let slot = Arc::clone(slot);
            let thread = std::thread::spawn(move || {
                let _approvals = slot.shared.pins.approval();
                locked.send(()).unwrap();
                let _ = unlocked.recv_timeout(DEADLINE);
            });
            is_locked.await.unwrap();
            Self { unlock, thread }
        }

        fn unlock(self) {
            self.unlock.send(()).unwrap();
            self.thread.join().unwrap();
        }
    }

    /// A reload and an approval filter all tools again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_continue_while_a_large_list_is_filtered_again() {
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

        let approvals = LockedApprovals::lock(&handle.slot).await;
        let mut hidden = config.clone();
        hidden.tools = crate::ToolFilter::new([""; 0], ["talk"]);
        let reload = runtime.clone();
        let reload = tokio::spawn(async move {
            let config = crate::Config::new().server(hidden);
            reload.reload(config).await
        });
        let configured = || !handle.slot.config().tools.deny.is_empty();
        until("the reload has begun", configured).await;
        pings().await;
        assert!(!reload.is_finished(), "answered when published");
        assert_eq!(handle.catalog().tools.len(), 1);
        approvals.unlock();
        reload.await.unwrap().unwrap();
        assert_eq!(handle.catalog().tools.len(), 0, "the new filter applies");

        runtime
            .reload(crate::Config::new().server(config))
            .await
            .unwrap();
        assert_eq!(handle.catalog().tools.len(), 1);
        let approvals = LockedApprovals::lock(&handle.slot).await;
        handle.slot.notify_approvals_changed();
        pings().await;
        approvals.unlock();
        runtime.shutdown(DEADLINE).await;
    }
}
