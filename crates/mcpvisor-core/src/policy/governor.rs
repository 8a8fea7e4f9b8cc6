//! Limits and spreads connects across servers, so that a restart of the host does not connect all of them
//! at once.
//!
//! A server requests a permit and releases it at the first byte or at the end of its connect. A permit
//! that is not released in time expires, so that silent servers never block the others. The budget of
//! each server decides when it connects at all.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::policy::backoff::LONGEST_DELAY;
use crate::settings::InvalidSetting;

/// The limits across a fleet. Start from the default and change fields.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GovernorSettings {
    /// Permits held at once.
    pub max_connects: usize,
    /// Permits held at once by servers that run as child processes.
    pub max_stdio: usize,
    /// A permit expires after this time.
    pub hold: Duration,
    /// Reconnects allowed within a window, however small the fleet.
    pub burst_floor: usize,
    /// The share of the fleet that may reconnect within a window, if that is more.
    pub burst_share: f64,
    /// The sliding window in which reconnects are counted.
    pub burst_window: Duration,
}

impl Default for GovernorSettings {
    fn default() -> Self {
        Self {
            max_connects: 32,
            max_stdio: 8,
            hold: Duration::from_secs(2),
            burst_floor: 5,
            burst_share: 0.10,
            burst_window: Duration::from_millis(100),
        }
    }
}

impl GovernorSettings {
    /// The largest accepted limit.
    pub const MOST: usize = 1_000_000;

    /// Rejects limits that would block all connects, or that a config file cannot express.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let check = InvalidSetting::unless;
        let count = |name, count: usize| {
            let valid = (1..=Self::MOST).contains(&count);
            check(valid, name, "must be between 1 and 1000000")
        };
        let share = (0.0..=1.0).contains(&self.burst_share);
        count("connects.atOnce", self.max_connects)?;
        count("connects.stdioAtOnce", self.max_stdio)?;
        count("connects.burst", self.burst_floor)?;
        check(share, "connects.burstShare", "must be between 0 and 1")?;
        InvalidSetting::unless_positive("connects.hold", self.hold)?;
        InvalidSetting::unless_short("connects.hold", self.hold)?;
        InvalidSetting::unless_short("connects.burstWindow", self.burst_window)
    }

    /// Adjusts the limits so that at least one server can connect and the clock never overflows.
    fn usable(self) -> Self {
        Self {
            max_connects: self.max_connects.max(1),
            max_stdio: self.max_stdio.max(1),
            hold: self.hold.min(LONGEST_DELAY),
            burst_window: self.burst_window.min(LONGEST_DELAY),
            ..self
        }
    }
}

/// Why a server connects. Only reconnects count against the burst window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectKind {
    /// It was added, enabled, or the runtime started.
    First,
    /// It lost its connection or failed to connect.
    Reconnect,
}

/// Which servers may connect now, and which wait.
#[derive(Debug, Clone)]
pub struct Governor<K: Ord + Clone> {
    settings: GovernorSettings,
    fleet: usize,
    /// Requests are granted in the order of their tickets.
    next_ticket: u64,
    /// The queued request of each key.
    queued: BTreeMap<K, QueuedRequest>,
    /// The queued keys by ticket, one queue for each combination of limits that apply.
    lanes: [BTreeMap<u64, K>; Lane::COUNT],
    permits: BTreeMap<K, Permit>,
    /// When the latest reconnects were granted, oldest first, within the window.
    reconnects: VecDeque<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct QueuedRequest {
    lane: Lane,
    ticket: u64,
}

#[derive(Debug, Clone, Copy)]
struct Permit {
    granted_at: Instant,
    stdio: bool,
}

#[derive(Debug, Clone, Copy)]
struct Lane {
    kind: ConnectKind,
    stdio: bool,
}

impl Lane {
    const COUNT: usize = 4;

    const ALL: [Self; Self::COUNT] = [
        Self::new(ConnectKind::First, false),
        Self::new(ConnectKind::First, true),
        Self::new(ConnectKind::Reconnect, false),
        Self::new(ConnectKind::Reconnect, true),
    ];

    const fn new(kind: ConnectKind, stdio: bool) -> Self {
        Self { kind, stdio }
    }

    /// The index in [`Lane::ALL`].
    fn index(self) -> usize {
        let kind = match self.kind {
            ConnectKind::First => 0,
            ConnectKind::Reconnect => 2,
        };
        kind + usize::from(self.stdio)
    }
}

impl<K: Ord + Clone> Governor<K> {
    /// No requests and no permits. Limits of 0 count as 1.
    pub fn new(settings: GovernorSettings) -> Self {
        Self {
            settings: settings.usable(),
            fleet: 0,
            next_ticket: 0,
            queued: BTreeMap::new(),
            lanes: Default::default(),
            permits: BTreeMap::new(),
            reconnects: VecDeque::new(),
        }
    }

    /// Changes the limits. Permits that are held stay. Call [`poll`](Self::poll) afterwards.
    pub fn reconfigure(&mut self, settings: GovernorSettings) {
        self.settings = settings.usable();
    }

    /// Sets the number of servers.
    pub fn set_fleet(&mut self, servers: usize) {
        self.fleet = servers;
    }

    /// Requests a permit for a key; [`poll`](Self::poll) returns the key when it is granted.
    ///
    /// A key that is queued keeps its position. One that holds a permit releases it and is queued again.
    pub fn request(&mut self, key: K, kind: ConnectKind, stdio: bool) {
        self.permits.remove(&key);
        let ticket = match self.dequeue(&key) {
            Some(ticket) => ticket,
            None => {
                self.next_ticket += 1;
                self.next_ticket
            }
        };
        let lane = Lane::new(kind, stdio);
        self.lanes[lane.index()].insert(ticket, key.clone());
        self.queued.insert(key, QueuedRequest { lane, ticket });
    }

    /// Releases the permit of a key, or withdraws its request.
    pub fn release(&mut self, key: &K) {
        self.permits.remove(key);
        self.dequeue(key);
    }

    /// Grants permits and returns their keys, in the order of their requests.
    ///
    /// A request that waits for a limit does not block requests to which that limit does not apply. Call
    /// it after every [`request`](Self::request) and [`release`](Self::release), and at the
    /// [`next_deadline`](Self::next_deadline).
    pub fn poll(&mut self, now: Instant) -> Vec<K> {
        self.expire(now);
        let mut granted = Vec::new();
        while let Some(lane) = self.next_lane() {
            let Some((_, key)) = self.lanes[lane.index()].pop_first() else {
                break;
            };
            self.queued.remove(&key);
            if lane.kind == ConnectKind::Reconnect {
                self.reconnects.push_back(now);
            }
            let permit = Permit {
                granted_at: now,
                stdio: lane.stdio,
            };
            self.permits.insert(key.clone(), permit);
            granted.push(key);
        }
        granted
    }

    /// When [`poll`](Self::poll) grants the next permit if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        Lane::ALL
            .into_iter()
            .filter(|lane| !self.lanes[lane.index()].is_empty())
            .filter_map(|lane| self.free_at(lane))
            .min()
    }

    fn dequeue(&mut self, key: &K) -> Option<u64> {
        let QueuedRequest { lane, ticket } = self.queued.remove(key)?;
        self.lanes[lane.index()].remove(&ticket);
        Some(ticket)
    }

    fn expire(&mut self, now: Instant) {
        let GovernorSettings {
            hold, burst_window, ..
        } = self.settings;
        self.permits
            .retain(|_, permit| now.saturating_duration_since(permit.granted_at) < hold);
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= burst_window;
        while self.reconnects.front().is_some_and(is_over) {
            self.reconnects.pop_front();
        }
    }

    /// The lane with the oldest request that its limits allow.
    fn next_lane(&self) -> Option<Lane> {
        Lane::ALL
            .into_iter()
            .filter(|lane| self.free_at(*lane).is_none())
            .filter(|lane| !self.lanes[lane.index()].is_empty())
            .min_by_key(|lane| self.lanes[lane.index()].keys().next().copied())
    }

    /// When the limits of a lane allow a connect without a release; `None` if they do now.
    fn free_at(&self, lane: Lane) -> Option<Instant> {
        let permits = self.permit_free_at(self.settings.max_connects, |_| true);
        let stdio = lane
            .stdio
            .then(|| self.permit_free_at(self.settings.max_stdio, |permit| permit.stdio))
            .flatten();
        let window = match lane.kind {
            ConnectKind::First => None,
            ConnectKind::Reconnect => self.window_free_at(),
        };
        permits.max(stdio).max(window)
    }

    fn permit_free_at(&self, limit: usize, counts: impl Fn(&Permit) -> bool) -> Option<Instant> {
        let held = || self.permits.values().filter(|permit| counts(permit));
        if held().count() < limit {
            return None;
        }
        held()
            .map(|permit| permit.granted_at + self.settings.hold)
            .min()
    }

    fn window_free_at(&self) -> Option<Instant> {
        // After the fleet shrank the window may hold more than it allows now.
        let surplus = self.reconnects.len().checked_sub(self.burst())?;
        let last = self.reconnects.get(surplus)?;
        Some(*last + self.settings.burst_window)
    }

    /// The number of reconnects that a window may hold.
    fn burst(&self) -> usize {
        let share = self.fleet as f64 * self.settings.burst_share;
        self.settings.burst_floor.max(share as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use ConnectKind::{First, Reconnect};

    fn governor(settings: GovernorSettings) -> Governor<u32> {
        Governor::new(settings)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn connects_are_limited_and_granted_in_the_order_of_requests() {
        let mut governor = governor(GovernorSettings {
            max_connects: 2,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        for key in [3, 1, 2, 0] {
            governor.request(key, First, false);
        }
        assert_eq!(governor.poll(now), [3, 1]);
        assert_eq!((governor.permits.len(), governor.queued.len()), (2, 2));
        assert_eq!(governor.poll(now), []);
        governor.release(&3);
        assert_eq!(governor.poll(now), [2]);
        governor.release(&0);
        governor.release(&1);
        assert_eq!(governor.poll(now), [], "a withdrawn request is forgotten");
    }

    #[test]
    fn silent_servers_never_block_the_others() {
        let mut governor = governor(GovernorSettings {
            max_connects: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.request(1, First, false);
        governor.request(2, First, false);
        assert_eq!(governor.poll(now), [1]);
        assert_eq!(governor.next_deadline(), Some(now + millis(2_000)));
        assert_eq!(governor.poll(now + millis(1_999)), []);
        assert_eq!(governor.poll(now + millis(2_000)), [2]);
        assert_eq!(governor.next_deadline(), None);
        governor.release(&1);
        assert_eq!(
            governor.permits.len(),
            1,
            "a late release does not free the permit of another"
        );
    }

    #[test]
    fn processes_that_wait_for_their_limit_do_not_block_others() {
        let mut governor = governor(GovernorSettings {
            max_stdio: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.request(1, First, true);
        governor.request(2, First, true);
        governor.request(3, First, false);
        assert_eq!(governor.poll(now), [1, 3]);
        governor.release(&3);
        assert_eq!(governor.poll(now), []);
        governor.release(&1);
        assert_eq!(governor.poll(now), [2]);
    }

    #[test]
    fn a_mass_loss_is_spread_and_does_not_block_first_connects() {
        let mut governor = governor(GovernorSettings::default());
        governor.set_fleet(100);
        let begin = Instant::now();
        for key in 0..30 {
            governor.request(key, Reconnect, false);
        }
        governor.request(1_000, First, false);
        let mut first: Vec<u32> = (0..10).collect();
        first.push(1_000);
        assert_eq!(governor.poll(begin), first);
        assert_eq!(governor.next_deadline(), Some(begin + millis(100)));
        assert_eq!(governor.poll(begin + millis(99)), []);
        assert_eq!(governor.poll(begin + millis(100)).len(), 10);
        assert_eq!(governor.poll(begin + millis(200)).len(), 10);
    }

    #[test]
    fn a_small_fleet_may_reconnect_at_once() {
        let mut governor = governor(GovernorSettings::default());
        governor.set_fleet(6);
        for key in 0..6 {
            governor.request(key, Reconnect, false);
        }
        assert_eq!(governor.poll(Instant::now()).len(), 5);
    }

    #[test]
    fn a_fleet_that_shrinks_narrows_the_window_at_once() {
        let mut governor = governor(GovernorSettings::default());
        governor.set_fleet(100);
        let begin = Instant::now();
        for key in 0..9 {
            governor.request(key, Reconnect, false);
            governor.poll(begin + millis(u64::from(key)));
        }
        governor.set_fleet(10);
        governor.request(9, Reconnect, false);
        assert_eq!(governor.poll(begin + millis(9)), []);
        assert_eq!(governor.next_deadline(), Some(begin + millis(104)));
        assert_eq!(governor.poll(begin + millis(104)), [9]);
    }

    #[test]
    fn a_second_request_keeps_the_position_and_never_gets_two_permits() {
        let mut governor = governor(GovernorSettings {
            max_connects: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.request(1, Reconnect, false);
        governor.request(2, First, false);
        governor.request(1, First, true);
        assert_eq!(governor.queued.len(), 2);
        assert_eq!(governor.poll(now), [1]);
        governor.request(1, Reconnect, false);
        assert_eq!(governor.poll(now), [2], "a new request goes to the end");
        assert_eq!((governor.permits.len(), governor.queued.len()), (1, 1));
    }

    /// A server that connects `after` the one before and holds its permit for `keeps`.
    #[derive(Debug, Clone)]
    struct Connector {
        after: Duration,
        kind: ConnectKind,
        stdio: bool,
        keeps: Duration,
    }

    fn connector() -> impl Strategy<Value = Connector> {
        (0_u64..40, any::<bool>(), any::<bool>(), 0_u64..3_000).prop_map(
            |(after, reconnect, stdio, keeps)| Connector {
                after: millis(after),
                kind: if reconnect { Reconnect } else { First },
                stdio,
                keeps: millis(keeps),
            },
        )
    }

    /// The servers that got a permit, each with the moment of it.
    type Granted = Vec<(Instant, Connector)>;

    fn check_limits(granted: &Granted, now: Instant, settings: &GovernorSettings, burst: usize) {
        let count = |counts: &dyn Fn(&Connector, Duration) -> bool| {
            let counted = |(at, connector): &&(Instant, Connector)| counts(connector, now - *at);
            granted.iter().filter(counted).count()
        };
        let held = |connector: &Connector, age| age < connector.keeps.min(settings.hold);
        assert!(count(&held) <= settings.max_connects);
        assert!(
            count(&|connector, age| connector.stdio && held(connector, age)) <= settings.max_stdio
        );
        let reconnects =
            count(&|connector, age| connector.kind == Reconnect && age < settings.burst_window);
        assert!(reconnects <= burst, "{reconnects} reconnects in a window");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The driver polls after each request and release, and at each deadline.
        #[test]
        fn no_limit_is_ever_exceeded_and_every_request_is_granted(
            fleet in 1_usize..120,
            connectors in prop::collection::vec(connector(), 1..100),
        ) {
            let settings = GovernorSettings { max_connects: 12, max_stdio: 4, ..GovernorSettings::default() };
            let burst = settings.burst_floor.max(fleet / 10);
            let mut governor = Governor::new(settings.clone());
            governor.set_fleet(fleet);
            let mut now = Instant::now();
            let mut arrivals = VecDeque::new();
            let mut arrival = now;
            for (key, connector) in connectors.iter().enumerate() {
                arrival += connector.after;
                arrivals.push_back((arrival, key));
            }
            let mut leaving: BTreeSet<(Instant, usize)> = BTreeSet::new();
            let mut granted: Granted = Vec::new();
            while granted.len() < connectors.len() {
                let arrival = arrivals.front().map(|(at, _)| *at);
                let leave = leaving.first().map(|(at, _)| *at);
                let wake = [arrival, leave, governor.next_deadline()].into_iter().flatten().min();
                prop_assert!(wake.is_some(), "a request waits forever");
                now = now.max(wake.unwrap());
                while arrivals.front().is_some_and(|(at, _)| *at <= now) {
                    let (_, key) = arrivals.pop_front().unwrap();
                    governor.request(key, connectors[key].kind, connectors[key].stdio);
                }
                while leaving.first().is_some_and(|(at, _)| *at <= now) {
                    let (_, key) = leaving.pop_first().unwrap();
                    governor.release(&key);
                }
                for key in governor.poll(now) {
                    leaving.insert((now + connectors[key].keeps, key));
                    granted.push((now, connectors[key].clone()));
                }
                check_limits(&granted, now, &settings, burst);
                prop_assert!(governor.next_deadline().is_none_or(|at| at > now), "a driver would spin");
            }
        }
    }
}
