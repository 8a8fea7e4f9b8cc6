//! The results of one batch of messages, for the actor and for the callers.

use mcpvisor_core::ListKind;
use mcpvisor_core::machine::{CallEnd, Fault};

use crate::api::reply::{Answer, Failure, Reply};
use crate::connection::task::Reporter;
use crate::server::call::Call;
use crate::server::message::{ConnectionEvent, InboundSummary};

/// Collects results until the next flush.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) summary: InboundSummary,
    replies: Vec<(Reply, Answer)>,
}

impl Batch {
    /// Ends a call with the server's answer.
    pub(crate) fn finish(&mut self, call: Box<Call>, answer: Answer) {
        self.end(call, answer, CallEnd::Answered);
    }

    /// Ends a call that was answered without the server.
    pub(crate) fn finish_locally(&mut self, call: Box<Call>, answer: Answer) {
        self.end(call, answer, CallEnd::Local);
    }

    /// Ends a call whose answer cannot be read.
    pub(crate) fn finish_unreadable(&mut self, call: Box<Call>, problem: String) {
        self.end(call, Err(Failure::Unreadable(problem)), CallEnd::Unreadable);
    }

    fn end(&mut self, call: Box<Call>, answer: Answer, end: CallEnd) {
        self.summary.ended.push((call.id, end));
        self.replies.push((call.reply, answer));
    }

    pub(crate) fn add_changed_lists(&mut self, lists: &[ListKind]) {
        for list in lists {
            if !self.summary.changed.contains(list) {
                self.summary.changed.push(*list);
            }
        }
    }

    /// Reports the loss of the session, apart from any call. The first fault counts.
    pub(crate) fn report_session_lost(&mut self, fault: Fault) {
        self.summary.session_lost.get_or_insert(fault);
    }

    /// Reports to the actor first, then answers the callers: a caller that sends its next call at
    /// once finds the capacity of the last one free.
    pub(super) fn flush(&mut self, reporter: &Reporter) {
        let summary = std::mem::take(&mut self.summary);
        reporter.send(ConnectionEvent::Inbound(summary));
        for (reply, answer) in self.replies.drain(..) {
            reply.send(answer);
        }
    }
}
