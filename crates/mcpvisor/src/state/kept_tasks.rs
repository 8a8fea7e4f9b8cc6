//! The ids of tasks that a program wants to pick up after a restart.
//!
//! One small file per server and account, readable by its owner alone: a server may let everyone who
//! knows an id fetch the result. It never contains arguments or results. An unreadable file is
//! ignored.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::server::slot::ServerSlot;
use crate::state::file_ops::{WRITE_TIMEOUT, was_already_hung};
use crate::state::state_dir::StateDir;

/// Tasks that are kept of one server and account; beyond that the oldest is dropped.
pub(crate) const MAX_TASKS: usize = 1_000;

/// How long the id of a task is kept.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The folder in the state folder.
const FOLDER: &str = "tasks";

/// The format version of the file; other versions are ignored.
const VERSION: u32 = 1;

/// The contents of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TaskFile {
    version: u32,
    server: String,
    /// Oldest first.
    tasks: Vec<KeptTask>,
}

/// A task that can be picked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptTask {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// When it was started, in seconds since 1970.
    started: u64,
}

impl KeptTask {
    pub(crate) fn started(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.started)
    }
}

/// Keeps the id of a task that was started now. Returns whether it is stored.
pub(crate) async fn keep(slot: &Arc<ServerSlot>, id: &str, tool: Option<&str>) -> bool {
    let task = KeptTask {
        id: id.to_owned(),
        tool: tool.map(str::to_owned),
        started: seconds(SystemTime::now()),
    };
    edit(slot, move |tasks| {
        tasks.retain(|it| it.id != task.id);
        tasks.push(task);
        true
    })
    .await
}

/// Removes the id of a task, if it is kept.
pub(crate) async fn forget(slot: &Arc<ServerSlot>, id: &str) {
    let id = id.to_owned();
    edit(slot, move |tasks| {
        let before = tasks.len();
        tasks.retain(|it| it.id != id);
        tasks.len() != before
    })
    .await;
}

/// The kept tasks of a server, oldest first.
pub(crate) async fn list(slot: &Arc<ServerSlot>) -> Vec<KeptTask> {
    let Some((state, file)) = task_file(slot) else {
        return Vec::new();
    };
    let server = slot.name().to_string();
    let (ops, path) = (state.ops().clone(), state.path(&file));
    let read = ops.run(&path, WRITE_TIMEOUT, move || read(&state, &file, &server));
    match read.await {
        Ok(tasks) => tasks,
        Err(problem) => {
            warn(slot, &problem);
            Vec::new()
        }
    }
}

/// Changes the kept tasks of a server. `change` returns whether there is something to write. Returns
/// whether the change is stored.
async fn edit(
    slot: &Arc<ServerSlot>,
    change: impl FnOnce(&mut Vec<KeptTask>) -> bool + Send + 'static,
) -> bool {
    let Some((state, file)) = task_file(slot) else {
        return false;
    };
    let server = slot.name().to_string();
    let (ops, path) = (state.ops().clone(), state.path(&file));
    let work = move || {
        let _lock = state.lock(FOLDER)?;
        let mut tasks = read(&state, &file, &server)?;
        if !change(&mut tasks) {
            return Ok(());
        }
        if tasks.is_empty() {
            return state.remove(&file).map(drop);
        }
        let excess = tasks.len().saturating_sub(MAX_TASKS);
        tasks.drain(..excess);
        let contents = serde_json::to_vec(&TaskFile {
            version: VERSION,
            server,
            tasks,
        })?;
        state.write(&file, &contents)
    };
    match ops.run(&path, WRITE_TIMEOUT, work).await {
        Ok(()) => true,
        Err(problem) => {
            warn(slot, &problem);
            false
        }
    }
}

/// The tasks in a file that are not too old. May block forever: called within an operation.
fn read(state: &StateDir, file: &str, server: &str) -> io::Result<Vec<KeptTask>> {
    let Some(contents) = state.read(file)? else {
        return Ok(Vec::new());
    };
    let Ok(stored) = serde_json::from_slice::<TaskFile>(&contents) else {
        return Ok(Vec::new());
    };
    if stored.version != VERSION || stored.server != server {
        return Ok(Vec::new());
    }
    let oldest = seconds(SystemTime::now()).saturating_sub(MAX_AGE.as_secs());
    let mut tasks = stored.tasks;
    tasks.retain(|task| task.started >= oldest);
    Ok(tasks)
}

fn warn(slot: &ServerSlot, problem: &io::Error) {
    if !was_already_hung(problem) {
        tracing::warn!(server = %slot.name(), %problem, "cannot keep the ids of tasks");
    }
}

/// The folder and the file of a server's tasks; `None` without a state folder, and for a server in
/// this process, which ends with it.
fn task_file(slot: &ServerSlot) -> Option<(StateDir, String)> {
    let state = slot.host.state.clone()?;
    let config = slot.config();
    let file = config.transport.needs_io().then(|| {
        let fingerprint = config.fingerprint();
        format!(
            "{FOLDER}/{}.json",
            fingerprint.trim_start_matches("sha256:")
        )
    });
    Some((state, file?))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
