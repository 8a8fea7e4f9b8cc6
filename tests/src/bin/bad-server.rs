//! `mcpvisor-badserver` under another name: a binary of another package cannot be found by tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisor_testkit::badserver::main()
}
