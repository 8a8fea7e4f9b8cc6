//! When lists are fetched, and when the catalog is fresh (K2, K3, K4, K7).

use super::harness::*;
use crate::machine::{Effect, Input, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::settings::ServerSettings;

const TOOLS: ListKind = ListKind::Tools;
const PROMPTS: ListKind = ListKind::Prompts;

fn connected() -> Harness {
    Harness::connected_with(ServerSettings::default(), &[TOOLS, PROMPTS])
}

#[test]
fn every_connection_restores_subscriptions_and_fetches_every_list() {
    let mut harness = connected();
    harness.lose(1, &[]);
    harness.tick();
    harness.step(Input::PermitGranted);
    assert_eq!(
        harness.step(up_with(2, &[TOOLS, PROMPTS])),
        [
            Effect::SaveDurable,
            Effect::ReleasePermit,
            Effect::Restore {
                generation: generation(2)
            },
            fetch(2, TOOLS),
            changed(StateName::Reconnecting, StateName::Connected),
        ]
    );
    assert_eq!(
        harness.step(fetched(2, TOOLS, FetchOutcome::Refused)),
        [fetch(2, PROMPTS)],
        "the other lists follow the tools, fetched or not"
    );
}

#[test]
fn a_catalog_is_fresh_from_the_last_fetch_to_the_next_loss() {
    let mut harness = connected();
    harness.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    assert!(!harness.machine.is_fresh());
    harness.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    assert!(harness.machine.is_fresh());
    harness.step(lost(1, &[]));
    assert!(!harness.machine.is_fresh(), "the catalog is stale");
    assert!(harness.name().publishes());
}

#[test]
fn a_failed_refresh_leaves_the_catalog_stale_and_is_retried() {
    let mut harness = connected();
    harness.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    harness.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    harness.pass(millis(200));
    harness.step(list_changed(1, TOOLS));
    for outcome in [FetchOutcome::Failed, FetchOutcome::Refused] {
        assert_eq!(harness.step(fetched(1, TOOLS, outcome)), []);
        assert!(!harness.machine.is_fresh());
        assert_eq!(harness.tick(), [fetch(1, TOOLS)]);
    }
    harness.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    assert!(harness.machine.is_fresh());
}

#[test]
fn a_burst_of_changes_causes_one_refresh_and_none_is_lost() {
    let mut harness = connected();
    harness.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    harness.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    harness.now += millis(50);
    for _ in 0..20 {
        assert_eq!(harness.step(list_changed(1, TOOLS)), []);
    }
    assert!(!harness.machine.is_fresh());
    assert_eq!(harness.pass(millis(50)), [fetch(1, TOOLS)]);
    harness.now += millis(200);
    assert_eq!(harness.step(list_changed(1, TOOLS)), [], "one at a time");
    assert_eq!(
        harness.step(fetched(1, TOOLS, FetchOutcome::Fetched)),
        [fetch(1, TOOLS)],
        "a change during a fetch causes another fetch"
    );
}

#[test]
fn a_list_that_changes_after_the_loss_fetches_nothing() {
    let mut harness = connected();
    harness.step(lost(1, &[]));
    assert_eq!(harness.step(list_changed(1, TOOLS)), []);
    assert_eq!(harness.step(fetched(1, TOOLS, FetchOutcome::Fetched)), []);
    assert!(!harness.machine.is_fresh());
    assert_eq!(harness.machine.dropped_late(), 2);
}

#[test]
fn a_state_that_cannot_serve_publishes_nothing() {
    let publishing: Vec<_> = StateName::ALL
        .iter()
        .copied()
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

#[test]
fn an_expired_list_is_fetched_again_when_it_is_used() {
    let fetches = |effects: &[Effect]| {
        let fetch = |effect: &&Effect| matches!(effect, Effect::FetchList { .. });
        effects.iter().filter(fetch).count()
    };
    let mut harness = Harness::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    let expires = Input::ListExpires {
        generation: generation(1),
        list: ListKind::Tools,
        after: secs(5),
    };
    harness.step(fetched(1, ListKind::Tools, FetchOutcome::Fetched));
    harness.step(expires.clone());
    assert_eq!(fetches(&harness.pass(secs(6))), 0, "it is not used");
    assert_eq!(fetches(&harness.step(Input::ListsUsed)), 1);
    harness.step(fetched(1, ListKind::Tools, FetchOutcome::Fetched));
    harness.step(expires);
    assert_eq!(
        fetches(&harness.step(Input::ListsUsed)),
        0,
        "it has not expired"
    );
    harness.pass(secs(6));
    let call = harness.read(1);
    assert_eq!(fetches(&harness.call(call)), 1);
    let late = Input::ListExpires {
        generation: generation(7),
        list: ListKind::Tools,
        after: secs(5),
    };
    let dropped = harness.machine.dropped_late();
    harness.step(late);
    assert_eq!(harness.machine.dropped_late(), dropped + 1);
}
