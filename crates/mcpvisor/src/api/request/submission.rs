//! Hands a request to the server's actor and waits for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mcpvisor_core::CallId;
use mcpvisor_core::machine::Outcome;
use mcpvisor_core::request_routing::Answerer;
use rmcp::model::{ClientRequest, GetMeta, NumberOrString, ProgressToken, ServerResult};
use tokio::sync::oneshot;

use super::Options;
use crate::api::callbacks::{BoundCallbacks, Callbacks};
use crate::api::handle::ServerHandle;
use crate::api::quota::{QuotaPermit, QuotaRefusal};
use crate::api::reply::{Failure, Reply};
use crate::server::call::Call;
use crate::server::message::ServerMessage;
use crate::server::published::Availability;
use crate::server::slot::{Mailbox, ServerSlot};

impl Options {
    /// Submits the request and waits for its answer.
    pub(super) async fn submit(
        self,
        deadline: Instant,
        idle: Duration,
    ) -> Result<ServerResult, Failure> {
        let agent = self.handle.agent.clone();
        let sent = AtomicBool::new(false);
        let submission = self.send_and_wait(deadline, idle, &sent);
        match agent {
            None => submission.await,
            Some(agent) => match agent.unless_cancelled(submission).await {
                Some(answer) => answer,
                None if sent.load(Ordering::Relaxed) => Err(Failure::Outcome(Outcome::Cancelled)),
                None => Err(Failure::ClientClosed),
            },
        }
    }

    /// Sets `sent` when the actor may have the call. Dropping the future cancels the call.
    async fn send_and_wait(
        self,
        deadline: Instant,
        idle: Duration,
        sent: &AtomicBool,
    ) -> Result<ServerResult, Failure> {
        let mut request = self.request.map_err(Failure::InvalidRequest)?;
        let (slot, client) = (&self.handle.slot, self.handle.client());
        let _quota = take_quota(&self.handle, deadline).await?;
        let open = slot.calls.open(client);
        let open = open.ok_or(Failure::Outcome(Outcome::Busy))?;
        let id = slot.calls.next_id();
        if reports_progress(&request) {
            let token = ProgressToken(NumberOrString::Number(id.0 as i64));
            request.get_meta_mut().set_progress_token(token);
        }
        let (sender, answer) = oneshot::channel();
        let call = Box::new(Call {
            id,
            client,
            callbacks: bound_callbacks(self.callbacks, &self.handle, id),
            request: Some(request),
            retry_policy: self.retry,
            priority: self.priority,
            deadline,
            idle,
            progress: self.progress,
            reply: Reply::new(sender, open),
            rounds: 0,
            relisted: false,
            keep_request: false,
            refusal: None,
            catalog_at_send: None,
        });
        // From here on the actor may have the call, so it is notified if the caller drops the
        // future.
        let guard = CancelGuard { slot, call: id };
        sent.store(true, Ordering::Relaxed);
        submit(slot, call, deadline).await?;
        let answer = answer.await;
        std::mem::forget(guard);
        answer.unwrap_or(Err(Failure::ActorGone))
    }
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
    deadline: Instant,
) -> Result<Option<QuotaPermit>, Failure> {
    let Some(agent) = handle.agent.as_ref().filter(|it| !it.quota.is_open()) else {
        return Ok(None);
    };
    let permit = tokio::select! {
        biased;
        permit = agent.quota.take(deadline) => permit,
        () = until_unavailable(&handle.slot) => return Ok(None),
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
    let Ok(ClientRequest::CallToolRequest(call)) = request else {
        return Ok(());
    };
    let catalog = slot.published.catalog();
    let Some(tool) = catalog.tool(&call.params.name) else {
        return Ok(());
    };
    let arguments = call.params.arguments.as_ref();
    let checked = slot
        .argument_checks
        .check(&tool.name, &tool.input_schema, arguments);
    match tokio::time::timeout_at(due.into(), checked).await {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(Failure::InvalidArguments(problems)),
        Err(_) => Err(deadline_before_send()),
    }
}

/// Waits until the server cannot become ready unless a person acts.
async fn until_unavailable(slot: &ServerSlot) {
    let mut availability = slot.published.availability.subscribe();
    // The sender lives in the slot, so this ends only with the condition.
    let _ = availability
        .wait_for(|it| *it == Availability::Unavailable)
        .await;
}

fn deadline_before_send() -> Failure {
    Failure::Outcome(Outcome::Deadline {
        sent: false,
        idle: false,
    })
}

/// Only requests that may take long request progress.
fn reports_progress(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
            | ClientRequest::CompleteRequest(_)
    )
}

/// Hands a call to the server's actor, and waits while the actor restarts.
async fn submit(slot: &ServerSlot, mut call: Box<Call>, deadline: Instant) -> Result<(), Failure> {
    let mut mailbox: Option<tokio::sync::watch::Receiver<Mailbox>> = None;
    loop {
        match try_submit(slot, call)? {
            None => return Ok(()),
            Some(returned) => call = returned,
        }
        // The first attempt may have reached a stopped actor. The receiver sees every change after
        // its creation, so the second attempt comes before the first wait.
        match &mut mailbox {
            None => mailbox = Some(slot.mailbox.subscribe()),
            Some(mailbox) => {
                let changed = mailbox.changed();
                if tokio::time::timeout_at(deadline.into(), changed)
                    .await
                    .is_err()
                {
                    return Err(deadline_before_send());
                }
            }
        }
    }
}

/// Returns the call if no actor is running.
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

/// Notifies the actor when the caller drops its future; forgotten once there is an answer.
struct CancelGuard<'a> {
    slot: &'a ServerSlot,
    call: CallId,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        // Without an actor there is nothing to cancel.
        self.slot.send(ServerMessage::CallerGone(self.call));
    }
}
