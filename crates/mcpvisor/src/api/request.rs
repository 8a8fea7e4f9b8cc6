//! One request of a caller's: its terms, and the wait for its one outcome.
//!
//! The wait happens in the caller's own task. Dropping it tells the actor, which cancels the
//! request at the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mcpvisor_core::machine::Outcome;
use mcpvisor_core::{CallId, ClientId, Priority, RetryPolicy};
use rmcp::model::{
    ClientRequest, GetMeta, NumberOrString, ProgressNotificationParam, ProgressToken,
    RequestMetaObject, ServerResult,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::api::error::{Asked, CallError};
use crate::api::handle::ServerHandle;
use crate::api::reply::{Failure, Reply};
use crate::server::actor::now;
use crate::server::call::Call;
use crate::server::message::ServerMessage;
use crate::server::slot::{Mailbox, Readiness, ServerSlot};

/// No request lasts longer, whatever its deadline says.
const LONGEST_DEADLINE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A request that is sent when it is first polled. Set its terms, then await it.
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
/// It is a future, so `join_all`, `tokio::join!`, `select!`, `JoinSet::spawn` and `timeout` take it as
/// it is. Dropping it cancels the request at the server.
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
    terms: Option<Terms>,
    /// From the first poll on.
    running: Option<Running<R>>,
}

/// A request on its way. Boxed at the first poll: it is large, and its callers' futures stay small.
type Running<R> = Pin<Box<dyn Future<Output = Result<R, CallError>> + Send>>;

/// What is asked, and how.
#[derive(Debug)]
struct Terms {
    handle: ServerHandle,
    request: Result<ClientRequest, String>,
    method: &'static str,
    deadline: Option<Duration>,
    idle: Option<Duration>,
    wish: RetryPolicy,
    priority: Priority,
    progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

impl<R> fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("terms", &self.terms)
            .field("is_sent", &self.running.is_some())
            .finish()
    }
}

/// A result that a [`Request`] may have.
pub trait FromResult: Sized + sealed::Sealed {
    /// The result, if the server answered with one of this kind.
    #[doc(hidden)]
    fn from_result(result: ServerResult) -> Result<Self, &'static str>;
}

mod sealed {
    /// Keeps the kinds of results to those of the protocol.
    pub trait Sealed {}
}

macro_rules! results {
    ($($variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for rmcp::model::$variant {}
        impl FromResult for rmcp::model::$variant {
            fn from_result(result: ServerResult) -> Result<Self, &'static str> {
                match result {
                    ServerResult::$variant(result) => Ok(result),
                    _ => Err(concat!("expected a ", stringify!($variant))),
                }
            }
        }
    )*};
}

results!(
    CallToolResult,
    ListToolsResult,
    ListPromptsResult,
    GetPromptResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    CompleteResult,
);

impl sealed::Sealed for () {}
impl FromResult for () {
    fn from_result(_: ServerResult) -> Result<Self, &'static str> {
        // Servers answer with an empty object, or with whatever they like.
        Ok(())
    }
}

impl<R> Request<R> {
    pub(crate) fn new(handle: &ServerHandle, method: &'static str, request: ClientRequest) -> Self {
        Self::checked(handle, method, Ok(request))
    }

    pub(crate) fn checked(
        handle: &ServerHandle,
        method: &'static str,
        request: Result<ClientRequest, String>,
    ) -> Self {
        Self {
            terms: Some(Terms {
                handle: handle.clone(),
                request,
                method,
                deadline: None,
                idle: None,
                wish: RetryPolicy::Default,
                priority: Priority::Normal,
                progress: None,
            }),
            running: None,
        }
    }

    /// Terms of a request that was polled already stay as they are.
    fn set(mut self, set: impl FnOnce(&mut Terms)) -> Self {
        if let Some(terms) = &mut self.terms {
            set(terms);
        }
        self
    }

    /// The whole request is over after this: waiting, connecting, retry and the call itself.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|terms| terms.deadline = Some(deadline))
    }

    /// Once sent, it may be silent this long; progress renews it, never beyond the deadline.
    pub fn idle_timeout(self, idle: Duration) -> Self {
        self.set(|terms| terms.idle = Some(idle))
    }

    /// What may be done when the answer is lost.
    pub fn retry(self, wish: RetryPolicy) -> Self {
        self.set(|terms| terms.wish = wish)
    }

    /// How urgent it is among the requests of its own client that wait for a place at the server. It
    /// takes no other client's turn, and nothing that was sent already is held up for it. Requests that
    /// wait for their client's own [quota](crate::ClientBuilder::quota) go in the order in which they
    /// came.
    pub fn priority(self, priority: Priority) -> Self {
        self.set(|terms| terms.priority = priority)
    }

    /// Where the server's progress goes. A sink that is full misses some of it.
    pub fn on_progress(self, sink: mpsc::Sender<ProgressNotificationParam>) -> Self {
        self.set(|terms| terms.progress = Some(sink))
    }

    /// Adds metadata to the request, such as a trace context.
    pub fn meta(self, meta: RequestMetaObject) -> Self {
        self.set(|terms| {
            if let Ok(request) = &mut terms.request {
                request.get_meta_mut().extend(meta);
            }
        })
    }
}

impl<R: FromResult + 'static> Future for Request<R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(terms) = self.terms.take() {
            self.running = Some(Box::pin(terms.run()));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            // A request has either its terms or its future.
            None => Poll::Pending,
        }
    }
}

impl Terms {
    async fn run<R: FromResult>(self) -> Result<R, CallError> {
        let slot = Arc::clone(&self.handle.slot);
        let config = slot.config();
        let settings = &config.settings;
        let deadline = self.deadline.unwrap_or(settings.timeouts.call);
        let idle = self.idle.unwrap_or(settings.timeouts.idle);
        let method = self.method;
        let asked = |tool| Asked {
            server: slot.name().clone(),
            method,
            tool,
            deadline,
            idle,
            limit: settings
                .admission
                .in_flight
                .saturating_add(settings.admission.waiting),
            obstacle: slot.obstacle(),
        };
        let request = self
            .request
            .map_err(|problem| asked(None).error(Failure::Invalid(problem)))?;
        let tool = match &request {
            ClientRequest::CallToolRequest(call) => Some(call.params.name.clone()),
            _ => None,
        };
        if let Some(tool) = &tool
            && let Err(hidden) = self.handle.sees(tool)
        {
            return Err(asked(Some(tool.to_string())).error(hidden));
        }
        // The clock holds only so much, whatever a caller asks for.
        let due = now() + deadline.min(LONGEST_DEADLINE);
        if let Some(tool) = &tool {
            slot.look_for_approval(tool, due).await;
        }
        #[cfg(feature = "schema-check")]
        if config.check_arguments
            && let Err(failure) = fits(&slot, &request, due).await
        {
            return Err(asked(tool.map(String::from)).error(failure));
        }
        let submission = Submission {
            slot: &slot,
            client: self.handle.client,
            quota: self.handle.quota.clone(),
            wish: self.wish,
            priority: self.priority,
            progress: self.progress,
            deadline: due,
            idle,
        };
        match submission.run(request).await {
            Ok(result) => R::from_result(result).map_err(|problem| {
                asked(None).error(Failure::Unreadable(format!("{problem}, got another kind")))
            }),
            Err(failure) => Err(asked(tool.map(String::from)).error(failure)),
        }
    }
}

/// Whether the arguments of a call fit the schema of its tool, as far as it is known. A schema that
/// takes long to check costs a call its time as anything else does.
#[cfg(feature = "schema-check")]
async fn fits(slot: &ServerSlot, request: &ClientRequest, due: Instant) -> Result<(), Failure> {
    let ClientRequest::CallToolRequest(call) = request else {
        return Ok(());
    };
    let catalog = slot.published();
    let Some(tool) = catalog.tool(&call.params.name) else {
        return Ok(());
    };
    let arguments = call.params.arguments.as_ref();
    let checked = slot.checks.check(&tool.name, &tool.input_schema, arguments);
    match tokio::time::timeout_at(due.into(), checked).await {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(Failure::InvalidArguments(problems)),
        Err(_) => Err(not_in_time()),
    }
}

/// One request on its way to the actor, and the wait for its answer.
struct Submission<'a> {
    slot: &'a Arc<ServerSlot>,
    client: ClientId,
    quota: Option<Arc<Semaphore>>,
    wish: RetryPolicy,
    priority: Priority,
    progress: Option<mpsc::Sender<ProgressNotificationParam>>,
    deadline: Instant,
    idle: Duration,
}

impl Submission<'_> {
    async fn run(self, mut request: ClientRequest) -> Result<ServerResult, Failure> {
        let _quota = self.take_quota().await?;
        let open = self.slot.admission.enter(self.client);
        let open = open.ok_or(Failure::Outcome(Outcome::Busy))?;
        let id = self.slot.next_call();
        if reports_progress(&request) {
            let token = ProgressToken(NumberOrString::Number(id.0 as i64));
            request.get_meta_mut().set_progress_token(token);
        }
        let (sender, answer) = oneshot::channel();
        let call = Box::new(Call {
            id,
            client: self.client,
            request: Some(request),
            wish: self.wish,
            priority: self.priority,
            deadline: self.deadline,
            idle: self.idle,
            progress: self.progress,
            reply: Reply::new(sender, open),
            rounds: 0,
            relisted: false,
            keep: false,
            refusal: None,
            seen: None,
        });
        // From here on the actor knows of the call, and hears of it when the caller leaves.
        let guard = LeaveGuard {
            slot: self.slot,
            call: id,
            armed: true,
        };
        submit(self.slot, call, self.deadline).await?;
        let answer = answer.await;
        guard.disarm();
        answer.unwrap_or(Err(Failure::ActorGone))
    }

    /// A client's own quota is waited for, within the deadline. A server that is off refuses at once,
    /// so what it is asked needs no place.
    async fn take_quota(&self) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        let Some(quota) = &self.quota else {
            return Ok(None);
        };
        if let Ok(permit) = Arc::clone(quota).try_acquire_owned() {
            return Ok(Some(permit));
        }
        tokio::select! {
            biased;
            permit = Arc::clone(quota).acquire_owned() => Ok(permit.ok()),
            () = hopeless(self.slot) => Ok(None),
            () = tokio::time::sleep_until(self.deadline.into()) => Err(not_in_time()),
        }
    }
}

/// Waits until a server stays as it is until somebody does something about it.
async fn hopeless(slot: &ServerSlot) {
    let mut readiness = slot.readiness.subscribe();
    // The sender lives in the slot, so this ends only with the condition.
    let _ = readiness.wait_for(|it| *it == Readiness::Hopeless).await;
}

fn not_in_time() -> Failure {
    Failure::Outcome(Outcome::Deadline {
        sent: false,
        idle: false,
    })
}

/// What may take long may say how far it is.
fn reports_progress(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
            | ClientRequest::CompleteRequest(_)
    )
}

/// Hands a call to the server's actor; while the actor starts again, waits for it.
async fn submit(slot: &ServerSlot, mut call: Box<Call>, deadline: Instant) -> Result<(), Failure> {
    let mut mailbox: Option<tokio::sync::watch::Receiver<Mailbox>> = None;
    loop {
        match try_submit(slot, call)? {
            None => return Ok(()),
            Some(unsent) => call = unsent,
        }
        // The first look may have been at an actor that is gone; the receiver sees each change
        // from its creation on, so the second look comes before the wait.
        match &mut mailbox {
            None => mailbox = Some(slot.mailbox.subscribe()),
            Some(mailbox) => {
                let changed = mailbox.changed();
                if tokio::time::timeout_at(deadline.into(), changed)
                    .await
                    .is_err()
                {
                    return Err(not_in_time());
                }
            }
        }
    }
}

/// Gives the call back when there is no actor to take it at the moment.
fn try_submit(slot: &ServerSlot, call: Box<Call>) -> Result<Option<Box<Call>>, Failure> {
    match &*slot.mailbox.borrow() {
        Mailbox::Live(actor) => match actor.send_message(ServerMessage::Call(call)) {
            Ok(()) => Ok(None),
            Err(ractor::MessagingErr::SendErr(ServerMessage::Call(call))) => Ok(Some(call)),
            Err(_) => Err(Failure::ActorGone),
        },
        Mailbox::Starting => Ok(Some(call)),
        Mailbox::Removed => Err(Failure::Removed),
        Mailbox::Gone => Err(Failure::RuntimeGone),
    }
}

/// Tells the actor when a caller drops its future.
struct LeaveGuard<'a> {
    slot: &'a ServerSlot,
    call: CallId,
    armed: bool,
}

impl LeaveGuard<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Mailbox::Live(actor) = &*self.slot.mailbox.borrow()
        {
            // An actor that is gone has forgotten the call already.
            let _ = actor.send_message(ServerMessage::CallerGone { call: self.call });
        }
    }
}
