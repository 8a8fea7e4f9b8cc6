//! The limit of open calls of a server, checked before a call reaches the machine.
//!
//! It keeps mailboxes small. It is fair: beyond the limit a client may still open calls while it has less
//! than its share, and the machine evicts calls of other clients from the queue for it.

use std::collections::BTreeMap;

use crate::ids::ClientId;
use crate::settings::AdmissionSettings;

/// The open calls of each client: in flight, queued, or on their way to the machine.
#[derive(Debug, Clone, Default)]
pub struct OpenCalls {
    limit: usize,
    open: usize,
    clients: BTreeMap<ClientId, usize>,
}

impl OpenCalls {
    /// No open calls.
    pub fn new(settings: &AdmissionSettings) -> Self {
        Self {
            limit: settings.in_flight.saturating_add(settings.waiting),
            ..Self::default()
        }
    }

    /// Changes the limit. Open calls stay.
    pub fn reconfigure(&mut self, settings: &AdmissionSettings) {
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

    /// A call of a client ended.
    pub fn leave(&mut self, client: ClientId) {
        let Some(own) = self.clients.get_mut(&client) else {
            return;
        };
        *own -= 1;
        if *own == 0 {
            self.clients.remove(&client);
        }
        self.open -= 1;
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
        open.leave(A);
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
                    open.leave(client);
                } else if !open.enter(client) {
                    prop_assert!(own * active >= 12, "{own} of {active} clients");
                }
                // 12 × (1 + 1/2 + … + 1/6), each share rounded up.
                prop_assert!(open.open() <= 30 + 6);
            }
        }
    }
}
