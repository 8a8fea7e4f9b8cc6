//! The end of a link that is closed in good order: what the server is still told.

use std::task::{Context, Poll, ready};

use futures_util::stream::StreamExt as _;
use mcpvisor_core::CallId;

use super::exchange::{End, Exchange, Out, Purpose};
use super::{Ending, HttpLink, Session};
use crate::link::{PendingRequests, PendingSnapshot, ReplyKind};

impl HttpLink {
    /// Nobody waits for an answer any more. What the server is being told, that calls are given up
    /// among it, is told to the end.
    pub(super) fn drop_all_but_messages(&mut self) {
        self.held.clear();
        self.heavy = None;
        let all = std::mem::take(&mut self.exchanges);
        let told = |it: &Exchange| matches!(it.purpose, Purpose::Message | Purpose::Delete);
        self.exchanges.extend(all.into_iter().filter(told));
    }

    /// Waits until the server has taken the last messages, or cannot be reached.
    pub(super) fn poll_last_messages(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while matches!(self.end, Ending::Open) && self.session != Session::Gone {
            let Some((purpose, out)) = ready!(self.exchanges.poll_next_unpin(cx)) else {
                break;
            };
            match out {
                Out::Over(over) => drop(self.over(purpose, *over, &Nobody)),
                Out::Undialled(failure) => drop(self.undialled(&failure, &Nobody)),
                Out::Head(_) | Out::Message(_) => {}
            }
        }
        Poll::Ready(())
    }

    /// Ends the session at the server.
    pub(super) fn poll_delete(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deleting) = &mut self.deleting else {
            return Poll::Ready(());
        };
        while let Some((_, out)) = ready!(deleting.poll_next_unpin(cx)) {
            if let Out::Over(over) = out {
                if let End::Refused(refusal) = &over.how {
                    tracing::debug!(status = %refusal.status, "the server did not end the session");
                }
                break;
            }
        }
        self.deleting = None;
        Poll::Ready(())
    }
}

/// Nobody waits for anything.
struct Nobody;

impl PendingRequests for Nobody {
    fn reply_kind(&self, _id: CallId) -> Option<ReplyKind> {
        None
    }

    fn snapshot(&self) -> PendingSnapshot {
        PendingSnapshot(Vec::new())
    }
}
