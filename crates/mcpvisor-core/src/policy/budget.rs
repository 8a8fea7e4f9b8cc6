//! How many connects a server may use, and when the next one may happen.
//!
//! Lost connections and actor crashes use the same budget. The machine decides what proves a connection,
//! and the actor performs the connects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::policy::backoff::{Backoff, LONGEST_DELAY};
use crate::random::Random;
use crate::settings::{BackoffSettings, BudgetSettings};

/// When the next connect may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectTiming {
    /// The budget is not spent: connect at this moment.
    RetryAt(Instant),
    /// The budget is spent: the server is parked, and probed at this moment.
    Spent {
        /// When to probe.
        probe_at: Instant,
    },
}

/// A sliding window of connects, the backoff between them, and the parking when it is full.
#[derive(Debug, Clone)]
pub struct ReconnectBudget {
    /// The newest connects within the window, at most `attempts`, or else the last one before it.
    connects: VecDeque<Instant>,
    attempts: u32,
    within: Duration,
    backoff: Backoff,
    probes: Backoff,
    parked: bool,
    last_immediate: Option<Instant>,
    immediate_every: Duration,
    max_retry_after: Duration,
}

impl ReconnectBudget {
    /// An unused budget.
    pub fn new(backoff: &BackoffSettings, budget: &BudgetSettings) -> Self {
        Self {
            connects: VecDeque::new(),
            attempts: budget.attempts,
            within: budget.within,
            backoff: Backoff::new(backoff),
            probes: Backoff::new(&probe_settings(backoff, budget)),
            parked: false,
            last_immediate: None,
            immediate_every: backoff.immediate_every,
            max_retry_after: backoff.max_retry_after.min(LONGEST_DELAY),
        }
    }

    /// Counts one connect, or one restart of the actor.
    pub fn record(&mut self, now: Instant) {
        self.evict_expired(now);
        self.connects.push_back(now);
        self.evict_surplus();
    }

    /// Whether the window holds `attempts` connects.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.used(now) >= self.attempts
    }

    /// The number of connects within the window.
    pub fn used(&self, now: Instant) -> u32 {
        let used = self
            .connects
            .iter()
            .filter(|at| now.saturating_duration_since(**at) < self.within)
            .count();
        u32::try_from(used).unwrap_or(u32::MAX)
    }

    /// The newest connect or restart since the budget was last restored.
    pub fn last(&self) -> Option<Instant> {
        self.connects.back().copied()
    }

    /// The number of connects that the window may hold.
    pub fn limit(&self) -> u32 {
        self.attempts
    }

    /// Decides after a failed connect or a lost connection.
    ///
    /// A connection that had `proven` itself is retried at once, but not more often than the settings
    /// allow. `retry_after` is what the server asked for; it replaces a shorter delay.
    ///
    /// Once the answer is [`ConnectTiming::Spent`] it stays so, with growing probe intervals, until
    /// [`prove`] or [`reset`], even when the window is empty: a dead server gets no new burst of connects.
    ///
    /// [`prove`]: Self::prove
    /// [`reset`]: Self::reset
    pub fn next(
        &mut self,
        now: Instant,
        random: Random,
        proven: bool,
        retry_after: Option<Duration>,
    ) -> ConnectTiming {
        let least = retry_after.unwrap_or_default().min(self.max_retry_after);
        self.parked |= self.is_spent(now);
        if self.parked {
            let delay = self.probes.next_delay(random).max(least);
            return ConnectTiming::Spent {
                probe_at: now + delay,
            };
        }
        if proven && least.is_zero() && self.may_retry_at_once(now) {
            self.last_immediate = Some(now);
            return ConnectTiming::RetryAt(now);
        }
        ConnectTiming::RetryAt(now + self.backoff.next_delay(random).max(least))
    }

    /// Whether the server is parked: the budget was spent and has not been restored since.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// The connection proved itself: clears the window, the backoff and the parking.
    ///
    /// The time of the last immediate retry stays, so that a server which answers one call and dies is
    /// not reconnected in a tight loop.
    pub fn prove(&mut self) {
        self.connects.clear();
        self.backoff.reset();
        self.probes.reset();
        self.parked = false;
    }

    /// The user asked for a connect: clears everything.
    pub fn reset(&mut self) {
        self.prove();
        self.last_immediate = None;
    }

    /// Applies new settings; the used connects and the parking stay.
    pub fn reconfigure(&mut self, backoff: &BackoffSettings, budget: &BudgetSettings) {
        self.attempts = budget.attempts;
        self.within = budget.within;
        self.immediate_every = backoff.immediate_every;
        self.max_retry_after = backoff.max_retry_after.min(LONGEST_DELAY);
        self.backoff.reconfigure(backoff);
        self.probes.reconfigure(&probe_settings(backoff, budget));
        self.evict_surplus();
    }

    fn may_retry_at_once(&self, now: Instant) -> bool {
        self.last_immediate
            .is_none_or(|last| now.saturating_duration_since(last) >= self.immediate_every)
    }

    fn evict_expired(&mut self, now: Instant) {
        let is_expired = |at: &Instant| now.saturating_duration_since(*at) >= self.within;
        while self.connects.front().is_some_and(is_expired) {
            self.connects.pop_front();
        }
    }

    /// Connects older than the newest `attempts` never change an answer.
    fn evict_surplus(&mut self) {
        while self.connects.len() > self.attempts as usize {
            self.connects.pop_front();
        }
    }
}

/// The backoff of probes, with the jitter of the other backoff.
fn probe_settings(backoff: &BackoffSettings, budget: &BudgetSettings) -> BackoffSettings {
    BackoffSettings {
        initial: budget.first_probe,
        multiplier: 2.0,
        max: budget.max_probe,
        ..backoff.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIDDLE: Random = Random::MIDDLE;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn budget() -> ReconnectBudget {
        ReconnectBudget::new(&BackoffSettings::default(), &BudgetSettings::default())
    }

    /// The connects of a server that never answers, each at the moment that the budget allows.
    fn connects_of_a_dead_server(budget: &mut ReconnectBudget, lasting: Duration) -> Vec<Duration> {
        let begin = Instant::now();
        let mut now = begin;
        let mut connects = Vec::new();
        while now - begin < lasting {
            budget.record(now);
            connects.push(now - begin);
            now = match budget.next(now, MIDDLE, false, None) {
                ConnectTiming::RetryAt(at) | ConnectTiming::Spent { probe_at: at } => at,
            };
        }
        connects
    }

    #[test]
    fn a_dead_server_gets_its_budget_and_then_only_slow_probes() {
        let day = secs(24 * 60 * 60);
        let mut budget = budget();
        let connects = connects_of_a_dead_server(&mut budget, day);
        let gaps: Vec<_> = connects.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let millis = [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000,
        ];
        assert_eq!(gaps[..9], millis.map(Duration::from_millis));
        assert_eq!(gaps[9..13], [30, 60, 120, 240].map(secs));
        assert!(gaps[13..].iter().all(|gap| *gap == secs(300)));
        assert!(budget.is_parked());
    }

    #[test]
    fn a_parked_server_gets_no_new_burst_when_the_window_slides_empty() {
        let mut budget = budget();
        let now = Instant::now();
        for _ in 0..10 {
            budget.record(now);
        }
        assert_eq!(
            budget.next(now, MIDDLE, false, None),
            ConnectTiming::Spent {
                probe_at: now + secs(30)
            }
        );
        let later = now + secs(3_600);
        assert!(!budget.is_spent(later));
        assert_eq!(
            budget.next(later, MIDDLE, false, None),
            ConnectTiming::Spent {
                probe_at: later + secs(60)
            }
        );
    }

    #[test]
    fn the_window_slides() {
        let mut budget = budget();
        let now = Instant::now();
        for second in 0..10 {
            assert!(!budget.is_spent(now + secs(second)));
            budget.record(now + secs(second));
        }
        assert_eq!(budget.used(now + secs(10)), 10);
        assert!(budget.is_spent(now + secs(299)));
        assert_eq!(budget.used(now + secs(300)), 9);
        assert!(!budget.is_spent(now + secs(300)));
    }

    #[test]
    fn only_the_last_connect_outside_the_window_is_remembered() {
        let settings = BudgetSettings {
            attempts: 1_000_000,
            ..BudgetSettings::default()
        };
        let mut budget = ReconnectBudget::new(&BackoffSettings::default(), &settings);
        let mut now = Instant::now();
        for _ in 0..1_000 {
            now += settings.within / 10;
            budget.record(now);
        }
        assert_eq!((budget.used(now), budget.connects.len()), (10, 10));
        let later = now + settings.within * 2;
        assert_eq!((budget.used(later), budget.last()), (0, Some(now)));
        budget.record(later);
        assert_eq!((budget.last(), budget.connects.len()), (Some(later), 1));
    }

    #[test]
    fn only_prove_and_reset_restore_the_budget() {
        for restore in [ReconnectBudget::prove, ReconnectBudget::reset] {
            let mut budget = budget();
            let now = Instant::now();
            for _ in 0..10 {
                budget.record(now);
            }
            budget.next(now, MIDDLE, true, None);
            assert!(budget.is_spent(now) && budget.is_parked());
            restore(&mut budget);
            assert_eq!((budget.used(now), budget.is_parked()), (0, false));
            assert_eq!(
                budget.next(now, MIDDLE, false, None),
                ConnectTiming::RetryAt(now + Duration::from_millis(500))
            );
        }
    }

    #[test]
    fn a_proven_connection_is_retried_at_once_but_not_in_a_tight_loop() {
        let mut budget = budget();
        let now = Instant::now();
        let next = |budget: &mut ReconnectBudget, at| budget.next(at, MIDDLE, true, None);
        assert_eq!(next(&mut budget, now), ConnectTiming::RetryAt(now));
        budget.prove();
        let soon = now + secs(4);
        let delayed = ConnectTiming::RetryAt(soon + Duration::from_millis(500));
        assert_eq!(next(&mut budget, soon), delayed);
        budget.prove();
        let later = now + secs(5);
        assert_eq!(next(&mut budget, later), ConnectTiming::RetryAt(later));
        budget.reset();
        assert_eq!(next(&mut budget, later), ConnectTiming::RetryAt(later));
    }

    #[test]
    fn a_longer_retry_after_is_honoured_up_to_its_limit() {
        let mut budget = budget();
        let now = Instant::now();
        let mut next = |retry_after| budget.next(now, MIDDLE, true, Some(retry_after));
        assert_eq!(next(secs(7)), ConnectTiming::RetryAt(now + secs(7)));
        assert_eq!(next(secs(9_999)), ConnectTiming::RetryAt(now + secs(120)));
        assert_eq!(
            budget.next(now, MIDDLE, false, Some(secs(1))),
            ConnectTiming::RetryAt(now + secs(2)),
            "a shorter one does not shorten the third delay"
        );
    }

    #[test]
    fn new_settings_keep_the_used_connects_and_the_parking() {
        let mut budget = budget();
        let now = Instant::now();
        for _ in 0..8 {
            budget.record(now);
        }
        let smaller = BudgetSettings {
            attempts: 3,
            ..BudgetSettings::default()
        };
        budget.reconfigure(&BackoffSettings::default(), &smaller);
        assert_eq!((budget.used(now), budget.limit()), (3, 3));
        budget.next(now, MIDDLE, false, None);
        budget.reconfigure(&BackoffSettings::default(), &BudgetSettings::default());
        assert!(budget.is_parked() && !budget.is_spent(now));
    }

    #[test]
    fn no_setting_and_no_retry_after_overflows_the_clock() {
        let backoff = BackoffSettings {
            initial: Duration::MAX,
            max: Duration::MAX,
            max_retry_after: Duration::MAX,
            ..BackoffSettings::default()
        };
        let settings = BudgetSettings {
            attempts: 1,
            first_probe: Duration::MAX,
            max_probe: Duration::MAX,
            within: Duration::MAX,
            ..BudgetSettings::default()
        };
        let mut budget = ReconnectBudget::new(&backoff, &settings);
        let now = Instant::now();
        budget.next(now, Random::new(1.0), false, Some(Duration::MAX));
        budget.record(now);
        budget.next(now, Random::new(1.0), false, Some(Duration::MAX));
        assert!(budget.is_parked());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_unproven_server_never_gets_more_connects_than_its_budget_within_the_window(
            attempts in 1_u32..6,
            within in 1_u64..200,
            losses in prop::collection::vec((0_u64..60_000, 0.0..1.0, any::<bool>(), 0_u64..20), 1..60),
        ) {
            let settings = BudgetSettings { attempts, within: secs(within), ..BudgetSettings::default() };
            let mut budget = ReconnectBudget::new(&BackoffSettings::default(), &settings);
            let mut now = Instant::now();
            let mut connects = Vec::new();
            budget.record(now);
            connects.push(now);
            for (up_for, random, proven, retry_after) in losses {
                now += Duration::from_millis(up_for);
                let at = match budget.next(now, Random::new(random), proven, Some(secs(retry_after))) {
                    ConnectTiming::RetryAt(at) => at,
                    ConnectTiming::Spent { .. } => break,
                };
                prop_assert!(at >= now);
                now = at;
                budget.record(now);
                connects.push(now);
                let within_window = connects.iter().filter(|at| now - **at < secs(within)).count();
                prop_assert!(within_window <= attempts as usize);
                prop_assert!(budget.connects.len() <= attempts as usize);
            }
        }
    }
}
