//! Which client a request of a server belongs to.
//!
//! Before 2026-07-28 a request of a server does not say which call caused it, and clients share a
//! connection. A request goes to a client only if no other one can have caused it; otherwise it is
//! declined. Calls that ended without an answer may still run at the server, so they count too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::ids::{CallId, ClientId};

/// How long a call that ended without an answer may still cause requests.
pub const ABANDONED_CALL_LIFETIME: Duration = Duration::from_secs(60);

/// Answerers of abandoned calls that are tracked per connection. While there are more, requests without a
/// known cause are ambiguous.
pub const MAX_ABANDONED: usize = 1_024;

/// Who answers the requests of a server that a call causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answerer {
    /// The embedding program.
    Runtime,
    /// A client with callbacks of its own.
    Client(ClientId),
    /// The caller of this call alone.
    Call(CallId),
}

/// Where a request of a server goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestRoute {
    /// It is answered by this one.
    To(Answerer),
    /// The call that it belongs to has ended.
    CauseEnded,
    /// Calls with different answerers may have caused it.
    Ambiguous,
}

/// A call in flight that may have caused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PossibleCause {
    /// Its id on the wire.
    pub call: CallId,
    /// Who answers for it.
    pub answerer: Answerer,
}

/// Routes a request. `named` is the call that the request belongs to, if that is known. A request without
/// any possible cause is for the embedding program.
pub fn route(
    named: Option<CallId>,
    in_flight: impl IntoIterator<Item = PossibleCause>,
    abandoned: &AbandonedCalls,
    now: Instant,
) -> RequestRoute {
    let mut only: Option<Answerer> = None;
    let mut is_ambiguous = abandoned.has_overflowed(now);
    for cause in in_flight {
        if named == Some(cause.call) {
            return RequestRoute::To(cause.answerer);
        }
        is_ambiguous |= only.is_some_and(|it| it != cause.answerer);
        only = Some(cause.answerer);
    }
    if named.is_some() {
        return RequestRoute::CauseEnded;
    }
    for answerer in abandoned.answerers(now) {
        is_ambiguous |= only.is_some_and(|it| it != answerer);
        only = Some(answerer);
    }
    match is_ambiguous {
        true => RequestRoute::Ambiguous,
        false => RequestRoute::To(only.unwrap_or(Answerer::Runtime)),
    }
}

/// The call that caused a request: the one that it names, or the only one that can have caused it.
pub fn only_cause(
    named: Option<CallId>,
    in_flight: impl IntoIterator<Item = CallId>,
    abandoned: &AbandonedCalls,
    now: Instant,
) -> Option<CallId> {
    let mut in_flight = in_flight.into_iter();
    if named.is_some() {
        return in_flight.find(|call| named == Some(*call));
    }
    let only = in_flight.next()?;
    let is_only = in_flight.next().is_none()
        && abandoned.answerers(now).next().is_none()
        && !abandoned.has_overflowed(now);
    is_only.then_some(only)
}

/// The calls of one connection that ended without an answer, a short time ago.
#[derive(Debug, Clone, Default)]
pub struct AbandonedCalls {
    /// Who answers for them, each once with the latest time until which it counts. Sorted by time.
    answerers: VecDeque<(Answerer, Instant)>,
    /// More calls were abandoned than are tracked; until then.
    overflow_until: Option<Instant>,
}

impl AbandonedCalls {
    /// A call was cancelled or timed out after it was sent.
    pub fn push(&mut self, answerer: Answerer, now: Instant) {
        self.answerers
            .retain(|(it, until)| *it != answerer && *until > now);
        let until = now.checked_add(ABANDONED_CALL_LIFETIME).unwrap_or(now);
        if self.answerers.len() >= MAX_ABANDONED {
            self.overflow_until = Some(until);
            return;
        }
        self.answerers.push_back((answerer, until));
    }

    fn answerers(&self, now: Instant) -> impl Iterator<Item = Answerer> {
        let recent = self.answerers.iter().filter(move |(_, until)| *until > now);
        recent.map(|(answerer, _)| *answerer)
    }

    fn has_overflowed(&self, now: Instant) -> bool {
        self.overflow_until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::Answerer::{Call, Client, Runtime};
    use super::*;

    const A: Answerer = Client(ClientId(1));
    const B: Answerer = Client(ClientId(2));

    fn causes(calls: &[(u64, Answerer)]) -> Vec<PossibleCause> {
        let cause = |(call, answerer): &(u64, Answerer)| PossibleCause {
            call: CallId(*call),
            answerer: *answerer,
        };
        calls.iter().map(cause).collect()
    }

    fn routed(named: Option<u64>, calls: &[(u64, Answerer)]) -> RequestRoute {
        let (named, abandoned) = (named.map(CallId), AbandonedCalls::default());
        route(named, causes(calls), &abandoned, Instant::now())
    }

    #[test]
    fn a_request_that_names_its_call_goes_to_its_client() {
        let calls = [(1, A), (2, B), (3, Runtime), (4, Call(CallId(4)))];
        for (call, answerer) in calls {
            assert_eq!(routed(Some(call), &calls), RequestRoute::To(answerer));
        }
        assert_eq!(routed(Some(9), &calls), RequestRoute::CauseEnded);
        assert_eq!(routed(Some(9), &[]), RequestRoute::CauseEnded);
    }

    #[test]
    fn a_request_without_a_name_goes_to_the_only_client_in_question() {
        assert_eq!(routed(None, &[(1, A)]), RequestRoute::To(A));
        assert_eq!(routed(None, &[(1, A), (2, A)]), RequestRoute::To(A));
        let runtime = [(1, Runtime), (2, Runtime)];
        assert_eq!(routed(None, &runtime), RequestRoute::To(Runtime));
        assert_eq!(routed(None, &[]), RequestRoute::To(Runtime));
    }

    #[test]
    fn a_request_that_two_clients_may_have_caused_is_ambiguous() {
        let own = |call| (call, Call(CallId(call)));
        for calls in [
            vec![(1, A), (2, B)],
            vec![(1, A), (2, Runtime)],
            vec![(1, A), (2, B), (3, A)],
            vec![own(1), own(2)],
        ] {
            assert_eq!(routed(None, &calls), RequestRoute::Ambiguous, "{calls:?}");
        }
    }

    #[test]
    fn the_cause_is_known_if_it_is_named_or_the_only_one() {
        let now = Instant::now();
        let mut abandoned = AbandonedCalls::default();
        let calls = |calls: &[u64]| calls.iter().copied().map(CallId).collect::<Vec<_>>();
        let cause = |named: Option<u64>, in_flight: &[u64], abandoned: &AbandonedCalls| {
            let cause = only_cause(named.map(CallId), calls(in_flight), abandoned, now);
            cause.map(|call| call.0)
        };
        assert_eq!(cause(Some(2), &[1, 2], &abandoned), Some(2));
        assert_eq!(cause(Some(3), &[1], &abandoned), None);
        assert_eq!(cause(None, &[1], &abandoned), Some(1));
        assert_eq!(cause(None, &[1, 2], &abandoned), None);
        assert_eq!(cause(None, &[], &abandoned), None);
        abandoned.push(A, now);
        assert_eq!(cause(None, &[1], &abandoned), None);
        assert_eq!(cause(Some(1), &[1], &abandoned), Some(1));
    }

    #[test]
    fn an_abandoned_call_is_a_possible_cause_for_a_minute() {
        let start = Instant::now();
        let mut abandoned = AbandonedCalls::default();
        abandoned.push(A, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let route = |calls: &[_], seconds| route(None, causes(calls), &abandoned, at(seconds));
        assert_eq!(route(&[(2, B)], 59), RequestRoute::Ambiguous);
        assert_eq!(route(&[(2, A)], 59), RequestRoute::To(A));
        assert_eq!(route(&[], 59), RequestRoute::To(A));
        assert_eq!(route(&[(2, B)], 60), RequestRoute::To(B));
        assert_eq!(route(&[], 60), RequestRoute::To(Runtime));
    }

    #[test]
    fn too_many_abandoned_clients_make_requests_ambiguous_and_memory_stays_bounded() {
        let start = Instant::now();
        let mut abandoned = AbandonedCalls::default();
        for client in 0..2_000 {
            abandoned.push(Client(ClientId(client)), start);
        }
        assert_eq!(abandoned.answerers.len(), MAX_ABANDONED);
        let route = |at| route(None, causes(&[(1, A)]), &abandoned, at);
        assert_eq!(route(start), RequestRoute::Ambiguous);
        let later = start + ABANDONED_CALL_LIFETIME;
        assert_eq!(route(later), RequestRoute::To(A));
    }
}
