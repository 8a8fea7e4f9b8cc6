//! The limit of open calls of a server, checked before a call reaches the machine.
//!
//! It keeps mailboxes small. It is fair: beyond the limit a client may still open calls while it has less
//! than its share, and the machine evicts calls of other clients from the queue for it. It also estimates
//! how long a refused client should wait, from the pace at which calls end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ids::ClientId;
use crate::settings::AdmissionSettings;

/// The open calls of each client: in flight, queued, or on their way to the machine.
#[derive(Debug, Clone, Default)]
pub struct OpenCalls {
    limit: usize,
    in_flight: usize,
    open: usize,
    clients: BTreeMap<ClientId, usize>,
    pace: Pace,
}

/// How fast queued calls leave.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// When a call last left while others were queued.
    last: Option<Instant>,
    /// The moving average of the time between two calls that leave.
    mean: Option<Duration>,
}

impl Pace {
    fn note(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let sample = now.saturating_duration_since(last);
            self.mean = Some(match self.mean {
                Some(mean) => mean.saturating_mul(7).saturating_add(sample) / 8,
                None => sample,
            });
        }
    }
}

impl OpenCalls {
    /// No open calls.
    pub fn new(settings: &AdmissionSettings) -> Self {
        let mut calls = Self::default();
        calls.reconfigure(settings);
        calls
    }

    /// Changes the limit. Open calls stay.
    pub fn reconfigure(&mut self, settings: &AdmissionSettings) {
        self.in_flight = settings.in_flight;
        self.limit = settings.in_flight.saturating_add(settings.waiting);
    }

    /// Opens a call of a client. Returns false if all clients together have reached the limit and this one
    /// has its share. With n clients at most limit × (1 + 1/2 + … + 1/n) calls are open.
    pub fn enter(&mut self, client: ClientId) -> bool {
        let own = self.clients.get(&client).copied().unwrap_or_default();
        let active = self.clients.len() + usize::from(own == 0);
        if self.open >= self.limit && own.saturating_mul(active) >= self.limit {
            return false;
        }
        self.open += 1;
        *self.clients.entry(client).or_default() += 1;
        true
    }

    /// A call of a client ended. The clock is read only while calls are queued.
    pub fn leave(&mut self, client: ClientId, now: impl FnOnce() -> Instant) {
        let Some(own) = self.clients.get_mut(&client) else {
            return;
        };
        *own -= 1;
        if *own == 0 {
            self.clients.remove(&client);
        }
        if self.open > self.in_flight {
            self.pace.note(now());
        } else {
            self.pace.last = None;
        }
        self.open -= 1;
    }

    /// The time until a call of this client is likely to leave, so that another one can enter: the active
    /// clients take turns. `None` if no pace is known.
    pub fn expected_wait(&self, client: ClientId) -> Option<Duration> {
        let active = self.clients.len() + usize::from(!self.clients.contains_key(&client));
        let turns = u32::try_from(active).unwrap_or(u32::MAX);
        Some(self.pace.mean?.saturating_mul(turns))
    }

    /// The number of open calls.
    pub fn open(&self) -> usize {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn calls(limit: usize) -> OpenCalls {
        OpenCalls::new(&AdmissionSettings {
            in_flight: 1,
            waiting: limit - 1,
        })
    }

    #[test]
    fn a_single_client_may_use_the_whole_limit() {
        let mut open = calls(3);
        assert!((0..3).all(|_| open.enter(A)));
        assert!(!open.enter(A));
        open.leave(A, Instant::now);
        assert!(open.enter(A));
    }

    #[test]
    fn a_client_within_its_share_is_admitted_beyond_the_limit() {
        let mut open = calls(4);
        assert!((0..4).all(|_| open.enter(A)));
        assert!(open.enter(B) && open.enter(B));
        assert!(!open.enter(B), "that is its share");
        assert!(!open.enter(A));
        assert_eq!(open.open(), 6);
    }

    #[test]
    fn the_expected_wait_is_the_pace_of_the_queue_times_the_active_clients() {
        let start = Instant::now();
        let mut open = calls(100);
        assert!((0..50).all(|_| open.enter(A) && open.enter(B)));
        assert_eq!(open.expected_wait(A), None);
        for second in 0..10 {
            open.leave(A, || start + Duration::from_secs(second));
        }
        assert_eq!(open.expected_wait(A), Some(Duration::from_secs(2)));
        assert_eq!(
            open.expected_wait(ClientId(3)),
            Some(Duration::from_secs(3))
        );
        // The pause without a queue is no sample.
        (0..40).for_each(|_| open.leave(A, || start + Duration::from_secs(10)));
        (0..50).for_each(|_| open.leave(B, || start + Duration::from_secs(10)));
        assert!((0..50).all(|_| open.enter(A)));
        open.leave(A, || start + Duration::from_secs(9_000));
        assert!(
            open.expected_wait(A)
                .is_some_and(|wait| wait < Duration::from_secs(2))
        );
    }

    proptest! {
        #[test]
        fn no_client_below_its_share_is_refused_and_the_total_is_bounded(
            steps in prop::collection::vec((0_u32..6, any::<bool>()), 1..200),
        ) {
            let mut open = calls(12);
            for (client, enters) in steps {
                let client = ClientId(client);
                let own = open.clients.get(&client).copied().unwrap_or_default();
                let active = open.clients.len() + usize::from(own == 0);
                if !enters {
                    open.leave(client, Instant::now);
                } else if !open.enter(client) {
                    prop_assert!(own * active >= 12, "{own} of {active} clients");
                }
                // 12 × (1 + 1/2 + … + 1/6), each share rounded up.
                prop_assert!(open.open() <= 30 + 6);
            }
        }
    }
}
