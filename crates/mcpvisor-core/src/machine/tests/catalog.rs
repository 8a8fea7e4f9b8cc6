//! What of the catalog the machine decides: when it is fresh, and what is fetched (K2, K3, K4, K7).

use super::bench::*;
use crate::machine::{Effect, Input, StateName};
use crate::policy::listing::{FetchOutcome, ListKind};
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
        bench.step(fetched(2, TOOLS, FetchOutcome::Refused)),
        [fetch(2, PROMPTS)],
        "the rest comes after the tools, whatever became of them"
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
    bench.step(fetched(1, TOOLS, FetchOutcome::Fetched));
    bench.step(fetched(1, PROMPTS, FetchOutcome::Fetched));
    bench.pass(millis(200));
    bench.step(list_changed(1, TOOLS));
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
fn a_list_that_is_out_of_date_is_fetched_again_when_a_call_or_a_reader_comes() {
    let fetches = |effects: &[Effect]| {
        let fetch = |effect: &&Effect| matches!(effect, Effect::FetchList { .. });
        effects.iter().filter(fetch).count()
    };
    let mut bench = Bench::connected_with(ServerSettings::default(), &[ListKind::Tools]);
    let expires = Input::ListExpires {
        generation: generation(1),
        list: ListKind::Tools,
        after: secs(5),
    };
    bench.step(fetched(1, ListKind::Tools, FetchOutcome::Fetched));
    bench.step(expires.clone());
    assert_eq!(fetches(&bench.pass(secs(6))), 0, "nobody wants it");
    assert_eq!(fetches(&bench.step(Input::ListsUsed)), 1);
    bench.step(fetched(1, ListKind::Tools, FetchOutcome::Fetched));
    bench.step(expires);
    assert_eq!(fetches(&bench.step(Input::ListsUsed)), 0, "it is good");
    bench.pass(secs(6));
    let call = bench.read(1);
    assert_eq!(fetches(&bench.call(call)), 1);
    let late = Input::ListExpires {
        generation: generation(7),
        list: ListKind::Tools,
        after: secs(5),
    };
    let dropped = bench.machine.dropped_late();
    bench.step(late);
    assert_eq!(bench.machine.dropped_late(), dropped + 1);
}
