//! Tasks: calls that a server runs on its own, and whose result is fetched later.
//!
//! Every poll is an ordinary request, so a task survives lost connections. Two versions of the
//! protocol have tasks: 2025-11-25, where a call is sent as a task, and the extension of 2026-07-28,
//! where the server decides that a call becomes one.

mod cancel;
mod start;
pub(crate) mod state;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ErrorCode, GetTaskParams, GetTaskRequest, TaskStatus,
};
use serde_json::Value;

pub(crate) use self::cancel::CancelOnDrop;
pub(crate) use self::start::TaskOptions;
pub use self::start::{TaskRequest, TaskStart};
pub use self::state::TaskInfo;
use self::state::TaskState;
pub use self::wait::TaskResult;
pub(crate) use self::wait::{TaskWait, WaitTerms, is_final};
use crate::api::error::CallError;
use crate::api::handle::ServerHandle;
use crate::api::request::Request;
use crate::state::kept_tasks;

/// A task of a server: a call whose result is fetched later. It stays valid across reconnects, and
/// dropping it leaves the task running.
///
/// ```no_run
/// # async fn example(builds: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
/// use mcpvisor::TaskStart;
/// use serde_json::json;
///
/// match builds.call_tool("build", json!({ "target": "release" })).as_task().keep().await? {
///     // The id is in the state folder: another run can pick the task up.
///     TaskStart::Started(task) => println!("started {}", task.id()),
///     // The server answered the call at once.
///     TaskStart::Answered(result) => println!("{result:?}"),
/// }
/// for task in builds.kept_tasks().await {
///     println!("{}: {:?}", task.id(), task.result().await?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskHandle {
    server: ServerHandle,
    id: Arc<str>,
    tool: Option<Arc<str>>,
    started: Option<SystemTime>,
    kept: bool,
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("server", self.server.name())
            .field("id", &self.id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl TaskHandle {
    pub(crate) fn new(server: &ServerHandle, id: &str, tool: Option<&str>) -> Self {
        Self {
            server: server.clone(),
            id: id.into(),
            tool: tool.map(Into::into),
            started: None,
            kept: false,
        }
    }

    pub(crate) fn with_kept(self, kept: bool) -> Self {
        Self {
            started: Some(SystemTime::now()),
            kept,
            ..self
        }
    }

    pub(crate) fn of_kept(server: &ServerHandle, kept: &kept_tasks::KeptTask) -> Self {
        Self {
            started: Some(kept.started()),
            kept: true,
            ..Self::new(server, &kept.id, kept.tool.as_deref())
        }
    }

    /// The server's id of the task. Treat it like a password: servers may let everyone who knows it
    /// fetch the result.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The server that runs the task.
    pub fn server(&self) -> &ServerHandle {
        &self.server
    }

    /// The tool that was called, if it is known.
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }

    /// When a kept task was started.
    pub fn started(&self) -> Option<SystemTime> {
        self.started
    }

    /// Whether the id is in the state folder: the task was started with
    /// [`keep`](TaskRequest::keep), or comes from [`ServerHandle::kept_tasks`].
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Asks the server for the status of the task. [`CallError::TaskUnknown`]: the server does not
    /// know it, or not any more.
    pub async fn status(&self) -> Result<TaskInfo, CallError> {
        let state = self.get(None).await?;
        Ok(state.info)
    }

    /// Waits for the result of the task: polls as often as the server suggests, through lost
    /// connections, and answers its questions with the callbacks. Dropping it, or its deadline,
    /// leaves the task running.
    pub fn result(&self) -> TaskResult {
        TaskResult::new(self.clone())
    }

    /// Cancels the task at the server (`tasks/cancel`), and returns its status then: cancellation is
    /// cooperative, so the task may go on for a while, or may have ended before.
    pub async fn cancel(&self) -> Result<TaskInfo, CallError> {
        let cancelled = self.request_cancel().await;
        let status = match cancelled {
            // 2025-11-25 answers with the task.
            Ok(answer) => match TaskState::read(answer) {
                Ok(state) => Ok(state.info),
                Err(_) => self.status().await,
            },
            // The task is unknown, or has ended.
            Err(CallError::Answered { error, .. }) if error.code == ErrorCode::INVALID_PARAMS => {
                self.status().await
            }
            Err(error) => Err(error),
        };
        let ended = match &status {
            Ok(info) => info.status == TaskStatus::Cancelled,
            Err(error) => matches!(error, CallError::TaskUnknown { .. }),
        };
        if ended {
            self.forget().await;
        }
        status
    }

    /// Removes the id from the state folder, if it is there. The task itself is not affected.
    pub async fn forget(&self) {
        kept_tasks::forget(&self.server.slot, &self.id).await;
    }

    fn request_cancel(&self) -> Request<Value> {
        let request = CancelTaskRequest::new(CancelTaskParams::new(&*self.id));
        Request::new(&self.server, "tasks/cancel", request).of_runtime()
    }

    /// Polls the status once.
    async fn get(&self, deadline: Option<Duration>) -> Result<TaskState, CallError> {
        let request = GetTaskRequest::new(GetTaskParams::new(&*self.id));
        let mut request = Request::<Value>::new(&self.server, "tasks/get", request).of_runtime();
        if let Some(deadline) = deadline {
            request = request.deadline(deadline);
        }
        let state = request.await.map_err(|error| match error {
            CallError::Answered { error, .. } if error.code == ErrorCode::INVALID_PARAMS => {
                self.unknown()
            }
            error => error,
        })?;
        TaskState::read(state).map_err(|problem| CallError::Unreadable {
            server: self.server.name().clone(),
            method: "tasks/get".into(),
            problem,
        })
    }

    fn unknown(&self) -> CallError {
        CallError::TaskUnknown {
            server: self.server.name().clone(),
            task: self.id.to_string(),
        }
    }
}

impl ServerHandle {
    /// A handle to a task by its id, from any earlier run.
    pub fn task(&self, id: impl AsRef<str>) -> TaskHandle {
        TaskHandle::new(self, id.as_ref(), None)
    }

    /// The tasks that were started with [`keep`](TaskRequest::keep), in this run or an earlier one
    /// with the same state folder, and whose outcome was not fetched yet. At most 1,000, for at most
    /// 7 days, oldest first. Sends nothing to the server.
    pub async fn kept_tasks(&self) -> Vec<TaskHandle> {
        let kept = kept_tasks::list(&self.slot).await;
        kept.iter()
            .map(|it| TaskHandle::of_kept(self, it))
            .collect()
    }
}
