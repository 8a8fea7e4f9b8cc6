//! Act 2: a server is killed during calls.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{describe, ms};
use crate::demo::agents::{Agent, CallReport, Outcome};
use crate::demo::narrator::Narrator;
use crate::demo::sandbox::{NOTES, lower, raise};
use crate::demo::{Demo, processes};
use crate::failure::Failure;
use crate::screen::Tone;

/// Limit for the server to receive the held calls.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The note of `coder` in this act.
const NOTE: &str = "order more coffee";

/// When the server was killed.
type Killed = Arc<OnceLock<Instant>>;

/// The three calls in flight when the server dies. Each prints its outcome.
struct Held {
    write: JoinHandle<CallReport>,
    reads: [JoinHandle<CallReport>; 2],
}

pub(super) async fn play(demo: &mut Demo) -> Result<(), Failure> {
    demo.narrator.act(
        "Act 2: notes is killed in mid-call",
        "Three calls are in flight: one writes, two only read.",
    );
    let pid = demo.sandbox.started(NOTES).last().copied();
    let pid = pid.ok_or_else(|| Failure::unexpected("notes has no process"))?;
    raise(&demo.sandbox.hold())?;
    let killed = Killed::default();
    let held = hold(demo, &killed);
    if !demo.sandbox.begun(3, BEGIN_TIMEOUT).await {
        return Err(Failure::unexpected("the calls of act 2 did not start"));
    }
    demo.narrator.pause(Duration::from_millis(1_200)).await;
    demo.narrator
        .line(Tone::Fault, "fault", &format!("kill -9 {pid}"));
    let at = *killed.get_or_init(Instant::now);
    processes::kill(pid)?;
    lower(&demo.sandbox.hold())?;
    check(demo, held, pid, at).await?;
    demo.narrator.pause(Duration::from_millis(1_200)).await;
    verify_write(demo).await;
    demo.narrator.pause(Duration::from_millis(800)).await;
    Ok(())
}

/// Starts the three calls.
fn hold(demo: &Demo, killed: &Killed) -> Held {
    let narrator = &demo.narrator;
    let write = format!("calls notes.append {NOTE:?} (writes)");
    narrator.line(Tone::Plain, "coder", &write);
    let coder = demo.agents.coder();
    let (report, since) = (narrator.clone(), Arc::clone(killed));
    let write = tokio::spawn(async move {
        let outcome = coder.append(NOTE, true).await;
        let why = "it may have taken effect, so it is not retried";
        tell(&report, Tone::Bad, coder.name, &outcome, &since, why);
        outcome
    });
    let reads = [demo.agents.planner(), demo.agents.reviewer()];
    Held {
        write,
        reads: reads.map(|agent| read(narrator, agent, killed)),
    }
}

fn read(narrator: &Narrator, agent: Agent, killed: &Killed) -> JoinHandle<CallReport> {
    narrator.line(Tone::Plain, agent.name, "calls notes.search (reads)");
    let (narrator, killed) = (narrator.clone(), Arc::clone(killed));
    tokio::spawn(async move {
        let search = json!({ "text": agent.name, "hold": true });
        let outcome = agent.call(NOTES, "search", search).await;
        let why = "reads are safe to repeat, so it was retried";
        tell(&narrator, Tone::Good, agent.name, &outcome, &killed, why);
        outcome
    })
}

fn tell(
    narrator: &Narrator,
    tone: Tone,
    name: &str,
    report: &CallReport,
    killed: &Killed,
    why: &str,
) {
    let after = killed.get().map_or_else(
        || "before the kill".to_owned(),
        |killed| {
            format!(
                "{} after the kill",
                ms(report.at.saturating_duration_since(*killed))
            )
        },
    );
    let by = report
        .pid()
        .map_or_else(String::new, |pid| format!(" by the new process {pid}"));
    narrator.line(
        tone,
        name,
        &format!("{}{by}, {after}: {why}", describe(report)),
    );
}

/// Checks the three outcomes.
async fn check(demo: &mut Demo, held: Held, old: u32, killed: Instant) -> Result<(), Failure> {
    let failed = |error: tokio::task::JoinError| Failure::unexpected(error);
    let write = held.write.await.map_err(failed)?;
    let unknown = matches!(write.outcome, Outcome::Unknown(_));
    demo.check("an interrupted write has an unknown outcome", unknown);
    let mut repeated = true;
    let mut first: Option<Instant> = None;
    for read in held.reads {
        let read = read.await.map_err(failed)?;
        if read.pid().is_some_and(|pid| pid != old) {
            demo.agents.tally.retried();
            first = Some(first.map_or(read.at, |earlier| earlier.min(read.at)));
        } else {
            repeated = false;
        }
    }
    demo.check("interrupted reads are retried and answered", repeated);
    if let Some(first) = first {
        demo.recoveries
            .push(first.saturating_duration_since(killed));
    }
    let others = demo
        .agents
        .tally
        .counts()
        .unknown
        .saturating_sub(u64::from(unknown));
    if others > 0 {
        let text = format!("{others} other writes were interrupted: outcome unknown");
        demo.narrator.line(Tone::Bad, "agents", &text);
    }
    Ok(())
}

/// Checks whether the write took effect, as an agent should after an unknown outcome.
async fn verify_write(demo: &mut Demo) {
    let coder = demo.agents.coder();
    let report = coder.call(NOTES, "search", json!({ "text": NOTE })).await;
    let count = match &report.outcome {
        Outcome::Answered(value) => value.get("count").and_then(Value::as_u64),
        _ => None,
    };
    let found = match count {
        Some(1) => "the note exists once; a blind retry would have duplicated it".to_owned(),
        Some(count) => format!("the note exists {count} times"),
        None => describe(&report),
    };
    let text = format!(
        "checks with notes.search, answered after {}: {found}",
        ms(report.took)
    );
    demo.narrator.line(Tone::Good, coder.name, &text);
    demo.check("the next call is answered", report.is_answered());
    demo.check("the interrupted write ran once", count == Some(1));
}
