//! A server that misbehaves as it is told: `mcpvisor-badserver --list-faults`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisor_testkit::badserver::main()
}
