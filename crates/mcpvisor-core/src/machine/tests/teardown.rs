//! Switching off, removing, shutting down (D1 to D4).

use super::bench::*;
use crate::machine::{
    AfterTeardown, Attempt, CloseDeadline, ConnectionEnd, Effect, Input, NotSent, Outcome, State,
    StateName, Teardown, TeardownPhase,
};
use crate::settings::{CloseSettings, ServerSettings};

fn close(number: u64, grace: CloseSettings) -> Effect {
    Effect::Close {
        generation: generation(number),
        grace,
    }
}

fn shutdown() -> Input {
    Input::Shutdown { limit: secs(60) }
}

/// Connected, with one call in flight and one in line.
fn busy() -> Bench {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut bench = Bench::connected_with(settings, &[]);
    bench.call(bench.tool(1));
    bench.call(bench.tool(2));
    bench
}

#[test]
fn a_teardown_detaches_then_drains_then_closes() {
    let mut bench = busy();
    let grace = bench.machine.settings().close;
    assert_eq!(
        bench.step(Input::Disable),
        [
            Effect::SaveDurable,
            not_sent(2, NotSent::Disabled),
            changed(StateName::Connected, StateName::Disabling),
        ]
    );
    assert_eq!(
        *bench.state(),
        State::Disabling(Teardown {
            phase: TeardownPhase::Draining {
                generation: generation(1),
                until: bench.now + secs(5),
            },
            then: AfterTeardown::StayDisabled,
            close_by: CloseDeadline {
                steps: grace,
                due: bench.now + grace.total(),
            },
        })
    );
    assert_eq!(bench.call(bench.tool(3)), [not_sent(3, NotSent::Disabled)]);
    assert_eq!(bench.step(answered(1, 1)), [close(1, grace)], "drained");
    assert_eq!(
        bench.name(),
        StateName::Disabling,
        "only a closed one is off"
    );
    assert_eq!(
        bench.step(closed(1)),
        [changed(StateName::Disabling, StateName::Disabled)]
    );
}

#[test]
fn a_drain_has_a_deadline() {
    let mut bench = busy();
    let grace = bench.machine.settings().close;
    bench.step(Input::Disable);
    assert_eq!(bench.pass(millis(4_999)), []);
    assert_eq!(bench.pass(millis(1)), [close(1, grace)]);
    let effects = bench.step(lost(1, &[written(1)]));
    assert_eq!(effects, [resolve(1, Outcome::Unknown(gone()))]);
}

#[test]
fn without_time_to_drain_the_close_comes_at_once() {
    let mut settings = ServerSettings::default();
    settings.close.drain = secs(0);
    let grace = settings.close;
    for wish in [
        Input::Disable,
        Input::Reconnect,
        Input::TransportChanged,
        shutdown(),
        report_broken(1),
    ] {
        let mut bench = Bench::connected_with(settings.clone(), &[]);
        bench.call(bench.tool(1));
        let effects = bench.step(wish.clone());
        assert!(effects.contains(&close(1, grace)), "{wish:?}: {effects:?}");
        assert_eq!(bench.machine.in_flight(), 1, "its connection gives it back");
    }
}

#[test]
fn whatever_the_close_returns_the_server_ends_disabled() {
    let problem = Some("ignored every signal".to_owned());
    let ends = [
        ConnectionEnd::Closed { problem: None },
        ConnectionEnd::Closed { problem },
        ConnectionEnd::Failed {
            fault: gone(),
            retry_after: Some(secs(1)),
        },
        ConnectionEnd::Permanent(not_found()),
    ];
    for end in ends {
        let mut bench = Bench::connected();
        bench.step(Input::Disable);
        let off = changed(StateName::Disabling, StateName::Disabled);
        assert_eq!(bench.step(ended(1, end)), [off]);
        assert_eq!(*bench.state(), State::Disabled);
        assert_eq!(bench.machine.next_deadline(), None);
    }
    let mut bench = Bench::connected();
    bench.step(Input::Disable);
    let problem = Some("ignored every signal".to_owned());
    bench.step(ended(1, ConnectionEnd::Closed { problem }));
    let shown = bench.machine.last_fault().map(ToString::to_string);
    assert_eq!(shown.as_deref(), Some("ignored every signal"));
}

#[test]
fn to_disable_twice_is_the_same_as_once() {
    let mut bench = busy();
    bench.step(Input::Disable);
    bench.now += secs(3);
    let before = bench.whole();
    assert_eq!(bench.step(Input::Disable), [Effect::SaveDurable]);
    assert_eq!(bench.whole(), before, "the drain is not prolonged");
    bench.step(answered(1, 1));
    assert_eq!(bench.step(Input::Disable), [Effect::SaveDurable]);
    bench.step(closed(1));
    let before = bench.whole();
    assert_eq!(bench.step(Input::Disable), [Effect::SaveDurable]);
    assert_eq!(bench.whole(), before);
}

#[test]
fn a_disabled_server_is_not_reconnected() {
    let mut bench = Bench::connected();
    bench.step(Input::Disable);
    for _ in 0..2 {
        let before = bench.whole();
        assert_eq!(bench.step(Input::Reconnect), []);
        assert_eq!(bench.whole(), before);
        bench.step(closed(1));
    }
    assert_eq!(bench.pass(secs(24 * 60 * 60)), []);
}

#[test]
fn a_connect_that_is_disabled_half_way_is_closed() {
    let mut bench = Bench::new();
    let grace = bench.machine.settings().close;
    bench.step(Input::Start);
    bench.call(bench.read(1));
    bench.step(Input::PermitGranted);
    assert_eq!(
        bench.step(Input::Disable),
        [
            Effect::SaveDurable,
            not_sent(1, NotSent::Disabled),
            Effect::ReleasePermit,
            close(1, grace),
            changed(StateName::Connecting, StateName::Disabling),
        ]
    );
    assert_eq!(bench.step(up(1)), [], "it came up all the same, too late");
    bench.step(closed(1));
    assert_eq!(*bench.state(), State::Disabled);
}

#[test]
fn a_connect_that_takes_too_long_is_closed_before_the_next() {
    let mut bench = Bench::new();
    let grace = bench.machine.settings().close;
    bench.step(Input::Start);
    bench.step(Input::PermitGranted);
    let effects = bench.tick();
    assert_eq!(effects[3], close(1, grace));
    assert_eq!(bench.now - bench.begin, secs(30));
    let closing = State::Reconnecting(Attempt::Closing {
        generation: generation(1),
        retry_at: bench.now + millis(500),
    });
    assert_eq!(*bench.state(), closing);
    assert_eq!(bench.step(up(1)), []);
    assert_eq!(bench.pass(secs(60)), []);
    assert_eq!(*bench.state(), closing, "nothing is left behind");
    assert_eq!(
        bench.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
}

#[test]
fn to_enable_during_a_teardown_connects_when_it_is_over() {
    let mut bench = Bench::connected();
    bench.step(Input::Disable);
    assert_eq!(bench.step(Input::Enable), [Effect::SaveDurable]);
    assert_eq!(
        bench.name(),
        StateName::Disabling,
        "a close is never rolled back"
    );
    assert_eq!(
        bench.step(closed(1)),
        [
            Effect::SaveDurable,
            Effect::RequestPermit { reconnect: true },
            changed(StateName::Disabling, StateName::Connecting),
        ]
    );
    let mut bench = Bench::connected();
    bench.step(Input::Disable);
    bench.step(Input::Enable);
    bench.step(Input::Disable);
    bench.step(closed(1));
    assert_eq!(*bench.state(), State::Disabled, "the last word counts");
}

#[test]
fn a_shutdown_drains_closes_and_stops_once() {
    let mut bench = busy();
    let grace = bench.machine.settings().close;
    assert_eq!(
        bench.step(shutdown()),
        [
            not_sent(2, NotSent::Stopping),
            changed(StateName::Connected, StateName::Disabling),
        ]
    );
    assert_eq!(bench.step(answered(1, 1)), [close(1, grace)]);
    assert_eq!(
        bench.step(closed(1)),
        [
            Effect::Stop,
            changed(StateName::Disabling, StateName::Disabled)
        ]
    );
}

#[test]
fn a_short_shutdown_shrinks_every_step_in_proportion() {
    let mut bench = busy();
    bench.step(Input::Shutdown { limit: millis(900) });
    let grace = CloseSettings {
        stdin: millis(200),
        terminate: millis(200),
        ..bench.machine.settings().close
    };
    assert_eq!(bench.pass(millis(499)), []);
    assert_eq!(bench.pass(millis(1)), [close(1, grace)]);
}

/// A long drain takes nothing from a server that has nothing to drain.
#[test]
fn a_drain_that_ends_early_leaves_its_time_to_the_steps_after_it() {
    let mut settings = ServerSettings::default();
    settings.close.drain = secs(120);
    let grace = settings.close;
    let mut idle = Bench::connected_with(settings.clone(), &[]);
    let effects = idle.step(Input::Shutdown { limit: secs(10) });
    assert!(effects.contains(&close(1, grace)), "{effects:?}");

    let mut busy = Bench::connected_with(settings, &[]);
    busy.call(busy.tool(1));
    busy.step(Input::Shutdown { limit: secs(10) });
    busy.pass(secs(8));
    let left = CloseSettings {
        stdin: secs(1),
        terminate: secs(1),
        ..grace
    };
    assert_eq!(busy.step(answered(1, 1)), [close(1, left)]);
}

#[test]
fn a_shutdown_wins_over_a_reconnect_in_progress() {
    let mut draining = busy();
    draining.step(Input::Reconnect);
    draining.step(shutdown());
    assert_eq!(draining.name(), StateName::Disabling);

    let mut closing = Bench::connected();
    closing.step(lost(1, &[]));
    closing.step(shutdown());
    let effects = closing.step(closed(1));
    assert_eq!(effects.first(), Some(&Effect::Stop));

    let mut waiting = Bench::connected();
    waiting.lose(1, &[]);
    let stopped = changed(StateName::Reconnecting, StateName::Disabled);
    assert_eq!(waiting.step(shutdown()), [Effect::Stop, stopped.clone()]);

    let mut queued = Bench::connected();
    queued.lose(1, &[]);
    queued.tick();
    assert_eq!(
        queued.step(shutdown()),
        [Effect::ReleasePermit, Effect::Stop, stopped]
    );
}

#[test]
fn an_end_stays_an_end_whatever_is_wished_after_it() {
    let mut bench = Bench::connected();
    let grace = bench.machine.settings().close;
    bench.step(Input::Disable);
    bench.step(Input::Enable);
    assert_eq!(
        bench.step(shutdown()),
        [close(1, grace)],
        "the close goes on with the grace of the shutdown"
    );
    bench.step(Input::Enable);
    bench.step(Input::Reconnect);
    bench.step(Input::Disable);
    let effects = bench.step(closed(1));
    assert_eq!(effects.first(), Some(&Effect::Stop));
}
