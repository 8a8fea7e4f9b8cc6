//! The limit of calls in flight at a server, and the queue behind it.
//!
//! The queue is fair between clients: each has its own queue, and they take turns. A full queue evicts a
//! call of the client with the largest share, so that a client within its share is never refused because
//! of another. A priority orders the calls of one client and never takes the turn of another. The calls
//! themselves and their deadlines belong to the machine; this file only knows their ids.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{CallId, ClientId};
use crate::settings::AdmissionSettings;

/// The priority of a call among those of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// After the others. It starves while others keep arriving.
    Low,
    /// In the order of arrival.
    #[default]
    Normal,
    /// Before the others.
    High,
}

/// Where a new call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitOutcome {
    /// It is in flight: send it.
    InFlight,
    /// It is queued; [`Admission::next`] will return it.
    Queued,
    /// It is queued in place of a call of the client with the largest share, which is refused.
    QueuedInsteadOf {
        /// The call that is refused. It was never sent.
        evicted: CallId,
    },
    /// The queue is full: refuse it.
    QueueFull,
}

/// The number of calls in flight, and the queue.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    in_flight: usize,
    /// The calls in flight of each client that has any.
    in_flight_of: BTreeMap<ClientId, usize>,
    max_in_flight: usize,
    /// The limit of queued calls that were never in flight.
    max_queued: usize,
    queued: usize,
    /// Queued calls that were in flight before: they are not limited and never evicted.
    returned: usize,
    /// The queued calls of each client that has any.
    queues: BTreeMap<ClientId, VecDeque<QueuedCall>>,
    /// The clients that have a queue, each once, the next turn first.
    turns: VecDeque<ClientId>,
}

/// A call in the queue of its client.
#[derive(Debug, Clone, Copy)]
struct QueuedCall {
    call: CallId,
    /// `None` for a call that was in flight before: it goes before all others of its client.
    priority: Option<Priority>,
}

impl QueuedCall {
    fn is_before(&self, priority: Priority) -> bool {
        self.priority.is_none_or(|mine| mine >= priority)
    }

    /// Whether it was in flight before, and is older than the other call.
    fn returned_before(&self, other: CallId) -> bool {
        self.priority.is_none() && self.call < other
    }
}

impl Admission {
    /// Nothing in flight and nothing queued.
    pub fn new(settings: &AdmissionSettings) -> Self {
        Self {
            max_in_flight: settings.in_flight.max(1),
            max_queued: settings.waiting,
            ..Self::default()
        }
    }

    /// Changes the limits. Calls in flight or queued beyond them stay.
    pub fn reconfigure(&mut self, settings: &AdmissionSettings) {
        self.max_in_flight = settings.in_flight.max(1);
        self.max_queued = settings.waiting;
    }

    /// Admits a new call. It starts if the connection is `open`, the limit of calls in flight is not
    /// reached and the queue is empty. Otherwise it is queued behind the calls of its client with the
    /// same or a higher priority.
    pub fn enter(
        &mut self,
        client: ClientId,
        call: CallId,
        priority: Priority,
        open: bool,
    ) -> AdmitOutcome {
        if open && self.queued == 0 && self.in_flight < self.max_in_flight {
            self.count_in_flight(client);
            return AdmitOutcome::InFlight;
        }
        let evicted = if self.queued - self.returned < self.max_queued {
            None
        } else {
            match self.evict_for(client) {
                Some(evicted) => Some(evicted),
                None => return AdmitOutcome::QueueFull,
            }
        };
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        // Most calls have the same priority, so the search starts at the end.
        let ahead = queue
            .iter()
            .rposition(|queued| queued.is_before(priority))
            .map_or(0, |last| last + 1);
        let priority = Some(priority);
        queue.insert(ahead, QueuedCall { call, priority });
        self.queued += 1;
        match evicted {
            Some(evicted) => AdmitOutcome::QueuedInsteadOf { evicted },
            None => AdmitOutcome::Queued,
        }
    }

    /// Removes the last call of the client with the largest share from the full queue, if that client
    /// has more than its fair share and more than the client of the new call.
    ///
    /// With W queued calls of n clients, a client with fewer than W / n calls always finds such a client:
    /// the others have more than W / n each on average.
    fn evict_for(&mut self, client: ClientId) -> Option<CallId> {
        let entering = self.share(client);
        let (largest, share) = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.back().is_some_and(|it| it.priority.is_some()))
            .map(|(other, _)| (*other, self.share(*other)))
            .max_by_key(|(other, share)| (*share, *other))?;
        let active = self.active(client);
        if share <= entering || share.saturating_mul(active) <= self.max_queued {
            return None;
        }
        let call = self.queues.get(&largest)?.back()?.call;
        self.remove(largest, call).then_some(call)
    }

    /// The calls of a client, queued and in flight.
    fn share(&self, client: ClientId) -> usize {
        let queued = self.queues.get(&client).map_or(0, VecDeque::len);
        queued + self.in_flight_of.get(&client).copied().unwrap_or_default()
    }

    /// The number of clients with calls, including the client of the new call.
    fn active(&self, entering: ClientId) -> usize {
        let clients = self.in_flight_of.keys();
        let not_queued = clients.filter(|client| !self.queues.contains_key(client));
        let known =
            self.queues.contains_key(&entering) || self.in_flight_of.contains_key(&entering);
        self.queues.len() + not_queued.count() + usize::from(!known)
    }

    fn count_in_flight(&mut self, client: ClientId) {
        self.in_flight += 1;
        *self.in_flight_of.entry(client).or_default() += 1;
    }

    /// Queues a call that was in flight before (a retry, or one that was returned unsent) in front of its
    /// client's queue, and gives its client the next turn.
    ///
    /// The limit of the queue does not apply: the call was admitted before, so there are never more of
    /// these than calls in flight. Several of them, of one client or of many, are queued in the order of
    /// their ids, whichever is returned first.
    pub fn enter_front(&mut self, client: ClientId, call: CallId) {
        let queue = self.queues.entry(client).or_default();
        if !queue.is_empty() {
            self.turns.retain(|turn| *turn != client);
        }
        let earlier = queue.iter().take_while(|it| it.returned_before(call));
        let index = earlier.count();
        let priority = None;
        queue.insert(index, QueuedCall { call, priority });
        let first = queue.front().map_or(call, |it| it.call);
        let earlier = self.turns.iter().take_while(|turn| {
            let next = self.queues.get(turn).and_then(VecDeque::front);
            next.is_some_and(|it| it.returned_before(first))
        });
        self.turns.insert(earlier.count(), client);
        self.queued += 1;
        self.returned += 1;
    }

    /// Takes the next call from the queue if the limit of calls in flight allows it. It is in flight then.
    ///
    /// Call it only while the connection is open, until it returns `None`.
    #[expect(
        clippy::should_implement_trait,
        reason = "not an iterator: after `None` there may be more"
    )]
    pub fn next(&mut self) -> Option<(ClientId, CallId)> {
        if self.in_flight >= self.max_in_flight {
            return None;
        }
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let QueuedCall { call, priority } = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.queued -= 1;
        self.returned -= usize::from(priority.is_none());
        self.count_in_flight(client);
        Some((client, call))
    }

    /// Removes a call from the queue; false if it was not queued.
    pub fn remove(&mut self, client: ClientId, call: CallId) -> bool {
        let Some(queue) = self.queues.get_mut(&client) else {
            return false;
        };
        let Some(index) = queue.iter().position(|queued| queued.call == call) else {
            return false;
        };
        let removed = queue.remove(index);
        if queue.is_empty() {
            self.queues.remove(&client);
            self.turns.retain(|turn| *turn != client);
        }
        self.queued -= 1;
        self.returned -= usize::from(removed.is_some_and(|it| it.priority.is_none()));
        true
    }

    /// A call in flight of this client ended.
    pub fn finish(&mut self, client: ClientId) {
        let Some(count) = self.in_flight_of.get_mut(&client) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.in_flight_of.remove(&client);
        }
        self.in_flight -= 1;
    }

    /// All calls in flight ended with their connection.
    pub fn lose_all(&mut self) {
        self.in_flight = 0;
        self.in_flight_of.clear();
    }

    /// The number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The number of queued calls.
    #[cfg(test)]
    fn queued(&self) -> usize {
        self.queued
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Priority::{High, Low, Normal};
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn admission(in_flight: usize, waiting: usize) -> Admission {
        Admission::new(&AdmissionSettings { in_flight, waiting })
    }

    fn drain(admission: &mut Admission) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((client, CallId(call))) = admission.next() {
            order.push(call);
            admission.finish(client);
        }
        order
    }

    #[test]
    fn a_call_starts_only_if_open_below_the_limit_with_an_empty_queue() {
        let mut admission = admission(1, 8);
        assert_eq!(
            admission.enter(A, CallId(1), Normal, false),
            AdmitOutcome::Queued
        );
        assert_eq!(
            admission.enter(A, CallId(2), Normal, true),
            AdmitOutcome::Queued
        );
        assert_eq!(drain(&mut admission), [1, 2]);
        assert_eq!(
            admission.enter(A, CallId(3), Normal, true),
            AdmitOutcome::InFlight
        );
        assert_eq!(
            admission.enter(A, CallId(4), Normal, true),
            AdmitOutcome::Queued
        );
        assert_eq!(admission.next(), None);
        admission.finish(A);
        assert_eq!(admission.next(), Some((A, CallId(4))));
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_accepts_again_when_a_call_leaves() {
        let mut admission = admission(1, 2);
        assert_eq!(
            admission.enter(A, CallId(1), Normal, false),
            AdmitOutcome::Queued
        );
        assert_eq!(
            admission.enter(B, CallId(2), Normal, false),
            AdmitOutcome::Queued
        );
        assert_eq!(
            admission.enter(A, CallId(3), Normal, false),
            AdmitOutcome::QueueFull
        );
        assert!(admission.remove(A, CallId(1)));
        assert!(!admission.remove(A, CallId(1)));
        assert_eq!(
            admission.enter(A, CallId(4), Normal, false),
            AdmitOutcome::Queued
        );
        assert_eq!(admission.queued(), 2);
    }

    #[test]
    fn a_full_queue_evicts_a_call_of_the_client_with_the_largest_share() {
        let mut admission = admission(1, 4);
        for call in 0..4 {
            admission.enter(A, CallId(call), Normal, false);
        }
        let replace = |evicted| AdmitOutcome::QueuedInsteadOf {
            evicted: CallId(evicted),
        };
        assert_eq!(admission.enter(B, CallId(10), Normal, false), replace(3));
        assert_eq!(admission.enter(B, CallId(11), Normal, false), replace(2));
        assert_eq!(
            admission.enter(B, CallId(12), Normal, false),
            AdmitOutcome::QueueFull
        );
        assert_eq!(
            admission.enter(A, CallId(13), Normal, false),
            AdmitOutcome::QueueFull
        );
        assert_eq!(drain(&mut admission), [0, 10, 1, 11]);
    }

    #[test]
    fn a_returned_call_is_never_evicted_and_does_not_count_against_the_limit() {
        let mut admission = admission(2, 1);
        admission.enter_front(A, CallId(1));
        admission.enter_front(A, CallId(2));
        assert_eq!(
            admission.enter(A, CallId(3), Normal, false),
            AdmitOutcome::Queued
        );
        let evicted = CallId(3);
        let entry = admission.enter(B, CallId(4), Normal, false);
        assert_eq!(entry, AdmitOutcome::QueuedInsteadOf { evicted });
        let third = ClientId(3);
        let refused = admission.enter(third, CallId(5), Normal, false);
        assert_eq!(
            refused,
            AdmitOutcome::QueuedInsteadOf { evicted: CallId(4) }
        );
        assert_eq!(drain(&mut admission), [1, 5, 2]);
    }

    #[test]
    fn a_client_with_one_call_does_not_wait_behind_a_client_with_many() {
        let mut admission = admission(1, 100);
        for call in 0..5 {
            admission.enter(A, CallId(call), Normal, false);
        }
        admission.enter(B, CallId(100), Normal, false);
        admission.enter(B, CallId(101), Normal, false);
        assert_eq!(drain(&mut admission), [0, 100, 1, 101, 2, 3, 4]);
    }

    #[test]
    fn a_priority_orders_the_calls_of_one_client_and_takes_no_other_clients_turn() {
        let mut admission = admission(1, 100);
        let urgent = [(0, Normal), (1, Low), (2, High), (3, Normal), (4, High)];
        for (call, priority) in urgent {
            admission.enter(A, CallId(call), priority, false);
        }
        admission.enter(B, CallId(100), Low, false);
        admission.enter(B, CallId(101), Low, false);
        assert_eq!(drain(&mut admission), [2, 100, 4, 101, 0, 3, 1]);
    }

    #[test]
    fn no_priority_goes_before_a_returned_call() {
        let mut admission = admission(1, 100);
        admission.enter(A, CallId(1), Normal, false);
        admission.enter_front(A, CallId(2));
        admission.enter(A, CallId(3), High, false);
        assert_eq!(drain(&mut admission), [2, 3, 1]);
    }

    #[test]
    fn returned_calls_keep_the_order_of_their_ids() {
        for back in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]] {
            let mut admission = admission(4, 8);
            admission.enter(A, CallId(9), High, false);
            for call in back {
                let client = if call < 4 { A } else { B };
                admission.enter_front(client, CallId(call));
            }
            assert_eq!(drain(&mut admission), [1, 4, 2, 3, 9], "{back:?}");
        }
    }

    #[test]
    fn a_returned_call_is_next_even_if_the_queue_is_full() {
        let mut admission = admission(2, 2);
        admission.enter(A, CallId(1), Normal, true);
        admission.enter(B, CallId(2), Normal, true);
        admission.enter(A, CallId(3), Normal, true);
        admission.enter(A, CallId(4), Normal, true);
        admission.lose_all();
        admission.enter_front(B, CallId(2));
        admission.enter_front(A, CallId(1));
        assert_eq!((admission.in_flight(), admission.queued()), (0, 4));
        assert_eq!(drain(&mut admission), [1, 2, 3, 4]);
    }

    #[test]
    fn new_limits_apply_to_later_calls() {
        let mut admission = admission(2, 2);
        admission.enter(A, CallId(1), Normal, true);
        admission.enter(A, CallId(2), Normal, true);
        admission.reconfigure(&AdmissionSettings {
            in_flight: 1,
            waiting: 1,
        });
        assert_eq!(
            admission.enter(A, CallId(3), Normal, true),
            AdmitOutcome::Queued
        );
        admission.finish(A);
        assert_eq!(admission.next(), None);
        admission.finish(A);
        assert_eq!(admission.next(), Some((A, CallId(3))));
        admission.finish(A);
        admission.finish(A);
        assert_eq!(admission.in_flight(), 0, "an extra finish changes nothing");
    }

    /// A simple model of the same rules: one list per client, in the order of their turns.
    struct Model {
        in_flight: Vec<ClientId>,
        queues: Vec<(ClientId, Vec<(u8, CallId)>)>,
    }

    impl Model {
        fn waiting(&self) -> usize {
            self.queues.iter().map(|(_, calls)| calls.len()).sum()
        }

        /// Calls that were never in flight.
        fn fresh(&self) -> usize {
            let calls = self.queues.iter().flat_map(|(_, calls)| calls);
            calls.filter(|(rank, _)| *rank > 0).count()
        }

        fn share(&self, client: ClientId) -> usize {
            let waiting = self.queues.iter().filter(|(owner, _)| *owner == client);
            let waiting: usize = waiting.map(|(_, calls)| calls.len()).sum();
            waiting + self.in_flight.iter().filter(|it| **it == client).count()
        }

        fn active(&self, entering: ClientId) -> usize {
            let waiting = self.queues.iter().map(|(owner, _)| *owner);
            let all = waiting.chain(self.in_flight.iter().copied());
            all.chain([entering]).collect::<BTreeSet<_>>().len()
        }

        fn enter(
            &mut self,
            client: ClientId,
            call: CallId,
            priority: Priority,
            open: bool,
        ) -> AdmitOutcome {
            if open && self.in_flight.len() < LIMIT && self.queues.is_empty() {
                self.in_flight.push(client);
                AdmitOutcome::InFlight
            } else if self.fresh() >= QUEUE {
                AdmitOutcome::QueueFull
            } else {
                let rank = [Low, Normal, High].iter().position(|p| *p == priority);
                let call = (3 - u8::try_from(rank.unwrap()).unwrap(), call);
                match self.queues.iter_mut().find(|(owner, _)| *owner == client) {
                    Some((_, calls)) => {
                        calls.push(call);
                        // Stable: equals keep their order.
                        calls.sort_by_key(|(rank, _)| *rank);
                    }
                    None => self.queues.push((client, vec![call])),
                }
                AdmitOutcome::Queued
            }
        }

        fn enter_front(&mut self, client: ClientId, call: CallId) {
            let mut calls = vec![(0, call)];
            if let Some(index) = self.queues.iter().position(|(owner, _)| *owner == client) {
                calls.extend(self.queues.remove(index).1);
                // Returned calls first, in the order of their ids.
                let back = calls.iter().filter(|(rank, _)| *rank == 0).count();
                calls[..back].sort();
            }
            let first = calls[0];
            let index = self.queues.iter().position(|(_, calls)| calls[0] >= first);
            let index = index.unwrap_or(self.queues.len());
            self.queues.insert(index, (client, calls));
        }

        fn next(&mut self) -> Option<(ClientId, CallId)> {
            if self.in_flight.len() >= LIMIT || self.queues.is_empty() {
                return None;
            }
            let (client, mut calls) = self.queues.remove(0);
            let (_, call) = calls.remove(0);
            if !calls.is_empty() {
                self.queues.push((client, calls));
            }
            self.in_flight.push(client);
            Some((client, call))
        }

        fn remove(&mut self, client: ClientId, call: CallId) -> bool {
            let before = self.waiting();
            for (owner, calls) in &mut self.queues {
                calls.retain(|(_, waiting)| *owner != client || *waiting != call);
            }
            self.queues.retain(|(_, calls)| !calls.is_empty());
            self.waiting() < before
        }
    }

    const LIMIT: usize = 3;
    const QUEUE: usize = 6;

    #[derive(Debug, Clone)]
    enum Step {
        Enter(u32, Priority, bool),
        EnterFront(u32),
        Next,
        Remove(u32, u64),
        Finish,
        LoseAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u32..4, prop::sample::select(&[Low, Normal, High][..]), any::<bool>())
                .prop_map(|(client, priority, open)| Step::Enter(client, priority, open)),
            1 => (0_u32..4).prop_map(Step::EnterFront),
            3 => Just(Step::Next),
            2 => (0_u32..4, 0_u64..40).prop_map(|(client, call)| Step::Remove(client, call)),
            2 => Just(Step::Finish),
            1 => Just(Step::LoseAll),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn the_queue_behaves_like_the_simple_model(steps in prop::collection::vec(step(), 1..80)) {
            let mut admission = admission(LIMIT, QUEUE);
            let mut model = Model { in_flight: Vec::new(), queues: Vec::new() };
            for (number, step) in (0_u64..).zip(steps) {
                let call = CallId(number);
                match step {
                    Step::Enter(client, priority, open) => {
                        let client = ClientId(client);
                        let (share, active) = (model.share(client), model.active(client));
                        match admission.enter(client, call, priority, open) {
                            AdmitOutcome::QueuedInsteadOf { evicted } => {
                                let of_evicted = |calls: &[(u8, CallId)]| {
                                    calls.last().is_some_and(|(rank, last)| *rank > 0 && *last == evicted)
                                };
                                let found = model.queues.iter().find(|(_, calls)| of_evicted(calls));
                                let victim = found.map(|(owner, _)| *owner);
                                prop_assert!(victim.is_some(), "{evicted} was sent, or is not the last");
                                let victim = victim.unwrap();
                                prop_assert!(model.share(victim) > share);
                                prop_assert!(model.share(victim) * active > QUEUE, "within its share");
                                model.remove(victim, evicted);
                                prop_assert_eq!(model.enter(client, call, priority, open), AdmitOutcome::Queued);
                            }
                            AdmitOutcome::QueueFull => {
                                prop_assert!(share * active >= QUEUE, "refused within its share");
                                prop_assert_eq!(model.enter(client, call, priority, open), AdmitOutcome::QueueFull);
                            }
                            entry => prop_assert_eq!(entry, model.enter(client, call, priority, open)),
                        }
                    }
                    Step::EnterFront(client) => {
                        admission.enter_front(ClientId(client), call);
                        model.enter_front(ClientId(client), call);
                    }
                    Step::Next => prop_assert_eq!(admission.next(), model.next()),
                    Step::Remove(client, call) => {
                        let (client, call) = (ClientId(client), CallId(call));
                        prop_assert_eq!(admission.remove(client, call), model.remove(client, call));
                    }
                    Step::Finish => {
                        if let Some(client) = model.in_flight.pop() {
                            admission.finish(client);
                        }
                    }
                    Step::LoseAll => {
                        admission.lose_all();
                        model.in_flight.clear();
                    }
                }
                prop_assert_eq!(admission.queued(), model.waiting());
                prop_assert_eq!(admission.in_flight(), model.in_flight.len());
                prop_assert!(admission.in_flight() <= LIMIT);
                prop_assert_eq!(admission.turns.len(), admission.queues.len());
            }
        }

        #[test]
        fn no_client_is_served_twice_while_another_waits_for_its_turn(
            clients in prop::collection::vec(0_u32..5, 1..60),
        ) {
            let mut admission = admission(1, 100);
            let mut owners = Vec::new();
            for (number, client) in (0_u64..).zip(&clients) {
                admission.enter(ClientId(*client), CallId(number), Normal, false);
                owners.push(*client);
            }
            let mut left = owners.clone();
            let mut served = BTreeSet::new();
            for call in drain(&mut admission) {
                let owner = owners[usize::try_from(call).unwrap()];
                if !served.insert(owner) {
                    let starving: Vec<_> = left.iter().filter(|client| !served.contains(client)).collect();
                    prop_assert!(starving.is_empty(), "{starving:?} starve");
                    served = BTreeSet::from([owner]);
                }
                let index = left.iter().position(|client| *client == owner).unwrap();
                left.remove(index);
            }
            prop_assert!(left.is_empty());
        }
    }
}
