//! An MCP server over stdio for tests: well-behaved unless a flag changes it.
//!
//! The server itself is in the test kit; its flags are in [`flags`], their effects in [`hooks`].

mod eras;
mod flags;
mod hooks;

use std::io::{self, Write};
use std::process::ExitCode;

use flags::Flags;
use hooks::FlagHooks;
use mcpvisor_testkit::stdio_server::{LINGER, Server, ignore_sigterm, linger_if_requested, output};

fn main() -> ExitCode {
    linger_if_requested();
    match Flags::parse(std::env::args().skip(1)).map(run) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => complain(&error.to_string()),
        Err(problem) => complain(&problem),
    }
}

fn run(flags: Flags) -> io::Result<ExitCode> {
    if flags.ignore_sigterm {
        ignore_sigterm()?;
    }
    std::thread::sleep(flags.start_delay);
    if let Some(text) = &flags.stderr {
        writeln!(io::stderr(), "{text}")?;
    }
    if let Some(code) = flags.exit_at_once {
        return Ok(ExitCode::from(code));
    }
    if let Some(banner) = &flags.banner {
        output::write_line(banner);
    }
    let ignore_eof = flags.ignore_eof;
    Server::new(FlagHooks::new(flags)).run()?;
    if ignore_eof {
        // Stderr may already be closed.
        let _ = writeln!(io::stderr(), "staying after the end of input");
        std::thread::sleep(LINGER);
    }
    Ok(ExitCode::SUCCESS)
}

fn complain(problem: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "fixture-server: {problem}");
    ExitCode::from(2)
}
