//! Calls that become tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ClientRequest, ErrorCode, ServerResult};
use tokio::time::timeout_at;

use super::terms::Terms;
use super::{Options, Request};
use crate::api::error::CallError;
use crate::api::reply::Failure;
use crate::api::task::state::{Answered, TaskState, read_answer};
use crate::api::task::{CancelOnDrop, TaskHandle, TaskOptions, TaskStart, TaskWait, WaitTerms};
use crate::catalog::task_support::{self, TaskSupport};
use crate::link::TaskParam;
use crate::server::actor::now;
use crate::state::kept_tasks;

/// How long to wait until a connected server has listed its tools, to learn whether one has to be
/// called as a task.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

impl Options {
    /// Submits a tool call, as a task if its tool has to be called as one.
    pub(super) async fn submit_call(
        &mut self,
        terms: &mut Terms,
        tool: &str,
    ) -> Result<Answered, Failure> {
        let support = self.task_support(terms, tool);
        if support == Some(TaskSupport::Required) {
            self.task.get_or_insert_default();
        }
        let as_task = self.task.is_some();
        let answer = match &self.request {
            Ok(request) if support.is_none() && !as_task => {
                let spare = Box::new(request.clone());
                Box::pin(self.submit_unlisted(terms, tool, spare)).await?
            }
            _ => self.submit(terms).await?,
        };
        read_answer(answer, self.task.is_some()).map_err(Failure::Unreadable)
    }

    /// Submits an ordinary call of a tool that is not listed yet. If the server refuses it because it
    /// has to be a task, it is submitted again as one.
    async fn submit_unlisted(
        &mut self,
        terms: &mut Terms,
        tool: &str,
        spare: Box<ClientRequest>,
    ) -> Result<ServerResult, Failure> {
        let error = match self.submit(terms).await {
            Err(Failure::Error(error)) if may_require_task(&error) => error,
            answer => return answer,
        };
        if self.listed_task_support(terms, tool).await != Some(TaskSupport::Required) {
            return Err(Failure::Error(error));
        }
        self.request = Ok(*spare);
        self.task = Some(TaskParam::default());
        self.submit(terms).await
    }

    /// Whether a tool can be called as a task. `None` if its definition is not known.
    fn task_support(&self, terms: &Terms, tool: &str) -> Option<TaskSupport> {
        let slot = &terms.slot;
        let info = slot.published.peer_info.load();
        if info
            .as_ref()
            .is_some_and(|info| !task_support::calls_as_tasks(info))
        {
            return Some(TaskSupport::Forbidden);
        }
        slot.callers_catalog().tool(tool).map(TaskSupport::of)
    }

    /// Likewise, once the connected server has listed its tools.
    async fn listed_task_support(&self, terms: &Terms, tool: &str) -> Option<TaskSupport> {
        let mut changes = self.handle.catalog_changes();
        let until = terms.due.min(now() + LIST_TIMEOUT);
        let listed = async {
            loop {
                if let Some(support) = self.task_support(terms, tool) {
                    return Some(support);
                }
                changes.changed().await?;
            }
        };
        timeout_at(until.into(), listed).await.ok().flatten()
    }

    /// Waits for a task as for a call: it is cancelled at the server if the caller stops waiting.
    pub(super) async fn await_task(
        self: Box<Self>,
        terms: &Terms,
        tool: Option<&str>,
        state: TaskState,
    ) -> Result<CallToolResult, CallError> {
        let task = TaskHandle::new(&self.handle.at(&terms.slot), &state.info.id, tool);
        let mut cancel = CancelOnDrop::new(&task);
        let wait = WaitTerms {
            method: terms.method.clone(),
            deadline: terms.deadline,
            due: terms.due,
            key: Some(self.key),
            callbacks: self.callbacks,
            begun: self.begun,
        };
        let outcome = TaskWait::new(task, wait).run(Some(state)).await;
        if crate::api::task::is_final(&outcome) {
            cancel.disarm();
        }
        outcome
    }

    /// Sends a call that is to become a task, and waits until the server has accepted it.
    pub(crate) async fn start_task(
        mut self: Box<Self>,
        options: TaskOptions,
    ) -> Result<TaskStart, CallError> {
        let mut terms = Terms::new(&self);
        let tool = self.tool();
        if let Some(tool) = tool.as_deref() {
            self.task = self.wanted_task(&terms, tool, &options).await?;
        }
        let state = match self.answer(&mut terms, tool.as_deref()).await? {
            Answered::Result(ServerResult::CallToolResult(result)) => {
                #[cfg(feature = "schema-check")]
                let result = terms.checked(tool.as_deref(), result).await?;
                return Ok(TaskStart::Answered(result));
            }
            Answered::Result(_) => {
                let problem = "expected a result or a task, got another kind".to_owned();
                return Err(terms.error(tool.as_deref(), Failure::Unreadable(problem)));
            }
            Answered::Task(state) => state,
        };
        let task = TaskHandle::new(
            &self.handle.at(&terms.slot),
            &state.info.id,
            tool.as_deref(),
        );
        let mut cancel = CancelOnDrop::new(&task);
        let kept = options.keep && kept_tasks::keep(&terms.slot, task.id(), tool.as_deref()).await;
        cancel.disarm();
        Ok(TaskStart::Started(task.with_kept(kept)))
    }

    /// Whether a call is sent as a task of 2025-11-25. A server that has not listed its tools is
    /// connected first: only its list says whether it may be.
    async fn wanted_task(
        &self,
        terms: &Terms,
        tool: &str,
        options: &TaskOptions,
    ) -> Result<Option<TaskParam>, CallError> {
        let mut support = self.task_support(terms, tool);
        if support.is_none() {
            let remaining = terms.due.saturating_duration_since(now());
            let ping =
                Request::<()>::new(&self.handle, "ping", rmcp::model::PingRequest::default());
            ping.of_runtime().deadline(remaining).await?;
            support = self.listed_task_support(terms, tool).await;
        }
        let allowed = matches!(support, Some(TaskSupport::Optional | TaskSupport::Required));
        let ttl = options
            .ttl
            .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        Ok(allowed.then_some(TaskParam { ttl }))
    }
}

/// Whether a server may refuse an ordinary call this way because its tool has to be called as a
/// task.
fn may_require_task(error: &ErrorData) -> bool {
    matches!(
        error.code,
        ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_REQUEST
    )
}
