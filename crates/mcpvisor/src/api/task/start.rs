//! Starts a call as a task.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::model::CallToolResult;

use super::TaskHandle;
use super::wait::Running;
use crate::api::error::CallError;
use crate::api::request::Request;

/// How a call that was to become a task began.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is matched where it is returned"
)]
pub enum TaskStart {
    /// The server runs it as a task.
    Started(TaskHandle),
    /// The server has no tasks, or answered the call at once.
    Answered(CallToolResult),
}

/// A call that is to become a task. It is sent when it is first polled, and ends when the server has
/// accepted the task, or answered the call.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct TaskRequest {
    call: Request<CallToolResult>,
    options: TaskOptions,
    running: Option<Running<TaskStart>>,
}

/// How a call becomes a task.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TaskOptions {
    /// Keep its id in the state folder.
    pub(crate) keep: bool,
    /// How long the server is to keep the task.
    pub(crate) ttl: Option<Duration>,
}

impl Request<CallToolResult> {
    /// Starts the call as a task instead of waiting for its result.
    ///
    /// In protocol 2026-07-28 the server decides whether a call becomes a task. In 2025-11-25 the
    /// call is sent as one if its tool allows it. Otherwise this waits for the result. Dropping the
    /// future before it ends cancels the call.
    ///
    /// Without this a call that becomes a task is awaited like any other: its deadline covers the
    /// task, and the task is cancelled at the server when the deadline passes or the future is
    /// dropped.
    pub fn as_task(self) -> TaskRequest {
        TaskRequest {
            call: self,
            options: TaskOptions::default(),
            running: None,
        }
    }
}

impl TaskRequest {
    /// Keeps the id of the task in the state folder, so that another run of the program can pick it
    /// up with [`ServerHandle::kept_tasks`](crate::ServerHandle::kept_tasks). Only the id, the tool's
    /// name and the time are stored. [`TaskHandle::is_kept`] tells whether it was stored: a runtime
    /// may have no state folder.
    pub fn keep(mut self) -> Self {
        self.options.keep = true;
        self
    }

    /// How long the server is to keep the task after its creation. Only 2025-11-25 has this, and the
    /// server may choose another time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }
}

impl Future for TaskRequest {
    type Output = Result<TaskStart, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(options) = self.call.take_options() {
            let task = self.options;
            self.running = Some(Running(Box::pin(options.start_task(task))));
        }
        match &mut self.running {
            Some(running) => running.0.as_mut().poll(context),
            // A request has either its options or its future.
            None => Poll::Pending,
        }
    }
}
