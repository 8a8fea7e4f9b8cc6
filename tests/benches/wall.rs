//! Wall time of calls. Both sides alternate in one run, so that drift affects both equally.

use std::time::Duration;

use crate::caller::{Caller, Callers, Load};
use crate::plan::Plan;
use crate::report::{Both, Row};
use crate::{Outcome, bare, ours};

/// How long the slow tool takes.
const TOOL_TIME: Duration = Duration::from_millis(10);

/// Calls over stdio.
pub(crate) async fn stdio(plan: &Plan, callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let (bare, ours) = (bare::stdio().await?, ours::stdio().await?);
    let load = plan.burst(callers);
    let both = rounds(plan, load, &ours.caller()?, bare.peer()).await?;
    ours.close().await;
    bare.cancel().await?;
    let measure = format!("stdio, {callers}: wall per call");
    Ok(Row::ratio(measure, "µs", both, gate))
}

/// Calls to an in-process server: typed channels against a duplex stream.
pub(crate) async fn in_process(plan: &Plan, callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let (bare, ours) = (bare::InProcess::connect().await?, ours::in_process().await?);
    let load = plan.burst(callers);
    let both = rounds(plan, load, &ours.caller()?, bare.client.peer()).await?;
    ours.close().await;
    bare.close().await?;
    let measure = format!("in-process, {callers}: wall per call");
    Ok(Row::ratio(measure, "µs", both, gate))
}

/// Many callers of a slow tool, which exposes serialized calls.
pub(crate) async fn slow_tool(plan: &Plan, callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let (bare, ours) = (bare::stdio().await?, ours::stdio().await?);
    let load = Load {
        callers,
        calls: 10,
        tool_time: Some(TOOL_TIME),
    };
    let both = rounds(plan, load, &ours.caller()?, bare.peer()).await?;
    ours.close().await;
    bare.cancel().await?;
    let measure = format!("stdio, {callers}, 10 ms tool: wall per call");
    Ok(Row::ratio(measure, "µs", both, gate))
}

/// Runs the same burst on both sides, in alternating order. Returns microseconds per call.
pub(crate) async fn rounds(
    plan: &Plan,
    load: Load,
    ours: &impl Caller,
    bare: &impl Caller,
) -> Outcome<Both> {
    let per_call = |time: Duration| time.as_secs_f64() * 1e6 / load.total() as f64;
    // One unmeasured burst per side warms caches and branch predictors.
    load.run(ours).await?;
    load.run(bare).await?;

    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        let (ours_time, bare_time);
        if round % 2 == 0 {
            ours_time = load.run(ours).await?;
            bare_time = load.run(bare).await?;
        } else {
            bare_time = load.run(bare).await?;
            ours_time = load.run(ours).await?;
        }
        rounds.push((per_call(ours_time), per_call(bare_time)));
    }
    Ok(Both::of_rounds(&rounds))
}
