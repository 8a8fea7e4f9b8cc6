//! The acts, in order. Each checks what it promised.

mod connect;
mod flap;
mod forget;
mod kill;
mod leave;

use std::time::Duration;

use super::load::Load;
use super::reporter::Reporter;
use super::{Demo, agents::Told, storm};
use crate::failure::Failure;

/// Plays all acts.
pub(super) async fn play(demo: &mut Demo, reporter: Reporter) -> Result<(), Failure> {
    connect::play(demo).await?;
    let load = Load::start(demo.agents.all());
    connect::warm_up(demo).await;
    kill::play(demo).await?;
    flap::play(demo, &load).await?;
    forget::play(demo).await?;
    storm::play(demo).await?;
    leave::play(demo, load, reporter).await
}

fn ms(duration: Duration) -> String {
    format!("{:.0} ms", duration.as_secs_f64() * 1_000.0)
}

/// What an outcome is called in a line.
fn words(told: &Told) -> String {
    use super::agents::Outcome;
    match &told.outcome {
        Outcome::Answered(_) => "answered".to_owned(),
        Outcome::Unknown(_) => "outcome unknown".to_owned(),
        Outcome::NotSent(_) => "not sent".to_owned(),
        Outcome::Other(problem) => format!("unexpected: {problem}"),
    }
}
