//! A request: its options, and the future that waits for its outcome.
//!
//! The future runs in the caller's task. Dropping it notifies the actor, which cancels the request
//! at the server.

mod from_result;
mod submission;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mcpvisor_core::{Priority, RetryPolicy};
use rmcp::model::{ClientRequest, GetMeta, ProgressNotificationParam, RequestMetaObject};
use tokio::sync::mpsc;

pub use self::from_result::FromResult;
use crate::api::callbacks::Callbacks;
use crate::api::error::{CallError, RequestContext};
use crate::api::handle::ServerHandle;
use crate::api::reply::Failure;
use crate::server::actor::now;

/// Cap of every deadline, so that clock arithmetic cannot overflow.
const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A request that is sent when it is first polled. Set its options, then await it.
///
/// ```no_run
/// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
/// use std::time::Duration;
///
/// let result = files
///     .call_tool("search", serde_json::json!({ "q": "reconnect" }))
///     .deadline(Duration::from_secs(20))
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// It is a future: `join_all`, `tokio::join!`, `select!`, `JoinSet::spawn` and `timeout` accept it
/// directly. Dropping it cancels the request at the server.
///
/// ```no_run
/// # async fn example(files: mcpvisor::ServerHandle) {
/// use futures_util::future::join_all;
/// use serde_json::json;
///
/// let paths = ["a.txt", "b.txt", "c.txt"];
/// let results = join_all(paths.map(|path| files.call_tool("read", json!({ "path": path })))).await;
/// # }
/// ```
#[must_use = "a request does nothing until it is awaited"]
pub struct Request<R> {
    /// Until the first poll.
    options: Option<Options>,
    /// From the first poll on.
    running: Option<Running<R>>,
}

/// A running request. Boxed at the first poll, since it is large, to keep callers' futures small.
type Running<R> = Pin<Box<dyn Future<Output = Result<R, CallError>> + Send>>;

/// The request and its options.
#[derive(Debug)]
struct Options {
    handle: ServerHandle,
    request: Result<ClientRequest, String>,
    method: &'static str,
    deadline: Option<Duration>,
    idle: Option<Duration>,
    retry: RetryPolicy,
    priority: Priority,
    progress: Option<mpsc::Sender<ProgressNotificationParam>>,
    callbacks: Option<Arc<Callbacks>>,
}

impl<R> fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("options", &self.options)
            .field("is_sent", &self.running.is_some())
            .finish()
    }
}

impl<R> Request<R> {
    pub(crate) fn new(
        handle: &ServerHandle,
        method: &'static str,
        request: impl Into<ClientRequest>,
    ) -> Self {
        Self::checked(handle, method, Ok(request.into()))
    }

    pub(crate) fn checked(
        handle: &ServerHandle,
        method: &'static str,
        request: Result<ClientRequest, String>,
    ) -> Self {
        Self {
            options: Some(Options {
                handle: handle.clone(),
                request,
                method,
                deadline: None,
                idle: None,
                retry: RetryPolicy::Default,
                priority: Priority::Normal,
                progress: None,
                callbacks: None,
            }),
            running: None,
        }
    }

    /// A request that is answered without a server. Its options have no effect.
    pub(crate) fn local(
        answer: impl Future<Output = Result<R, CallError>> + Send + 'static,
    ) -> Self {
        Self {
            options: None,
            running: Some(Box::pin(answer)),
        }
    }

    /// Has no effect on a request that was already polled.
    fn set(mut self, set: impl FnOnce(&mut Options)) -> Self {
        if let Some(options) = &mut self.options {
            set(options);
        }
        self
    }

    /// Limits the whole request: queueing, connecting, retry and the call itself.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|options| options.deadline = Some(deadline))
    }

    /// Limits how long a sent request may be silent. Progress restarts it, but never extends the
    /// deadline.
    pub fn idle_timeout(self, idle: Duration) -> Self {
        self.set(|options| options.idle = Some(idle))
    }

    /// Sets whether the request may be retried when its reply is lost.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.set(|options| options.retry = retry)
    }

    /// Orders the request among the queued requests of its own client. It does not affect other
    /// clients or requests in flight. Requests that wait for their client's
    /// [quota](crate::ClientBuilder::quota) keep their order of arrival.
    pub fn priority(self, priority: Priority) -> Self {
        self.set(|options| options.priority = priority)
    }

    /// Sends the server's progress to `sink`. Progress is dropped while the sink is full.
    pub fn on_progress(self, sink: mpsc::Sender<ProgressNotificationParam>) -> Self {
        self.set(|options| options.progress = Some(sink))
    }

    /// Answers the requests of the server that this request causes, instead of the callbacks of its
    /// client or of the runtime. See [`ClientBuilder::callbacks`](crate::ClientBuilder::callbacks)
    /// for what older versions of the protocol advertise and how they are routed.
    pub fn callbacks(self, callbacks: impl Into<Arc<Callbacks>>) -> Self {
        let callbacks = callbacks.into();
        self.set(|options| options.callbacks = Some(callbacks))
    }

    /// Adds metadata to the request, such as a trace context.
    pub fn meta(self, meta: RequestMetaObject) -> Self {
        self.set(|options| {
            if let Ok(request) = &mut options.request {
                request.get_meta_mut().extend(meta);
            }
        })
    }
}

impl<R: FromResult + 'static> Future for Request<R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(options) = self.options.take() {
            self.running = Some(Box::pin(options.run()));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            // A request has either its options or its future.
            None => Poll::Pending,
        }
    }
}

impl Options {
    async fn run<R: FromResult>(self) -> Result<R, CallError> {
        let slot = Arc::clone(&self.handle.slot);
        let config = slot.config();
        let settings = &config.settings;
        let deadline = self.deadline.unwrap_or(settings.timeouts.call);
        let idle = self.idle.unwrap_or(settings.timeouts.idle);
        let (method, client) = (self.method, self.handle.client());
        let context = |tool| RequestContext {
            server: slot.name().clone(),
            method,
            tool,
            deadline,
            idle,
            limit: settings
                .admission
                .in_flight
                .saturating_add(settings.admission.waiting),
            expected_wait: slot.calls.expected_wait(client),
            obstacle: slot.published.obstacle(),
        };
        let tool = match &self.request {
            Ok(ClientRequest::CallToolRequest(call)) => Some(call.params.name.clone()),
            _ => None,
        };
        if let Some(tool) = &tool
            && let Err(hidden) = self.handle.sees(tool)
        {
            return Err(context(Some(tool.to_string())).error(hidden));
        }
        let due = now() + deadline.min(MAX_DEADLINE);
        if let Some(tool) = &tool {
            slot.refresh_approval(tool, due).await;
        }
        #[cfg(feature = "schema-check")]
        if config.check_arguments
            && let Err(failure) = submission::check_arguments(&slot, &self.request, due).await
        {
            return Err(context(tool.map(String::from)).error(failure));
        }
        match self.submit(due, idle).await {
            Ok(result) => R::from_result(result).map_err(|problem| {
                context(None).error(Failure::Unreadable(format!("{problem}, got another kind")))
            }),
            Err(failure) => Err(context(tool.map(String::from)).error(failure)),
        }
    }
}
