//! The callbacks of the embedding program, of one client or of one request, with their limit.

use std::fmt;
use std::sync::Arc;

use mcpvisor_core::request_routing::Answerer;
use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, ClientResult, ErrorCode};
use tokio::sync::Semaphore;

use super::{Callbacks, Incoming, Question};

/// Callbacks with their limit of concurrent requests. Clones share the limit.
#[derive(Clone)]
pub(crate) struct BoundCallbacks {
    owner: Answerer,
    callbacks: Arc<Callbacks>,
    permits: Arc<Semaphore>,
}

impl BoundCallbacks {
    pub(crate) fn new(owner: Answerer, callbacks: Arc<Callbacks>) -> Self {
        let permits = Arc::new(Semaphore::new(callbacks.limit()));
        Self {
            owner,
            callbacks,
            permits,
        }
    }

    /// Whose callbacks these are.
    pub(crate) fn owner(&self) -> Answerer {
        self.owner
    }

    /// What they offer to servers.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        self.callbacks.capabilities()
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Answers a request, or declines it at once if too many are unanswered. The future counts
    /// against the limit until it is dropped.
    pub(crate) fn answer_now(
        &self,
        incoming: Incoming<Question>,
    ) -> Result<impl Future<Output = Result<ClientResult, ErrorData>> + Send + use<>, ErrorData>
    {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| too_many(self.callbacks.limit()))?;
        let answer = self.callbacks.answer(incoming)?;
        Ok(async move {
            let _permit = permit;
            answer.await
        })
    }

    /// Answers requests one after the other when the limit allows it.
    pub(crate) async fn wait_for_turn(&self) -> impl Sized + Send + use<> {
        // The semaphore is never closed.
        Arc::clone(&self.permits).acquire_owned().await
    }
}

impl fmt::Debug for BoundCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoundCallbacks").field(&self.owner).finish()
    }
}

fn too_many(limit: usize) -> ErrorData {
    ErrorData::new(
        ErrorCode::INTERNAL_ERROR,
        format!("{limit} requests are unanswered; try again later"),
        None,
    )
}
