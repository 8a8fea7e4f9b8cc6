//! Runs the demo: starts the fleet, plays the acts, cleans up.

use std::time::{Duration, Instant};

use mcpvisor::Runtime;
use tokio::sync::mpsc::Receiver;

use super::acts;
use super::agents::Agents;
use super::narrator::Narrator;
use super::orders_process::OrdersProcess;
use super::sandbox::Sandbox;
use super::state_reporter::StateReporter;
use super::summary::{Promise, Summary};
use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::{ColorMode, Output};
use crate::screen::{self, LiveScreen, ScreenUpdate, UpdateSender};

/// Seconds that the acts take, with and without the pauses for the reader.
const ACTS: f64 = 18.0;
const ACTS_WITHOUT_PAUSES: f64 = 4.0;

/// The shortest pauses, as a share of the normal ones.
const FAST: f64 = 1.0 / 8.0;

/// Time beyond the requested length after which the demo counts as hanging.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Time beyond the requested length after which the process exits even if cleanup hangs.
const LAST_RESORT: Duration = Duration::from_secs(80);

const TITLE: &str = "mcpvisor demo";

/// Limit for closing the servers.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(5);

/// The options of the command line, with defaults filled in.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoOptions {
    /// Random faults fill the time up to this length.
    pub(super) length: Duration,
    /// Seed of the random faults.
    pub(super) seed: u64,
    /// Factor applied to every pause.
    pace: f64,
}

/// State shared by the acts.
pub(super) struct Demo {
    pub(super) options: DemoOptions,
    pub(super) narrator: Narrator,
    pub(super) sandbox: Sandbox,
    pub(super) orders: OrdersProcess,
    pub(super) runtime: Runtime,
    pub(super) agents: Agents,
    pub(super) promises: Vec<Promise>,
    pub(super) recoveries: Vec<Duration>,
}

pub(crate) async fn run(args: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    let options = DemoOptions::new(args);
    exit_after(options.length + LAST_RESORT);
    let color = if args.plain {
        ColorMode::Plain
    } else {
        ColorMode::of_stdout()
    };
    let live = !args.plain && !output.json() && screen::is_available();
    let (story, updates) = live.then(UpdateSender::new).unzip();
    let narrator = Narrator::new(*output, color, options.pace, story.clone());
    let summary = perform(options, narrator, story, updates).await?;
    if output.json() {
        summary.verdict()?;
        output.document(&summary)?;
    } else {
        output.text(&summary.render(color))?;
        summary.verdict()?;
    }
    Ok(Exit::Ok)
}

/// Plays all acts. Cleans up even if one of them fails.
async fn perform(
    options: DemoOptions,
    narrator: Narrator,
    story: Option<UpdateSender>,
    updates: Option<Receiver<ScreenUpdate>>,
) -> Result<Summary, Failure> {
    let started = Instant::now();
    let mut interrupts = Interrupts::listen();
    let sandbox = Sandbox::create()?;
    let orders = OrdersProcess::spawn(&sandbox).await?;
    let config = sandbox.config(orders.url())?;
    let runtime = Runtime::builder().config(config).start().await;
    let runtime = runtime.map_err(Failure::unexpected)?;
    let reporter = StateReporter::start(&runtime, narrator.clone());
    let mut demo = Demo {
        options,
        agents: Agents::create(&runtime, story),
        narrator,
        sandbox,
        orders,
        runtime,
        promises: Vec::new(),
        recoveries: Vec::new(),
    };
    let screen = updates.map(|updates| LiveScreen::open(&demo.runtime, TITLE, Some(updates)));
    let mut screen = screen.transpose()?;
    let ended = tokio::select! {
        played = acts::play(&mut demo, reporter) => played,
        quit = run_screen(&mut screen) => quit.and(Err(Failure::interrupted())),
        () = tokio::time::sleep(options.length + WATCHDOG) => Err(Failure::unexpected("the demo did not finish in time")),
        () = interrupts.next() => Err(Failure::interrupted()),
    };
    drop(screen);
    // A no-op after the last act. After a failed act it stops all servers.
    demo.runtime.shutdown(SHUTDOWN).await;
    ended?;
    Ok(Summary::of(demo, started.elapsed()))
}

impl Demo {
    /// Records whether a promise held.
    pub(super) fn check(&mut self, promise: &str, held: bool) {
        let promise = promise.to_owned();
        self.promises.push(Promise { promise, held });
    }
}

impl DemoOptions {
    fn new(args: &DemoArgs) -> Self {
        let seconds = args.seconds.map(|seconds| seconds as f64);
        let share = |seconds: f64| (seconds - ACTS_WITHOUT_PAUSES) / (ACTS - ACTS_WITHOUT_PAUSES);
        let pace = match seconds {
            _ if args.fast => FAST,
            Some(seconds) => share(seconds).clamp(FAST, 1.0),
            None => 1.0,
        };
        Self {
            length: Duration::from_secs_f64(seconds.unwrap_or(0.0)),
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            pace,
        }
    }
}

/// Runs the screen until the user quits. Without a screen it never returns.
async fn run_screen(screen: &mut Option<LiveScreen>) -> Result<Exit, Failure> {
    match screen {
        Some(screen) => screen.run().await,
        None => std::future::pending().await,
    }
}

/// Exits the process after a time, even if the async runtime hangs.
fn exit_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        tracing::error!("the demo hangs, exiting");
        std::process::exit(Exit::Usage as i32);
    });
}
