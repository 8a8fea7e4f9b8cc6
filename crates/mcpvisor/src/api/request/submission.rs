//! Hands a request to the server's actor and waits for its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use mcpvisor_core::machine::Outcome;
use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::{CallId, Safety};
use ractor::MessagingErr;
use rmcp::model::{ClientRequest, GetMeta, NumberOrString, ProgressToken, ServerResult};
use tokio::sync::oneshot;

use super::Options;
use super::terms::Terms;
use crate::api::agent::Agent;
use crate::api::callbacks::{BoundCallbacks, Callbacks};
use crate::api::handle::ServerHandle;
use crate::api::quota::{QuotaPermit, QuotaRefusal};
use crate::api::reply::{Answer, Failure, Reply};
#[cfg(feature = "schema-check")]
use crate::link::{tool_arguments, tool_name};
use crate::server::call::Call;
use crate::server::call_admission::OpenCall;
use crate::server::group::until_available;
use crate::server::message::ServerMessage;
use crate::server::published::Availability;
use crate::server::slot::{Mailbox, ServerSlot};

/// Slots that a call is offered to, if each is removed by a reload before it takes the call.
const MAX_SLOTS: u32 = 3;

/// A call that the actor may have.
struct Submitted {
    answer: oneshot::Receiver<Answer>,
    cancel: CancelGuard,
    _quota: Option<QuotaPermit>,
}

impl Options {
    /// Submits the request and waits for its answer.
    pub(super) async fn submit(&mut self, terms: &mut Terms) -> Result<ServerResult, Failure> {
        let mut submitted = self.send_unless_cancelled(terms).await?;
        let answer = submitted.answer.await;
        submitted.cancel.disarm();
        answer.unwrap_or(Err(Failure::ActorGone))
    }

    /// Hands the request to an actor of the server, unless the client cancels it before.
    async fn send_unless_cancelled(&mut self, terms: &mut Terms) -> Result<Submitted, Failure> {
        let agent = self.handle.agent.clone();
        let begun = agent.as_ref().map(|agent| agent.cancellations());
        self.begun = begun;
        // Pinned here, because a future that is passed on takes its space twice.
        let mut submission = pin!(self.send(terms));
        let (Some(agent), Some(begun)) = (agent, begun) else {
            return submission.await;
        };
        let submitted = agent.unless_cancelled_since(begun, submission.as_mut());
        let submitted = submitted.await.ok_or(Failure::ClientClosed)??;
        // From now on the actor cancels it with the others of its client.
        if agent.cancellations() != begun {
            return Err(Failure::Outcome(Outcome::Cancelled));
        }
        Ok(submitted)
    }

    /// Waits for the client's quota, and hands the request to an actor of the server.
    async fn send(&mut self, terms: &mut Terms) -> Result<Submitted, Failure> {
        if let Err(problem) = &self.request {
            return Err(Failure::InvalidRequest(problem.clone()));
        }
        let quota = match &self.handle.agent {
            Some(agent) if !self.of_runtime && !agent.quota.is_open() => {
                Box::pin(take_quota(&self.handle, agent, terms.due)).await?
            }
            _ => None,
        };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let request = std::mem::replace(&mut self.request, Err(String::new()));
            let request = request.map_err(Failure::InvalidRequest)?;
            let (slot, open) = open_call(&self.handle, &request)?;
            terms.slot = Arc::clone(&slot);
            let (call, answer) = self.new_call(request, &slot, open, terms);
            // From here on the actor may have the call, so it is notified if the caller drops the
            // future.
            let cancel = CancelGuard {
                slot,
                call: Some(call.id),
            };
            match submit(&cancel.slot, call, terms.due).await {
                Ok(()) => {
                    return Ok(Submitted {
                        answer,
                        cancel,
                        _quota: quota,
                    });
                }
                // Another slot gets it.
                Err(Untaken::SlotRemoved(call))
                    if attempts < MAX_SLOTS && self.handle.slot.outlives(&cancel.slot) =>
                {
                    self.request = Ok(call.request.ok_or(Failure::ActorGone)?);
                }
                Err(Untaken::SlotRemoved(_)) => return Err(Failure::Removed),
                Err(Untaken::Failed(failure)) => return Err(failure),
            }
        }
    }

    fn new_call(
        &self,
        mut request: ClientRequest,
        slot: &ServerSlot,
        open: OpenCall,
        terms: &Terms,
    ) -> (Box<Call>, oneshot::Receiver<Answer>) {
        let id = slot.calls.next_id();
        if reports_progress(&request) {
            let token = ProgressToken(NumberOrString::Number(id.0 as i64));
            request.get_meta_mut().set_progress_token(token);
        }
        let (sender, answer) = oneshot::channel();
        let call = Box::new(Call {
            id,
            key: self.key,
            client: self.handle.client(),
            callbacks: bound_callbacks(self.callbacks.clone(), &self.handle, id),
            capabilities: self.capabilities.clone(),
            request: Some(request),
            task: self.task,
            retry_policy: self.retry,
            priority: self.priority,
            deadline: terms.due,
            idle: terms.idle,
            progress: self.progress.clone(),
            reply: Reply::new(sender, open),
            rounds: 0,
            relisted: false,
            keep_request: false,
            refusal: None,
            catalog_at_send: None,
        });
        (call, answer)
    }
}

/// Opens a call on the slot that gets it.
fn open_call(
    handle: &ServerHandle,
    request: &ClientRequest,
) -> Result<(Arc<ServerSlot>, OpenCall), Failure> {
    let slot = handle.request_slot().ok_or(Failure::ClientClosed)?;
    // Subscriptions are at the main slot of a pool, so that a later request finds them.
    let opened = match request {
        ClientRequest::SubscribeRequest(_) | ClientRequest::UnsubscribeRequest(_) => {
            let open = slot.calls.open(handle.client());
            open.map(|open| (slot, open))
        }
        _ => slot.open_call(handle.agent.as_ref()),
    };
    opened.ok_or(Failure::Outcome(Outcome::Busy))
}

/// Who answers what a call causes: its own callbacks, or those of its client.
fn bound_callbacks(
    own: Option<Arc<Callbacks>>,
    handle: &ServerHandle,
    call: CallId,
) -> Option<BoundCallbacks> {
    match own {
        Some(own) => Some(BoundCallbacks::new(Answerer::Call(call), own)),
        None => handle.agent.as_ref()?.callbacks.clone(),
    }
}

/// Waits for the client's quota, within the deadline. A server that rejects requests at once needs
/// no permit.
async fn take_quota(
    handle: &ServerHandle,
    agent: &Agent,
    deadline: Instant,
) -> Result<Option<QuotaPermit>, Failure> {
    let slot = handle.present_slot();
    let permit = tokio::select! {
        biased;
        permit = agent.quota.take(deadline) => permit,
        () = until_unavailable(&slot) => return Ok(None),
    };
    permit.map(Some).map_err(|refusal| match refusal {
        QuotaRefusal::TooManyWaiting(limit) => Failure::ClientQueueFull(limit),
        QuotaRefusal::RateExceeded(wait) => Failure::ClientRateExceeded(wait),
        QuotaRefusal::Deadline => deadline_before_send(),
    })
}

/// Checks the arguments of a call against the schema of its tool, if it is known. The check counts
/// against the deadline, since a schema may be slow to check.
#[cfg(feature = "schema-check")]
pub(super) async fn check_arguments(
    slot: &ServerSlot,
    request: &Result<ClientRequest, String>,
    due: Instant,
) -> Result<(), Failure> {
    let Ok(request) = request else {
        return Ok(());
    };
    let catalog = slot.callers_catalog();
    let Some(tool) = tool_name(request).and_then(|name| catalog.tool(name)) else {
        return Ok(());
    };
    let arguments = tool_arguments(request).cloned().unwrap_or_default();
    let arguments = Arc::new(serde_json::Value::Object(arguments));
    let checked = slot
        .argument_checks
        .check(&tool.name, &tool.input_schema, &arguments);
    match tokio::time::timeout_at(due.into(), checked).await {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(Failure::InvalidArguments(problems)),
        Err(_) => Err(deadline_before_send()),
    }
}

/// Waits until no instance of the server can become ready unless a person acts.
async fn until_unavailable(slot: &Arc<ServerSlot>) {
    let unavailable = |all: &[Availability]| {
        let mut all = all.iter();
        all.all(|it| *it == Availability::Unavailable)
    };
    until_available(&slot.instances(), unavailable).await;
}

fn deadline_before_send() -> Failure {
    Failure::Outcome(Outcome::Deadline {
        sent: false,
        idle: false,
    })
}

/// Only requests that may take long request progress.
fn reports_progress(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::CallToolRequest(_)
        | ClientRequest::GetPromptRequest(_)
        | ClientRequest::ReadResourceRequest(_)
        | ClientRequest::CompleteRequest(_) => true,
        ClientRequest::CustomRequest(raw) => raw_reports_progress(&raw.method),
        _ => false,
    }
}

/// Likewise for a raw request. What an unknown method does is not known, so it may take long.
fn raw_reports_progress(method: &str) -> bool {
    let is_quick = Safety::of_method(method) == Safety::Repeatable;
    !is_quick
        || matches!(
            method,
            "prompts/get" | "resources/read" | "completion/complete"
        )
}

/// Why no actor took a call.
enum Untaken {
    /// The slot was removed; another one may take it.
    SlotRemoved(Box<Call>),
    Failed(Failure),
}

/// Hands a call to the actor of a slot, and waits while the actor restarts.
async fn submit(slot: &ServerSlot, call: Box<Call>, deadline: Instant) -> Result<(), Untaken> {
    match try_submit(slot, call)? {
        None => Ok(()),
        Some(call) => Box::pin(submit_when_started(slot, call, deadline)).await,
    }
}

/// Hands a call to the actor once it has restarted.
async fn submit_when_started(
    slot: &ServerSlot,
    mut call: Box<Call>,
    deadline: Instant,
) -> Result<(), Untaken> {
    // The first attempt may have reached a stopped actor. The receiver sees every change after its
    // creation, so another attempt comes before the first wait.
    let mut mailbox = slot.mailbox.subscribe();
    loop {
        match try_submit(slot, call)? {
            None => return Ok(()),
            Some(returned) => call = returned,
        }
        let changed = mailbox.changed();
        let changed = tokio::time::timeout_at(deadline.into(), changed);
        if changed.await.is_err() {
            return Err(Untaken::Failed(deadline_before_send()));
        }
    }
}

/// Returns the call if no actor is running.
fn try_submit(slot: &ServerSlot, call: Box<Call>) -> Result<Option<Box<Call>>, Untaken> {
    match &*slot.mailbox.borrow() {
        Mailbox::Live(actor) => match actor.send_message(ServerMessage::Call(call)) {
            // Only a message that was not sent comes back.
            Err(MessagingErr::SendErr(ServerMessage::Call(call))) => Ok(Some(call)),
            Ok(()) | Err(_) => Ok(None),
        },
        Mailbox::Starting => Ok(Some(call)),
        Mailbox::Removed => Err(Untaken::SlotRemoved(call)),
        Mailbox::Gone => Err(Untaken::Failed(Failure::RuntimeGone)),
    }
}

/// Notifies the actor when the caller drops its future.
struct CancelGuard {
    slot: Arc<ServerSlot>,
    /// `None` once there is an answer.
    call: Option<CallId>,
}

impl CancelGuard {
    fn disarm(&mut self) {
        self.call = None;
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            // Without an actor there is nothing to cancel.
            self.slot.send(ServerMessage::CallerGone(call));
        }
    }
}
