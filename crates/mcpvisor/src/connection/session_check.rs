//! Errors that may mean a lost session, and the one ping that decides.
//!
//! An error in a successful reply that speaks of a lost session may be the tool's own. It is parked
//! here while a ping asks the server whether it still knows the session. Refused with session
//! evidence, the loss is certain, and the machine hears of it; whatever else comes of the ping, the
//! error is the answer. So it is when another request finds out that the session is lost: the tool
//! may have run before.

use std::time::Instant;

use mcpvisor_core::machine::{Fault, FaultClass};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CallId, SessionEvidence};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, PingRequest};

use super::pending::{Entry, Holder, InternalFailure};
use super::session::Session;
use crate::api::reply::Failure;
use crate::link::{Link, ReplyKind};
use crate::server::actor::now;
use crate::server::message::FailedCall;

/// What is known about the session of a connection.
#[derive(Debug, Default)]
pub(super) struct SessionCheck {
    loss: Loss,
    ping: Option<Ping>,
    /// Answers that wait for the ping.
    parked: Vec<Parked>,
}

/// How it is known that the session is lost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It is not.
    #[default]
    None,
    /// Another request was refused by its status. A server that says so by status would have refused
    /// a doubtful request in the same way, so that error is the tool's own.
    Reported,
    /// A ping was refused because of an error in words: further ones mean the same.
    Confirmed,
}

#[derive(Debug, Clone, Copy)]
struct Ping {
    id: CallId,
    due: Instant,
}

#[derive(Debug)]
struct Parked {
    id: CallId,
    entry: Entry,
    error: ErrorData,
}

impl SessionCheck {
    /// When the ping is given up, if one is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ping.map(|ping| ping.due)
    }
}

impl<L: Link> Session<'_, L> {
    /// A request was answered with an error that may mean that the session is lost.
    pub(super) fn doubtful(&mut self, id: CallId, error: ErrorData) {
        if self.session_check.ping.is_some_and(|ping| ping.id == id) {
            self.pending.remove(id);
            return self.session_checked(SessionEvidence::Doubtful);
        }
        let Some(entry) = self.pending.remove(id) else {
            return;
        };
        if self.is_swapped(&entry, &error) {
            return self.swapped(id, entry, error);
        }
        let parked = Parked { id, entry, error };
        match self.session_check.loss {
            Loss::Confirmed => self.refused_for_session(parked),
            Loss::Reported => self.answer(parked),
            Loss::None => {
                self.session_check.parked.push(parked);
                if self.session_check.ping.is_none() {
                    self.ping_session();
                }
            }
        }
    }

    fn ping_session(&mut self) {
        let id = self.task.slot.calls.next_id();
        let answer_within = self.task.slot.config().settings.health.keepalive_timeout;
        let request = ClientRequest::PingRequest(PingRequest {
            method: Default::default(),
            extensions: Default::default(),
        });
        let reply_kind = ReplyKind::of(&request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => {
                let due = now() + answer_within;
                self.session_check.ping = Some(Ping { id, due });
                self.pending
                    .insert(id, reply_kind, position, Holder::SessionCheck);
            }
            Err(_) => self.session_checked(SessionEvidence::None),
        }
    }

    /// The ping was not answered in time.
    pub(super) fn session_check_timed_out(&mut self) {
        if let Some(ping) = self.session_check.ping {
            self.pending.remove(ping.id);
            self.link.cancel(ping.id, "no answer in time");
        }
        self.session_checked(SessionEvidence::None);
    }

    /// The ping ended, with this evidence of a loss.
    pub(super) fn session_checked(&mut self, evidence: SessionEvidence) {
        if !evidence.confirms_loss() {
            return self.end_session_check();
        }
        if self.session_check.parked.is_empty() {
            // The callers who would report it have left.
            self.session_lost("a ping was refused for its session");
        }
        self.session_check.loss = Loss::Confirmed;
        for parked in std::mem::take(&mut self.session_check.parked) {
            self.refused_for_session(parked);
        }
        self.end_session_check();
    }

    /// Another request found out that the session is lost. A ping that is under way need not be
    /// answered.
    pub(super) fn session_is_lost(&mut self) {
        if self.session_check.loss == Loss::None {
            self.session_check.loss = Loss::Reported;
        }
        self.end_session_check();
    }

    /// The server answered what is still parked: those errors are the answers.
    pub(super) fn end_session_check(&mut self) {
        if let Some(ping) = self.session_check.ping.take()
            && self.pending.remove(ping.id).is_some()
        {
            self.link.forget(ping.id);
        }
        for parked in std::mem::take(&mut self.session_check.parked) {
            self.answer(parked);
        }
    }

    fn answer(&mut self, parked: Parked) {
        let Parked { entry, error, .. } = parked;
        match entry.holder {
            Holder::Caller(call) => self.finish(call, Err(Failure::Error(error))),
            Holder::Internal(answer) => drop(answer.send(Err(InternalFailure::Error(error)))),
            // Neither is ever parked: the one has no session, the other decides.
            Holder::Listen | Holder::SessionCheck => {}
        }
    }

    /// A request is given up while its answer is parked: the server has answered it all the same.
    /// Says whether it was parked.
    pub(super) fn abandon_parked(&mut self, id: CallId) -> bool {
        let mut parked = self.session_check.parked.iter();
        let Some(at) = parked.position(|parked| parked.id == id) else {
            return false;
        };
        let Parked { entry, error, .. } = self.session_check.parked.swap_remove(at);
        if let Holder::Caller(call) = entry.holder {
            call.reply.send(Err(Failure::Error(error)));
        }
        true
    }

    fn refused_for_session(&mut self, parked: Parked) {
        let Parked { entry, error, .. } = parked;
        let said = format!("{} (code {})", error.message, error.code.0);
        let said = self.task.slot.redact(said).into_owned();
        match entry.holder {
            Holder::Caller(mut call) => {
                call.note_refusal(Some(error));
                self.observed.failed.push(FailedCall {
                    call,
                    trouble: RequestFailure::SessionLost,
                    fault: Fault::new(FaultClass::SessionExpired, said),
                });
            }
            Holder::Internal(answer) => {
                self.session_lost(&said);
                let fault = Fault::new(FaultClass::SessionExpired, said);
                let trouble = RequestFailure::SessionLost;
                let _ = answer.send(Err(InternalFailure::Failed { trouble, fault }));
            }
            Holder::Listen | Holder::SessionCheck => {}
        }
    }
}
