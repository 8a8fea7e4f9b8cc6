//! Requests from the server, each answered by its own task.
//!
//! The connection never waits for an answer: it is sent when its task is done. The number of tasks
//! is limited, and they end with the connection.
//!
//! Before 2026-07-28 a request of the server need not name the call that it belongs to.
//! [`mcpvisor_core::request_routing`] decides which client answers it, if any. While one is
//! unanswered, no call of the connection counts as idle. Deadlines are not paused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::request_routing::{self, AbandonedCalls, Answerer, PossibleCause, RequestRoute};
use mcpvisor_core::{CallId, Generation};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientResult, ErrorCode, RequestId, ServerRequest};
use tokio::task::{AbortHandle, JoinSet};

use super::event_loop::Session;
use crate::api::callbacks::{BoundCallbacks, Incoming, Question, not_offered, request_meta};
use crate::api::request::RequestKey;
use crate::connection::task::next_output;
use crate::link::{Link, RejectReason};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::slot::ServerSlot;

/// Unanswered requests per connection, of all clients; further ones are rejected.
const MAX_REQUESTS: usize = 1_024;

/// The unanswered requests from the server.
pub(super) struct ServerRequests {
    slot: Arc<ServerSlot>,
    generation: Generation,
    tasks: JoinSet<(RequestId, Result<ClientResult, ErrorData>)>,
    unanswered: Vec<(RequestId, AbortHandle)>,
    /// The callbacks of the embedding program, or of the client that the connection belongs to.
    runtime: BoundCallbacks,
    /// Calls that ended without an answer.
    pub(super) abandoned: AbandonedCalls,
    /// When the idle timers of calls were last refreshed because of an unanswered request.
    idle_refreshed_at: Option<Instant>,
}

impl ServerRequests {
    pub(super) fn new(slot: &Arc<ServerSlot>, generation: Generation) -> Self {
        Self {
            slot: Arc::clone(slot),
            generation,
            tasks: JoinSet::new(),
            unanswered: Vec::new(),
            runtime: slot.default_callbacks(),
            abandoned: AbandonedCalls::default(),
            idle_refreshed_at: None,
        }
    }

    /// Whether [`next`](Self::next) has tasks to wait for, running or cancelled.
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Starts to answer a request. Returns an answer that needs no task.
    fn handle(
        &mut self,
        id: RequestId,
        request: ServerRequest,
        callbacks: &BoundCallbacks,
        cause: Option<RequestKey>,
    ) -> Option<ClientJsonRpcMessage> {
        if self.tasks.len() >= MAX_REQUESTS {
            return Some(refuse(id, too_many_in_total()));
        }
        // A cancelled request counts until its task has ended, so that a server cannot exceed the
        // limit by cancelling at once.
        let meta = request_meta(&request);
        let question = Question::from(request);
        let incoming = Incoming::new(self.slot.name().clone(), self.generation, question);
        let answer = callbacks.answer_now(Incoming {
            cause,
            meta,
            ..incoming
        });
        match answer {
            Ok(answer) => {
                let request = id.clone();
                let task = self.tasks.spawn(async move { (request, answer.await) });
                self.unanswered.push((id, task));
                None
            }
            Err(declined) => {
                if declined.code == ErrorCode::INVALID_PARAMS {
                    let slot = &self.slot;
                    let problem = slot.redact(&*declined.message);
                    log_limited!(slot.log_limit, WARN, server = %slot.name(), %problem, "refused a request of the server");
                }
                Some(refuse(id, declined))
            }
        }
    }

    /// The server cancelled its request.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if let Some(at) = self.unanswered.iter().position(|(it, _)| it == id) {
            self.unanswered.swap_remove(at).1.abort();
        }
    }

    /// Waits for the next answer, forever if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> ClientJsonRpcMessage {
        let (id, answer) = next_output(&mut self.tasks).await;
        self.unanswered.retain(|(it, _)| *it != id);
        match answer {
            Ok(result) => ClientJsonRpcMessage::response(result, id),
            Err(error) => refuse(id, error),
        }
    }
}

impl<L: Link> Session<'_, L> {
    /// Answers a request, declines it, or starts a task that answers it.
    pub(super) fn on_request(
        &mut self,
        id: RequestId,
        request: ServerRequest,
        cause: Option<CallId>,
    ) {
        let answer = match request {
            ServerRequest::PingRequest(_) => Some(pong(id)),
            request => match self.route(cause) {
                Ok(callbacks) => {
                    let cause = self.cause_key(cause);
                    self.server_requests.handle(id, request, &callbacks, cause)
                }
                Err(declined) => Some(refuse(id, declined)),
            },
        };
        match answer {
            Some(answer) => drop(self.link.push(answer)),
            None => self.refresh_idle_timers(),
        }
    }

    /// The call that caused a request, if that is known.
    fn cause_key(&self, cause: Option<CallId>) -> Option<RequestKey> {
        let abandoned = &self.server_requests.abandoned;
        let in_flight = self.pending.calls_by_wire_id().map(|(id, _)| id);
        let call = request_routing::only_cause(cause, in_flight, abandoned, now())?;
        self.pending.call(call).map(|call| call.key)
    }

    /// The callbacks that answer a request with this cause.
    fn route(&mut self, cause: Option<CallId>) -> Result<BoundCallbacks, ErrorData> {
        let requests = &self.server_requests;
        // A listing or another request of the runtime itself.
        if cause.is_some_and(|id| self.pending.is_internal(id)) {
            return Ok(requests.runtime.clone());
        }
        let causes = self.pending.calls_by_wire_id();
        let causes = causes.map(|(id, call)| PossibleCause {
            call: id,
            answerer: call.answerer(),
        });
        match request_routing::route(cause, causes, &requests.abandoned, now()) {
            RequestRoute::To(Answerer::Runtime) => Ok(requests.runtime.clone()),
            RequestRoute::To(answerer) if answerer == requests.runtime.owner() => {
                Ok(requests.runtime.clone())
            }
            RequestRoute::To(answerer) => {
                let mut calls = self.pending.calls();
                let call = calls.find(|call| call.answerer() == answerer);
                // Without a call, only an abandoned one can have caused it.
                let callbacks = call.and_then(|call| call.callbacks.clone());
                callbacks.ok_or_else(cause_ended)
            }
            RequestRoute::CauseEnded => Err(cause_ended()),
            RequestRoute::Ambiguous => {
                self.batch.summary.ambiguous_requests += 1;
                let slot = &self.task.slot;
                log_limited!(slot.log_limit, WARN, server = %slot.name(), "declined a request that calls of several clients may have caused");
                Err(ambiguous())
            }
        }
    }

    /// When the idle timers must be refreshed again, if a request of the server is unanswered.
    pub(super) fn idle_refresh_due(&self) -> Option<Instant> {
        let requests = &self.server_requests;
        let refreshed_at = requests.idle_refreshed_at;
        let refreshed_at = refreshed_at.filter(|_| !requests.unanswered.is_empty())?;
        let idle = self.pending.calls().map(|call| call.idle).min()?;
        Some(refreshed_at + (idle / 3).max(Duration::from_millis(1)))
    }

    /// Marks all in-flight calls as progressing, with the next flush.
    pub(super) fn refresh_idle_timers(&mut self) {
        self.server_requests.idle_refreshed_at = Some(now());
        let calls = self.pending.calls().map(|call| call.id);
        self.batch.summary.progressed.extend(calls);
    }
}

/// Answers a request that arrives during the handshake, when only pings are allowed.
pub(crate) fn answer_before_handshake<L: Link>(
    link: &mut L,
    id: RequestId,
    request: &ServerRequest,
) {
    let answer = match request {
        ServerRequest::PingRequest(_) => pong(id),
        _ => refuse(id, not_offered()),
    };
    let _ = link.push(answer);
}

/// Answers requests that the link dropped unread.
pub(crate) fn refuse_unread<L: Link>(link: &mut L, requests: Vec<(RequestId, RejectReason)>) {
    for (id, reason) in requests {
        let message = match reason {
            RejectReason::TooLarge => "the request is too large for this client",
            RejectReason::TooMany => "too many messages at once; ask again later",
        };
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
        let _ = link.push(refuse(id, error));
    }
}

fn refuse(id: RequestId, error: ErrorData) -> ClientJsonRpcMessage {
    ClientJsonRpcMessage::error(error, Some(id))
}

fn pong(id: RequestId) -> ClientJsonRpcMessage {
    ClientJsonRpcMessage::response(ClientResult::empty(()), id)
}

fn cause_ended() -> ErrorData {
    ErrorData::invalid_request("the call that this request belongs to has ended", None)
}

fn ambiguous() -> ErrorData {
    ErrorData::invalid_request(
        "calls of several clients, or with different callbacks, share this connection, and the request does not show which it belongs to",
        None,
    )
}

fn too_many_in_total() -> ErrorData {
    ErrorData::internal_error("too many requests are unanswered; try again later", None)
}

#[cfg(test)]
mod tests {
    use rmcp::model::ListRootsRequest;

    use super::*;
    use crate::api::callbacks::Callbacks;
    use crate::api::events::EventBus;
    use crate::fleet::host::Host;
    use crate::{ServerConfig, Transport};

    /// Within one batch no cancelled task is reaped, so all of them count.
    #[tokio::test]
    async fn cancelled_requests_count_against_the_limit_until_their_tasks_end() {
        let callbacks = Callbacks::new().at_once(3);
        let callbacks = callbacks.roots(|_| std::future::pending());
        let host = Host::new("test", "1", callbacks, None, Default::default());
        let transport = Transport::channel(|_| async {});
        let config = ServerConfig::new("a", transport).unwrap();
        let events = Arc::new(EventBus::default());
        let slot = ServerSlot::new(config, 0, Arc::new(host), events, Arc::default());
        let mut requests = ServerRequests::new(&Arc::new(slot), Generation::NONE);
        for number in 0..100 {
            let id = RequestId::Number(number);
            let request = ServerRequest::ListRootsRequest(ListRootsRequest::default());
            let runtime = requests.runtime.clone();
            let refused = requests.handle(id.clone(), request, &runtime, None);
            assert_eq!(refused.is_some(), number >= 3, "{number}");
            requests.cancel(&id);
        }
        assert_eq!(requests.tasks.len(), 3);
    }
}
