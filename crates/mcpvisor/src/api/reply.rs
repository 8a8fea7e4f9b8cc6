//! The reply channel of a request. Every request gets exactly one answer.
//!
//! A [`Reply`] moves with its request: from the caller to the actor, then to the connection.
//! Dropping it answers the request: *not sent* if nothing was written, otherwise *outcome unknown*.
//! If only the retry was not written, the answer is what was known before it. So no crash leaves a
//! caller without an answer.

use std::time::Duration;

use mcpvisor_core::FilterRejection;
use mcpvisor_core::machine::{Fault, FaultClass, Outcome};
use mcpvisor_core::retry::Known;
use rmcp::ErrorData;
use rmcp::model::ServerResult;
use tokio::sync::oneshot;

use crate::server::call_admission::OpenCall;

use crate::api::error::NotSentReason;

/// The answer of a request.
pub(crate) type Answer = Result<ServerResult, Failure>;

/// Why there is no result. [`RequestContext`](crate::api::error::RequestContext) turns it into a
/// [`CallError`](crate::CallError).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The outcome that the machine decided.
    Outcome(Outcome),
    /// The server answered with an error.
    Error(ErrorData),
    /// The server's reply is not valid.
    Unreadable(String),
    /// The request cannot be encoded.
    InvalidRequest(String),
    /// The server does not read its input.
    SendBufferFull,
    /// This many requests of the client wait for its quota.
    ClientQueueFull(usize),
    /// The client's rate limit admits the request only after this time, beyond its deadline.
    ClientRateExceeded(Duration),
    /// The client cancelled the request before it was sent.
    ClientClosed,
    /// A filter hides the tool. Holds the filter's owner and the reason.
    Hidden(&'static str, FilterRejection),
    /// The arguments do not match the tool's schema.
    #[cfg(feature = "schema-check")]
    InvalidArguments(Vec<crate::api::error::SchemaProblem>),
    /// The tool needs a person's approval. Holds the reason.
    HeldBack(String),
    /// The server requested input that was not provided.
    InputUnavailable(String),
    /// The tool's definition changed. Holds what is known about the first attempt.
    ToolChanged(Known),
    /// The tool is gone. Holds what is known about the first attempt.
    ToolGone(Known),
    /// The actor ended while it owned the request.
    ActorGone,
    /// The server was removed.
    Removed,
    /// The runtime ended.
    RuntimeGone,
}

/// The sending half of a request's reply channel.
#[derive(Debug)]
pub(crate) struct Reply {
    caller: Option<oneshot::Sender<Answer>>,
    written: bool,
    /// What is known about earlier attempts of the request.
    before: Known,
    /// The call's admission permit; released before the answer, so that a caller that calls again
    /// at once finds it free.
    open: Option<OpenCall>,
}

impl Reply {
    pub(crate) fn new(caller: oneshot::Sender<Answer>, open: OpenCall) -> Self {
        Self {
            caller: Some(caller),
            written: false,
            before: Known::NotSent,
            open: Some(open),
        }
    }

    /// Marks the request as sent. A request that is sent again on the same connection, with the
    /// input that the server requested, was already seen by the server, whatever happens to this
    /// send.
    pub(crate) fn set_sent(&mut self) {
        if self.written && self.before == Known::NotSent {
            self.before = Known::Unknown;
        }
        self.written = true;
    }

    /// Sets whether the server may have seen the last send.
    pub(crate) fn set_written(&mut self, written: bool) {
        self.written = written;
    }

    /// Starts an attempt with nothing written yet. `before` is what is known about earlier
    /// attempts.
    pub(crate) fn set_before(&mut self, before: Known) {
        self.before = before;
        self.written = false;
    }

    /// Whether the current attempt is a retry.
    pub(crate) fn is_retry(&self) -> bool {
        self.before != Known::NotSent
    }

    /// Answers the caller. A *not sent* failure of a retry is replaced by what is known about the
    /// earlier attempt.
    pub(crate) fn send(mut self, answer: Answer) {
        if let Some(caller) = self.caller.take() {
            let answer = answer.map_err(|failure| self.with_history(failure));
            self.answer(caller, answer);
        }
    }

    /// What is known about the request, including the last send.
    fn known(&self) -> Known {
        if self.written {
            Known::Unknown
        } else {
            self.before
        }
    }

    fn with_history(&self, failure: Failure) -> Failure {
        let known = self.known();
        if known == Known::NotSent {
            return failure;
        }
        let message = match failure {
            Failure::Outcome(Outcome::Deadline { idle, .. }) => {
                return Failure::Outcome(Outcome::Deadline { sent: true, idle });
            }
            Failure::Outcome(Outcome::NotSent(reason)) => NotSentReason::from(reason).to_string(),
            Failure::Outcome(Outcome::Busy) => "too many calls are in flight or queued".to_owned(),
            Failure::SendBufferFull => NotSentReason::NotRead.to_string(),
            Failure::ClientClosed => NotSentReason::ClientClosed.to_string(),
            Failure::ClientQueueFull(_) | Failure::ClientRateExceeded(_) => {
                "the client's quota is used up".to_owned()
            }
            Failure::ActorGone => NotSentReason::ActorRestarted.to_string(),
            Failure::Removed => NotSentReason::Removed.to_string(),
            Failure::RuntimeGone => "the runtime has shut down".to_owned(),
            Failure::InvalidRequest(problem) | Failure::HeldBack(problem) => problem,
            Failure::Hidden(..) => "a filter hides the tool".to_owned(),
            #[cfg(feature = "schema-check")]
            Failure::InvalidArguments(_) => "the arguments do not match the schema".to_owned(),
            sent @ (Failure::Outcome(
                Outcome::Unknown(_)
                | Outcome::Refused(_)
                | Outcome::Answered(_)
                | Outcome::Cancelled,
            )
            | Failure::Error(_)
            | Failure::Unreadable(_)
            | Failure::InputUnavailable(_)
            | Failure::ToolChanged(_)
            | Failure::ToolGone(_)) => return sent,
        };
        known_failure(known, format!("its retry was not sent: {message}"))
    }

    fn answer(&mut self, caller: oneshot::Sender<Answer>, answer: Answer) {
        self.open = None;
        // The caller may be gone.
        let _ = caller.send(answer);
    }
}

/// The failure that carries this knowledge about a request whose connection is lost.
fn known_failure(known: Known, message: impl Into<String>) -> Failure {
    let fault = Fault::new(FaultClass::ConnectionLost, message);
    match known {
        Known::NotSent => Failure::ActorGone,
        Known::Unknown => Failure::Outcome(Outcome::Unknown(fault)),
        Known::Refused => Failure::Outcome(Outcome::Refused(fault)),
        Known::Answered => Failure::Outcome(Outcome::Answered(fault)),
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            let failure = known_failure(self.known(), "the connection ended without an answer");
            self.answer(caller, Err(failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};
    use std::task::{Context, Wake};

    use mcpvisor_core::ClientId;
    use mcpvisor_core::settings::AdmissionSettings;

    use super::*;
    use crate::server::call_admission::CallAdmission;

    /// Records the number of open calls when the caller is woken.
    struct Caller {
        admission: Weak<CallAdmission>,
        open: AtomicUsize,
    }

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            let admission = self.admission.upgrade().unwrap();
            self.open.store(admission.open_count(), Ordering::Relaxed);
        }
    }

    #[test]
    fn the_permit_is_released_before_the_caller_is_answered() {
        for dropped in [false, true] {
            let (reply, answer, admission) = reply();
            let caller = Arc::new(Caller {
                admission: Arc::downgrade(&admission),
                open: AtomicUsize::new(1),
            });
            let waker = Arc::clone(&caller).into();
            let mut answer = pin!(answer);
            assert!(
                answer
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            if dropped {
                drop(reply);
            } else {
                reply.send(Ok(ServerResult::empty(())));
            }
            assert_eq!(caller.open.load(Ordering::Relaxed), 0);
        }
    }

    fn reply() -> (Reply, oneshot::Receiver<Answer>, Arc<CallAdmission>) {
        let admission = Arc::new(CallAdmission::new(&AdmissionSettings::default()));
        let open = admission.open(ClientId::DEFAULT).unwrap();
        let (caller, answer) = oneshot::channel();
        (Reply::new(caller, open), answer, admission)
    }

    #[test]
    fn a_reply_that_is_dropped_unwritten_says_that_nothing_was_sent() {
        let (reply, mut answer, _) = reply();
        drop(reply);
        assert!(matches!(answer.try_recv(), Ok(Err(Failure::ActorGone))));
    }

    #[test]
    fn a_reply_that_is_dropped_after_the_write_says_that_the_outcome_is_unknown() {
        let (mut reply, mut answer, _) = reply();
        reply.set_written(true);
        drop(reply);
        assert!(matches!(
            answer.try_recv(),
            Ok(Err(Failure::Outcome(Outcome::Unknown(_))))
        ));
    }

    #[test]
    fn a_retry_that_was_not_written_leaves_what_was_known_before_it() {
        for (before, known) in [
            (Known::Unknown, "Unknown"),
            (Known::Refused, "Refused"),
            (Known::Answered, "Answered"),
        ] {
            let (mut reply, mut answer, _) = reply();
            reply.set_written(true);
            reply.set_before(before);
            reply.set_written(true);
            reply.set_written(false);
            drop(reply);
            let Ok(Err(Failure::Outcome(outcome))) = answer.try_recv() else {
                panic!("not sent");
            };
            let outcome = format!("{outcome:?}");
            assert!(outcome.starts_with(known), "{outcome}");
        }
    }

    /// Every failure that means *not sent*.
    fn unsent() -> Vec<Failure> {
        use mcpvisor_core::machine::NotSent;
        vec![
            Failure::SendBufferFull,
            Failure::ClientClosed,
            Failure::ClientQueueFull(1),
            Failure::ClientRateExceeded(Duration::ZERO),
            Failure::InvalidRequest("a bad header".to_owned()),
            Failure::HeldBack("it changed".to_owned()),
            Failure::ActorGone,
            Failure::Removed,
            Failure::RuntimeGone,
            Failure::Outcome(Outcome::Busy),
            Failure::Outcome(Outcome::NotSent(NotSent::Disabled)),
            Failure::Outcome(Outcome::NotSent(NotSent::NoConnection(None))),
            Failure::Outcome(Outcome::Deadline {
                sent: false,
                idle: false,
            }),
        ]
    }

    fn error(failure: Failure) -> crate::CallError {
        let context = crate::api::error::RequestContext {
            server: mcpvisor_core::ServerName::new("web").unwrap(),
            method: "tools/call".into(),
            tool: None,
            deadline: Default::default(),
            idle: Default::default(),
            limit: 1,
            expected_wait: None,
            obstacle: None,
        };
        context.error(failure)
    }

    #[test]
    fn a_request_that_was_sent_before_never_ends_as_not_sent() {
        for before in [Known::Unknown, Known::Refused, Known::Answered] {
            for failure in unsent() {
                let text = format!("{failure:?}");
                let (mut reply, mut answer, _) = reply();
                reply.set_sent();
                reply.set_before(before);
                reply.send(Err(failure));
                let known = error(answer.try_recv().unwrap().unwrap_err()).known();
                let deadline = text.contains("Deadline");
                let expected = if deadline { Known::Unknown } else { before };
                assert_eq!(known, expected, "{text}");
            }
        }
    }

    #[test]
    fn a_request_that_was_written_just_now_never_ends_as_not_sent() {
        for failure in unsent() {
            let (mut reply, mut answer, _) = reply();
            reply.set_sent();
            reply.send(Err(failure));
            let known = error(answer.try_recv().unwrap().unwrap_err()).known();
            assert_eq!(known, Known::Unknown);
        }
    }

    #[test]
    fn a_request_that_was_never_sent_ends_as_not_sent() {
        for failure in unsent() {
            let (mut reply, mut answer, _) = reply();
            // Queued, then withdrawn before any of it was written.
            reply.set_sent();
            reply.set_written(false);
            reply.send(Err(failure));
            let known = error(answer.try_recv().unwrap().unwrap_err()).known();
            assert_eq!(known, Known::NotSent);
        }
    }

    #[test]
    fn an_answer_that_is_never_received_releases_the_permit() {
        let (reply, answer, admission) = reply();
        assert_eq!(admission.open_count(), 1);
        reply.send(Ok(ServerResult::empty(())));
        assert_eq!(admission.open_count(), 0);
        drop(answer);
    }
}
