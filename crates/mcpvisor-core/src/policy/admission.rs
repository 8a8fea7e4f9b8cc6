//! Which calls may run at a server, and the line of those that wait.
//!
//! The line is fair between clients: each has a queue of its own, and they take turns. When it is full,
//! room comes from the client with the largest share, so that a client within its share is never refused
//! because of another. A priority orders the calls of one client and never takes another's turn.
//! Deadlines of waiting calls and the calls themselves are the machine's; here they are only numbers.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{CallId, ClientId};
use crate::settings::AdmissionSettings;

/// How urgent a call is among those of its own client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// After the others: it may wait for as long as others come.
    Low,
    /// In the order of arrival.
    #[default]
    Normal,
    /// Before the others.
    High,
}

/// What becomes of a call that wants to enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It is in flight: send it.
    Start,
    /// It waits; [`Admission::next`] will name it.
    Wait,
    /// It waits in place of a call of the client with the largest share, which is refused.
    Replace {
        /// The call that is refused. It was never sent.
        evicted: CallId,
    },
    /// The line is full: refuse it.
    Full,
}

/// The calls in flight, as a count, and the waiting line.
#[derive(Debug, Clone)]
pub struct Admission {
    in_flight: usize,
    /// The calls in flight of each client that has any.
    flights: BTreeMap<ClientId, usize>,
    max_in_flight: usize,
    /// The bound of calls that wait for their first place.
    max_waiting: usize,
    waiting: usize,
    /// Those of them that had a place already: they are not bounded, and never evicted.
    returned: usize,
    /// The waiting calls of each client that has any.
    queues: BTreeMap<ClientId, VecDeque<Waiting>>,
    /// The clients that have a queue, each once, whose turn is next in front.
    turns: VecDeque<ClientId>,
}

/// A call in its client's queue.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    call: CallId,
    /// None for a call that had its place already: nothing of its client goes before it.
    priority: Option<Priority>,
}

impl Waiting {
    fn is_before(&self, priority: Priority) -> bool {
        self.priority.is_none_or(|mine| mine >= priority)
    }

    /// It had its place already, and came before the other.
    fn came_back_before(&self, other: CallId) -> bool {
        self.priority.is_none() && self.call < other
    }
}

impl Admission {
    /// Nothing in flight and nobody waits.
    pub fn new(settings: &AdmissionSettings) -> Self {
        Self {
            in_flight: 0,
            flights: BTreeMap::new(),
            max_in_flight: settings.in_flight.max(1),
            max_waiting: settings.waiting,
            waiting: 0,
            returned: 0,
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Takes other bounds. Who is in flight or waits beyond them stays.
    pub fn reconfigure(&mut self, settings: &AdmissionSettings) {
        self.max_in_flight = settings.in_flight.max(1);
        self.max_waiting = settings.waiting;
    }

    /// A new call. It starts when the connection is `open`, a place is free and nobody waits.
    /// Otherwise it waits behind those of its client that are as urgent.
    pub fn enter(
        &mut self,
        client: ClientId,
        call: CallId,
        priority: Priority,
        open: bool,
    ) -> Entry {
        if open && self.waiting == 0 && self.in_flight < self.max_in_flight {
            self.fly(client);
            return Entry::Start;
        }
        let evicted = if self.waiting - self.returned < self.max_waiting {
            None
        } else {
            match self.evict_for(client) {
                Some(evicted) => Some(evicted),
                None => return Entry::Full,
            }
        };
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        // Most calls are as urgent as those before them, so the place is looked for from the end.
        let ahead = queue
            .iter()
            .rposition(|waiting| waiting.is_before(priority))
            .map_or(0, |last| last + 1);
        let priority = Some(priority);
        queue.insert(ahead, Waiting { call, priority });
        self.waiting += 1;
        match evicted {
            Some(evicted) => Entry::Replace { evicted },
            None => Entry::Wait,
        }
    }

    /// Takes the last call of the largest client out of the full line, if that client has more than its
    /// share and more than the one that wants to enter.
    ///
    /// Let W calls wait for their first place, of n clients with calls. One with fewer than W / n calls
    /// always finds such a client: the others' W calls are more than W / n each on average.
    fn evict_for(&mut self, client: ClientId) -> Option<CallId> {
        let entering = self.share(client);
        let (largest, share) = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.back().is_some_and(|it| it.priority.is_some()))
            .map(|(other, _)| (*other, self.share(*other)))
            .max_by_key(|(other, share)| (*share, *other))?;
        let active = self.active(client);
        if share <= entering || share.saturating_mul(active) <= self.max_waiting {
            return None;
        }
        let call = self.queues.get(&largest)?.back()?.call;
        self.remove(largest, call).then_some(call)
    }

    /// The calls of a client, waiting and in flight.
    fn share(&self, client: ClientId) -> usize {
        let waiting = self.queues.get(&client).map_or(0, VecDeque::len);
        waiting + self.flights.get(&client).copied().unwrap_or_default()
    }

    /// The clients with calls, and the one that wants to enter.
    fn active(&self, entering: ClientId) -> usize {
        let flying = self.flights.keys();
        let flying = flying.filter(|client| !self.queues.contains_key(client));
        let known = self.queues.contains_key(&entering) || self.flights.contains_key(&entering);
        self.queues.len() + flying.count() + usize::from(!known)
    }

    fn fly(&mut self, client: ClientId) {
        self.in_flight += 1;
        *self.flights.entry(client).or_default() += 1;
    }

    /// A call that had its place already (a retry, or one that was returned unsent) waits in front
    /// of its client's queue, and its client's turn is next.
    ///
    /// The cap of the line does not apply: the call was admitted before, so that there are never
    /// more of these than places. Several of them, of one client or of many, wait in the order in
    /// which they first came, whichever is given back first.
    pub fn enter_front(&mut self, client: ClientId, call: CallId) {
        let queue = self.queues.entry(client).or_default();
        if !queue.is_empty() {
            self.turns.retain(|turn| *turn != client);
        }
        let earlier = queue.iter().take_while(|it| it.came_back_before(call));
        let place = earlier.count();
        let priority = None;
        queue.insert(place, Waiting { call, priority });
        let first = queue.front().map_or(call, |it| it.call);
        let earlier = self.turns.iter().take_while(|turn| {
            let next = self.queues.get(turn).and_then(VecDeque::front);
            next.is_some_and(|it| it.came_back_before(first))
        });
        self.turns.insert(earlier.count(), client);
        self.waiting += 1;
        self.returned += 1;
    }

    /// Takes the next waiting call if a place is free; it is in flight then.
    ///
    /// To be called only while the connection is open, until there is none.
    #[expect(
        clippy::should_implement_trait,
        reason = "no iterator: after none there may be more"
    )]
    pub fn next(&mut self) -> Option<(ClientId, CallId)> {
        if self.in_flight >= self.max_in_flight {
            return None;
        }
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let Waiting { call, priority } = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.waiting -= 1;
        self.returned -= usize::from(priority.is_none());
        self.fly(client);
        Some((client, call))
    }

    /// A waiting call leaves the line; false when it was not in it.
    pub fn remove(&mut self, client: ClientId, call: CallId) -> bool {
        let Some(queue) = self.queues.get_mut(&client) else {
            return false;
        };
        let Some(place) = queue.iter().position(|waiting| waiting.call == call) else {
            return false;
        };
        let removed = queue.remove(place);
        if queue.is_empty() {
            self.queues.remove(&client);
            self.turns.retain(|turn| *turn != client);
        }
        self.waiting -= 1;
        self.returned -= usize::from(removed.is_some_and(|it| it.priority.is_none()));
        true
    }

    /// One call of a client in flight ended.
    pub fn finish(&mut self, client: ClientId) {
        let Some(flying) = self.flights.get_mut(&client) else {
            return;
        };
        *flying -= 1;
        if *flying == 0 {
            self.flights.remove(&client);
        }
        self.in_flight -= 1;
    }

    /// All calls in flight ended with their connection.
    pub fn lose_all(&mut self) {
        self.in_flight = 0;
        self.flights.clear();
    }

    /// The calls in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes new bounds; calls that are in already stay.
    pub fn resize(&mut self, settings: &AdmissionSettings) {
        self.max_in_flight = settings.in_flight.max(1);
        self.max_waiting = settings.waiting;
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
    fn a_call_starts_only_when_open_with_a_free_place_and_nobody_waiting() {
        let mut admission = admission(1, 8);
        assert_eq!(admission.enter(A, CallId(1), Normal, false), Entry::Wait);
        assert_eq!(admission.enter(A, CallId(2), Normal, true), Entry::Wait);
        assert_eq!(drain(&mut admission), [1, 2]);
        assert_eq!(admission.enter(A, CallId(3), Normal, true), Entry::Start);
        assert_eq!(admission.enter(A, CallId(4), Normal, true), Entry::Wait);
        assert_eq!(admission.next(), None);
        admission.finish(A);
        assert_eq!(admission.next(), Some((A, CallId(4))));
    }

    #[test]
    fn a_full_line_refuses_at_once_and_takes_again_when_one_leaves() {
        let mut admission = admission(1, 2);
        assert_eq!(admission.enter(A, CallId(1), Normal, false), Entry::Wait);
        assert_eq!(admission.enter(B, CallId(2), Normal, false), Entry::Wait);
        assert_eq!(admission.enter(A, CallId(3), Normal, false), Entry::Full);
        assert!(admission.remove(A, CallId(1)));
        assert!(!admission.remove(A, CallId(1)));
        assert_eq!(admission.enter(A, CallId(4), Normal, false), Entry::Wait);
        assert_eq!(admission.waiting(), 2);
    }

    #[test]
    fn room_in_a_full_line_comes_from_the_client_with_the_largest_share() {
        let mut admission = admission(1, 4);
        for call in 0..4 {
            admission.enter(A, CallId(call), Normal, false);
        }
        let replace = |evicted| Entry::Replace {
            evicted: CallId(evicted),
        };
        assert_eq!(admission.enter(B, CallId(10), Normal, false), replace(3));
        assert_eq!(admission.enter(B, CallId(11), Normal, false), replace(2));
        assert_eq!(admission.enter(B, CallId(12), Normal, false), Entry::Full);
        assert_eq!(admission.enter(A, CallId(13), Normal, false), Entry::Full);
        assert_eq!(drain(&mut admission), [0, 10, 1, 11]);
    }

    #[test]
    fn a_call_that_had_its_place_is_never_evicted_and_takes_no_room() {
        let mut admission = admission(2, 1);
        admission.enter_front(A, CallId(1));
        admission.enter_front(A, CallId(2));
        assert_eq!(admission.enter(A, CallId(3), Normal, false), Entry::Wait);
        let evicted = CallId(3);
        let entry = admission.enter(B, CallId(4), Normal, false);
        assert_eq!(entry, Entry::Replace { evicted });
        let third = ClientId(3);
        let refused = admission.enter(third, CallId(5), Normal, false);
        assert_eq!(refused, Entry::Replace { evicted: CallId(4) });
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
    fn nothing_is_so_urgent_that_it_goes_before_a_call_that_comes_back() {
        let mut admission = admission(1, 100);
        admission.enter(A, CallId(1), Normal, false);
        admission.enter_front(A, CallId(2));
        admission.enter(A, CallId(3), High, false);
        assert_eq!(drain(&mut admission), [2, 3, 1]);
    }

    #[test]
    fn calls_that_come_back_one_by_one_keep_the_order_in_which_they_came() {
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
    fn a_returned_call_is_next_even_when_the_line_is_full() {
        let mut admission = admission(2, 2);
        admission.enter(A, CallId(1), Normal, true);
        admission.enter(B, CallId(2), Normal, true);
        admission.enter(A, CallId(3), Normal, true);
        admission.enter(A, CallId(4), Normal, true);
        admission.lose_all();
        admission.enter_front(B, CallId(2));
        admission.enter_front(A, CallId(1));
        assert_eq!((admission.in_flight(), admission.waiting()), (0, 4));
        assert_eq!(drain(&mut admission), [1, 2, 3, 4]);
    }

    #[test]
    fn new_bounds_hold_for_what_enters_from_then_on() {
        let mut admission = admission(2, 2);
        admission.enter(A, CallId(1), Normal, true);
        admission.enter(A, CallId(2), Normal, true);
        admission.resize(&AdmissionSettings {
            in_flight: 1,
            waiting: 1,
        });
        assert_eq!(admission.enter(A, CallId(3), Normal, true), Entry::Wait);
        admission.finish(A);
        assert_eq!(admission.next(), None);
        admission.finish(A);
        assert_eq!(admission.next(), Some((A, CallId(3))));
        admission.finish(A);
        admission.finish(A);
        assert_eq!(
            admission.in_flight(),
            0,
            "one finish too many changes nothing"
        );
    }

    /// The same promises said plainly: one list per client, a list of whose turn it is.
    struct Model {
        in_flight: Vec<ClientId>,
        line: Vec<(ClientId, Vec<(u8, CallId)>)>,
    }

    impl Model {
        fn waiting(&self) -> usize {
            self.line.iter().map(|(_, calls)| calls.len()).sum()
        }

        /// Those that never had a place.
        fn fresh(&self) -> usize {
            let calls = self.line.iter().flat_map(|(_, calls)| calls);
            calls.filter(|(rank, _)| *rank > 0).count()
        }

        fn share(&self, client: ClientId) -> usize {
            let waiting = self.line.iter().filter(|(owner, _)| *owner == client);
            let waiting: usize = waiting.map(|(_, calls)| calls.len()).sum();
            waiting + self.in_flight.iter().filter(|it| **it == client).count()
        }

        fn active(&self, entering: ClientId) -> usize {
            let waiting = self.line.iter().map(|(owner, _)| *owner);
            let all = waiting.chain(self.in_flight.iter().copied());
            all.chain([entering]).collect::<BTreeSet<_>>().len()
        }

        fn enter(
            &mut self,
            client: ClientId,
            call: CallId,
            priority: Priority,
            open: bool,
        ) -> Entry {
            if open && self.in_flight.len() < PLACES && self.line.is_empty() {
                self.in_flight.push(client);
                Entry::Start
            } else if self.fresh() >= LINE {
                Entry::Full
            } else {
                let rank = [Low, Normal, High].iter().position(|p| *p == priority);
                let call = (3 - u8::try_from(rank.unwrap()).unwrap(), call);
                match self.line.iter_mut().find(|(owner, _)| *owner == client) {
                    Some((_, calls)) => {
                        calls.push(call);
                        // Stable: equals keep their order.
                        calls.sort_by_key(|(rank, _)| *rank);
                    }
                    None => self.line.push((client, vec![call])),
                }
                Entry::Wait
            }
        }

        fn enter_front(&mut self, client: ClientId, call: CallId) {
            let mut calls = vec![(0, call)];
            if let Some(place) = self.line.iter().position(|(owner, _)| *owner == client) {
                calls.extend(self.line.remove(place).1);
                // Those that came back first, in the order in which they came.
                let back = calls.iter().filter(|(rank, _)| *rank == 0).count();
                calls[..back].sort();
            }
            let first = calls[0];
            let place = self.line.iter().position(|(_, calls)| calls[0] >= first);
            let place = place.unwrap_or(self.line.len());
            self.line.insert(place, (client, calls));
        }

        fn next(&mut self) -> Option<(ClientId, CallId)> {
            if self.in_flight.len() >= PLACES || self.line.is_empty() {
                return None;
            }
            let (client, mut calls) = self.line.remove(0);
            let (_, call) = calls.remove(0);
            if !calls.is_empty() {
                self.line.push((client, calls));
            }
            self.in_flight.push(client);
            Some((client, call))
        }

        fn remove(&mut self, client: ClientId, call: CallId) -> bool {
            let before = self.waiting();
            for (owner, calls) in &mut self.line {
                calls.retain(|(_, waiting)| *owner != client || *waiting != call);
            }
            self.line.retain(|(_, calls)| !calls.is_empty());
            self.waiting() < before
        }
    }

    const PLACES: usize = 3;
    const LINE: usize = 6;

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
        fn the_line_does_what_the_plain_model_does(steps in prop::collection::vec(step(), 1..80)) {
            let mut line = admission(PLACES, LINE);
            let mut model = Model { in_flight: Vec::new(), line: Vec::new() };
            for (number, step) in (0_u64..).zip(steps) {
                let call = CallId(number);
                match step {
                    Step::Enter(client, priority, open) => {
                        let client = ClientId(client);
                        let (share, active) = (model.share(client), model.active(client));
                        match line.enter(client, call, priority, open) {
                            Entry::Replace { evicted } => {
                                let of_evicted = |calls: &[(u8, CallId)]| {
                                    calls.last().is_some_and(|(rank, last)| *rank > 0 && *last == evicted)
                                };
                                let found = model.line.iter().find(|(_, calls)| of_evicted(calls));
                                let victim = found.map(|(owner, _)| *owner);
                                prop_assert!(victim.is_some(), "{evicted} was sent, or is not the last");
                                let victim = victim.unwrap();
                                prop_assert!(model.share(victim) > share);
                                prop_assert!(model.share(victim) * active > LINE, "within its share");
                                model.remove(victim, evicted);
                                prop_assert_eq!(model.enter(client, call, priority, open), Entry::Wait);
                            }
                            Entry::Full => {
                                prop_assert!(share * active >= LINE, "refused within its share");
                                prop_assert_eq!(model.enter(client, call, priority, open), Entry::Full);
                            }
                            entry => prop_assert_eq!(entry, model.enter(client, call, priority, open)),
                        }
                    }
                    Step::EnterFront(client) => {
                        line.enter_front(ClientId(client), call);
                        model.enter_front(ClientId(client), call);
                    }
                    Step::Next => prop_assert_eq!(line.next(), model.next()),
                    Step::Remove(client, call) => {
                        let (client, call) = (ClientId(client), CallId(call));
                        prop_assert_eq!(line.remove(client, call), model.remove(client, call));
                    }
                    Step::Finish => {
                        if let Some(client) = model.in_flight.pop() {
                            line.finish(client);
                        }
                    }
                    Step::LoseAll => {
                        line.lose_all();
                        model.in_flight.clear();
                    }
                }
                prop_assert_eq!(line.waiting(), model.waiting());
                prop_assert_eq!(line.in_flight(), model.in_flight.len());
                prop_assert!(line.in_flight() <= PLACES);
                prop_assert_eq!(line.turns.len(), line.queues.len());
            }
        }

        #[test]
        fn no_client_is_served_twice_while_another_waits_for_its_turn(
            clients in prop::collection::vec(0_u32..5, 1..60),
        ) {
            let mut line = admission(1, 100);
            let mut owners = Vec::new();
            for (number, client) in (0_u64..).zip(&clients) {
                line.enter(ClientId(*client), CallId(number), Normal, false);
                owners.push(*client);
            }
            let mut left = owners.clone();
            let mut served = BTreeSet::new();
            for call in drain(&mut line) {
                let owner = owners[usize::try_from(call).unwrap()];
                if !served.insert(owner) {
                    let starving: Vec<_> = left.iter().filter(|client| !served.contains(client)).collect();
                    prop_assert!(starving.is_empty(), "{starving:?} starve");
                    served = BTreeSet::from([owner]);
                }
                let place = left.iter().position(|client| *client == owner).unwrap();
                left.remove(place);
            }
            prop_assert!(left.is_empty());
        }
    }
}
