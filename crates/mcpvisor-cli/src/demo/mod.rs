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
mod shop;
mod stage;
mod storm;
mod summary;

use std::time::{Duration, Instant};

use mcpvisor::Runtime;
use tokio::sync::mpsc::Receiver;

use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::{Output, Tty};
use crate::screen::{self, Live, News, Story};
use agents::Agents;
use promises::Promises;
use reporter::Reporter;
use scenery::Scenery;
use shop::Shop;
use stage::Stage;
use summary::Summary;

/// The acts take about so long, of which the pauses for the reader are the larger part.
const ACTS: f64 = 18.0;
const ACTS_WITHOUT_PAUSES: f64 = 4.0;

/// Pauses that let a reader follow are this much shorter when nobody reads.
const FAST: f64 = 1.0 / 8.0;

/// What takes this much longer than it should hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// If even the clean-up hangs, the process ends anyway.
const LAST_RESORT: Duration = Duration::from_secs(80);

/// What stands above the screen.
const TITLE: &str = "mcpvisor demo";

/// The servers may take this long to close.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// Random faults fill the time until then.
    length: Duration,
    /// What chooses them.
    seed: u64,
    /// The share of each pause that is made.
    pace: f64,
}

/// Everything that the acts share.
struct Demo {
    wish: Wish,
    stage: Stage,
    scenery: Scenery,
    shop: Shop,
    runtime: Runtime,
    agents: Agents,
    promises: Promises,
    recoveries: Vec<Duration>,
}

pub(crate) async fn run(wish: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    let asked = Wish::of(wish);
    end_at_last(asked.length + LAST_RESORT);
    let tty = if wish.plain {
        Tty::Plain
    } else {
        Tty::of_stdout()
    };
    let live = !wish.plain && !output.json() && screen::possible();
    let (story, news) = if live { Some(Story::new()) } else { None }.unzip();
    let stage = Stage::new(*output, tty, asked.pace, story.clone());
    let summary = perform(asked, stage, story, news).await?;
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
async fn perform(
    wish: Wish,
    stage: Stage,
    story: Option<Story>,
    news: Option<Receiver<News>>,
) -> Result<Summary, Failure> {
    let started = Instant::now();
    let mut interrupts = Interrupts::listen();
    let scenery = Scenery::build()?;
    let shop = Shop::open(&scenery).await?;
    let config = scenery.config(shop.url())?;
    let runtime = Runtime::builder().config(config).start().await;
    let runtime = runtime.map_err(|error| Failure::unexpected(error.to_string()))?;
    let reporter = Reporter::start(&runtime, stage.clone());
    let mut demo = Demo {
        wish,
        agents: Agents::hire(&runtime, story),
        stage,
        scenery,
        shop,
        runtime,
        promises: Promises::default(),
        recoveries: Vec::new(),
    };
    // From here on the terminal is the screen's; it gives it back however this ends.
    let screen = news.map(|news| Live::open(&demo.runtime, TITLE, Some(news)));
    let mut screen = screen.transpose()?;
    let ended = tokio::select! {
        played = acts::play(&mut demo, reporter) => played,
        quit = shown(&mut screen) => quit.and(Err(Failure::interrupted())),
        () = tokio::time::sleep(wish.length + WATCHDOG) => Err(Failure::unexpected("the demo did not end by itself")),
        () = interrupts.next() => Err(Failure::interrupted()),
    };
    drop(screen);
    // After the last act this does nothing; after a broken one it leaves nothing behind.
    demo.runtime.shutdown(SHUTDOWN).await;
    ended?;
    Ok(Summary::of(demo, started.elapsed()))
}

impl Wish {
    fn of(wish: &DemoArgs) -> Self {
        let seconds = wish.seconds.map(|seconds| seconds as f64);
        let share = |seconds: f64| (seconds - ACTS_WITHOUT_PAUSES) / (ACTS - ACTS_WITHOUT_PAUSES);
        let pace = match seconds {
            _ if wish.fast => FAST,
            Some(seconds) => share(seconds).clamp(FAST, 1.0),
            None => 1.0,
        };
        Self {
            length: Duration::from_secs_f64(seconds.unwrap_or(0.0)),
            seed: wish.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            pace,
        }
    }
}

/// Shows the screen until someone leaves it; without one, for ever.
async fn shown(screen: &mut Option<Live>) -> Result<Exit, Failure> {
    match screen {
        Some(screen) => screen.run().await,
        None => std::future::pending().await,
    }
}

/// Ends the process after a time, even if nothing else in it works any more.
fn end_at_last(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        tracing::error!("the demo hangs and is ended");
        std::process::exit(Exit::Usage as i32);
    });
}
