//! The benchmark: compares this runtime with rmcp's own client in one run.
//!
//! `bench [--quick] [--gate] [PART]` prints one table. Instructions are counted under valgrind if
//! it is installed; wall times alternate between the sides. `--gate` exits with 1 when a gate
//! fails. `--quick` measures only instructions and a short sample of wall time. A part
//! (`instructions`, `calls`, `ready`, `catalog`, `search`, `memory`, `recovery`) is measured alone.
//!
//! The program runs itself as the server (`server`, `http-server PACKETS [TOKEN]`), as a counted
//! client (`client SIDE WAY CALLERS CALLS`, `authorized-client CREDENTIAL CALLERS CALLS`) and as a
//! fleet whose memory is measured (`weigh SIDE WAY`, `weigh-search`).

mod bare;
mod caller;
mod catalog;
mod fleet;
mod http;
mod instructions;
mod memory;
mod ours;
mod plan;
mod recovery;
mod report;
mod search;
mod service;
mod side;
mod wall;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use caller::{Callers, Load};
use plan::{MANY, ONE, Part, Plan, gates};
use report::Table;
use side::Way;

/// The result of a step, or why the benchmark cannot continue.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    run(&words).unwrap_or_else(|error| {
        // A failed write to stderr cannot be reported.
        let _ = writeln!(io::stderr(), "bench: {error}");
        ExitCode::FAILURE
    })
}

fn run(words: &[&str]) -> Outcome<ExitCode> {
    mcpvisor_tests::provide_tls();
    let mut one_thread = tokio::runtime::Builder::new_current_thread();
    let one_thread = one_thread.enable_all();
    match words {
        ["server"] => one_thread.build()?.block_on(service::serve_stdio())?,
        ["http-server", packets, token @ ..] => {
            let served = http::serve(packets, token.first().copied());
            tokio::runtime::Runtime::new()?.block_on(served)?;
        }
        ["client", side, way, callers, calls] => {
            let load = Load::echo(Callers::Tasks(callers.parse()?), calls.parse()?);
            let client = side::client(side.parse()?, way.parse()?, load);
            one_thread.build()?.block_on(client)?;
        }
        ["authorized-client", credential, callers, calls] => {
            let load = Load::echo(Callers::Tasks(callers.parse()?), calls.parse()?);
            let client = http::authorized_client(credential.parse()?, load);
            one_thread.build()?.block_on(client)?;
        }
        ["weigh", side, way] => {
            let runtime = one_thread.build()?;
            let kib = runtime.block_on(memory::weigh(side.parse()?, way.parse()?))?;
            writeln!(io::stdout(), "{kib}")?;
            // Skips the teardown of the fleet, which is not part of the measurement.
            std::process::exit(0);
        }
        ["weigh-search"] => {
            let kib = one_thread.build()?.block_on(search::weigh())?;
            writeln!(io::stdout(), "{kib}")?;
        }
        options => {
            let plan = Plan::from_args(options)?;
            let failed = tokio::runtime::Runtime::new()?.block_on(measure(&plan))?;
            if plan.gate && failed > 0 {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures everything in order. Returns how many gates failed.
async fn measure(plan: &Plan) -> Outcome<usize> {
    let mut table = Table::new(io::stdout())?;
    if plan.has(Part::Instructions) {
        count_instructions(plan, &mut table).await?;
    }
    if plan.has(Part::Calls) {
        time_calls(plan, &mut table).await?;
        http::time_calls(plan, &mut table).await?;
    }
    if plan.has(Part::Ready) {
        let ready = async || fleet::ready(plan, gates::READY).await;
        table.rows(&plan.best(ready).await?)?;
        http::start_fleet(plan, &mut table).await?;
    }
    if plan.has(Part::Catalog) {
        let catalog =
            async || catalog::rows(plan, gates::CATALOG_CHANGE_MS, gates::CATALOG_READ_NS).await;
        table.rows(&plan.best(catalog).await?)?;
    }
    if plan.has(Part::Search) {
        let search = async || search::rows(plan, gates::SEARCH).await;
        table.rows(&plan.best(search).await?)?;
    }
    if plan.has(Part::Memory) {
        for way in [Way::InProcess, Way::Stdio] {
            let added = async || Ok([memory::added(way, gates::ADDED_KIB)?]);
            table.rows(&plan.best(added).await?)?;
        }
    }
    if plan.has(Part::Recovery) {
        try_recovery(plan, &mut table).await?;
        http::try_recovery(plan, &mut table).await?;
    }
    Ok(table.failed())
}

async fn count_instructions(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    if !instructions::available() {
        table.note("instructions: skipped: valgrind not found")?;
        return Ok(());
    }
    for (way, gate) in [
        (Way::Stdio, gates::STDIO_INSTRUCTIONS),
        (Way::InProcess, gates::IN_PROCESS_INSTRUCTIONS),
    ] {
        table.row(&instructions::compare(way, ONE, Some(gate))?)?;
        table.row(&instructions::compare(way, MANY, None)?)?;
    }
    http::count_instructions(plan, table).await?;
    if !plan.is_quick() {
        table.row(&fleet::instructions(None)?)?;
    }
    Ok(())
}

async fn time_calls(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    for (callers, gate) in [
        (ONE, plan.wall(gates::STDIO_ONE)),
        (Callers::Main, None),
        (MANY, plan.wall(gates::STDIO_MANY)),
    ] {
        let measure = async || Ok([wall::stdio(plan, callers, gate).await?]);
        table.rows(&plan.best(measure).await?)?;
    }
    for (callers, gate) in [
        (ONE, plan.wall(gates::IN_PROCESS)),
        (Callers::Main, None),
        (MANY, plan.wall(gates::IN_PROCESS)),
    ] {
        let measure = async || Ok([wall::in_process(plan, callers, gate).await?]);
        table.rows(&plan.best(measure).await?)?;
    }
    if !plan.is_quick() {
        let slow = async || Ok([wall::slow_tool(plan, MANY, Some(gates::SLOW_TOOL)).await?]);
        table.rows(&plan.best(slow).await?)?;
    }
    Ok(())
}

async fn try_recovery(plan: &Plan, table: &mut Table<impl Write>) -> Outcome<()> {
    let next = async || Ok([recovery::next_answer(plan, gates::RECOVERY).await?]);
    table.rows(&plan.best(next).await?)?;
    let outcomes = async || recovery::in_flight(gates::IN_FLIGHT_MS).await;
    table.rows(&plan.best(outcomes).await?)?;
    Ok(())
}
