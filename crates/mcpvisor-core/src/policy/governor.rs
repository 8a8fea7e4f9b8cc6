//! Bounds and spreads connects across servers, so that a restart of the host is no stampede.
//!
//! A server asks for a slot, gets it granted, and releases it at the first byte or the end of its
//! connect; a slot that is not released in time is freed anyway, so that silent servers never hold
//! up the others. When a server wants to connect at all is the business of its budget.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::policy::backoff::LONGEST_DELAY;
use crate::settings::{InvalidSetting, MAX_DURATION};

/// The bounds across a fleet. Begin with the default and change what should be other.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GovernorSettings {
    /// Slots that are held at once.
    pub max_connects: usize,
    /// Slots that are held at once by servers that are started as processes.
    pub max_stdio: usize,
    /// A slot is freed after this, released or not.
    pub hold: Duration,
    /// At least this many reconnects are allowed within a window, however small the fleet.
    pub burst_floor: usize,
    /// The share of the fleet that may reconnect within a window.
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
    /// More connects at once are no bound.
    pub const MOST: usize = 1_000_000;

    /// Refuses bounds that would let nobody connect, or that no config file could say.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let refuse = |name, problem| Err(InvalidSetting { name, problem });
        let counts = [
            ("connects.atOnce", self.max_connects),
            ("connects.stdioAtOnce", self.max_stdio),
            ("connects.burst", self.burst_floor),
        ];
        let wrong = |(_, count): &&(_, usize)| !(1..=Self::MOST).contains(count);
        if let Some((name, _)) = counts.iter().find(wrong) {
            return refuse(name, "must be between 1 and 1000000");
        }
        if !(0.0..=1.0).contains(&self.burst_share) {
            return refuse("connects.burstShare", "must be between 0 and 1");
        }
        if self.hold.is_zero() {
            return refuse("connects.hold", "must be longer than 0");
        }
        if self.hold > MAX_DURATION {
            return refuse("connects.hold", "is longer than a year");
        }
        if self.burst_window > MAX_DURATION {
            return refuse("connects.burstWindow", "is longer than a year");
        }
        Ok(())
    }

    /// The same, so that somebody can always connect and the clock holds every moment.
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

/// Who may connect now, and who waits.
#[derive(Debug, Clone)]
pub struct Governor<K: Ord + Clone> {
    settings: GovernorSettings,
    fleet: usize,
    /// The number of the next one who asks: the order in which they are granted.
    next_ticket: u64,
    /// Where each waiting key stands.
    places: BTreeMap<K, Place>,
    /// The waiting keys by ticket, one queue for each combination of bounds that they wait for.
    lanes: [BTreeMap<u64, K>; Lane::COUNT],
    granted: BTreeMap<K, Grant>,
    /// When the latest reconnects were granted, oldest first; none older than the window.
    reconnects: VecDeque<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    lane: Lane,
    ticket: u64,
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    at: Instant,
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

    /// The place in [`Lane::ALL`].
    fn index(self) -> usize {
        let kind = match self.kind {
            ConnectKind::First => 0,
            ConnectKind::Reconnect => 2,
        };
        kind + usize::from(self.stdio)
    }
}

impl<K: Ord + Clone> Governor<K> {
    /// Nobody waits and nothing is granted. Bounds of 0 are taken as 1.
    pub fn new(settings: GovernorSettings) -> Self {
        Self {
            settings: settings.usable(),
            fleet: 0,
            next_ticket: 0,
            places: BTreeMap::new(),
            lanes: Default::default(),
            granted: BTreeMap::new(),
            reconnects: VecDeque::new(),
        }
    }

    /// Other bounds from now on. Slots that are held stay so; to be followed by
    /// [`poll`](Self::poll).
    pub fn reconfigure(&mut self, settings: GovernorSettings) {
        self.settings = settings.usable();
    }

    /// How many servers there are.
    pub fn set_fleet(&mut self, servers: usize) {
        self.fleet = servers;
    }

    /// Wants a slot for a key; [`poll`](Self::poll) names it when it may connect.
    ///
    /// A key that waits already keeps its place in the order; one that holds a slot gives it up
    /// and waits again.
    pub fn ask(&mut self, key: K, kind: ConnectKind, stdio: bool) {
        self.granted.remove(&key);
        let ticket = match self.forget_waiting(&key) {
            Some(ticket) => ticket,
            None => {
                self.next_ticket += 1;
                self.next_ticket
            }
        };
        let lane = Lane::new(kind, stdio);
        self.lanes[lane.index()].insert(ticket, key.clone());
        self.places.insert(key, Place { lane, ticket });
    }

    /// Forgets a key, whether it waits or holds a slot.
    pub fn release(&mut self, key: &K) {
        self.granted.remove(key);
        self.forget_waiting(key);
    }

    /// The keys that may connect now, in the order in which they asked.
    ///
    /// One that waits for a bound that others don't need does not hold them up. To be called after
    /// every [`ask`](Self::ask) and [`release`](Self::release), and at the
    /// [`next_deadline`](Self::next_deadline).
    pub fn poll(&mut self, now: Instant) -> Vec<K> {
        self.expire(now);
        let mut granted = Vec::new();
        while let Some(lane) = self.next_lane() {
            let Some((_, key)) = self.lanes[lane.index()].pop_first() else {
                break;
            };
            self.places.remove(&key);
            if lane.kind == ConnectKind::Reconnect {
                self.reconnects.push_back(now);
            }
            let grant = Grant {
                at: now,
                stdio: lane.stdio,
            };
            self.granted.insert(key.clone(), grant);
            granted.push(key);
        }
        granted
    }

    /// When [`poll`](Self::poll) will name somebody even if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        Lane::ALL
            .into_iter()
            .filter(|lane| !self.lanes[lane.index()].is_empty())
            .filter_map(|lane| self.free_at(lane))
            .min()
    }

    /// How many hold a slot.
    pub fn granted(&self) -> usize {
        self.granted.len()
    }

    /// How many wait for one.
    pub fn waiting(&self) -> usize {
        self.places.len()
    }

    fn forget_waiting(&mut self, key: &K) -> Option<u64> {
        let Place { lane, ticket } = self.places.remove(key)?;
        self.lanes[lane.index()].remove(&ticket);
        Some(ticket)
    }

    fn expire(&mut self, now: Instant) {
        let GovernorSettings {
            hold, burst_window, ..
        } = self.settings;
        self.granted
            .retain(|_, grant| now.saturating_duration_since(grant.at) < hold);
        while let Some(oldest) = self.reconnects.front() {
            if now.saturating_duration_since(*oldest) < burst_window {
                break;
            }
            self.reconnects.pop_front();
        }
    }

    /// Of the lanes whose bounds leave room, the one in which somebody asked first.
    fn next_lane(&self) -> Option<Lane> {
        Lane::ALL
            .into_iter()
            .filter(|lane| self.free_at(*lane).is_none())
            .filter_map(|lane| {
                let (ticket, _) = self.lanes[lane.index()].first_key_value()?;
                Some((*ticket, lane))
            })
            .min_by_key(|(ticket, _)| *ticket)
            .map(|(_, lane)| lane)
    }

    /// When all bounds of a lane leave room by themselves; none when they do already.
    fn free_at(&self, lane: Lane) -> Option<Instant> {
        let slots = self.slot_free_at(self.settings.max_connects, |_| true);
        let stdio = lane
            .stdio
            .then(|| self.slot_free_at(self.settings.max_stdio, |grant| grant.stdio))
            .flatten();
        let window = match lane.kind {
            ConnectKind::First => None,
            ConnectKind::Reconnect => self.window_free_at(),
        };
        slots.max(stdio).max(window)
    }

    fn slot_free_at(&self, bound: usize, counts: impl Fn(&Grant) -> bool) -> Option<Instant> {
        let held = || self.granted.values().filter(|grant| counts(grant));
        if held().count() < bound {
            return None;
        }
        held().map(|grant| grant.at + self.settings.hold).min()
    }

    fn window_free_at(&self) -> Option<Instant> {
        // A fleet that shrank may have more in the window than it is allowed now.
        let surplus = self.reconnects.len().checked_sub(self.burst())?;
        let last = self.reconnects.get(surplus)?;
        Some(*last + self.settings.burst_window)
    }

    /// The reconnects that a window may hold.
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
    fn connects_are_bounded_and_granted_in_the_order_asked() {
        let mut governor = governor(GovernorSettings {
            max_connects: 2,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        for key in [3, 1, 2, 0] {
            governor.ask(key, First, false);
        }
        assert_eq!(governor.poll(now), [3, 1]);
        assert_eq!((governor.granted(), governor.waiting()), (2, 2));
        assert_eq!(governor.poll(now), []);
        governor.release(&3);
        assert_eq!(governor.poll(now), [2]);
        governor.release(&0);
        governor.release(&1);
        assert_eq!(
            governor.poll(now),
            [],
            "one that left the line is forgotten"
        );
    }

    #[test]
    fn silent_servers_never_hold_up_the_others() {
        let mut governor = governor(GovernorSettings {
            max_connects: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.ask(1, First, false);
        governor.ask(2, First, false);
        assert_eq!(governor.poll(now), [1]);
        assert_eq!(governor.next_deadline(), Some(now + millis(2_000)));
        assert_eq!(governor.poll(now + millis(1_999)), []);
        assert_eq!(governor.poll(now + millis(2_000)), [2]);
        assert_eq!(governor.next_deadline(), None);
        governor.release(&1);
        assert_eq!(
            governor.granted(),
            1,
            "a late release frees nobody else's slot"
        );
    }

    #[test]
    fn processes_that_wait_for_their_bound_do_not_hold_up_others() {
        let mut governor = governor(GovernorSettings {
            max_stdio: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.ask(1, First, true);
        governor.ask(2, First, true);
        governor.ask(3, First, false);
        assert_eq!(governor.poll(now), [1, 3]);
        governor.release(&3);
        assert_eq!(governor.poll(now), []);
        governor.release(&1);
        assert_eq!(governor.poll(now), [2]);
    }

    #[test]
    fn a_mass_loss_is_spread_and_does_not_hold_up_first_connects() {
        let mut governor = governor(GovernorSettings::default());
        governor.set_fleet(100);
        let begin = Instant::now();
        for key in 0..30 {
            governor.ask(key, Reconnect, false);
        }
        governor.ask(1_000, First, false);
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
            governor.ask(key, Reconnect, false);
        }
        assert_eq!(governor.poll(Instant::now()).len(), 5);
    }

    #[test]
    fn a_fleet_that_shrinks_narrows_the_window_at_once() {
        let mut governor = governor(GovernorSettings::default());
        governor.set_fleet(100);
        let begin = Instant::now();
        for key in 0..9 {
            governor.ask(key, Reconnect, false);
            governor.poll(begin + millis(u64::from(key)));
        }
        governor.set_fleet(10);
        governor.ask(9, Reconnect, false);
        assert_eq!(governor.poll(begin + millis(9)), []);
        assert_eq!(governor.next_deadline(), Some(begin + millis(104)));
        assert_eq!(governor.poll(begin + millis(104)), [9]);
    }

    #[test]
    fn asking_twice_keeps_the_place_and_never_takes_two() {
        let mut governor = governor(GovernorSettings {
            max_connects: 1,
            ..GovernorSettings::default()
        });
        let now = Instant::now();
        governor.ask(1, Reconnect, false);
        governor.ask(2, First, false);
        governor.ask(1, First, true);
        assert_eq!(governor.waiting(), 2);
        assert_eq!(governor.poll(now), [1]);
        governor.ask(1, Reconnect, false);
        assert_eq!(governor.poll(now), [2], "who asks anew goes to the end");
        assert_eq!((governor.granted(), governor.waiting()), (1, 1));
    }

    /// One who asks: how long after the one before, and how long it keeps its slot.
    #[derive(Debug, Clone)]
    struct Guest {
        after: Duration,
        kind: ConnectKind,
        stdio: bool,
        keeps: Duration,
    }

    fn guest() -> impl Strategy<Value = Guest> {
        (0_u64..40, any::<bool>(), any::<bool>(), 0_u64..3_000).prop_map(
            |(after, reconnect, stdio, keeps)| Guest {
                after: millis(after),
                kind: if reconnect { Reconnect } else { First },
                stdio,
                keeps: millis(keeps),
            },
        )
    }

    /// The guests whose slots were granted, each with the moment of it.
    type Granted = Vec<(Instant, Guest)>;

    fn check_bounds(granted: &Granted, now: Instant, settings: &GovernorSettings, burst: usize) {
        let count = |counts: &dyn Fn(&Guest, Duration) -> bool| {
            let counted = |(at, guest): &&(Instant, Guest)| counts(guest, now - *at);
            granted.iter().filter(counted).count()
        };
        let held = |guest: &Guest, age| age < guest.keeps.min(settings.hold);
        assert!(count(&held) <= settings.max_connects);
        assert!(count(&|guest, age| guest.stdio && held(guest, age)) <= settings.max_stdio);
        let reconnects =
            count(&|guest, age| guest.kind == Reconnect && age < settings.burst_window);
        assert!(reconnects <= burst, "{reconnects} reconnects in a window");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The driver polls after each that asks or releases, and at each deadline.
        #[test]
        fn no_bound_is_ever_exceeded_and_everybody_is_granted(
            fleet in 1_usize..120,
            crowd in prop::collection::vec(guest(), 1..100),
        ) {
            let settings = GovernorSettings { max_connects: 12, max_stdio: 4, ..GovernorSettings::default() };
            let burst = settings.burst_floor.max(fleet / 10);
            let mut governor = Governor::new(settings.clone());
            governor.set_fleet(fleet);
            let mut now = Instant::now();
            let mut arrivals = VecDeque::new();
            let mut arrival = now;
            for (key, guest) in crowd.iter().enumerate() {
                arrival += guest.after;
                arrivals.push_back((arrival, key));
            }
            let mut leaving: BTreeSet<(Instant, usize)> = BTreeSet::new();
            let mut granted: Granted = Vec::new();
            while granted.len() < crowd.len() {
                let arrival = arrivals.front().map(|(at, _)| *at);
                let leave = leaving.first().map(|(at, _)| *at);
                let wake = [arrival, leave, governor.next_deadline()].into_iter().flatten().min();
                prop_assert!(wake.is_some(), "somebody waits for ever");
                now = now.max(wake.unwrap());
                while arrivals.front().is_some_and(|(at, _)| *at <= now) {
                    let (_, key) = arrivals.pop_front().unwrap();
                    governor.ask(key, crowd[key].kind, crowd[key].stdio);
                }
                while leaving.first().is_some_and(|(at, _)| *at <= now) {
                    let (_, key) = leaving.pop_first().unwrap();
                    governor.release(&key);
                }
                for key in governor.poll(now) {
                    leaving.insert((now + crowd[key].keeps, key));
                    granted.push((now, crowd[key].clone()));
                }
                check_bounds(&granted, now, &settings, burst);
                prop_assert!(governor.next_deadline().is_none_or(|at| at > now), "a driver would spin");
            }
        }
    }
}
