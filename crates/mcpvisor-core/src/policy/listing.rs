//! Which lists of a server need fetching, and when.
//!
//! Bursts of changes are coalesced and none is lost: a change during a fetch leads to another fetch. On a
//! new connection the tools are fetched first and alone, because calls may wait for them. The actor
//! fetches and publishes; the machine drops reports of older generations.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::policy::backoff::{Backoff, LONGEST_DELAY};
use crate::random::Random;
use crate::settings::{BackoffSettings, ListingSettings};

/// One of the lists that a server may have. It is exhaustive on purpose: a new list is a breaking change
/// that every `match` has to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListKind {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Its resources.
    Resources,
    /// Its resource templates.
    Templates,
}

impl ListKind {
    /// All lists, in the order in which they are fetched.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The name as in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "templates",
        }
    }
}

impl fmt::Display for ListKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the fetch of a list ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The whole list was fetched.
    Fetched,
    /// The server answered with an error: the connection is as healthy as before.
    Refused,
    /// It timed out, was unreadable, or was lost.
    Failed,
}

/// When each list of the current connection is fetched.
#[derive(Debug, Clone)]
pub struct ListSchedule {
    refresh_every: Duration,
    retry: Backoff,
    /// The lists that the connected server has; none while disconnected.
    lists: Option<BTreeMap<ListKind, List>>,
    /// The first fetch of the tools on this connection has not ended; the other lists wait for it.
    tools_first: bool,
    /// When the first of them expires.
    next_expiry: Option<Instant>,
}

/// The state of one list. It may be due again while a fetch of it runs.
#[derive(Debug, Clone)]
struct List {
    due_at: Option<Instant>,
    running: bool,
    last_start: Option<Instant>,
    /// Whether it was ever fetched on this connection.
    fetched: bool,
    /// When it expires, if the server set a time.
    expires_at: Option<Instant>,
    retry: Backoff,
}

impl ListSchedule {
    /// Disconnected: nothing to fetch.
    pub fn new(settings: &ListingSettings) -> Self {
        Self {
            refresh_every: settings.refresh_every.min(LONGEST_DELAY),
            retry: retry_backoff(settings),
            lists: None,
            tools_first: false,
            next_expiry: None,
        }
    }

    /// Applies new settings; due and running fetches stay.
    pub fn reconfigure(&mut self, settings: &ListingSettings) {
        self.refresh_every = settings.refresh_every.min(LONGEST_DELAY);
        self.retry = retry_backoff(settings);
    }

    /// A new connection of a server that has these lists: all are due now. Fetches that still run on an
    /// older connection are forgotten.
    pub fn connected(&mut self, now: Instant, lists: &[ListKind]) {
        let new_list = |kind: &ListKind| {
            let list = List {
                due_at: Some(now),
                running: false,
                last_start: None,
                fetched: false,
                expires_at: None,
                retry: self.retry.clone(),
            };
            (*kind, list)
        };
        self.lists = Some(lists.iter().map(new_list).collect());
        self.tools_first = lists.contains(&ListKind::Tools);
        self.next_expiry = None;
    }

    /// The connection is gone, with all due and running fetches.
    pub fn disconnected(&mut self) {
        self.lists = None;
        self.next_expiry = None;
    }

    /// The server reports that a list changed. Ignored while disconnected, and for a list that the server
    /// does not have.
    pub fn changed(&mut self, now: Instant, kind: ListKind) {
        let refresh_every = self.refresh_every;
        if let Some(list) = self.list(kind) {
            let earliest = match list.last_start {
                Some(last) => now.max(last + refresh_every),
                None => now,
            };
            list.schedule(earliest);
        }
    }

    /// A list that was just fetched expires at this moment.
    pub fn set_expiry(&mut self, kind: ListKind, at: Instant) {
        if let Some(list) = self.list(kind) {
            list.expires_at = Some(at);
        }
        self.find_next_expiry();
    }

    /// When the first list expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    /// Schedules a fetch of every expired list, at most once per `refresh_every`. Call it when the lists
    /// are used: an unused list is not fetched, however soon it expires.
    pub fn refresh_expired(&mut self, now: Instant) {
        let mut expired = Vec::new();
        for (kind, list) in self.lists.iter_mut().flatten() {
            if list.expires_at.is_some_and(|at| at <= now) {
                list.expires_at = None;
                expired.push(*kind);
            }
        }
        for kind in expired {
            self.changed(now, kind);
        }
        self.find_next_expiry();
    }

    fn find_next_expiry(&mut self) {
        let lists = self.lists.iter().flatten();
        self.next_expiry = lists.filter_map(|(_, list)| list.expires_at).min();
    }

    /// A fetch ended. A failed one is retried with a growing delay.
    pub fn fetch_ended(&mut self, now: Instant, kind: ListKind, outcome: FetchOutcome) {
        let Some(list) = self.list(kind).filter(|list| list.running) else {
            return;
        };
        list.running = false;
        match outcome {
            FetchOutcome::Fetched => {
                list.fetched = true;
                list.retry.reset();
            }
            FetchOutcome::Refused | FetchOutcome::Failed => {
                let delay = list.retry.next_delay(Random::MIDDLE);
                list.schedule(now + delay);
            }
        }
        if kind == ListKind::Tools {
            self.tools_first = false;
        }
    }

    /// The next list whose fetch should start now. It runs until [`fetch_ended`](Self::fetch_ended).
    pub fn poll(&mut self, now: Instant) -> Option<ListKind> {
        let tools_first = self.tools_first;
        let (kind, list) = self.lists.as_mut()?.iter_mut().find(|(kind, list)| {
            let waits = tools_first && **kind != ListKind::Tools;
            !waits && list.starts_at().is_some_and(|at| at <= now)
        })?;
        let kind = *kind;
        list.due_at = None;
        list.running = true;
        list.last_start = Some(now);
        if list.expires_at.take().is_some() {
            self.find_next_expiry();
        }
        Some(kind)
    }

    /// When [`poll`](Self::poll) returns the next list, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let lists = self.lists.as_ref()?;
        match lists.get(&ListKind::Tools) {
            Some(tools) if self.tools_first => tools.starts_at(),
            _ => lists.values().filter_map(List::starts_at).min(),
        }
    }

    /// Whether every list was fetched on this connection, and no fetch is due or running.
    pub fn is_fresh(&self) -> bool {
        self.lists
            .as_ref()
            .is_some_and(|lists| lists.values().all(List::is_fresh))
    }

    /// Whether a list was fetched on this connection, and no fetch of it is due or running; `None` if the
    /// server has no such list, or is disconnected.
    pub fn is_list_fresh(&self, kind: ListKind) -> Option<bool> {
        let list = self.lists.as_ref()?.get(&kind)?;
        Some(list.is_fresh())
    }

    /// Whether a list was fetched on this connection; `None` if the server has no such list.
    pub fn was_fetched(&self, kind: ListKind) -> Option<bool> {
        let list = self.lists.as_ref()?.get(&kind)?;
        Some(list.fetched)
    }

    fn list(&mut self, kind: ListKind) -> Option<&mut List> {
        self.lists.as_mut()?.get_mut(&kind)
    }
}

fn retry_backoff(settings: &ListingSettings) -> Backoff {
    Backoff::new(&BackoffSettings {
        initial: settings.refresh_retry,
        multiplier: 2.0,
        max: settings.max_refresh_retry,
        jitter: 0.0,
        ..BackoffSettings::default()
    })
}

impl List {
    /// Makes a fetch due at this moment, unless one is due sooner.
    fn schedule(&mut self, at: Instant) {
        self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
    }

    /// Fetched on this connection, and no fetch due or running.
    fn is_fresh(&self) -> bool {
        self.fetched && !self.running && self.due_at.is_none()
    }

    /// When the next fetch should start; `None` while one runs.
    fn starts_at(&self) -> Option<Instant> {
        self.due_at.filter(|_| !self.running)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use FetchOutcome::{Failed, Fetched, Refused};
    use ListKind::{Prompts, Resources, Tools};

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Connected, and the tools fetched at the returned moment.
    fn with_tools_fetched() -> (ListSchedule, Instant) {
        let mut lists = ListSchedule::new(&ListingSettings::default());
        let now = Instant::now();
        lists.connected(now, &[Tools]);
        assert_eq!(lists.poll(now), Some(Tools));
        lists.fetch_ended(now, Tools, Fetched);
        (lists, now)
    }

    #[test]
    fn a_new_connection_fetches_every_list_of_the_server_and_no_other() {
        let mut lists = ListSchedule::new(&ListingSettings::default());
        let now = Instant::now();
        assert!(!lists.is_fresh());
        lists.connected(now, &[Resources, Tools]);
        assert_eq!(lists.next_deadline(), Some(now));
        assert_eq!(lists.poll(now), Some(Tools));
        assert_eq!(lists.poll(now), None, "the tools are fetched first, alone");
        assert_eq!(lists.next_deadline(), None);
        assert_eq!(lists.is_list_fresh(Tools), Some(false));
        lists.fetch_ended(now, Tools, Fetched);
        assert_eq!(lists.next_deadline(), Some(now));
        assert_eq!(lists.poll(now), Some(Resources));
        assert_eq!(lists.poll(now), None);
        assert!(!lists.is_fresh());
        assert_eq!(lists.is_list_fresh(Tools), Some(true));
        assert_eq!(lists.is_list_fresh(Resources), Some(false));
        assert_eq!(lists.is_list_fresh(Prompts), None);
        lists.fetch_ended(now, Resources, Fetched);
        assert!(lists.is_fresh());
        lists.changed(now, Prompts);
        assert!(lists.is_fresh());
        assert_eq!(lists.next_deadline(), None);
    }

    #[test]
    fn a_server_without_lists_is_fresh_when_connected() {
        let mut lists = ListSchedule::new(&ListingSettings::default());
        lists.connected(Instant::now(), &[]);
        assert!(lists.is_fresh());
        lists.disconnected();
        assert!(!lists.is_fresh());
    }

    #[test]
    fn a_burst_of_changes_leads_to_one_fetch_not_too_soon() {
        let (mut lists, begin) = with_tools_fetched();
        for at in 0..50 {
            lists.changed(begin + millis(at), Tools);
        }
        assert!(!lists.is_fresh());
        assert_eq!(lists.next_deadline(), Some(begin + millis(100)));
        assert_eq!(lists.poll(begin + millis(99)), None);
        assert_eq!(lists.poll(begin + millis(100)), Some(Tools));
        lists.fetch_ended(begin + millis(110), Tools, Fetched);
        assert!(lists.is_fresh());
    }

    #[test]
    fn a_change_long_after_the_last_fetch_is_fetched_at_once() {
        let (mut lists, begin) = with_tools_fetched();
        let later = begin + millis(5_000);
        lists.changed(later, Tools);
        assert_eq!(lists.poll(later), Some(Tools));
    }

    #[test]
    fn a_change_during_a_fetch_is_not_lost() {
        let (mut lists, begin) = with_tools_fetched();
        let second = begin + millis(1_000);
        lists.changed(second, Tools);
        assert_eq!(lists.poll(second), Some(Tools));
        lists.changed(second + millis(150), Tools);
        assert_eq!(lists.poll(second + millis(150)), None, "one at a time");
        assert_eq!(lists.next_deadline(), None);
        lists.fetch_ended(second + millis(200), Tools, Fetched);
        assert!(!lists.is_fresh());
        assert_eq!(lists.poll(second + millis(200)), Some(Tools));
    }

    #[test]
    fn a_failed_fetch_is_retried_with_growing_delays_until_it_succeeds() {
        let (mut lists, mut now) = with_tools_fetched();
        lists.changed(now, Tools);
        let mut waits = Vec::new();
        for outcome in [
            Failed, Refused, Failed, Failed, Failed, Failed, Failed, Failed,
        ] {
            now = lists.next_deadline().unwrap();
            assert_eq!(lists.poll(now), Some(Tools));
            lists.fetch_ended(now, Tools, outcome);
            waits.push((lists.next_deadline().unwrap() - now).as_secs());
            assert!(!lists.is_fresh());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        now = lists.next_deadline().unwrap();
        lists.poll(now);
        lists.fetch_ended(now, Tools, Fetched);
        assert!(lists.is_fresh());
        lists.changed(now, Tools);
        now = lists.next_deadline().unwrap();
        lists.poll(now);
        lists.fetch_ended(now, Tools, Failed);
        assert_eq!(lists.next_deadline(), Some(now + millis(1_000)));
    }

    #[test]
    fn a_change_brings_the_retry_of_a_failed_list_forward() {
        let (mut lists, begin) = with_tools_fetched();
        lists.changed(begin, Tools);
        let start = begin + millis(100);
        lists.poll(start);
        lists.fetch_ended(start, Tools, Failed);
        lists.changed(start + millis(1), Tools);
        assert_eq!(lists.next_deadline(), Some(start + millis(100)));
    }

    #[test]
    fn an_expired_list_is_fetched_when_it_is_used_and_not_too_soon() {
        let (mut lists, begin) = with_tools_fetched();
        lists.set_expiry(Tools, begin + millis(10));
        assert_eq!(lists.next_expiry(), Some(begin + millis(10)));
        lists.refresh_expired(begin + millis(9));
        assert!(lists.is_fresh(), "it has not expired");
        assert_eq!(lists.next_deadline(), None, "an unused list is not fetched");
        lists.refresh_expired(begin + millis(10));
        assert_eq!(lists.next_expiry(), None);
        assert_eq!(lists.next_deadline(), Some(begin + millis(100)));
        assert_eq!(lists.poll(begin + millis(100)), Some(Tools));
        lists.fetch_ended(begin + millis(100), Tools, Fetched);
        lists.refresh_expired(begin + secs_later(60));
        assert!(lists.is_fresh(), "the new fetch has no expiry");
    }

    fn secs_later(seconds: u64) -> Duration {
        millis(seconds * 1_000)
    }

    #[test]
    fn a_change_before_the_expiry_clears_it() {
        let (mut lists, begin) = with_tools_fetched();
        lists.set_expiry(Tools, begin + millis(500));
        lists.changed(begin + millis(200), Tools);
        assert_eq!(lists.poll(begin + millis(200)), Some(Tools));
        assert_eq!(lists.next_expiry(), None);
        lists.disconnected();
        lists.set_expiry(Tools, begin);
        assert_eq!(lists.next_expiry(), None);
    }

    #[test]
    fn a_lost_connection_clears_due_and_running_fetches() {
        let (mut lists, begin) = with_tools_fetched();
        let later = begin + millis(1_000);
        lists.changed(later, Tools);
        lists.poll(later);
        lists.disconnected();
        lists.changed(later, Tools);
        assert_eq!(lists.next_deadline(), None);
        assert_eq!(lists.poll(later), None);
        lists.connected(later, &[Tools]);
        lists.fetch_ended(later, Tools, Failed);
        assert_eq!(lists.poll(later), Some(Tools));
        lists.fetch_ended(later, Tools, Failed);
        assert_eq!(
            lists.next_deadline(),
            Some(later + millis(1_000)),
            "the failed fetch of the old connection does not count"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn after_the_last_change_there_is_always_one_more_whole_fetch(
            steps in prop::collection::vec((0_u64..120, 0_u64..4), 1..60),
        ) {
            let (mut lists, mut now) = with_tools_fetched();
            let mut last_start = now;
            let mut running = false;
            // Whether a fetch began after the last change, or one is due to.
            let mut seen = true;
            for (gap, step) in steps {
                now += millis(gap);
                match step {
                    0 => {
                        lists.changed(now, Tools);
                        seen = false;
                    }
                    1 if running => {
                        lists.fetch_ended(now, Tools, Fetched);
                        running = false;
                    }
                    2 if running => {
                        lists.fetch_ended(now, Tools, Failed);
                        running = false;
                        seen = false;
                    }
                    _ => {
                        if lists.poll(now).is_some() {
                            prop_assert!(!running, "two fetches of one list");
                            prop_assert!(now - last_start >= millis(100));
                            (last_start, running, seen) = (now, true, true);
                        }
                    }
                }
                prop_assert_eq!(lists.is_fresh(), seen && !running);
                if !seen && !running {
                    prop_assert!(lists.next_deadline().is_some(), "a change was lost");
                }
            }
        }
    }
}
