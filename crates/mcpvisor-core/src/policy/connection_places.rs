//! Bounds the open connections of one server whose clients have connections of their own.
//!
//! A connection needs a place from before it is opened until it has ended. If none is free, the least
//! recently used idle holder is asked to give way: it closes its connection until its next call. While
//! all holders are in use, requests wait, in order of arrival.

use std::collections::BTreeMap;

/// The limit unless it is set.
pub const DEFAULT_MAX_CONNECTIONS: usize = 32;

/// The largest limit.
pub const MAX_CONNECTIONS: usize = 10_000;

/// The places of one server.
#[derive(Debug, Clone)]
pub struct ConnectionPlaces<K: Ord + Clone> {
    limit: usize,
    holders: BTreeMap<K, Holder>,
    /// Requests are granted in the order of their tickets.
    next_ticket: u64,
    waiting: BTreeMap<u64, K>,
    tickets: BTreeMap<K, u64>,
    /// Counts how often a holder became idle.
    idle_count: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Holder {
    /// It was asked to give way and has not answered.
    asked: bool,
    /// The count when it became idle; none while it is in use.
    idle_since: Option<u64>,
}

/// What follows from a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceChange<K> {
    /// It has a place.
    Granted(K),
    /// It should close its connection, if that is still not in use.
    GiveWay(K),
}

impl<K: Ord + Clone> ConnectionPlaces<K> {
    /// Places for this many connections. A limit of 0 counts as 1.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            holders: BTreeMap::new(),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            idle_count: 0,
        }
    }

    /// Changes the limit. Places that are held stay held until their holders are idle.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Requests a place for a new connection. Returns whether it holds one; else
    /// [`poll`](Self::poll) grants it. One that gives way waits behind the others, also while its old
    /// connection still closes.
    pub fn request(&mut self, key: K) -> bool {
        if self.is_held(&key) {
            return true;
        }
        if !self.tickets.contains_key(&key) {
            self.next_ticket += 1;
            self.waiting.insert(self.next_ticket, key.clone());
            self.tickets.insert(key, self.next_ticket);
        }
        false
    }

    /// A connection that was opened without a place now holds one, beyond the limit if need be.
    pub fn adopt(&mut self, key: K) {
        self.holders.entry(key).or_default();
    }

    /// Withdraws a request that was not granted. A place that is held stays held.
    pub fn withdraw(&mut self, key: &K) {
        if let Some(ticket) = self.tickets.remove(key) {
            self.waiting.remove(&ticket);
        }
    }

    /// The connection has ended. A request for another one stays.
    pub fn release(&mut self, key: &K) {
        self.holders.remove(key);
    }

    /// Whether it holds a place, and was not asked to give way.
    pub fn is_held(&self, key: &K) -> bool {
        self.holders.get(key).is_some_and(|holder| !holder.asked)
    }

    /// Whether it waits for a place.
    pub fn is_waiting(&self, key: &K) -> bool {
        self.tickets.contains_key(key)
    }

    /// A holder is in use, or not any more. This also answers a request to give way: one that is in
    /// use keeps its place.
    pub fn set_idle(&mut self, key: &K, idle: bool) {
        let Some(holder) = self.holders.get_mut(key) else {
            return;
        };
        match (idle, holder.idle_since) {
            (true, None) => {
                self.idle_count += 1;
                holder.idle_since = Some(self.idle_count);
            }
            (false, _) => *holder = Holder::default(),
            (true, Some(_)) => {}
        }
    }

    /// Grants free places in order, and asks as many idle holders to give way as are needed. Call it
    /// after every change.
    pub fn poll(&mut self) -> Vec<PlaceChange<K>> {
        let mut changes = Vec::new();
        while self.holders.len() < self.limit
            && let Some((_, key)) = self.waiting.pop_first()
        {
            self.tickets.remove(&key);
            self.holders.insert(key.clone(), Holder::default());
            changes.push(PlaceChange::Granted(key));
        }
        let wanted = (self.holders.len() + self.waiting.len()).saturating_sub(self.limit);
        let asked = self.holders.values().filter(|holder| holder.asked).count();
        if wanted > asked {
            self.ask_idle_holders(wanted - asked, &mut changes);
        }
        changes
    }

    fn ask_idle_holders(&mut self, count: usize, changes: &mut Vec<PlaceChange<K>>) {
        let holders = self.holders.iter_mut();
        let unasked = holders.filter(|(_, holder)| !holder.asked);
        let idle = unasked.filter_map(|(key, holder)| Some((holder.idle_since?, key, holder)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(since, _, _)| *since);
        for (_, key, holder) in idle.into_iter().take(count) {
            holder.asked = true;
            changes.push(PlaceChange::GiveWay(key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use PlaceChange::{GiveWay, Granted};
    use proptest::prelude::*;

    use super::*;

    fn with_holders(limit: usize, holders: u32) -> ConnectionPlaces<u32> {
        let mut places = ConnectionPlaces::new(limit);
        for key in 0..holders {
            assert!(!places.request(key));
        }
        let granted = places.poll();
        assert_eq!(granted, (0..holders).map(Granted).collect::<Vec<_>>());
        places
    }

    #[test]
    fn requests_are_granted_up_to_the_limit_and_then_in_order() {
        let mut places = with_holders(2, 2);
        for key in [7, 5, 6] {
            assert!(!places.request(key));
        }
        assert_eq!(places.poll(), [], "all are in use");
        places.release(&0);
        assert_eq!(places.poll(), [Granted(7)]);
        places.withdraw(&5);
        places.release(&1);
        assert_eq!(places.poll(), [Granted(6)]);
    }

    #[test]
    fn the_least_recently_used_idle_holder_gives_way() {
        let mut places = with_holders(3, 3);
        places.set_idle(&2, true);
        places.set_idle(&0, true);
        places.request(8);
        assert_eq!(places.poll(), [GiveWay(2)]);
        assert_eq!(places.poll(), [], "one is enough for one");
        places.request(9);
        assert_eq!(places.poll(), [GiveWay(0)]);
        places.release(&2);
        assert_eq!(places.poll(), [Granted(8)]);
    }

    #[test]
    fn a_holder_that_is_used_again_keeps_its_place_and_another_is_asked() {
        let mut places = with_holders(2, 2);
        places.set_idle(&1, true);
        places.set_idle(&0, true);
        places.request(9);
        assert_eq!(places.poll(), [GiveWay(1)]);
        places.set_idle(&1, false);
        assert_eq!(places.poll(), [GiveWay(0)]);
        places.set_idle(&1, true);
        assert_eq!(places.poll(), [], "one is enough for one");
    }

    #[test]
    fn a_holder_reconnects_in_its_place_and_queues_again_once_it_gave_way() {
        let mut places = with_holders(1, 1);
        assert!(places.request(0), "a reconnect");
        places.set_idle(&0, true);
        places.request(9);
        assert_eq!(places.poll(), [GiveWay(0)]);
        // It is called again before its connection has closed.
        assert!(!places.request(0));
        assert_eq!(places.poll(), []);
        places.release(&0);
        assert_eq!(places.poll(), [Granted(9)]);
        places.release(&9);
        assert_eq!(places.poll(), [Granted(0)]);
    }

    #[test]
    fn adopted_connections_count() {
        let mut places = ConnectionPlaces::new(1);
        places.adopt(5);
        places.adopt(6);
        assert!(!places.request(7));
        assert_eq!(places.poll(), []);
        places.release(&5);
        assert_eq!(places.poll(), [], "one is still above the limit");
        places.release(&6);
        assert_eq!(places.poll(), [Granted(7)]);
    }

    #[test]
    fn a_lower_limit_is_reached_as_holders_become_idle() {
        let mut places = with_holders(3, 3);
        places.set_limit(1);
        assert_eq!(places.poll(), []);
        places.set_idle(&2, true);
        assert_eq!(places.poll(), [GiveWay(2)]);
        places.set_idle(&1, true);
        assert_eq!(places.poll(), [GiveWay(1)]);
        places.set_idle(&0, true);
        assert_eq!(places.poll(), []);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Request(u32),
        Withdraw(u32),
        Release(u32),
        Idle(u32, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0_u32..12;
        prop_oneof![
            3 => key().prop_map(Step::Request),
            1 => key().prop_map(Step::Withdraw),
            1 => key().prop_map(Step::Release),
            3 => (key(), any::<bool>()).prop_map(|(key, idle)| Step::Idle(key, idle)),
        ]
    }

    proptest! {
        /// A driver that polls after each step: holders answer at once, and close or decline.
        #[test]
        fn the_limit_holds_and_nothing_waits_beside_an_idle_holder(
            limit in 1_usize..5,
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut places = ConnectionPlaces::new(limit);
            let (mut open, mut waiting) = (BTreeSet::new(), Vec::new());
            let mut idle = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Request(key) => {
                        if places.request(key) {
                            prop_assert!(open.contains(&key));
                        } else if !waiting.contains(&key) {
                            waiting.push(key);
                        }
                    }
                    Step::Withdraw(key) => {
                        places.withdraw(&key);
                        waiting.retain(|it| *it != key);
                    }
                    Step::Release(key) => {
                        places.release(&key);
                        open.remove(&key);
                        idle.remove(&key);
                    }
                    Step::Idle(key, is_idle) => {
                        places.set_idle(&key, is_idle);
                        idle.remove(&key);
                        if is_idle && open.contains(&key) {
                            idle.insert(key);
                        }
                    }
                }
                loop {
                    let changes = places.poll();
                    if changes.is_empty() {
                        break;
                    }
                    for change in changes {
                        match change {
                            Granted(key) => {
                                prop_assert_eq!(waiting.remove(0), key, "in order");
                                prop_assert!(open.insert(key));
                            }
                            GiveWay(key) => {
                                prop_assert!(idle.remove(&key), "only an idle holder is asked");
                                prop_assert!(open.remove(&key));
                                places.release(&key);
                            }
                        }
                    }
                }
                prop_assert!(open.len() <= limit);
                prop_assert!(waiting.is_empty() || (open.len() == limit && idle.is_empty()));
            }
        }
    }
}
