//! Act 5: one server is disabled, then the fleet is shut down.

use std::time::{Duration, Instant};

use mcpvisor::CloseOutcome;
use serde_json::json;

use super::{describe, ms};
use crate::demo::agents::Outcome;
use crate::demo::background_calls::BackgroundCalls;
use crate::demo::sandbox::{CLOCK, NOTES};
use crate::demo::state_reporter::StateReporter;
use crate::demo::{Demo, SHUTDOWN};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for refusing a call.
const AT_ONCE: Duration = Duration::from_secs(3);

pub(super) async fn play(
    demo: &mut Demo,
    background: BackgroundCalls,
    reporter: StateReporter,
) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 5: shutdown",
        "One server is disabled, then the fleet is shut down. No process may remain.",
    );
    let all_ended = background.stop().await;
    demo.check("every agent finished its last call", all_ended);
    let unaffected_failures = demo.agents.tally.unaffected_failures();
    demo.check(
        "servers without a fault were not affected",
        unaffected_failures == 0,
    );
    disable_clock(demo).await?;
    shut_down(demo, reporter).await;
    demo.narrator.pause(Duration::from_millis(500)).await;
    Ok(())
}

async fn disable_clock(demo: &mut Demo) -> Result<(), Failure> {
    let disabled = demo.runtime.disable(CLOCK).await;
    disabled.map_err(Failure::unexpected)?;
    not_sent(
        demo,
        CLOCK,
        "now",
        "a call to a disabled server is refused at once",
    )
    .await;
    demo.narrator.pause(Duration::from_millis(800)).await;
    Ok(())
}

async fn shut_down(demo: &mut Demo, reporter: StateReporter) {
    let begun = Instant::now();
    let report = demo.runtime.shutdown(SHUTDOWN).await;
    let took = begun.elapsed();
    reporter.finish().await;
    demo.orders.kill();
    let clean = report
        .servers
        .iter()
        .all(|closed| closed.how == CloseOutcome::Clean);
    let how = if clean { "cleanly" } else { "not all cleanly" };
    let text = format!(
        "{} servers closed {how} in {}",
        report.servers.len(),
        ms(took)
    );
    demo.narrator.line(Tone::Good, "fleet", &text);
    demo.check("the fleet closes cleanly", clean);
    not_sent(
        demo,
        NOTES,
        "search",
        "a call after the shutdown is refused at once",
    )
    .await;
}

/// Makes a call that must be refused.
async fn not_sent(demo: &mut Demo, server: &str, tool: &str, promise: &str) {
    let report = demo.agents.coder().call(server, tool, json!({})).await;
    let why = match &report.outcome {
        Outcome::NotSent(why) => format!(" ({why})"),
        _ => String::new(),
    };
    let text = format!(
        "calls {server}.{tool}: {} after {}{why}",
        describe(&report),
        ms(report.took)
    );
    demo.narrator.line(Tone::Good, "coder", &text);
    let held = matches!(report.outcome, Outcome::NotSent(_)) && report.took < AT_ONCE;
    demo.check(promise, held);
}
