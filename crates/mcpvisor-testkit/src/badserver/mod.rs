//! `mcpvisor-badserver`: an MCP server over stdio or HTTP with injected faults.
//!
//! Every fault is a named switch, so that any client can be tested with it; the manual is
//! `docs/badserver.md`. The code is in the library because two binaries use it: the one that is
//! installed, and the one that the tests of this workspace start. Without a fault it behaves like
//! [`crate::stdio_server`] over stdio, and like [`crate::http_server`] over HTTP.

mod answers;
mod deaths;
mod fault;
mod fault_injector;
mod floods;
mod handshake;
mod listings;
mod options;

use std::io::{self, Write};
use std::process::ExitCode;

use fault::{FAULTS, Kind};
use fault_injector::FaultInjector;
use options::{Http, Options, USAGE};

use crate::http_server::{HttpServer, list_faults};
use crate::stdio_server::{LINGER, Server, linger_if_requested};

/// The program: parses the command line, then serves.
pub fn main() -> ExitCode {
    linger_if_requested();
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(Options::Help) => say(USAGE),
        Ok(Options::ListFaults) => say(&list()),
        Ok(Options::Serve(faults)) => serve(FaultInjector::new(faults)),
        Ok(Options::ServeHttp(http)) => serve_http(http),
        Err(problem) => Err(io::Error::other(format!("{problem}\n{USAGE}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = writeln!(io::stderr(), "mcpvisor-badserver: {problem}");
            ExitCode::from(2)
        }
    }
}

fn serve(armed: FaultInjector) -> io::Result<()> {
    armed.begin()?;
    let server = Server::new(armed.clone());
    server.run()?;
    if armed.has(Kind::IgnoreEof) {
        std::thread::sleep(LINGER);
    }
    Ok(())
}

/// Serves until it is killed. The first line on stderr is its URL.
fn serve_http(http: Http) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = HttpServer::start_at(http.address, http.options).await?;
        for fault in http.faults {
            server.fault_builder(fault).for_ever();
        }
        writeln!(io::stderr(), "listening at {}", server.url())?;
        std::future::pending().await
    })
}

fn say(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// The list of faults, one per line.
fn list() -> String {
    let mut list = String::new();
    for entry in FAULTS {
        list.push_str(&format!("{:<28} {}\n", entry.usage(), entry.line));
    }
    for (usage, line) in list_faults() {
        list.push_str(&format!("{usage:<28} {line}\n"));
    }
    list
}
