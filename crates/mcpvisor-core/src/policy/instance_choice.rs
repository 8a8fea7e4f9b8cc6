//! Which instance of a pool gets a call: the least loaded one that can send it soonest.

use crate::machine::StateName;

/// The largest number of instances of one server.
pub const MAX_INSTANCES: usize = 64;

/// An instance that may get a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its state.
    pub state: StateName,
    /// Its open calls, in flight and queued.
    pub load: usize,
}

/// How soon an instance can send a call. A worse instance gets calls only if there is no better one,
/// whatever its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It is connected, or connects for this call.
    Available,
    /// It connects for the first time, which may take long.
    Starting,
    /// It lost its connection.
    Recovering,
    /// Its reconnect budget is spent.
    Parked,
    /// It rejects calls.
    Refusing,
}

impl From<StateName> for Standing {
    fn from(state: StateName) -> Self {
        match state {
            StateName::Connected | StateName::Sleeping => Self::Available,
            StateName::Connecting => Self::Starting,
            StateName::Reconnecting => Self::Recovering,
            StateName::Disconnected => Self::Parked,
            StateName::Disabling | StateName::Disabled | StateName::PermanentlyFailed => {
                Self::Refusing
            }
        }
    }
}

/// The candidates in the order of preference, as indices: the least loaded first, and of equally loaded
/// ones a connected one before one that has to be woken. `turn` rotates the rest, so that equal
/// instances take turns. The preferred one comes first unless it lost its connection or rejects calls while
/// another one does not.
pub fn order(candidates: &[Candidate], preferred: Option<usize>, turn: usize) -> Vec<usize> {
    let count = candidates.len();
    let standing = |index: usize| Standing::from(candidates[index].state);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|index| {
        let candidate = &candidates[*index];
        let is_asleep = candidate.state == StateName::Sleeping;
        let rotated = (index + count - turn % count) % count;
        (standing(*index), candidate.load, is_asleep, rotated)
    });
    let keeps = |index: &usize| {
        let best = order.first().map(|best| standing(*best));
        standing(*index) <= Standing::Starting || best == Some(standing(*index))
    };
    if let Some(preferred) = preferred.filter(|it| *it < count).filter(keeps) {
        order.retain(|index| *index != preferred);
        order.insert(0, preferred);
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use StateName::{
        Connected, Connecting, Disabled, Disconnected, PermanentlyFailed, Reconnecting, Sleeping,
    };

    fn pool(instances: &[(StateName, usize)]) -> Vec<Candidate> {
        let candidate = |(state, load): &(StateName, usize)| Candidate {
            state: *state,
            load: *load,
        };
        instances.iter().map(candidate).collect()
    }

    fn first(instances: &[(StateName, usize)], preferred: Option<usize>, turn: usize) -> usize {
        order(&pool(instances), preferred, turn)[0]
    }

    #[test]
    fn the_least_loaded_instance_is_first() {
        let instances = [(Connected, 3), (Connected, 1), (Connected, 2)];
        assert_eq!(order(&pool(&instances), None, 0), [1, 2, 0]);
    }

    #[test]
    fn equally_loaded_instances_take_turns() {
        let instances = [
            (Connected, 1),
            (Connected, 0),
            (Connected, 0),
            (Connected, 0),
        ];
        let firsts: Vec<usize> = (0..8).map(|turn| first(&instances, None, turn)).collect();
        assert_eq!(firsts, [1, 1, 2, 3, 1, 1, 2, 3]);
        let equal = [(Connected, 5); 4];
        let firsts: Vec<usize> = (0..5).map(|turn| first(&equal, None, turn)).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 0]);
    }

    #[test]
    fn an_instance_without_a_connection_is_skipped_while_another_is_connected() {
        for state in [
            Connecting,
            Reconnecting,
            Disconnected,
            Disabled,
            PermanentlyFailed,
        ] {
            let instances = [(state, 0), (Connected, 50)];
            assert_eq!(first(&instances, None, 0), 1, "{state}");
            assert_eq!(first(&[(state, 0)], None, 7), 0, "{state}: the only one");
        }
        let none_connected = [(Disabled, 0), (Disconnected, 0), (Reconnecting, 9)];
        assert_eq!(order(&pool(&none_connected), None, 0), [2, 1, 0]);
    }

    #[test]
    fn a_sleeping_instance_is_woken_only_if_the_others_have_calls() {
        assert_eq!(first(&[(Sleeping, 0), (Connected, 0)], None, 0), 1);
        assert_eq!(first(&[(Sleeping, 0), (Connected, 1)], None, 0), 0);
    }

    #[test]
    fn a_preferred_instance_is_kept_until_it_is_unavailable() {
        let instances = |state| [(Connected, 0), (state, 9)];
        for state in [Connected, Sleeping, Connecting] {
            assert_eq!(first(&instances(state), Some(1), 0), 1, "{state}");
        }
        for state in [Reconnecting, Disconnected, Disabled] {
            assert_eq!(first(&instances(state), Some(1), 0), 0, "{state}");
        }
        let all_lost = [(Reconnecting, 0), (Reconnecting, 9)];
        assert_eq!(first(&all_lost, Some(1), 0), 1, "another is no better");
        assert_eq!(first(&all_lost, Some(7), 0), 0, "it no longer exists");
    }

    fn any_state() -> impl Strategy<Value = StateName> {
        prop::sample::select(StateName::ALL)
    }

    proptest! {
        /// Every instance is in the order once, and no call goes to a more loaded instance of the same
        /// standing.
        #[test]
        fn an_order_is_a_permutation_by_standing_and_load(
            instances in prop::collection::vec((any_state(), 0_usize..4), 1..MAX_INSTANCES),
            turn in any::<usize>(),
        ) {
            let candidates = pool(&instances);
            let order = order(&candidates, None, turn);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..candidates.len()).collect::<Vec<_>>());
            let key = |index: &usize| (Standing::from(candidates[*index].state), candidates[*index].load);
            prop_assert!(order.is_sorted_by_key(key));
        }
    }
}
