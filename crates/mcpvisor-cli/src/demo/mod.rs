//! `demo`: built-in servers crash and recover under load, and every promise is checked.
//!
//! The acts tell the story, [`agents`] make the calls and count what became of them, [`stage`]
//! prints, [`scenery`] holds files and processes. Exit 0 only if every promise held.

mod acts;
mod agents;
mod load;
mod processes;
mod promises;
mod reporter;
mod scenery;
mod stage;
mod summary;

use std::time::{Duration, Instant};

use mcpvisor::Runtime;

use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::{Output, Tty};
use agents::Agents;
use promises::Promises;
use reporter::Reporter;
use scenery::Scenery;
use stage::Stage;
use summary::Summary;

/// The acts take about 15 seconds; what takes this long hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// If even the clean-up hangs, the process ends anyway.
const LAST_RESORT: Duration = Duration::from_secs(80);

/// The servers may take this long to close.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Everything that the acts share.
struct Demo {
    stage: Stage,
    scenery: Scenery,
    runtime: Runtime,
    agents: Agents,
    promises: Promises,
    recoveries: Vec<Duration>,
}

pub(crate) async fn run(wish: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    end_at_last(LAST_RESORT);
    let tty = if wish.plain {
        Tty::Plain
    } else {
        Tty::of_stdout()
    };
    let stage = Stage::new(*output, tty, wish.fast);
    let summary = perform(stage).await?;
    if output.json() {
        summary.verdict()?;
        output.document(&summary)?;
    } else {
        output.text(&summary.render(tty))?;
        summary.verdict()?;
    }
    Ok(Exit::Ok)
}

/// Plays all acts, and clears up whatever happens in them.
async fn perform(stage: Stage) -> Result<Summary, Failure> {
    let started = Instant::now();
    let mut interrupts = Interrupts::listen();
    let scenery = Scenery::build()?;
    let runtime = Runtime::builder().config(scenery.config()?).start().await;
    let runtime = runtime.map_err(|error| Failure::unexpected(error.to_string()))?;
    let reporter = Reporter::start(&runtime, stage.clone());
    let mut demo = Demo {
        agents: Agents::hire(&runtime),
        stage,
        scenery,
        runtime,
        promises: Promises::default(),
        recoveries: Vec::new(),
    };
    let ended = tokio::select! {
        played = acts::play(&mut demo, reporter) => played,
        () = tokio::time::sleep(WATCHDOG) => Err(Failure::unexpected("the demo did not end by itself")),
        () = interrupts.next() => Err(Failure::interrupted()),
    };
    // After the last act this does nothing; after a broken one it leaves nothing behind.
    demo.runtime.shutdown(SHUTDOWN).await;
    ended?;
    Ok(Summary::of(demo, started.elapsed()))
}

/// Ends the process after a time, even if nothing else in it works any more.
fn end_at_last(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        tracing::error!("the demo hangs and is ended");
        std::process::exit(Exit::Usage as i32);
    });
}
