//! Requests that are held back for a moment, until it is known whether they would arrive.

use std::pin::Pin;
use std::time::Duration;

use mcpvisor_core::CallId;
use mcpvisor_core::retry::RequestFailure;
use tokio::time::Sleep;

use super::HttpLink;
use super::exchange::Outgoing;
use crate::link::Inbound;

/// Requests wait for so long at most when it is in doubt whether the session is still there.
pub(super) const DOUBT: Duration = Duration::from_millis(100);

/// Requests that a server may answer with a question wait for so long at most until its own stream is
/// open: many ask on that stream, and drop the question where there is none yet.
pub(super) const OPENING: Duration = Duration::from_millis(500);

/// What is not known about the stream of the server's.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) about: About,
    pub(super) patience: Pin<Box<Sleep>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// It broke off, and whether the server still knows the session is being asked.
    Session,
    /// It is being opened for the first time. This concerns those who may be asked something on it.
    Stream,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: CallId,
    pub(super) outgoing: Outgoing,
    /// The server may answer it with a question.
    pub(super) may_be_asked: bool,
}

impl HttpLink {
    /// Requests wait from now on, for so long at most.
    pub(super) fn doubt(&mut self, about: About, patience: Duration) {
        let patience = Box::pin(tokio::time::sleep(patience));
        self.doubt = Some(Doubt { about, patience });
    }

    /// Whether a request has to wait.
    pub(super) fn holds(&self, may_be_asked: bool) -> bool {
        let concerned = match &self.doubt {
            Some(doubt) => doubt.about == About::Session || may_be_asked,
            None => false,
        };
        self.greeting || concerned
    }

    /// Sends the requests that were held back.
    pub(super) fn release(&mut self) {
        self.doubt = None;
        self.release_others();
    }

    /// Sends the requests that need not wait any more.
    pub(super) fn release_others(&mut self) {
        for held in std::mem::take(&mut self.held) {
            if self.holds(held.may_be_asked) {
                self.held.push_back(held);
            } else {
                self.start_request(held.id, held.outgoing, false);
            }
        }
    }

    /// Requests that were held back in doubt, rightly so, were never sent.
    pub(super) fn give_back(&mut self, problem: &str) {
        self.doubt = None;
        let unsent = self.held.drain(..).map(|held| Inbound::Failed {
            id: held.id,
            trouble: RequestFailure::NotWritten,
            status: None,
            error: None,
            message: problem.to_owned(),
        });
        self.ready.extend(unsent);
    }
}
