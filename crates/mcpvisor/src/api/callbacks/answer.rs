//! Runs the callbacks.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::ErrorData;
use rmcp::model::{ClientResult, ErrorCode, ListRootsResult, NotificationMetaObject};

use super::question::QuestionKind;
use super::{Callbacks, Incoming, Listening, Question};
use crate::api::events::{Event, EventKind, Events, EventsError};
use crate::log_limit::{LogLimit, log_limited};

impl Callbacks {
    /// Answers a request within the timeout. Returns an error at once if it is declined.
    pub(crate) fn answer(
        &self,
        incoming: Incoming<Question>,
    ) -> Result<impl Future<Output = Result<ClientResult, ErrorData>> + Send + use<>, ErrorData>
    {
        let answer = self.call(incoming)?;
        let deadline = self.deadline;
        Ok(async move {
            let answer = AssertUnwindSafe(answer).catch_unwind();
            match tokio::time::timeout(deadline, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(ErrorData::internal_error(
                    "the client failed to answer",
                    None,
                )),
                Err(_) => Err(ErrorData::internal_error("the client timed out", None)),
            }
        })
    }

    fn call(
        &self,
        incoming: Incoming<Question>,
    ) -> Result<BoxFuture<'static, Result<ClientResult, ErrorData>>, ErrorData> {
        let (incoming, question) = incoming.replace(());
        macro_rules! call {
            ($callback:expr, $params:expr, $error:expr, $result:expr) => {{
                let callback = $callback.as_ref().ok_or_else($error)?;
                let (incoming, ()) = incoming.replace($params);
                // Called inside the future, because the callback itself may panic.
                let callback = Arc::clone(callback);
                Ok(async move { callback(incoming).await.map($result) }.boxed())
            }};
        }
        let mode = || self.unsupported_mode();
        match question {
            Question::Sampling(params) => call!(self.sampling, *params, not_offered, |result| {
                ClientResult::CreateMessageResult(Box::new(result))
            }),
            Question::Form(form) => call!(self.form, form, mode, ClientResult::ElicitResult),
            Question::Url(url) => call!(self.url, url, mode, ClientResult::ElicitResult),
            Question::Roots => call!(self.roots, (), not_offered, |roots| {
                ClientResult::ListRootsResult(ListRootsResult::new(roots))
            }),
            Question::Unreadable(kind, problem) if self.offers(kind) => {
                Err(ErrorData::invalid_params(problem, None))
            }
            Question::Unreadable(..) | Question::Other => Err(not_offered()),
        }
    }

    fn offers(&self, kind: QuestionKind) -> bool {
        match kind {
            QuestionKind::Sampling => self.sampling.is_some(),
            QuestionKind::Elicitation => self.form.is_some() || self.url.is_some(),
            QuestionKind::Roots => self.roots.is_some(),
        }
    }

    /// An elicitation mode that was not advertised is an invalid parameter if the other one was.
    fn unsupported_mode(&self) -> ErrorData {
        if self.form.is_some() || self.url.is_some() {
            ErrorData::invalid_params("this client does not offer that mode of elicitation", None)
        } else {
            not_offered()
        }
    }

    /// Whether any callback receives notifications.
    pub(crate) fn listens(&self) -> bool {
        self.logs.is_some() || self.notifications.is_some()
    }

    /// Dispatches notifications until the runtime ends.
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
            let running = match &event.kind {
                EventKind::Log(log) => notify(self.logs.as_ref(), &event, log, log.meta.as_ref()),
                EventKind::Custom(custom) => {
                    let meta = custom.extensions.get();
                    notify(self.notifications.as_ref(), &event, custom, meta)
                }
                _ => None,
            };
            if let Some(running) = running
                && AssertUnwindSafe(running).catch_unwind().await.is_err()
            {
                log_limited!(limit, WARN, server = ?event.server, "a callback panicked");
            }
        }
    }
}

fn notify<P: Clone + Send + 'static>(
    callback: Option<&Listening<P>>,
    event: &Event,
    params: &P,
    meta: Option<&NotificationMetaObject>,
) -> Option<BoxFuture<'static, ()>> {
    let callback = Arc::clone(callback?);
    let mut incoming = Incoming::new(event.server.clone()?, event.generation, params.clone());
    incoming.meta = meta.map(|meta| meta.0.0.clone()).unwrap_or_default();
    Some(async move { callback(incoming).await }.boxed())
}

/// The error for a request without a callback.
pub(crate) fn not_offered() -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        "this client does not offer that",
        None,
    )
}
