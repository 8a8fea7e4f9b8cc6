//! State shared by the connections of one scripted server and its control.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use tokio::sync::{Semaphore, mpsc, watch};

use super::record::{Ending, Record};
use super::script::Script;

/// One live connection, as the control and the steps of a behaviour see it.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) outgoing: mpsc::UnboundedSender<ServerJsonRpcMessage>,
    pub(super) ending: watch::Sender<Option<Ending>>,
}

impl Live {
    /// Ends the connection; the first cause wins.
    pub(super) fn end(&self, cause: Ending) {
        self.ending.send_if_modified(|ending| {
            let first = ending.is_none();
            ending.get_or_insert(cause);
            first
        });
    }
}

#[derive(Debug)]
pub(super) struct Scripts {
    /// For every generation without its own script.
    pub(super) common: Script,
    pub(super) by_generation: HashMap<u64, Script>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) record: Record,
    scripts: Mutex<Scripts>,
    live: Mutex<BTreeMap<u64, Live>>,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
    next_id: AtomicI64,
}

impl Shared {
    pub(super) fn new(script: Script) -> Self {
        Self {
            record: Record::default(),
            scripts: Mutex::new(Scripts {
                common: script,
                by_generation: HashMap::new(),
            }),
            live: Mutex::default(),
            gates: Mutex::default(),
            next_id: AtomicI64::new(1),
        }
    }

    pub(super) fn scripts(&self) -> MutexGuard<'_, Scripts> {
        lock(&self.scripts)
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Live>> {
        lock(&self.live)
    }

    /// Reads the script of a generation.
    pub(super) fn with_script<T>(&self, generation: u64, look: impl FnOnce(&Script) -> T) -> T {
        let scripts = self.scripts();
        look(
            scripts
                .by_generation
                .get(&generation)
                .unwrap_or(&scripts.common),
        )
    }

    /// The semaphore that held messages of a tool or method wait on.
    pub(super) fn gate(&self, key: &str) -> Arc<Semaphore> {
        let mut gates = lock(&self.gates);
        let gate = gates.entry(key.to_owned());
        Arc::clone(gate.or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    pub(super) fn next_id(&self) -> RequestId {
        RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}

/// A poisoned lock must not hide the panic of another test thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
