//! A server with injected faults: `mcpvisor-badserver --list-faults`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisor_testkit::badserver::main()
}
