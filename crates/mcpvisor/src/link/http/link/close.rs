//! Closes a link in good order: the last messages, then the end of the session.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::StreamExt as _;
use http::Method;
use tokio::time::Instant;

use super::HttpLink;
use crate::link::PendingSnapshot;
use crate::link::http::exchange::event::{ExchangeEvent, ExchangeOutcome};
use crate::link::http::exchange::outgoing::Purpose;

impl HttpLink {
    /// Closes the link within this time. Cancel-safe: a second call continues.
    pub(super) async fn close_within(&mut self, grace: Duration) -> Result<(), String> {
        // No caller waits for replies any more. Messages to the server, such as cancellations, are
        // still sent.
        self.hold.requests.clear();
        self.reader.background = None;
        self.exchanges.keep_messages();
        let started = Instant::now();
        // At most half of the time: the end of the session frees the memory of the server.
        let sent = poll_fn(|cx| self.poll_last_messages(cx));
        let _ = tokio::time::timeout(grace / 2, sent).await;
        self.exchanges.active.clear();
        self.messages.queued.clear();
        if self.session.is_active() && self.down.is_none() && !grace.is_zero() {
            self.session.end();
            let outgoing = self.outgoing(Method::DELETE, Vec::new());
            self.deleting = Some(self.exchanges.create(Purpose::DeleteSession, outgoing));
        }
        let deleted = poll_fn(|cx| self.poll_delete(cx));
        let left = grace.saturating_sub(started.elapsed());
        let deleted = tokio::time::timeout(left, deleted).await;
        self.deleting = None;
        self.exchanges.pool.clear();
        deleted.map_err(|_| "the server did not confirm the end of the session in time".to_owned())
    }

    /// Waits until the server has received the last messages, or cannot be reached.
    fn poll_last_messages(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let nothing_pending = PendingSnapshot(Vec::new());
        while self.down.is_none() && !self.session.is_lost() {
            let Some((purpose, event)) = ready!(self.exchanges.active.poll_next_unpin(cx)) else {
                break;
            };
            match event {
                ExchangeEvent::Ended(ended) => {
                    self.exchange_ended(purpose, *ended, &nothing_pending);
                }
                ExchangeEvent::ConnectFailed(error) => {
                    self.connect_failed(&error, &nothing_pending)
                }
                ExchangeEvent::Head(_)
                | ExchangeEvent::Message(_)
                | ExchangeEvent::Endpoint(_)
                | ExchangeEvent::Oversized(..) => {}
            }
        }
        Poll::Ready(())
    }

    /// Waits for the response to the DELETE.
    fn poll_delete(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deleting) = &mut self.deleting else {
            return Poll::Ready(());
        };
        while let Some((_, event)) = ready!(deleting.poll_next_unpin(cx)) {
            if let ExchangeEvent::Ended(ended) = event {
                if let ExchangeOutcome::Refused(refusal) = &ended.outcome {
                    tracing::debug!(status = %refusal.status, "the server did not end the session");
                }
                break;
            }
        }
        self.deleting = None;
        Poll::Ready(())
    }
}
