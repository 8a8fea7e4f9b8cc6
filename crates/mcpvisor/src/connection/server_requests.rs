//! The questions of a server that are being answered, each in a task of its own.
//!
//! The connection never waits for an answer: it goes out when its task is done. Their number is
//! bounded, and with the connection they end.

use std::sync::Arc;

use mcpvisor_core::Generation;
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientResult, ErrorCode, RequestId, ServerRequest};
use tokio::task::AbortHandle;

use super::tasks::Tasks;
use crate::api::callbacks::{Ask, Question};
use crate::link::RejectReason;
use crate::log_limit::log_limited;
use crate::server::slot::ServerSlot;

/// The questions of one connection.
pub(super) struct Asked {
    slot: Arc<ServerSlot>,
    generation: Generation,
    tasks: Tasks<(RequestId, Result<ClientResult, ErrorData>)>,
    running: Vec<(RequestId, AbortHandle)>,
}

impl Asked {
    pub(super) fn new(slot: &Arc<ServerSlot>, generation: Generation) -> Self {
        Self {
            slot: Arc::clone(slot),
            generation,
            tasks: Tasks::new(),
            running: Vec::new(),
        }
    }

    /// Whether an answer is awaited, or one that was taken back is to be let go of.
    pub(super) fn is_busy(&self) -> bool {
        self.tasks.is_busy()
    }

    /// Whether the server waits for an answer.
    pub(super) fn is_open(&self) -> bool {
        !self.running.is_empty()
    }

    /// Takes a question. What can be answered at once comes back.
    pub(super) fn ask(
        &mut self,
        id: RequestId,
        request: ServerRequest,
    ) -> Option<ClientJsonRpcMessage> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Some(ClientJsonRpcMessage::response(ClientResult::empty(()), id));
        }
        let callbacks = &self.slot.host.callbacks;
        // One that was taken back counts until it has ended: a server that asks and takes back
        // without a pause gets no more of them than one that waits.
        if self.tasks.len() >= callbacks.limit() {
            return Some(refuse(id, too_many(callbacks.limit())));
        }
        let answer = callbacks.answer(Ask::new(
            self.slot.name().clone(),
            self.generation,
            Question::from(request),
        ));
        match answer {
            Ok(answer) => {
                let question = id.clone();
                let task = self.tasks.spawn(async move { (question, answer.await) });
                self.running.push((id, task));
                None
            }
            Err(declined) => {
                if declined.code == ErrorCode::INVALID_PARAMS {
                    let slot = &self.slot;
                    let problem = slot.redact(&*declined.message);
                    log_limited!(slot.log_limit, WARN, server = %slot.name(), %problem, "refused what a server asks");
                }
                Some(refuse(id, declined))
            }
        }
    }

    /// The server no longer wants an answer.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if let Some(at) = self.running.iter().position(|(running, _)| running == id) {
            self.running.swap_remove(at).1.abort();
        }
    }

    /// Waits for the next answer. Cancel-safe. Waits for ever while nothing runs.
    pub(super) async fn next(&mut self) -> ClientJsonRpcMessage {
        let (id, answer) = self.tasks.next().await;
        self.running.retain(|(running, _)| *running != id);
        match answer {
            Ok(result) => ClientJsonRpcMessage::response(result, id),
            Err(error) => refuse(id, error),
        }
    }
}

pub(super) fn refuse(id: RequestId, error: ErrorData) -> ClientJsonRpcMessage {
    ClientJsonRpcMessage::error(error, Some(id))
}

/// The answer to a request that was not read.
pub(super) fn unread(refusal: RejectReason) -> ErrorData {
    let why = match refusal {
        RejectReason::TooLarge => "the request is too large for this client",
        RejectReason::TooMany => "too many messages at once; ask again later",
    };
    ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None)
}

fn too_many(limit: usize) -> ErrorData {
    ErrorData::new(
        ErrorCode::INTERNAL_ERROR,
        format!("{limit} requests wait for an answer already; ask again later"),
        None,
    )
}

#[cfg(test)]
mod tests {
    use rmcp::model::ListRootsRequest;

    use super::*;
    use crate::api::callbacks::Callbacks;
    use crate::api::events::EventBus;
    use crate::fleet::host::Host;
    use crate::{ServerConfig, Transport};

    /// In one batch nobody lets go of what was taken back: it counts all the same.
    #[tokio::test]
    async fn questions_that_are_taken_back_at_once_are_as_few_as_those_that_wait() {
        let callbacks = Callbacks::new().at_once(3);
        let callbacks = callbacks.roots(|_| std::future::pending());
        let host = Host::new("test", "1", callbacks, None, Default::default());
        let nobody = Transport::channel(|_| async {});
        let config = ServerConfig::new("a", nobody).unwrap();
        let events = Arc::new(EventBus::new());
        let slot = ServerSlot::new(config, Arc::new(host), events, Arc::default());
        let mut asked = Asked::new(&Arc::new(slot), Generation::NONE);
        for number in 0..100 {
            let id = RequestId::Number(number);
            let request = ServerRequest::ListRootsRequest(ListRootsRequest::default());
            let refused = asked.ask(id.clone(), request);
            assert_eq!(refused.is_some(), number >= 3, "{number}");
            asked.cancel(&id);
        }
        assert_eq!(asked.tasks.len(), 3);
    }
}
