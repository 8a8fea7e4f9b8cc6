//! Plays all acts.

use std::time::Duration;

use super::{connect, flapping, kill_mid_call, session_loss, shutdown};
use crate::demo::agents::{CallReport, Outcome};
use crate::demo::background_calls::BackgroundCalls;
use crate::demo::state_reporter::StateReporter;
use crate::demo::{Demo, random_faults};
use crate::failure::Failure;

pub(in crate::demo) async fn play(demo: &mut Demo, reporter: StateReporter) -> Result<(), Failure> {
    connect::play(demo).await?;
    let background = BackgroundCalls::start(&demo.agents.all);
    connect::warm_up(demo).await;
    kill_mid_call::play(demo).await?;
    flapping::play(demo, &background).await?;
    session_loss::play(demo).await?;
    random_faults::play(demo).await?;
    shutdown::play(demo, background, reporter).await
}

pub(super) fn ms(duration: Duration) -> String {
    format!("{:.0} ms", duration.as_secs_f64() * 1_000.0)
}

/// An outcome in a few words.
pub(super) fn describe(report: &CallReport) -> String {
    match &report.outcome {
        Outcome::Answered(_) => "answered".to_owned(),
        Outcome::Unknown(_) => "outcome unknown".to_owned(),
        Outcome::NotSent(_) => "not sent".to_owned(),
        Outcome::Other(problem) => format!("unexpected: {problem}"),
    }
}
