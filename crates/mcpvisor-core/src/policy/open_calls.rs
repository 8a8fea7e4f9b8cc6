//! How many calls of a server may be open at once, before the machine sees them.
//!
//! The bound keeps mailboxes small. It is fair: beyond it a client may still enter while it has less
//! than its share, and the machine makes room for it in the line.

use std::collections::BTreeMap;

use crate::ids::ClientId;
use crate::settings::AdmissionSettings;

/// The open calls of each client: those that run, wait, or are on their way to the machine.
#[derive(Debug, Clone)]
pub struct OpenCalls {
    limit: usize,
    open: usize,
    clients: BTreeMap<ClientId, usize>,
}

impl OpenCalls {
    /// None are open.
    pub fn new(settings: &AdmissionSettings) -> Self {
        Self {
            limit: settings.in_flight.saturating_add(settings.waiting),
            open: 0,
            clients: BTreeMap::new(),
        }
    }

    /// Takes another bound. Calls that are open stay.
    pub fn reconfigure(&mut self, settings: &AdmissionSettings) {
        self.limit = settings.in_flight.saturating_add(settings.waiting);
    }

    /// A client opens a call, unless there are too many: of all clients together, and more of this one
    /// than its share. With n clients at most limit × (1 + 1/2 + … + 1/n) are open.
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

    /// The calls that are open.
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
    fn a_client_alone_has_all_the_room_and_no_more() {
        let mut open = calls(3);
        assert!((0..3).all(|_| open.enter(A)));
        assert!(!open.enter(A));
        open.leave(A);
        assert!(open.enter(A));
    }

    #[test]
    fn a_client_within_its_share_enters_though_another_has_all_the_room() {
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
