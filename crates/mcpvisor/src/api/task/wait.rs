//! Waits for the result of a task: polls, answers its questions, and fetches the result.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mcpvisor_core::machine::FaultClass;
use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::task_polling;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, CustomRequest, ErrorCode, InputRequests, TaskStatus, UpdateTaskParams,
    UpdateTaskRequest,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::TaskHandle;
use super::state::{TaskInfo, TaskState};
use crate::api::agent::Cancellations;
use crate::api::callbacks::{BoundCallbacks, Callbacks};
use crate::api::error::{CallError, NotSentReason};
#[cfg(feature = "schema-check")]
use crate::api::request::result_check;
use crate::api::request::{MAX_DEADLINE, Request, RequestKey};
use crate::connection::collect_input;
use crate::link::TASK_RESULT;
use crate::server::actor::now;
use crate::unknown_fields;

/// Inputs that one task may require.
const MAX_INPUTS: usize = 64;

/// Answers in a row that are errors or cannot be read, before the wait ends.
const MAX_BAD_ANSWERS: u32 = 5;

/// A running wait. Boxed, since it is large, to keep callers' futures small.
pub(super) struct Running<T>(pub(super) Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>);

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// Waits for the result of a task. Set its options, then await it.
#[must_use = "nothing is polled until it is awaited"]
#[derive(Debug)]
pub struct TaskResult {
    /// Until the first poll.
    wait: Option<TaskWait>,
    /// From the first poll on.
    running: Option<Running<CallToolResult>>,
}

impl TaskResult {
    pub(super) fn new(task: TaskHandle) -> Self {
        let terms = WaitTerms {
            method: "tasks/get".into(),
            deadline: MAX_DEADLINE,
            due: now(),
            key: None,
            callbacks: None,
            begun: None,
        };
        Self {
            wait: Some(TaskWait::new(task, terms)),
            running: None,
        }
    }

    fn set(mut self, set: impl FnOnce(&mut TaskWait)) -> Self {
        if let Some(wait) = &mut self.wait {
            set(wait);
        }
        self
    }

    /// Limits the wait. Without it, the wait lasts as long as the server knows the task.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|wait| wait.terms.deadline = deadline)
    }

    /// Answers the questions of the task, instead of the callbacks of the client or of the runtime.
    pub fn callbacks(self, callbacks: impl Into<Arc<Callbacks>>) -> Self {
        let callbacks = callbacks.into();
        self.set(|wait| wait.terms.callbacks = Some(callbacks))
    }

    /// Sends every polled status to `sink`. It is dropped while the sink is full.
    pub fn on_status(self, sink: mpsc::Sender<TaskInfo>) -> Self {
        self.set(|wait| wait.sink = Some(sink))
    }
}

impl Future for TaskResult {
    type Output = Result<CallToolResult, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(mut wait) = self.wait.take() {
            wait.terms.due = now() + wait.terms.deadline.min(MAX_DEADLINE);
            self.running = Some(Running(Box::pin(wait.run(None))));
        }
        match &mut self.running {
            Some(running) => running.0.as_mut().poll(context),
            // It has either its options or its future.
            None => Poll::Pending,
        }
    }
}

/// How a task is awaited.
#[derive(Debug)]
pub(crate) struct WaitTerms {
    /// The request that errors name.
    pub(crate) method: Cow<'static, str>,
    /// The limit that the caller set.
    pub(crate) deadline: Duration,
    /// When it passes.
    pub(crate) due: Instant,
    /// The call that became the task.
    pub(crate) key: Option<RequestKey>,
    /// Answer its questions; else those of the client or of the runtime do.
    pub(crate) callbacks: Option<Arc<Callbacks>>,
    /// The cancellations of the client when the call began; now if there are none.
    pub(crate) begun: Option<Cancellations>,
}

/// One wait for a task.
#[derive(Debug)]
pub(crate) struct TaskWait {
    task: TaskHandle,
    terms: WaitTerms,
    sink: Option<mpsc::Sender<TaskInfo>>,
    /// The inputs that were given.
    given: BTreeSet<String>,
}

impl TaskWait {
    pub(crate) fn new(task: TaskHandle, terms: WaitTerms) -> Self {
        Self {
            task,
            terms,
            sink: None,
            given: BTreeSet::new(),
        }
    }

    /// Waits for the outcome. `first` is the known status, if there is one.
    pub(crate) async fn run(
        mut self,
        first: Option<TaskState>,
    ) -> Result<CallToolResult, CallError> {
        let agent = self.task.server.agent.clone();
        let outcome = match agent {
            Some(agent) => {
                let begun = self.terms.begun.unwrap_or_else(|| agent.cancellations());
                let outcome = agent.unless_cancelled_since(begun, self.outcome(first));
                outcome.await.unwrap_or_else(|| Err(self.withdrawn()))
            }
            None => self.outcome(first).await,
        };
        if is_final(&outcome) {
            self.task.forget().await;
        }
        outcome
    }

    async fn outcome(&mut self, first: Option<TaskState>) -> Result<CallToolResult, CallError> {
        let mut state = match first {
            Some(state) if state.info.status == TaskStatus::Working => state,
            // What created the task does not carry its result or its questions.
            _ => self.poll(Duration::ZERO).await?,
        };
        let mut polls = 0;
        loop {
            if let Some(sink) = &self.sink {
                // A full sink misses this status; the next one supersedes it.
                let _ = sink.try_send(state.info.clone());
            }
            let interval = state.info.poll_interval;
            let result = match state.info.status {
                TaskStatus::Completed | TaskStatus::Failed => match state.outcome {
                    Some(outcome) => Some(outcome),
                    None => self.fetch_result().await?,
                },
                TaskStatus::Cancelled => return Err(self.cancelled(state.info.message)),
                TaskStatus::InputRequired => match state.input {
                    Some(requests) => {
                        self.give_input(requests).await?;
                        None
                    }
                    // A server of 2025-11-25 sends requests while the result is awaited.
                    None => self.fetch_result().await?,
                },
                // Working, and what rmcp may add.
                _ => None,
            };
            if let Some(result) = result {
                let result = self.result(result)?;
                #[cfg(feature = "schema-check")]
                let result = self.checked(result).await?;
                return Ok(result);
            }
            let delay = task_polling::delay(interval, polls, 0);
            polls = polls.saturating_add(1);
            state = self.poll(delay).await?;
        }
    }

    /// Polls after a delay, and again while polls fail for reasons that may pass.
    async fn poll(&self, mut delay: Duration) -> Result<TaskState, CallError> {
        let interval = Some(delay);
        let mut failures = Failures::default();
        loop {
            self.pause(delay).await?;
            match self.task.get(Some(self.remaining())).await {
                Ok(state) => return Ok(state),
                Err(error) => failures.add(self.unless_transient(error)?)?,
            }
            delay = task_polling::delay(interval, 0, failures.in_row);
        }
    }

    /// Fetches the result from a server of 2025-11-25, which answers when the task has ended.
    /// `None` if the request was lost; the next poll decides.
    async fn fetch_result(&self) -> Result<Option<Outcome>, CallError> {
        let params = json!({ "taskId": &*self.task.id });
        let request = CustomRequest::new(TASK_RESULT, Some(params));
        let remaining = self.remaining();
        let mut request = Request::<Value>::new(&self.task.server, TASK_RESULT, request)
            .of_runtime()
            .deadline(remaining)
            .idle_timeout(remaining);
        if let Some(key) = self.terms.key {
            request = request.on_behalf_of(key);
        }
        if let Some(callbacks) = &self.terms.callbacks {
            request = request.callbacks(Arc::clone(callbacks));
        }
        match request.await {
            Ok(Value::Object(result)) => Ok(Some(Ok(result))),
            Ok(_) => Err(self.unreadable("the result of the task is not an object".to_owned())),
            Err(CallError::Answered { error, .. }) => {
                if error.code == ErrorCode::INVALID_PARAMS {
                    // The call's own error, or an unknown task.
                    self.task
                        .get(Some(self.remaining()))
                        .await
                        .map_err(|it| self.named(it))?;
                }
                Ok(Some(Err(error)))
            }
            Err(error) => self.unless_transient(error).map(|_| None),
        }
    }

    /// Answers the requests of a task that were not answered before.
    async fn give_input(&mut self, requests: InputRequests) -> Result<(), CallError> {
        let new = requests.into_iter();
        let new: InputRequests = new.filter(|(key, _)| !self.given.contains(key)).collect();
        if new.is_empty() {
            return Ok(());
        }
        if self.given.len() + new.len() > MAX_INPUTS {
            return Err(self.no_input(format!("it requires more than {MAX_INPUTS} inputs")));
        }
        let keys: Vec<String> = new.keys().cloned().collect();
        let slot = &self.task.server.slot;
        let callbacks = self.callbacks();
        let collected = collect_input(slot, slot.generation(), &callbacks, self.terms.key, new);
        let collected = tokio::time::timeout_at(self.terms.due.into(), collected).await;
        let responses = match collected {
            Ok(responses) => responses.map_err(|problem| self.no_input(problem))?,
            Err(_) => return Err(self.late()),
        };
        let mut failures = Failures::default();
        loop {
            // Servers ignore responses that they have already, so it may be repeated.
            let params = UpdateTaskParams::new(&*self.task.id, responses.clone());
            let request = UpdateTaskRequest::new(params);
            let request = Request::<()>::new(&self.task.server, "tasks/update", request);
            match request.of_runtime().deadline(self.remaining()).await {
                Ok(()) => break,
                Err(error) => failures.add(self.unless_transient(error)?)?,
            }
            self.pause(task_polling::delay(None, 0, failures.in_row))
                .await?;
        }
        self.given.extend(keys);
        Ok(())
    }

    /// The callbacks of the wait, of the client, or of the runtime.
    fn callbacks(&self) -> BoundCallbacks {
        let server = &self.task.server;
        let of_client = server.agent.as_ref().and_then(|it| it.callbacks.clone());
        match (&self.terms.callbacks, of_client) {
            (Some(own), _) => {
                let owner = Answerer::Call(server.slot.calls.next_id());
                BoundCallbacks::new(owner, Arc::clone(own))
            }
            (None, Some(of_client)) => of_client,
            (None, None) => {
                let callbacks = Arc::clone(&server.slot.host.callbacks);
                BoundCallbacks::new(Answerer::Runtime, callbacks)
            }
        }
    }

    fn result(&self, outcome: Outcome) -> Result<CallToolResult, CallError> {
        match outcome {
            Ok(result) => unknown_fields::from_value(Value::Object(result))
                .map_err(|problem| self.unreadable(problem.to_string())),
            Err(error) => Err(CallError::Answered {
                server: self.task.server.name().clone(),
                method: Arc::from(&*self.terms.method),
                error,
            }),
        }
    }

    /// Checks the result, if the config says so and the tool is known.
    #[cfg(feature = "schema-check")]
    async fn checked(&self, mut result: CallToolResult) -> Result<CallToolResult, CallError> {
        if let Some(tool) = &self.task.tool {
            let slot = &self.task.server.slot;
            let mode = slot.config().check_results;
            result_check::check(slot, mode, tool, &mut result, self.terms.due).await?;
        }
        Ok(result)
    }

    async fn pause(&self, delay: Duration) -> Result<(), CallError> {
        let until = (now() + delay).min(self.terms.due);
        tokio::time::sleep_until(until.into()).await;
        if now() >= self.terms.due {
            return Err(self.late());
        }
        Ok(())
    }

    fn remaining(&self) -> Duration {
        self.terms.due.saturating_duration_since(now())
    }

    /// Whether a request about the task failed for a reason that may pass, such as a lost
    /// connection. Otherwise the error that ends the wait.
    fn unless_transient(&self, error: CallError) -> Result<Transient, CallError> {
        let budget = &self.task.server.slot.config().settings.budget;
        match &error {
            CallError::TaskUnknown { .. } => Err(error),
            _ if now() >= self.terms.due => Err(self.late()),
            CallError::Answered { .. } | CallError::Unreadable { .. } => {
                Ok(Transient::BadAnswer(self.unreachable(error)))
            }
            CallError::NotSent {
                reason: NotSentReason::Parked(_),
                ..
            } if !budget.wake_on_call => Err(self.unreachable(error)),
            CallError::NotSent {
                reason:
                    NotSentReason::NoConnection(_)
                    | NotSentReason::Parked(_)
                    | NotSentReason::NotRead
                    | NotSentReason::ActorRestarted,
                ..
            }
            | CallError::OutcomeUnknown { .. }
            | CallError::Busy { .. }
            | CallError::Deadline { .. } => Ok(Transient::Connection),
            CallError::Refused { class, .. } if *class != FaultClass::Authorization => {
                Ok(Transient::Connection)
            }
            CallError::Cancelled { .. }
            | CallError::NotSent {
                reason: NotSentReason::ClientClosed,
                ..
            } => Err(self.withdrawn()),
            _ => Err(self.unreachable(error)),
        }
    }

    /// An error about the task itself stays; any other means that its outcome is not known.
    fn named(&self, error: CallError) -> CallError {
        match error {
            CallError::TaskUnknown { .. } => error,
            error => self.unreachable(error),
        }
    }

    fn unreachable(&self, cause: CallError) -> CallError {
        CallError::TaskUnreachable {
            server: self.task.server.name().clone(),
            task: self.task.id.to_string(),
            cause: Box::new(cause),
        }
    }

    fn unreadable(&self, problem: String) -> CallError {
        CallError::Unreadable {
            server: self.task.server.name().clone(),
            method: Arc::from(&*self.terms.method),
            problem,
        }
    }

    fn no_input(&self, problem: String) -> CallError {
        CallError::InputRequired {
            server: self.task.server.name().clone(),
            method: Arc::from(&*self.terms.method),
            problem,
        }
    }

    fn cancelled(&self, message: Option<String>) -> CallError {
        CallError::TaskCancelled {
            server: self.task.server.name().clone(),
            task: self.task.id.to_string(),
            message,
        }
    }

    /// The client cancelled its requests.
    fn withdrawn(&self) -> CallError {
        CallError::Cancelled {
            server: self.task.server.name().clone(),
            method: Arc::from(&*self.terms.method),
        }
    }

    fn late(&self) -> CallError {
        CallError::Deadline {
            server: self.task.server.name().clone(),
            method: Arc::from(&*self.terms.method),
            after: self.terms.deadline,
            sent: true,
            idle: false,
            cause: None,
            stderr: None,
        }
    }
}

/// The result of a call, or its error.
type Outcome = Result<rmcp::model::JsonObject, ErrorData>;

/// Why a poll failed, though the next may succeed.
enum Transient {
    /// The connection is lost, or the server is busy.
    Connection,
    /// The server answered, but not with a status. The error if it does so again and again.
    BadAnswer(CallError),
}

/// Failed polls in a row.
#[derive(Default)]
struct Failures {
    in_row: u32,
    bad_answers: u32,
}

impl Failures {
    fn add(&mut self, failure: Transient) -> Result<(), CallError> {
        self.in_row = self.in_row.saturating_add(1);
        match failure {
            Transient::Connection => self.bad_answers = 0,
            Transient::BadAnswer(error) => {
                self.bad_answers += 1;
                if self.bad_answers == MAX_BAD_ANSWERS {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Whether the server has nothing more to say about the task.
pub(crate) fn is_final(outcome: &Result<CallToolResult, CallError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => matches!(
            error,
            CallError::Answered { .. }
                | CallError::Unreadable { .. }
                | CallError::InvalidResult { .. }
                | CallError::TaskUnknown { .. }
                | CallError::TaskCancelled { .. }
        ),
    }
}
