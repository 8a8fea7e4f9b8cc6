//! Disabling, removing and shutting down (D1 to D4).

use super::harness::*;
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

/// Connected, with one call in flight and one queued.
fn busy() -> Harness {
    let mut settings = ServerSettings::default();
    settings.admission.in_flight = 1;
    let mut harness = Harness::connected_with(settings, &[]);
    harness.call(harness.tool(1));
    harness.call(harness.tool(2));
    harness
}

#[test]
fn a_teardown_detaches_then_drains_then_closes() {
    let mut harness = busy();
    let grace = harness.machine.settings().close;
    assert_eq!(
        harness.step(Input::Disable),
        [
            Effect::SaveDurable,
            not_sent(2, NotSent::Disabled),
            changed(StateName::Connected, StateName::Disabling),
        ]
    );
    assert_eq!(
        *harness.state(),
        State::Disabling(Teardown {
            phase: TeardownPhase::Draining {
                generation: generation(1),
                until: harness.now + secs(5),
            },
            then: AfterTeardown::StayDisabled,
            close_by: CloseDeadline {
                steps: grace,
                due: harness.now + grace.total(),
            },
        })
    );
    assert_eq!(
        harness.call(harness.tool(3)),
        [not_sent(3, NotSent::Disabled)]
    );
    assert_eq!(harness.step(answered(1, 1)), [close(1, grace)], "drained");
    assert_eq!(
        harness.name(),
        StateName::Disabling,
        "not disabled until it is closed"
    );
    assert_eq!(
        harness.step(closed(1)),
        [changed(StateName::Disabling, StateName::Disabled)]
    );
}

#[test]
fn a_drain_has_a_deadline() {
    let mut harness = busy();
    let grace = harness.machine.settings().close;
    harness.step(Input::Disable);
    assert_eq!(harness.pass(millis(4_999)), []);
    assert_eq!(harness.pass(millis(1)), [close(1, grace)]);
    let effects = harness.step(lost(1, &[written(1)]));
    assert_eq!(effects, [resolve(1, Outcome::Unknown(gone()))]);
}

#[test]
fn without_time_to_drain_the_close_comes_at_once() {
    let mut settings = ServerSettings::default();
    settings.close.drain = secs(0);
    let grace = settings.close;
    for request in [
        Input::Disable,
        Input::Reconnect,
        Input::TransportChanged,
        shutdown(),
        report_broken(1),
    ] {
        let mut harness = Harness::connected_with(settings.clone(), &[]);
        harness.call(harness.tool(1));
        let effects = harness.step(request.clone());
        assert!(
            effects.contains(&close(1, grace)),
            "{request:?}: {effects:?}"
        );
        assert_eq!(harness.machine.in_flight(), 1, "its connection returns it");
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
        let mut harness = Harness::connected();
        harness.step(Input::Disable);
        let off = changed(StateName::Disabling, StateName::Disabled);
        assert_eq!(harness.step(ended(1, end)), [off]);
        assert_eq!(*harness.state(), State::Disabled);
        assert_eq!(harness.machine.next_deadline(), None);
    }
    let mut harness = Harness::connected();
    harness.step(Input::Disable);
    let problem = Some("ignored every signal".to_owned());
    harness.step(ended(1, ConnectionEnd::Closed { problem }));
    let shown = harness.machine.last_fault().map(ToString::to_string);
    assert_eq!(shown.as_deref(), Some("ignored every signal"));
}

#[test]
fn disabling_twice_is_the_same_as_once() {
    let mut harness = busy();
    harness.step(Input::Disable);
    harness.now += secs(3);
    let before = harness.whole();
    assert_eq!(harness.step(Input::Disable), [Effect::SaveDurable]);
    assert_eq!(harness.whole(), before, "the drain is not prolonged");
    harness.step(answered(1, 1));
    assert_eq!(harness.step(Input::Disable), [Effect::SaveDurable]);
    harness.step(closed(1));
    let before = harness.whole();
    assert_eq!(harness.step(Input::Disable), [Effect::SaveDurable]);
    assert_eq!(harness.whole(), before);
}

#[test]
fn a_disabled_server_is_not_reconnected() {
    let mut harness = Harness::connected();
    harness.step(Input::Disable);
    for _ in 0..2 {
        let before = harness.whole();
        assert_eq!(harness.step(Input::Reconnect), []);
        assert_eq!(harness.whole(), before);
        harness.step(closed(1));
    }
    assert_eq!(harness.pass(secs(24 * 60 * 60)), []);
}

#[test]
fn a_connect_in_progress_is_closed_when_the_server_is_disabled() {
    let mut harness = Harness::new();
    let grace = harness.machine.settings().close;
    harness.step(Input::Start);
    harness.call(harness.read(1));
    harness.step(Input::PermitGranted);
    assert_eq!(
        harness.step(Input::Disable),
        [
            Effect::SaveDurable,
            not_sent(1, NotSent::Disabled),
            Effect::ReleasePermit,
            close(1, grace),
            changed(StateName::Connecting, StateName::Disabling),
        ]
    );
    assert_eq!(harness.step(up(1)), [], "it came up too late");
    harness.step(closed(1));
    assert_eq!(*harness.state(), State::Disabled);
}

#[test]
fn a_connect_that_takes_too_long_is_closed_before_the_next() {
    let mut harness = Harness::new();
    let grace = harness.machine.settings().close;
    harness.step(Input::Start);
    harness.step(Input::PermitGranted);
    let effects = harness.tick();
    assert_eq!(effects[3], close(1, grace));
    assert_eq!(harness.now - harness.begin, secs(30));
    let closing = State::Reconnecting(Attempt::Closing {
        generation: generation(1),
        retry_at: harness.now + millis(500),
    });
    assert_eq!(*harness.state(), closing);
    assert_eq!(harness.step(up(1)), []);
    assert_eq!(harness.pass(secs(60)), []);
    assert_eq!(*harness.state(), closing, "the connection is still closing");
    assert_eq!(
        harness.step(closed(1)),
        [Effect::RequestPermit { reconnect: true }]
    );
}

#[test]
fn enabling_during_a_teardown_connects_when_it_is_over() {
    let mut harness = Harness::connected();
    harness.step(Input::Disable);
    assert_eq!(harness.step(Input::Enable), [Effect::SaveDurable]);
    assert_eq!(
        harness.name(),
        StateName::Disabling,
        "a close is never rolled back"
    );
    assert_eq!(
        harness.step(closed(1)),
        [
            Effect::SaveDurable,
            Effect::RequestPermit { reconnect: true },
            changed(StateName::Disabling, StateName::Connecting),
        ]
    );
    let mut harness = Harness::connected();
    harness.step(Input::Disable);
    harness.step(Input::Enable);
    harness.step(Input::Disable);
    harness.step(closed(1));
    assert_eq!(*harness.state(), State::Disabled, "the last request counts");
}

#[test]
fn a_shutdown_drains_closes_and_stops_once() {
    let mut harness = busy();
    let grace = harness.machine.settings().close;
    assert_eq!(
        harness.step(shutdown()),
        [
            not_sent(2, NotSent::Stopping),
            changed(StateName::Connected, StateName::Disabling),
        ]
    );
    assert_eq!(harness.step(answered(1, 1)), [close(1, grace)]);
    assert_eq!(
        harness.step(closed(1)),
        [
            Effect::Stop,
            changed(StateName::Disabling, StateName::Disabled)
        ]
    );
}

#[test]
fn a_short_shutdown_shortens_every_step_in_proportion() {
    let mut harness = busy();
    harness.step(Input::Shutdown { limit: millis(900) });
    let grace = CloseSettings {
        stdin: millis(200),
        terminate: millis(200),
        ..harness.machine.settings().close
    };
    assert_eq!(harness.pass(millis(499)), []);
    assert_eq!(harness.pass(millis(1)), [close(1, grace)]);
}

/// A long drain setting does not shorten the close of a server without calls.
#[test]
fn a_drain_that_ends_early_leaves_its_time_to_the_steps_after_it() {
    let mut settings = ServerSettings::default();
    settings.close.drain = secs(120);
    let grace = settings.close;
    let mut idle = Harness::connected_with(settings.clone(), &[]);
    let effects = idle.step(Input::Shutdown { limit: secs(10) });
    assert!(effects.contains(&close(1, grace)), "{effects:?}");

    let mut busy = Harness::connected_with(settings, &[]);
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

    let mut closing = Harness::connected();
    closing.step(lost(1, &[]));
    closing.step(shutdown());
    let effects = closing.step(closed(1));
    assert_eq!(effects.first(), Some(&Effect::Stop));

    let mut waiting = Harness::connected();
    waiting.lose(1, &[]);
    let stopped = changed(StateName::Reconnecting, StateName::Disabled);
    assert_eq!(waiting.step(shutdown()), [Effect::Stop, stopped.clone()]);

    let mut queued = Harness::connected();
    queued.lose(1, &[]);
    queued.tick();
    assert_eq!(
        queued.step(shutdown()),
        [Effect::ReleasePermit, Effect::Stop, stopped]
    );
}

#[test]
fn a_shutdown_stays_a_shutdown_whatever_is_requested_later() {
    let mut harness = Harness::connected();
    let grace = harness.machine.settings().close;
    harness.step(Input::Disable);
    harness.step(Input::Enable);
    assert_eq!(
        harness.step(shutdown()),
        [close(1, grace)],
        "the close continues with the limits of the shutdown"
    );
    harness.step(Input::Enable);
    harness.step(Input::Reconnect);
    harness.step(Input::Disable);
    let effects = harness.step(closed(1));
    assert_eq!(effects.first(), Some(&Effect::Stop));
}
