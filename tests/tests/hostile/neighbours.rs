//! The effect of a flood or a huge line from one server on the calls to another.

use std::time::Duration;

use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::processes::Marker;
use serde_json::Value;

use crate::arena::{quick, timed};
use crate::fleet::*;

/// Deadline of this test in its own process.
const LIMIT: Duration = Duration::from_secs(600);

/// The allowed ratio of 99th percentiles, with and without a fault.
const MOST: f64 = 1.5;

/// On a shared machine, the 99th percentile of any call reaches this. A call that waits for the end
/// of a flood takes longer.
const BUSY: Duration = Duration::from_millis(250);

/// Calls timed without a fault, per round.
const IN_PEACE: usize = 500;

/// Durations of calls without a fault and during one.
#[derive(Default)]
struct Times {
    peace: Vec<Duration>,
    trouble: Vec<Duration>,
}

impl Times {
    /// Checks that the 99th percentile during the fault stays within its limit.
    fn judge(mut self, what: &str) {
        let (peace, trouble) = (p99(&mut self.peace), p99(&mut self.trouble));
        let ratio = trouble.as_secs_f64() / peace.as_secs_f64();
        let calls = self.trouble.len();
        println!("neighbour of {what}: p99 {peace:?}, then {trouble:?} of {calls}: {ratio:.2}");
        let limit = peace.mul_f64(MOST);
        let limit = if in_full() { limit } else { limit.max(BUSY) };
        assert!(trouble < limit, "{ratio:.2} times as long: {trouble:?}");
    }
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Times the calls to a good server, alternating between rounds without and with a fault next to
/// it.
async fn trouble(fault: &str, rounds: usize) -> Times {
    let marker = Marker::new("p99");
    let bad = server("bad", bad_server(&marker, &[])).settings(quick());
    let runtime = fleet([bad, server("good", fixture(&marker, &[]))]).await;
    runtime.ready(DEADLINE).await.unwrap();
    let (bad, good) = (
        runtime.server("bad").unwrap(),
        runtime.server("good").unwrap(),
    );
    let one_call = async || {
        let (outcome, took) = timed(good.call_tool("echo", Value::Null)).await;
        outcome.unwrap();
        took
    };
    let mut times = Times::default();
    for _ in 0..rounds {
        for _ in 0..IN_PEACE {
            times.peace.push(one_call().await);
        }
        let struck = bad.call_tool("misbehave", serde_json::json!({ "fault": fault }));
        let struck = tokio::spawn(struck.deadline(LIMIT).into_future());
        while !struck.is_finished() {
            times.trouble.push(one_call().await);
        }
        drop(struck.await.unwrap());
    }
    runtime.shutdown(secs(10)).await;
    times
}

#[test]
fn a_flood_leaves_the_calls_of_a_neighbour_as_they_were() {
    let name = "neighbours::a_flood_leaves_the_calls_of_a_neighbour_as_they_were";
    in_own_process(name, LIMIT, async || {
        let fault = format!("flood={}", size(50_000, 500_000));
        trouble(&fault, size(2, 10)).await.judge(&fault);
    });
}

#[test]
fn a_line_of_too_many_values_leaves_the_calls_of_a_neighbour_as_they_were() {
    let name = "neighbours::a_line_of_too_many_values_leaves_the_calls_of_a_neighbour_as_they_were";
    in_own_process(name, LIMIT, async || {
        trouble("values=8000000", size(2, 10)).await.judge("1,1,…");
    });
}
