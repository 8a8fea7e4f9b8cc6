//! The questions of a server that are being answered, each in a task of its own.
//!
//! The connection never waits for an answer: it goes out when its task is done. Their number is
//! bounded, and with the connection they end.

use std::sync::Arc;

use mcpvisor_core::Generation;
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientResult, ErrorCode, RequestId, ServerRequest};
use tokio::task::{AbortHandle, JoinSet};

use crate::callbacks::{Ask, Question};
use crate::server::slot::ServerSlot;

/// The questions of one connection.
pub(super) struct Asked {
    slot: Arc<ServerSlot>,
    generation: Generation,
    tasks: JoinSet<(RequestId, Result<ClientResult, ErrorData>)>,
    running: Vec<(RequestId, AbortHandle)>,
}

impl Asked {
    pub(super) fn new(slot: &Arc<ServerSlot>, generation: Generation) -> Self {
        Self {
            slot: Arc::clone(slot),
            generation,
            tasks: JoinSet::new(),
            running: Vec::new(),
        }
    }

    /// Whether an answer is awaited.
    pub(super) fn is_busy(&self) -> bool {
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
        if self.running.len() >= callbacks.limit() {
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
            Err(declined) => Some(refuse(id, declined)),
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
        loop {
            match self.tasks.join_next().await {
                Some(Ok((id, answer))) => {
                    self.running.retain(|(running, _)| *running != id);
                    return match answer {
                        Ok(result) => ClientJsonRpcMessage::response(result, id),
                        Err(error) => refuse(id, error),
                    };
                }
                // Taken back by the server.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

fn refuse(id: RequestId, error: ErrorData) -> ClientJsonRpcMessage {
    ClientJsonRpcMessage::error(error, Some(id))
}

fn too_many(limit: usize) -> ErrorData {
    ErrorData::new(
        ErrorCode::INTERNAL_ERROR,
        format!("{limit} requests wait for an answer already; ask again later"),
        None,
    )
}
