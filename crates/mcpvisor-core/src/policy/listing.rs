//! Which lists of a server need fetching, and when.
//!
//! Bursts of changes are coalesced and none is lost: a change during a fetch leads to another one.
//! On a new connection the tools come first, alone: calls may wait for them, and nobody for the rest.
//! Fetching and publishing is left to others, as is dropping what an older generation reports.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::policy::backoff::{Backoff, LONGEST_DELAY};
use crate::random::Random;
use crate::settings::{BackoffSettings, ListingSettings};

/// One of the lists that a server may have. Another one would be a breaking change, so that whoever
/// matches on it notices.
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

/// What is wanted of each list of the current connection.
#[derive(Debug, Clone)]
pub struct ListSchedule {
    refresh_every: Duration,
    retry: Backoff,
    /// The lists that the connected server has; none while disconnected.
    lists: Option<BTreeMap<ListKind, List>>,
    /// The tools have not been asked for on this connection, or not answered; the rest waits.
    tools_first: bool,
    /// When the first of them is no longer good.
    next_expiry: Option<Instant>,
}

/// The state of one list. A list may be wanted while a fetch of it runs.
#[derive(Debug, Clone)]
struct List {
    wanted_at: Option<Instant>,
    running: bool,
    last_start: Option<Instant>,
    /// Whether it was ever fetched on this connection.
    fetched: bool,
    /// When it is no longer good, if its server said so.
    expires_at: Option<Instant>,
    retry: Backoff,
}

impl ListSchedule {
    /// Disconnected: nothing is wanted.
    pub fn new(settings: &ListingSettings) -> Self {
        Self {
            refresh_every: settings.refresh_every.min(LONGEST_DELAY),
            retry: retry_curve(settings),
            lists: None,
            tools_first: false,
            next_expiry: None,
        }
    }

    /// Takes other settings; what is wanted and runs stays so.
    pub fn reconfigure(&mut self, settings: &ListingSettings) {
        self.refresh_every = settings.refresh_every.min(LONGEST_DELAY);
        self.retry = retry_curve(settings);
    }

    /// A new connection, of a server that has these lists: all are wanted now, and fetches that
    /// still run on an older connection are forgotten.
    pub fn connected(&mut self, now: Instant, lists: &[ListKind]) {
        let wanted = |kind: &ListKind| {
            let list = List {
                wanted_at: Some(now),
                running: false,
                last_start: None,
                fetched: false,
                expires_at: None,
                retry: self.retry.clone(),
            };
            (*kind, list)
        };
        self.lists = Some(lists.iter().map(wanted).collect());
        self.tools_first = lists.contains(&ListKind::Tools);
        self.next_expiry = None;
    }

    /// The connection is gone, and what was wanted or ran with it.
    pub fn disconnected(&mut self) {
        self.lists = None;
        self.next_expiry = None;
    }

    /// The server says that a list changed. Ignored while disconnected, and for a list that the
    /// server does not have.
    pub fn changed(&mut self, now: Instant, kind: ListKind) {
        let refresh_every = self.refresh_every;
        if let Some(list) = self.list(kind) {
            let earliest = match list.last_start {
                Some(last) => now.max(last + refresh_every),
                None => now,
            };
            list.want(earliest);
        }
    }

    /// A list that was just fetched is good until then.
    pub fn expires(&mut self, kind: ListKind, at: Instant) {
        if let Some(list) = self.list(kind) {
            list.expires_at = Some(at);
        }
        self.find_next_expiry();
    }

    /// When the first list is no longer good.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    /// Somebody uses the lists: those that are no longer good are wanted, but no sooner than any
    /// other refresh. A list that nobody uses is not fetched, however short its time is.
    pub fn used(&mut self, now: Instant) {
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

    /// A fetch ended. What did not succeed is wanted again, later each time.
    pub fn ended(&mut self, now: Instant, kind: ListKind, outcome: FetchOutcome) {
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
                list.want(now + delay);
            }
        }
        if kind == ListKind::Tools {
            self.tools_first = false;
        }
    }

    /// The next list whose fetch should start now; it runs from then on until it
    /// [`ended`](Self::ended).
    pub fn poll(&mut self, now: Instant) -> Option<ListKind> {
        let tools_first = self.tools_first;
        let (kind, list) = self.lists.as_mut()?.iter_mut().find(|(kind, list)| {
            let waits = tools_first && **kind != ListKind::Tools;
            !waits && list.due_at().is_some_and(|at| at <= now)
        })?;
        let kind = *kind;
        list.wanted_at = None;
        list.running = true;
        list.last_start = Some(now);
        if list.expires_at.take().is_some() {
            self.find_next_expiry();
        }
        Some(kind)
    }

    /// When [`poll`](Self::poll) has the next list, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let lists = self.lists.as_ref()?;
        match lists.get(&ListKind::Tools) {
            Some(tools) if self.tools_first => tools.due_at(),
            _ => lists.values().filter_map(List::due_at).min(),
        }
    }

    /// Whether every list was fetched on this connection, and none is wanted or running.
    pub fn is_fresh(&self) -> bool {
        self.lists
            .as_ref()
            .is_some_and(|lists| lists.values().all(List::is_fresh))
    }

    /// Whether one list was fetched on this connection, and is neither wanted nor running; nothing if
    /// the server has no such list, or is disconnected.
    pub fn is_list_fresh(&self, kind: ListKind) -> Option<bool> {
        let list = self.lists.as_ref()?.get(&kind)?;
        Some(list.is_fresh())
    }

    /// Whether a list was fetched on this connection; nothing if the server has no such list.
    pub fn was_fetched(&self, kind: ListKind) -> Option<bool> {
        let list = self.lists.as_ref()?.get(&kind)?;
        Some(list.fetched)
    }

    fn list(&mut self, kind: ListKind) -> Option<&mut List> {
        self.lists.as_mut()?.get_mut(&kind)
    }
}

fn retry_curve(settings: &ListingSettings) -> Backoff {
    Backoff::new(&BackoffSettings {
        initial: settings.refresh_retry,
        multiplier: 2.0,
        max: settings.max_refresh_retry,
        jitter: 0.0,
        ..BackoffSettings::default()
    })
}

impl List {
    /// Wanted at this moment, or sooner if it was before.
    fn want(&mut self, at: Instant) {
        self.wanted_at = Some(self.wanted_at.map_or(at, |wanted| wanted.min(at)));
    }

    /// Fetched on this connection, and neither wanted nor running.
    fn is_fresh(&self) -> bool {
        self.fetched && !self.running && self.wanted_at.is_none()
    }

    /// When a fetch should start; none while one runs.
    fn due_at(&self) -> Option<Instant> {
        self.wanted_at.filter(|_| !self.running)
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
        let mut discovery = ListSchedule::new(&ListingSettings::default());
        let now = Instant::now();
        discovery.connected(now, &[Tools]);
        assert_eq!(discovery.poll(now), Some(Tools));
        discovery.ended(now, Tools, Fetched);
        (discovery, now)
    }

    #[test]
    fn a_new_connection_wants_every_list_that_the_server_has_and_no_other() {
        let mut discovery = ListSchedule::new(&ListingSettings::default());
        let now = Instant::now();
        assert!(!discovery.is_fresh());
        discovery.connected(now, &[Resources, Tools]);
        assert_eq!(discovery.next_deadline(), Some(now));
        assert_eq!(discovery.poll(now), Some(Tools));
        assert_eq!(discovery.poll(now), None, "the tools come first, alone");
        assert_eq!(discovery.next_deadline(), None);
        assert_eq!(discovery.is_list_fresh(Tools), Some(false));
        discovery.ended(now, Tools, Fetched);
        assert_eq!(discovery.next_deadline(), Some(now));
        assert_eq!(discovery.poll(now), Some(Resources));
        assert_eq!(discovery.poll(now), None);
        assert!(!discovery.is_fresh());
        assert_eq!(discovery.is_list_fresh(Tools), Some(true));
        assert_eq!(discovery.is_list_fresh(Resources), Some(false));
        assert_eq!(discovery.is_list_fresh(Prompts), None);
        discovery.ended(now, Resources, Fetched);
        assert!(discovery.is_fresh());
        discovery.changed(now, Prompts);
        assert!(discovery.is_fresh());
        assert_eq!(discovery.next_deadline(), None);
    }

    #[test]
    fn a_server_without_lists_is_fresh_when_connected() {
        let mut discovery = ListSchedule::new(&ListingSettings::default());
        discovery.connected(Instant::now(), &[]);
        assert!(discovery.is_fresh());
        discovery.disconnected();
        assert!(!discovery.is_fresh());
    }

    #[test]
    fn a_burst_of_changes_leads_to_one_fetch_not_too_soon() {
        let (mut discovery, begin) = with_tools_fetched();
        for at in 0..50 {
            discovery.changed(begin + millis(at), Tools);
        }
        assert!(!discovery.is_fresh());
        assert_eq!(discovery.next_deadline(), Some(begin + millis(100)));
        assert_eq!(discovery.poll(begin + millis(99)), None);
        assert_eq!(discovery.poll(begin + millis(100)), Some(Tools));
        discovery.ended(begin + millis(110), Tools, Fetched);
        assert!(discovery.is_fresh());
    }

    #[test]
    fn a_change_long_after_the_last_fetch_is_fetched_at_once() {
        let (mut discovery, begin) = with_tools_fetched();
        let later = begin + millis(5_000);
        discovery.changed(later, Tools);
        assert_eq!(discovery.poll(later), Some(Tools));
    }

    #[test]
    fn a_change_during_a_fetch_is_not_lost() {
        let (mut discovery, begin) = with_tools_fetched();
        let second = begin + millis(1_000);
        discovery.changed(second, Tools);
        assert_eq!(discovery.poll(second), Some(Tools));
        discovery.changed(second + millis(150), Tools);
        assert_eq!(discovery.poll(second + millis(150)), None, "one at a time");
        assert_eq!(discovery.next_deadline(), None);
        discovery.ended(second + millis(200), Tools, Fetched);
        assert!(!discovery.is_fresh());
        assert_eq!(discovery.poll(second + millis(200)), Some(Tools));
    }

    #[test]
    fn what_fails_is_tried_again_later_each_time_until_it_succeeds() {
        let (mut discovery, mut now) = with_tools_fetched();
        discovery.changed(now, Tools);
        let mut waits = Vec::new();
        for outcome in [
            Failed, Refused, Failed, Failed, Failed, Failed, Failed, Failed,
        ] {
            now = discovery.next_deadline().unwrap();
            assert_eq!(discovery.poll(now), Some(Tools));
            discovery.ended(now, Tools, outcome);
            waits.push((discovery.next_deadline().unwrap() - now).as_secs());
            assert!(!discovery.is_fresh());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        now = discovery.next_deadline().unwrap();
        discovery.poll(now);
        discovery.ended(now, Tools, Fetched);
        assert!(discovery.is_fresh());
        discovery.changed(now, Tools);
        now = discovery.next_deadline().unwrap();
        discovery.poll(now);
        discovery.ended(now, Tools, Failed);
        assert_eq!(discovery.next_deadline(), Some(now + millis(1_000)));
    }

    #[test]
    fn a_change_hurries_the_next_try_of_a_failed_list() {
        let (mut discovery, begin) = with_tools_fetched();
        discovery.changed(begin, Tools);
        let start = begin + millis(100);
        discovery.poll(start);
        discovery.ended(start, Tools, Failed);
        discovery.changed(start + millis(1), Tools);
        assert_eq!(discovery.next_deadline(), Some(start + millis(100)));
    }

    #[test]
    fn an_expired_list_is_fetched_when_it_is_used_and_not_too_soon() {
        let (mut discovery, begin) = with_tools_fetched();
        discovery.expires(Tools, begin + millis(10));
        assert_eq!(discovery.next_expiry(), Some(begin + millis(10)));
        discovery.used(begin + millis(9));
        assert!(discovery.is_fresh(), "it is still good");
        assert_eq!(discovery.next_deadline(), None, "nobody is waiting for it");
        discovery.used(begin + millis(10));
        assert_eq!(discovery.next_expiry(), None);
        assert_eq!(discovery.next_deadline(), Some(begin + millis(100)));
        assert_eq!(discovery.poll(begin + millis(100)), Some(Tools));
        discovery.ended(begin + millis(100), Tools, Fetched);
        discovery.used(begin + secs_later(60));
        assert!(
            discovery.is_fresh(),
            "nothing is known of its time any more"
        );
    }

    fn secs_later(seconds: u64) -> Duration {
        millis(seconds * 1_000)
    }

    #[test]
    fn a_change_before_the_time_is_up_makes_it_void() {
        let (mut discovery, begin) = with_tools_fetched();
        discovery.expires(Tools, begin + millis(500));
        discovery.changed(begin + millis(200), Tools);
        assert_eq!(discovery.poll(begin + millis(200)), Some(Tools));
        assert_eq!(discovery.next_expiry(), None);
        discovery.disconnected();
        discovery.expires(Tools, begin);
        assert_eq!(discovery.next_expiry(), None);
    }

    #[test]
    fn a_lost_connection_forgets_what_was_wanted_and_what_ran() {
        let (mut discovery, begin) = with_tools_fetched();
        let later = begin + millis(1_000);
        discovery.changed(later, Tools);
        discovery.poll(later);
        discovery.disconnected();
        discovery.changed(later, Tools);
        assert_eq!(discovery.next_deadline(), None);
        assert_eq!(discovery.poll(later), None);
        discovery.connected(later, &[Tools]);
        discovery.ended(later, Tools, Failed);
        assert_eq!(discovery.poll(later), Some(Tools));
        discovery.ended(later, Tools, Failed);
        assert_eq!(
            discovery.next_deadline(),
            Some(later + millis(1_000)),
            "the failure of the old connection's fetch does not count"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn after_the_last_change_there_is_always_one_more_whole_fetch(
            steps in prop::collection::vec((0_u64..120, 0_u64..4), 1..60),
        ) {
            let (mut discovery, mut now) = with_tools_fetched();
            let mut last_start = now;
            let mut running = false;
            // Whether a fetch began after the last change, or one is due to.
            let mut seen = true;
            for (gap, step) in steps {
                now += millis(gap);
                match step {
                    0 => {
                        discovery.changed(now, Tools);
                        seen = false;
                    }
                    1 if running => {
                        discovery.ended(now, Tools, Fetched);
                        running = false;
                    }
                    2 if running => {
                        discovery.ended(now, Tools, Failed);
                        running = false;
                        seen = false;
                    }
                    _ => {
                        if discovery.poll(now).is_some() {
                            prop_assert!(!running, "two fetches of one list");
                            prop_assert!(now - last_start >= millis(100));
                            (last_start, running, seen) = (now, true, true);
                        }
                    }
                }
                prop_assert_eq!(discovery.is_fresh(), seen && !running);
                if !seen && !running {
                    prop_assert!(discovery.next_deadline().is_some(), "a change was lost");
                }
            }
        }
    }
}
