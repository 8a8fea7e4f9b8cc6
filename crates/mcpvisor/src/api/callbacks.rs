//! What servers may ask of the program that embeds the runtime, and what they tell it.
//!
//! Sampling, elicitation and roots are questions: a server waits for the answer. Log messages and
//! notifications of the server's own are told. Only what is implemented is advertised; the rest is
//! declined as the protocol says. When and on which connection a question is answered is left to
//! the connection task, which never waits for an answer itself.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mcpvisor_core::{Generation, ServerName};
use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ClientResult, ConstString, CreateMessageRequestMethod,
    CreateMessageRequestParams, CreateMessageResult, CustomNotification, ElicitRequestParams,
    ElicitResult, ElicitationCapability, ElicitationCreateRequestMethod, ElicitationSchema,
    ErrorCode, FormElicitationCapability, InputRequest, JsonObject, ListRootsRequestMethod,
    ListRootsResult, LoggingMessageNotificationParam, Root, RootsCapabilities, SamplingCapability,
    ServerRequest, UrlElicitationCapability,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api::events::{EventKind, Events, EventsError};
use crate::log_limit::{LogLimit, log_limited};

/// Questions of one server that are answered at the same time, unless it is set otherwise.
pub const CALLBACKS_AT_ONCE: usize = 8;

/// A question must be answered within this, unless it is set otherwise.
pub const CALLBACK_DEADLINE: Duration = Duration::from_secs(300);

/// A question or a message of a server's, and whose it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ask<P> {
    /// The server that asks.
    pub server: ServerName,
    /// The connection on which it asks.
    pub generation: Generation,
    /// What it asks.
    pub params: P,
}

impl<P> Ask<P> {
    pub(crate) fn new(server: ServerName, generation: Generation, params: P) -> Self {
        Self {
            server,
            generation,
            params,
        }
    }
}

/// A form that a server wants to be filled in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Form {
    /// What to tell the person. It is the server's text: not to be trusted.
    pub message: String,
    /// The fields.
    pub schema: ElicitationSchema,
}

impl Form {
    /// The content with every absent field that has a default filled in.
    ///
    /// ```
    /// # use mcpvisor::Form;
    /// # fn example(form: &Form) -> serde_json::Value {
    /// // Whoever accepts without touching a field accepts its default.
    /// serde_json::Value::Object(form.with_defaults(Default::default()))
    /// # }
    /// ```
    pub fn with_defaults(&self, mut content: JsonObject) -> JsonObject {
        for (name, field) in &self.schema.properties {
            if content.contains_key(name) {
                continue;
            }
            let default = serde_json::to_value(field)
                .ok()
                .and_then(|mut field| Some(field.get_mut("default")?.take()));
            if let Some(default) = default.filter(|default| !default.is_null()) {
                content.insert(name.clone(), default);
            }
        }
        content
    }
}

/// An address that a server wants a person to open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenUrl {
    /// What to tell the person. It is the server's text: not to be trusted.
    pub message: String,
    /// The address. Show it before it is opened, and never open it without being asked to.
    pub url: String,
    /// The server's name for this request.
    pub elicitation_id: String,
}

type Answering<P, R> =
    Arc<dyn Fn(Ask<P>) -> BoxFuture<'static, Result<R, ErrorData>> + Send + Sync>;
type Listening<P> = Arc<dyn Fn(Ask<P>) -> BoxFuture<'static, ()> + Send + Sync>;

/// What the embedding program does when a server asks or tells something.
///
/// Each callback is an async function. A question of a server's gets its result, or the error that
/// the callback returns. Callbacks run in tasks of their own, a bounded number at once and within a
/// deadline, so that a slow one holds up neither its connection nor another server. One that needs the
/// runtime holds a [`WeakRuntime`](crate::WeakRuntime): with the runtime itself, or a handle of it, it
/// would keep it for ever.
///
/// A server that speaks both protocol 2026-07-28 and an older one may be able to ask only in the older
/// one; [`ServerConfig::prefer_older_protocol`](crate::ServerConfig::prefer_older_protocol) is for such.
///
/// Sampling, roots and log messages are deprecated by the protocol, and rmcp marks their types so. A
/// program that names `CreateMessageResult`, `SamplingMessage`, `Root` or `LoggingLevel` needs
/// `#[allow(deprecated)]` there; elicitation needs nothing. See [`rmcp`](crate::rmcp).
///
/// ```
/// use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction};
/// use mcpvisor::{Callbacks, Runtime};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let callbacks = Callbacks::new()
///     .elicitation_form(|ask| async move {
///         println!("{} asks: {}", ask.server, ask.params.message);
///         let content = ask.params.with_defaults(Default::default());
///         Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
///     })
///     .logs(|ask| async move { println!("{}: {:?}", ask.server, ask.params.data) });
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
    /// Nothing is offered: whatever a server asks is declined.
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

    /// Lets servers ask a language model (`sampling/createMessage`). Its types are deprecated: see
    /// [`rmcp`](crate::rmcp).
    #[must_use]
    pub fn sampling<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<CreateMessageRequestParams>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult, ErrorData>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Lets servers ask a person to fill in a form (`elicitation/create`).
    #[must_use]
    pub fn elicitation_form<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<Form>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, ErrorData>> + Send + 'static,
    {
        self.form = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Lets servers ask a person to open an address (`elicitation/create` in its URL mode).
    #[must_use]
    pub fn elicitation_url<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<OpenUrl>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, ErrorData>> + Send + 'static,
    {
        self.url = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Tells servers which folders they may work in (`roots/list`). `Root` is deprecated: see
    /// [`rmcp`](crate::rmcp).
    #[must_use]
    pub fn roots<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<()>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Root>, ErrorData>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Hears the log messages of all servers, one after the other. One that is too slow misses some,
    /// as a reader of [`crate::Events`] does.
    #[must_use]
    pub fn logs<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<LoggingMessageNotificationParam>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.logs = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Hears the notifications that the protocol does not know, one after the other. One that is too
    /// slow misses some, as a reader of [`crate::Events`] does.
    #[must_use]
    pub fn notifications<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Ask<CustomNotification>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.notifications = Some(Arc::new(move |ask| callback(ask).boxed()));
        self
    }

    /// Questions of one connection that are answered at once; further ones are refused. Any number
    /// is taken, 0 as 1.
    #[must_use]
    pub fn at_once(mut self, questions: usize) -> Self {
        self.at_once = questions.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// A question that is not answered within this is refused.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many questions of one connection may be under way.
    pub(crate) fn limit(&self) -> usize {
        self.at_once
    }

    /// Whether any question of a server is answered.
    pub(crate) fn answers(&self) -> bool {
        self.sampling.is_some() || self.form.is_some() || self.url.is_some() || self.roots.is_some()
    }

    /// What servers are told that we offer.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        capabilities.sampling = self
            .sampling
            .as_ref()
            .map(|_| SamplingCapability::default());
        capabilities.roots = self.roots.as_ref().map(|_| RootsCapabilities::default());
        if self.form.is_some() || self.url.is_some() {
            let mut elicitation = ElicitationCapability::new();
            elicitation.form = self
                .form
                .as_ref()
                .map(|_| FormElicitationCapability::default());
            elicitation.url = self
                .url
                .as_ref()
                .map(|_| UrlElicitationCapability::default());
            capabilities.elicitation = Some(elicitation);
        }
        capabilities
    }

    /// Answers a question, however long that takes within the deadline. The error at once says that
    /// it is declined.
    pub(crate) fn answer(
        &self,
        ask: Ask<Question>,
    ) -> Result<impl Future<Output = Result<ClientResult, ErrorData>> + Send + use<>, ErrorData>
    {
        let answer = self.call(ask)?;
        let deadline = self.deadline;
        Ok(async move {
            let answer = AssertUnwindSafe(answer).catch_unwind();
            match tokio::time::timeout(deadline, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(ErrorData::internal_error(
                    "the client failed to answer",
                    None,
                )),
                Err(_) => Err(ErrorData::internal_error("nobody answered in time", None)),
            }
        })
    }

    fn call(
        &self,
        ask: Ask<Question>,
    ) -> Result<BoxFuture<'static, Result<ClientResult, ErrorData>>, ErrorData> {
        let Ask {
            server,
            generation,
            params,
        } = ask;
        macro_rules! call {
            ($callback:expr, $params:expr, $error:expr, $result:expr) => {{
                let callback = $callback.as_ref().ok_or_else($error)?;
                let ask = Ask::new(server, generation, $params);
                // The callback itself may panic before its future is there.
                let callback = Arc::clone(callback);
                Ok(async move { callback(ask).await.map($result) }.boxed())
            }};
        }
        match params {
            Question::Sampling(params) => call!(self.sampling, *params, not_offered, |result| {
                ClientResult::CreateMessageResult(Box::new(result))
            }),
            Question::Form(form) => {
                call!(
                    self.form,
                    form,
                    || self.no_mode(),
                    ClientResult::ElicitResult
                )
            }
            Question::Url(url) => {
                call!(self.url, url, || self.no_mode(), ClientResult::ElicitResult)
            }
            Question::Roots => call!(self.roots, (), not_offered, |roots| {
                ClientResult::ListRootsResult(ListRootsResult::new(roots))
            }),
            Question::Unreadable(kind, problem) if self.offers(kind) => {
                Err(ErrorData::invalid_params(problem, None))
            }
            Question::Unreadable(..) | Question::Other => Err(not_offered()),
        }
    }

    fn offers(&self, kind: Kind) -> bool {
        match kind {
            Kind::Sampling => self.sampling.is_some(),
            Kind::Elicitation => self.form.is_some() || self.url.is_some(),
            Kind::Roots => self.roots.is_some(),
        }
    }

    /// A mode that was not advertised is a wrong parameter where the other one was.
    fn no_mode(&self) -> ErrorData {
        if self.form.is_some() || self.url.is_some() {
            ErrorData::invalid_params("this client does not offer that mode of elicitation", None)
        } else {
            not_offered()
        }
    }

    /// Whether anything has to be told as it happens.
    pub(crate) fn listens(&self) -> bool {
        self.logs.is_some() || self.notifications.is_some()
    }

    /// Tells what happens, until the runtime is gone.
    pub(crate) async fn listen(self, mut events: Events) {
        let limit = LogLimit::default();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(EventsError::Lagged(missed)) => {
                    log_limited!(
                        limit,
                        WARN,
                        missed,
                        "callbacks were too slow and missed some events"
                    );
                    continue;
                }
                Err(EventsError::Closed) => return,
            };
            let told = match &event.kind {
                EventKind::Log(log) => tell(self.logs.as_ref(), &event, log),
                EventKind::Custom(custom) => tell(self.notifications.as_ref(), &event, custom),
                _ => None,
            };
            if let Some(told) = told
                && AssertUnwindSafe(told).catch_unwind().await.is_err()
            {
                log_limited!(limit, WARN, server = ?event.server, "a callback panicked");
            }
        }
    }
}

fn tell<P: Clone + Send + 'static>(
    callback: Option<&Listening<P>>,
    event: &crate::api::events::Event,
    params: &P,
) -> Option<BoxFuture<'static, ()>> {
    let callback = Arc::clone(callback?);
    let ask = Ask::new(event.server.clone()?, event.generation, params.clone());
    Some(async move { callback(ask).await }.boxed())
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

/// The answer to what we do not offer.
pub(crate) fn not_offered() -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        "this client does not offer that",
        None,
    )
}

/// A question of a server's.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Sampling(Box<CreateMessageRequestParams>),
    Form(Form),
    Url(OpenUrl),
    Roots,
    /// Of a kind that there is, but its parameters cannot be read.
    Unreadable(Kind, String),
    /// Something that no callback answers.
    Other,
}

/// The kinds of questions, by their methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sampling,
    Elicitation,
    Roots,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Sampling, Self::Elicitation, Self::Roots];

    fn method(self) -> &'static str {
        match self {
            Self::Sampling => CreateMessageRequestMethod::VALUE,
            Self::Elicitation => ElicitationCreateRequestMethod::VALUE,
            Self::Roots => ListRootsRequestMethod::VALUE,
        }
    }

    /// What is wrong with parameters that cannot be read.
    fn problem(self, params: Value) -> String {
        let problem = match self {
            Self::Sampling => serde_json::from_value::<CreateMessageRequestParams>(params).err(),
            Self::Elicitation => serde_json::from_value::<ElicitRequestParams>(params).err(),
            Self::Roots => None,
        };
        let method = self.method();
        match problem {
            Some(problem) => format!("the parameters of {method} cannot be read: {problem}"),
            None => format!("the parameters of {method} cannot be read"),
        }
    }
}

impl Question {
    fn elicitation(params: ElicitRequestParams) -> Self {
        match params {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => Self::Form(Form {
                message,
                schema: requested_schema,
            }),
            ElicitRequestParams::UrlElicitationParams {
                message,
                url,
                elicitation_id,
                ..
            } => Self::Url(OpenUrl {
                message,
                url,
                elicitation_id,
            }),
            _ => Self::Other,
        }
    }
}

impl Question {
    /// What is asked for, in an error.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sampling(_) => "an answer of a model",
            Self::Form(_) => "a form to be filled in",
            Self::Url(_) => "an address to be opened",
            Self::Roots => "the roots",
            Self::Unreadable(..) => "something that cannot be read",
            Self::Other => "something unknown",
        }
    }
}

impl From<ServerRequest> for Question {
    fn from(request: ServerRequest) -> Self {
        match request {
            ServerRequest::CreateMessageRequest(request) => {
                Self::Sampling(Box::new(request.params))
            }
            ServerRequest::ElicitRequest(request) => Self::elicitation(request.params),
            ServerRequest::ListRootsRequest(_) => Self::Roots,
            // What rmcp cannot read as one of the others is this.
            ServerRequest::CustomRequest(request) => {
                let kind = Kind::ALL
                    .into_iter()
                    .find(|kind| kind.method() == request.method);
                kind.map_or(Self::Other, |kind| {
                    Self::Unreadable(kind, kind.problem(request.params.unwrap_or_default()))
                })
            }
            _ => Self::Other,
        }
    }
}

impl From<InputRequest> for Question {
    fn from(request: InputRequest) -> Self {
        match request {
            InputRequest::CreateMessage(request) => Self::Sampling(Box::new(request.params)),
            InputRequest::Elicitation(request) => Self::elicitation(request.params),
            InputRequest::ListRoots(_) => Self::Roots,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: serde_json::Value) -> Form {
        Form {
            message: String::new(),
            schema: serde_json::from_value(schema).unwrap(),
        }
    }

    #[test]
    fn defaults_fill_what_is_absent_and_nothing_else() {
        let form = form(serde_json::json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "Ada" },
                "age": { "type": "integer", "default": 36 },
                "score": { "type": "number", "default": 9.5 },
                "keen": { "type": "boolean", "default": true },
                "status": { "type": "string", "enum": ["on", "off"], "default": "off" },
                "note": { "type": "string" },
            },
        }));
        let given = serde_json::json!({ "name": "Grace" });
        let content = form.with_defaults(given.as_object().unwrap().clone());
        assert_eq!(
            serde_json::Value::Object(content),
            serde_json::json!({
                "name": "Grace", "age": 36, "score": 9.5, "keen": true, "status": "off",
            })
        );
    }

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
