//! Requests and notifications of servers to the embedding program.
//!
//! Sampling, elicitation and roots are requests: a server waits for the answer. Log messages and
//! custom notifications have none. Only implemented callbacks are advertised; other requests are
//! declined, as the protocol requires. The connection task decides when and on which connection a
//! request is answered, and never waits for an answer itself.

mod answer;
mod answerer;
mod elicitation;
mod question;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mcpvisor_core::{Generation, ServerName};
use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, CustomNotification,
    ElicitResult, ElicitationCapability, JsonObject, LoggingMessageNotificationParam, Root,
};
use tokio::sync::Semaphore;

pub(crate) use self::answer::not_offered;
pub(crate) use self::answerer::BoundCallbacks;
pub use self::elicitation::{Form, OpenUrl};
pub(crate) use self::question::{Question, input_meta, request_meta};
use crate::api::request::RequestKey;

/// Default limit of concurrent requests of one server.
pub const CALLBACKS_AT_ONCE: usize = 8;

/// Default timeout of a callback.
pub const CALLBACK_DEADLINE: Duration = Duration::from_secs(300);

/// A request or a notification of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Incoming<P> {
    /// The server that sent it.
    pub server: ServerName,
    /// The connection that it came on.
    pub generation: Generation,
    /// The request of this program that caused it, if that is known:
    /// [`Request::key`](crate::Request::key).
    ///
    /// Known in protocol 2026-07-28, where every request of a server belongs to a call; over HTTP if
    /// it came in the response to a call; and else if only one call can have caused it. `None` for
    /// notifications.
    pub cause: Option<RequestKey>,
    /// Its metadata (`_meta`), as the server sent it.
    pub meta: JsonObject,
    /// Its parameters.
    pub params: P,
}

impl<P> Incoming<P> {
    pub(crate) fn new(server: ServerName, generation: Generation, params: P) -> Self {
        Self {
            server,
            generation,
            cause: None,
            meta: JsonObject::new(),
            params,
        }
    }

    /// The same message with other parameters, and the present ones.
    pub(crate) fn replace<Q>(self, params: Q) -> (Incoming<Q>, P) {
        let incoming = Incoming {
            server: self.server,
            generation: self.generation,
            cause: self.cause,
            meta: self.meta,
            params,
        };
        (incoming, self.params)
    }
}

type Answering<P, R> =
    Arc<dyn Fn(Incoming<P>) -> BoxFuture<'static, Result<R, ErrorData>> + Send + Sync>;
type Listening<P> = Arc<dyn Fn(Incoming<P>) -> BoxFuture<'static, ()> + Send + Sync>;

/// How the embedding program handles requests and notifications of servers.
///
/// Each callback is an async function. The server gets its result, or the error that it returns.
/// Callbacks run in separate tasks, with a limit and a timeout, so that a slow one blocks neither
/// its connection nor another server. A callback that needs the runtime holds a
/// [`WeakRuntime`](crate::WeakRuntime): a [`Runtime`](crate::Runtime) or a handle would keep the
/// runtime alive forever.
///
/// Some servers that support protocol 2026-07-28 and an older version can send requests only in the
/// older one: see
/// [`ServerConfig::prefer_older_protocol`](crate::ServerConfig::prefer_older_protocol).
///
/// The protocol deprecates sampling, roots and log messages, and rmcp marks their types
/// accordingly. A program that names `CreateMessageResult`, `SamplingMessage`, `Root` or
/// `LoggingLevel` needs `#[allow(deprecated)]` there; elicitation does not. See
/// [`rmcp`](crate::rmcp).
///
/// ```
/// use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction};
/// use mcpvisor::{Callbacks, Runtime};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let callbacks = Callbacks::new()
///     .elicitation_form(|incoming| async move {
///         println!("{} asks: {}", incoming.server, incoming.params.message);
///         let content = incoming.params.with_defaults(Default::default());
///         Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
///     })
///     .logs(|incoming| async move { println!("{}: {:?}", incoming.server, incoming.params.data) });
/// let runtime = Runtime::builder().callbacks(callbacks).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Callbacks {
    sampling: Option<Answering<CreateMessageRequestParams, CreateMessageResult>>,
    form: Option<Answering<Form, ElicitResult>>,
    url: Option<Answering<OpenUrl, ElicitResult>>,
    roots: Option<Answering<(), Vec<Root>>>,
    logs: Option<Listening<LoggingMessageNotificationParam>>,
    notifications: Option<Listening<CustomNotification>>,
    at_once: usize,
    deadline: Duration,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self::new()
    }
}

impl Callbacks {
    /// No callbacks: all requests of servers are declined.
    pub fn new() -> Self {
        Self {
            sampling: None,
            form: None,
            url: None,
            roots: None,
            logs: None,
            notifications: None,
            at_once: CALLBACKS_AT_ONCE,
            deadline: CALLBACK_DEADLINE,
        }
    }

    /// Handles requests for a model's answer (`sampling/createMessage`). Its types are deprecated:
    /// see [`rmcp`](crate::rmcp).
    #[must_use]
    pub fn sampling<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<CreateMessageRequestParams>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult, ErrorData>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Handles requests that a person fills in a form (`elicitation/create`).
    #[must_use]
    pub fn elicitation_form<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<Form>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, ErrorData>> + Send + 'static,
    {
        self.form = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Handles requests that a person opens a URL (`elicitation/create` in URL mode, and calls that
    /// the server refuses with code -32042 until it is opened).
    ///
    /// A call that was refused is sent again once the callback accepts and the server reports that
    /// the person is done, or after a minute without such a report.
    #[must_use]
    pub fn elicitation_url<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<OpenUrl>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, ErrorData>> + Send + 'static,
    {
        self.url = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Lists the folders that servers may work in (`roots/list`). `Root` is deprecated: see
    /// [`rmcp`](crate::rmcp).
    #[must_use]
    pub fn roots<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<()>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Root>, ErrorData>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Receives the log messages of all servers, in order. A slow callback misses some, like a
    /// reader of [`crate::Events`].
    #[must_use]
    pub fn logs<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<LoggingMessageNotificationParam>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.logs = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Receives notifications that the protocol does not define, in order. A slow callback misses
    /// some, like a reader of [`crate::Events`].
    #[must_use]
    pub fn notifications<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Incoming<CustomNotification>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.notifications = Some(Arc::new(move |incoming| callback(incoming).boxed()));
        self
    }

    /// Limits concurrent requests; further ones are rejected. It counts per connection for the
    /// callbacks of the runtime, and over all servers for those of a client. 0 means 1.
    #[must_use]
    pub fn at_once(mut self, questions: usize) -> Self {
        self.at_once = questions.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Limits how long a callback may take; the request then fails.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The limit of concurrent requests.
    pub(crate) fn limit(&self) -> usize {
        self.at_once
    }

    /// Whether a person can be asked to open a URL.
    pub(crate) fn opens_urls(&self) -> bool {
        self.url.is_some()
    }

    /// The capabilities that are advertised to servers.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.sampling = self.sampling.is_some().then(Default::default);
        capabilities.roots = self.roots.is_some().then(Default::default);
        if self.form.is_some() || self.url.is_some() {
            let mut elicitation = ElicitationCapability::new();
            elicitation.form = self.form.is_some().then(Default::default);
            elicitation.url = self.url.is_some().then(Default::default);
            capabilities.elicitation = Some(elicitation);
        }
        capabilities
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("capabilities", &self.capabilities())
            .field("logs", &self.logs.is_some())
            .field("notifications", &self.notifications.is_some())
            .field("at_once", &self.at_once)
            .field("deadline", &self.deadline)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_implemented_is_advertised() {
        let shown = |callbacks: &Callbacks| serde_json::to_value(callbacks.capabilities()).unwrap();
        assert_eq!(shown(&Callbacks::new()), serde_json::json!({}));
        let decline = |_| async { Err(not_offered()) };
        let form = Callbacks::new().elicitation_form(|_| async { Err(not_offered()) });
        assert_eq!(
            shown(&form),
            serde_json::json!({ "elicitation": { "form": {} } })
        );
        let all = Callbacks::new()
            .sampling(|_| async { Err(not_offered()) })
            .elicitation_url(|_| async { Err(not_offered()) })
            .roots(decline)
            .logs(|_| async {});
        assert_eq!(
            shown(&all),
            serde_json::json!({ "sampling": {}, "roots": {}, "elicitation": { "url": {} } })
        );
    }
}
