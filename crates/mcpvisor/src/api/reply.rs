//! The one answer of one request, on its way to the caller.
//!
//! A [`Reply`] moves with its request: from the caller to the actor, from there to the connection.
//! Whoever drops it has answered it: *not sent* while nothing of it was written, *outcome unknown*
//! after that, and what was known before if only its retry was not written. So no crash anywhere leaves a caller in silence.

use mcpvisor_core::FilterRejection;
use mcpvisor_core::machine::{Fault, FaultClass, Outcome};
use mcpvisor_core::retry::Known;
use rmcp::ErrorData;
use rmcp::model::ServerResult;
use tokio::sync::oneshot;

use crate::server::call_admission::OpenCall;

use crate::api::error::NotSentReason;

/// What a caller gets.
pub(crate) type Answer = Result<ServerResult, Failure>;

/// Why there is no result, before it is put into words.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The machine decided so.
    Outcome(Outcome),
    /// The server answered with an error.
    Error(ErrorData),
    /// The server's reply cannot be read.
    Unreadable(String),
    /// The request cannot be written down.
    Invalid(String),
    /// Too much waits for the server to read it.
    NoRoom,
    /// A filter hides the tool: whose, and why.
    Hidden(&'static str, FilterRejection),
    /// The arguments do not fit the tool's schema.
    #[cfg(feature = "schema-check")]
    InvalidArguments(Vec<crate::api::error::ArgumentProblem>),
    /// The tool waits for the approval of a person: why.
    HeldBack(String),
    /// The server asked for input that it did not get.
    NoInput(String),
    /// The tool is another one now. What is known of the call from when it was sent before.
    ToolChanged(Known),
    /// The tool is gone. Likewise.
    ToolGone(Known),
    /// The actor ended with the request in its hands.
    ActorGone,
    /// The server was removed.
    Removed,
    /// The runtime ended.
    RuntimeGone,
}

/// The sender's end of one answer.
#[derive(Debug)]
pub(crate) struct Reply {
    caller: Option<oneshot::Sender<Answer>>,
    written: bool,
    /// What is known of the request from when it was sent before, on another connection.
    before: Known,
    /// The call's place among those that are open; given back before the answer, so that a caller
    /// that asks again at once finds it free.
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

    /// The request goes to the server. One that goes there again on the same connection, with what
    /// the server asked for, was seen before, whatever becomes of it now.
    pub(crate) fn set_sent(&mut self) {
        if self.written && self.before == Known::NotSent {
            self.before = Known::Unknown;
        }
        self.written = true;
    }

    /// Whether the server may have seen what was sent last, should this reply be dropped.
    pub(crate) fn set_written(&mut self, written: bool) {
        self.written = written;
    }

    /// The request is about to be sent, again if this is known of it. None of that is written yet.
    pub(crate) fn set_before(&mut self, before: Known) {
        self.before = before;
        self.written = false;
    }

    /// Whether the request was sent before, so that what is sent now is its retry.
    pub(crate) fn is_retry(&self) -> bool {
        self.before != Known::NotSent
    }

    /// Answers the caller. A failure that says *not sent* gives way to what is known from sending
    /// the request before.
    pub(crate) fn send(mut self, answer: Answer) {
        if let Some(caller) = self.caller.take() {
            let answer = answer.map_err(|failure| self.with_history(failure));
            self.answer(caller, answer);
        }
    }

    /// What is known of the request, the last send included.
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
            Failure::Outcome(Outcome::Busy) => "too many calls run or wait already".to_owned(),
            Failure::NoRoom => NotSentReason::NotRead.to_string(),
            Failure::ActorGone => NotSentReason::ActorRestarted.to_string(),
            Failure::Removed => NotSentReason::Removed.to_string(),
            Failure::RuntimeGone => "the runtime has shut down".to_owned(),
            Failure::Invalid(problem) | Failure::HeldBack(problem) => problem,
            Failure::Hidden(..) => "a filter hides the tool".to_owned(),
            #[cfg(feature = "schema-check")]
            Failure::InvalidArguments(_) => "the arguments do not fit".to_owned(),
            said @ (Failure::Outcome(
                Outcome::Unknown(_)
                | Outcome::Refused(_)
                | Outcome::Answered(_)
                | Outcome::Cancelled,
            )
            | Failure::Error(_)
            | Failure::Unreadable(_)
            | Failure::NoInput(_)
            | Failure::ToolChanged(_)
            | Failure::ToolGone(_)) => return said,
        };
        let message = format!("its retry was not sent: {message}");
        known_failure(known, Fault::new(FaultClass::ConnectionLost, message))
    }

    /// The failure of a request whose reply is dropped.
    fn dropped(&self) -> Failure {
        let message = "the connection ended without an answer";
        known_failure(
            self.known(),
            Fault::new(FaultClass::ConnectionLost, message),
        )
    }

    fn answer(&mut self, caller: oneshot::Sender<Answer>, answer: Answer) {
        self.open = None;
        // A caller that left wants no answer.
        let _ = caller.send(answer);
    }
}

/// The failure of a request of which no more than this is known.
fn known_failure(known: Known, fault: Fault) -> Failure {
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
            let failure = self.dropped();
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

    /// Counts the open calls at the moment when the caller is woken.
    struct Caller {
        places: Weak<CallAdmission>,
        open: AtomicUsize,
    }

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            let places = self.places.upgrade().unwrap();
            self.open.store(places.open(), Ordering::Relaxed);
        }
    }

    #[test]
    fn the_place_is_free_before_the_caller_has_its_answer() {
        for dropped in [false, true] {
            let (reply, answer, places) = reply();
            let caller = Arc::new(Caller {
                places: Arc::downgrade(&places),
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
        let places = Arc::new(CallAdmission::new(&AdmissionSettings::default()));
        let open = places.enter(ClientId::DEFAULT).unwrap();
        let (caller, answer) = oneshot::channel();
        (Reply::new(caller, open), answer, places)
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
        for (before, told) in [
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
            assert!(outcome.starts_with(told), "{outcome}");
        }
    }

    /// Every failure that says that nothing was sent.
    fn unsent() -> Vec<Failure> {
        use mcpvisor_core::machine::NotSent;
        vec![
            Failure::NoRoom,
            Failure::Invalid("a bad header".to_owned()),
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
        let asked = crate::api::error::Asked {
            server: mcpvisor_core::ServerName::new("web").unwrap(),
            method: "tools/call",
            tool: None,
            deadline: Default::default(),
            idle: Default::default(),
            limit: 1,
            obstacle: None,
        };
        asked.error(failure)
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
                let told = error(answer.try_recv().unwrap().unwrap_err()).known();
                let deadline = text.contains("Deadline");
                let expected = if deadline { Known::Unknown } else { before };
                assert_eq!(told, expected, "{text}");
            }
        }
    }

    #[test]
    fn a_request_that_was_written_just_now_never_ends_as_not_sent() {
        for failure in unsent() {
            let (mut reply, mut answer, _) = reply();
            reply.set_sent();
            reply.send(Err(failure));
            let told = error(answer.try_recv().unwrap().unwrap_err()).known();
            assert_eq!(told, Known::Unknown);
        }
    }

    #[test]
    fn a_request_that_was_never_sent_ends_as_not_sent() {
        for failure in unsent() {
            let (mut reply, mut answer, _) = reply();
            // Pushed, and taken back before any of it was written.
            reply.set_sent();
            reply.set_written(false);
            reply.send(Err(failure));
            let told = error(answer.try_recv().unwrap().unwrap_err()).known();
            assert_eq!(told, Known::NotSent);
        }
    }

    #[test]
    fn an_answer_gives_the_place_back_though_nobody_looked_at_it() {
        let (reply, answer, places) = reply();
        assert_eq!(places.open(), 1);
        reply.send(Ok(ServerResult::empty(())));
        assert_eq!(places.open(), 0);
        drop(answer);
    }
}
