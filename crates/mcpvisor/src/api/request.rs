//! A request: its options, and the future that waits for its outcome.
//!
//! The future runs in the caller's task. Dropping it notifies the actor, which cancels the request
//! at the server.

mod from_result;
mod key;
#[cfg(feature = "schema-check")]
pub(crate) mod result_check;
mod rounds;
mod submission;
mod tasks;
mod terms;

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mcpvisor_core::{Priority, RetryPolicy};
use rmcp::model::{
    ClientCapabilities, ClientRequest, GetMeta, ProgressNotificationParam, RequestMetaObject,
    ServerResult,
};
use tokio::sync::mpsc;

pub use self::from_result::FromResult;
pub use self::key::RequestKey;
pub(crate) use self::rounds::{INPUT_REQUIRED, add_input, result_type};
pub use self::rounds::{InputRequired, Round};
use self::terms::Terms;
use crate::api::agent::Cancellations;
use crate::api::callbacks::Callbacks;
use crate::api::error::CallError;
use crate::api::handle::ServerHandle;
use crate::api::reply::Failure;
use crate::api::task::state::Answered;
use crate::link::{TaskParam, tool_name};

/// Cap of every deadline, so that clock arithmetic cannot overflow.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

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
    /// `None` if no server answers it.
    key: Option<RequestKey>,
    /// Until the first poll. Boxed, because requests and their futures are moved.
    options: Option<Box<Options>>,
    /// From the first poll on.
    running: Option<Running<R>>,
}

/// A running request. Boxed at the first poll, since it is large, to keep callers' futures small.
type Running<R> = Pin<Box<dyn Future<Output = Result<R, CallError>> + Send>>;

/// The request and its options.
#[derive(Debug)]
pub(crate) struct Options {
    handle: ServerHandle,
    key: RequestKey,
    request: Result<ClientRequest, String>,
    method: Cow<'static, str>,
    deadline: Option<Duration>,
    idle: Option<Duration>,
    retry: RetryPolicy,
    priority: Priority,
    progress: Option<mpsc::Sender<ProgressNotificationParam>>,
    callbacks: Option<Arc<Callbacks>>,
    /// What it advertises; the caller gets the input that the server requires.
    capabilities: Option<Box<ClientCapabilities>>,
    /// Sends a tool call as a task, where the server has them.
    task: Option<TaskParam>,
    /// A request of the runtime on behalf of a call: it needs no permit of the client's quota.
    of_runtime: bool,
    /// The cancellations of the client when it was submitted.
    begun: Option<Cancellations>,
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
        method: impl Into<Cow<'static, str>>,
        request: impl Into<ClientRequest>,
    ) -> Self {
        Self::checked(handle, method, Ok(request.into()))
    }

    pub(crate) fn checked(
        handle: &ServerHandle,
        method: impl Into<Cow<'static, str>>,
        request: Result<ClientRequest, String>,
    ) -> Self {
        let key = handle.slot.host.next_request_key();
        Self {
            key: Some(key),
            options: Some(Box::new(Options {
                handle: handle.clone(),
                key,
                request,
                method: method.into(),
                deadline: None,
                idle: None,
                retry: RetryPolicy::Default,
                priority: Priority::Normal,
                progress: None,
                callbacks: None,
                capabilities: None,
                task: None,
                of_runtime: false,
                begun: None,
            })),
            running: None,
        }
    }

    /// A request that is answered without a server. Its options have no effect.
    pub(crate) fn local(
        answer: impl Future<Output = Result<R, CallError>> + Send + 'static,
    ) -> Self {
        Self {
            key: None,
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

    /// The request and its options, once.
    pub(crate) fn take_options(&mut self) -> Option<Box<Options>> {
        self.options.take()
    }

    /// Exempts it from the client's quota: it belongs to a call that had its permit.
    pub(crate) fn of_runtime(self) -> Self {
        self.set(|options| options.of_runtime = true)
    }

    /// Belongs to another request: what the server asks meanwhile has that cause.
    pub(crate) fn on_behalf_of(self, key: RequestKey) -> Self {
        self.set(|options| options.key = key)
    }

    /// The id of the request, before and after it is sent. A request of the server that it causes
    /// carries it in [`Incoming::cause`](crate::Incoming). `None` for a request that no server
    /// answers, such as a search of tools.
    ///
    /// ```no_run
    /// # fn example(files: mcpvisor::ServerHandle) {
    /// let request = files.call_tool("search", serde_json::json!({ "q": "reconnect" }));
    /// let key = request.key();
    /// # }
    /// ```
    pub fn key(&self) -> Option<RequestKey> {
        self.key
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

    /// Adds metadata to the request (`_meta`), such as a trace context. It replaces entries of the
    /// same name. The result has the server's `_meta` unchanged.
    ///
    /// The runtime sets `progressToken` itself, and in protocol 2026-07-28 its own name, version and
    /// capabilities.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
    /// use mcpvisor::rmcp::model::RequestMetaObject;
    ///
    /// let mut meta = RequestMetaObject::new();
    /// meta.insert("com.example/tenant".to_owned(), "blue".into());
    /// let result = files.read_resource("file:///a").meta(meta).await?;
    /// println!("{:?}", result.meta);
    /// # Ok(())
    /// # }
    /// ```
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
    async fn run<R: FromResult>(mut self: Box<Self>) -> Result<R, CallError> {
        let mut terms = Terms::new(&self);
        let tool = self.tool();
        let is_setting = self.is_setting();
        let result = match self.answer(&mut terms, tool.as_deref()).await? {
            Answered::Result(result) if !terms.checks_results() => result,
            // Boxed, as everything that few calls need: the future is moved with every call.
            answered => Box::pin(self.finish(&terms, tool.as_deref(), answered)).await?,
        };
        let result = match is_setting {
            true => ServerResult::empty(()),
            false => result,
        };
        R::from_result(result).map_err(|problem| terms.error(None, Failure::Unreadable(problem)))
    }

    /// Checks a result, or waits for that of a task, which checks it.
    async fn finish(
        self: Box<Self>,
        terms: &Terms,
        tool: Option<&str>,
        answered: Answered,
    ) -> Result<ServerResult, CallError> {
        match answered {
            #[cfg(feature = "schema-check")]
            Answered::Result(ServerResult::CallToolResult(result)) => {
                let checked = terms.checked(tool, result).await?;
                Ok(ServerResult::CallToolResult(checked))
            }
            Answered::Result(result) => Ok(result),
            Answered::Task(state) => {
                let result = self.await_task(terms, tool, *state).await?;
                Ok(ServerResult::CallToolResult(result))
            }
        }
    }

    /// The tool that it calls.
    fn tool(&self) -> Option<Cow<'static, str>> {
        match &self.request {
            Ok(ClientRequest::CallToolRequest(call)) => Some(call.params.name.clone()),
            Ok(request) => tool_name(request).map(|name| Cow::Owned(name.to_owned())),
            Err(_) => None,
        }
    }

    /// Whether it has no result of its own: the runtime may answer it, or ask something else.
    fn is_setting(&self) -> bool {
        matches!(
            self.request,
            Ok(ClientRequest::PingRequest(_)
                | ClientRequest::SetLevelRequest(_)
                | ClientRequest::SubscribeRequest(_)
                | ClientRequest::UnsubscribeRequest(_))
        )
    }

    /// Whether its caller gets the result as it is, also if that is a task.
    fn is_raw(&self) -> bool {
        matches!(self.request, Ok(ClientRequest::CustomRequest(_)))
    }

    /// Checks the request, sends it and waits for its answer.
    async fn answer(
        &mut self,
        terms: &mut Terms,
        tool: Option<&str>,
    ) -> Result<Answered, CallError> {
        if let Some(tool) = tool {
            if let Err(hidden) = self.handle.sees(tool) {
                return Err(terms.error(Some(tool), hidden));
            }
            terms.slot.refresh_approval(tool, terms.due).await;
            #[cfg(feature = "schema-check")]
            if terms.config.check_arguments
                && let Err(failure) = Box::pin(submission::check_arguments(
                    &terms.slot,
                    &self.request,
                    terms.due,
                ))
                .await
            {
                return Err(terms.error(Some(tool), failure));
            }
        }
        let answer = match tool {
            Some(tool) if !self.is_raw() => self.submit_call(terms, tool).await,
            _ => self.submit(terms).await.map(Answered::Result),
        };
        answer.map_err(|failure| terms.error(tool, failure))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolResult;

    use super::*;

    /// The largest future of a running request, in bytes. It is moved to the heap with every call,
    /// so what few calls need is boxed.
    const MAX_FUTURE: usize = 1_500;

    fn size_of_output<T, F>(_: impl FnOnce(T) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_a_call_is_small() {
        let size = size_of_output(Options::run::<CallToolResult>);
        assert!(size <= MAX_FUTURE, "{size} bytes");
    }
}
