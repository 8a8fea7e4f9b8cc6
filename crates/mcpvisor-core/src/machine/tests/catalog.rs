//! What of the catalog the machine decides: when it is fresh, and what is fetched (K2, K3, K4, K7).

use super::bench::*;
use crate::discovery::{FetchOutcome, ListKind};
use crate::machine::{Effect, Input, StateName};
use crate::settings::ServerSettings;

const TOOLS: ListKind = ListKind::Tools;
const PROMPTS: ListKind = ListKind::Prompts;

fn connected() -> Bench {
    Bench::connected_with(ServerSettings::default(), &[TOOLS, PROMPTS])
}

#[test]
fn every_connection_restores_what_was_set_and_fetches_every_list() {
    let mut bench = connected();
    bench.lose(1, &[]);
    bench.tick();
    bench.step(Input::PermitGranted);
    assert_eq!(
        bench.step(up_with(2, &[TOOLS, PROMPTS])),
        [
            Effect::Remember,
            Effect::ReturnPermit,
            Effect::Restore {
                generation: generation(2)
            },
            fetch(2, TOOLS),
            fetch(2, PROMPTS),
            changed(StateName::Reconnecting, StateName::Connected),
        ]
    );
}

#[test]
fn a_catalog_is_fresh_from_the_last_fetch_to_the_next_loss() {
    let mut bench = connected();
    bench.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    assert!(!bench.machine.is_fresh());
    bench.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    assert!(bench.machine.is_fresh());
    bench.step(lost(1, &[]));
    assert!(!bench.machine.is_fresh(), "kept by others, and stale");
    assert!(bench.name().publishes());
}

#[test]
fn a_failed_refresh_leaves_the_catalog_stale_and_is_tried_again() {
    let mut bench = connected();
    bench.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    for outcome in [FetchOutcome::Failed, FetchOutcome::Refused] {
        assert_eq!(bench.step(fetched(1, TOOLS, outcome)), []);
        assert!(!bench.machine.is_fresh());
        assert_eq!(bench.tick(), [fetch(1, TOOLS)]);
    }
    bench.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    assert!(bench.machine.is_fresh());
}

#[test]
fn a_burst_of_changes_is_one_refresh_and_none_is_lost() {
    let mut bench = connected();
    bench.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    bench.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    bench.now += millis(50);
    for _ in 0..20 {
        assert_eq!(bench.step(list_changed(1, TOOLS)), []);
    }
    assert!(!bench.machine.is_fresh());
    assert_eq!(bench.pass(millis(50)), [fetch(1, TOOLS)]);
    bench.now += millis(200);
    assert_eq!(bench.step(list_changed(1, TOOLS)), [], "one at a time");
    assert_eq!(
        bench.step(fetched(1, TOOLS, FetchOutcome::Fetched)),
        [fetch(1, TOOLS)],
        "what changed during a fetch is fetched again"
    );
}

#[test]
fn a_list_that_changes_after_the_loss_fetches_nothing() {
    let mut bench = connected();
    bench.step(lost(1, &[]));
    assert_eq!(bench.step(list_changed(1, TOOLS)), []);
    assert_eq!(bench.step(fetched(1, TOOLS, FetchOutcome::Fetched)), []);
    assert!(!bench.machine.is_fresh());
    assert_eq!(bench.machine.dropped_late(), 2);
}

#[test]
fn a_state_that_cannot_serve_publishes_nothing() {
    let publishing: Vec<_> = StateName::ALL
        .into_iter()
        .filter(|name| name.publishes())
        .collect();
    assert_eq!(
        publishing,
        [
            StateName::Connecting,
            StateName::Connected,
            StateName::Reconnecting,
            StateName::Disconnected,
            StateName::Sleeping,
        ]
    );
}
