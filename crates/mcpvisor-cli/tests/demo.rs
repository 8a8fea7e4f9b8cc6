//! The demo completes, and every promise in it holds.

mod common;

use common::{mcpvisor, run};

#[test]
fn the_demo_ends_by_itself_and_every_promise_holds() {
    let folder = std::env::temp_dir();
    let mut command = mcpvisor(&folder);
    command.args(["demo", "--fast", "--json"]);
    let ran = run(command);
    ran.exits(0);
    let summary = ran.document();
    let count = |key: &str| summary[key].as_u64().unwrap();
    assert_eq!(summary["ok"], true, "{summary:#}");
    assert!(count("answered") > 50, "{summary:#}");
    assert!(
        count("outcome_unknown") >= 1 && count("not_sent") >= 2,
        "{summary:#}"
    );
    assert_eq!(
        (count("retried"), count("recoveries")),
        (2, 4),
        "{summary:#}"
    );
    assert_eq!(
        count("calls"),
        count("answered") + count("outcome_unknown") + count("not_sent"),
        "one outcome per call: {summary:#}"
    );
    assert_eq!(
        (count("ran_twice"), count("processes_left")),
        (0, 0),
        "{summary:#}"
    );
    assert!(count("processes_started") >= 6, "{summary:#}");
}

#[test]
fn the_demo_prints_plain_lines_in_a_pipe() {
    let folder = std::env::temp_dir();
    let mut command = mcpvisor(&folder);
    command.args(["demo", "--fast"]);
    let ran = run(command);
    ran.exits(0);
    for part in [
        "Act 1",
        "Act 5",
        "forgets every session",
        "listens on its port again",
        "kill -9",
        "outcome unknown",
        "disconnected",
        "processes left",
    ] {
        assert!(
            ran.stdout.contains(part),
            "{part:?} expected: {}",
            ran.stdout
        );
    }
    assert!(!ran.stdout.contains('\u{1b}'), "no colours in a pipe");
    assert!(!ran.stdout.contains("BROKEN"), "{}", ran.stdout);
}
