//! An authorization server with injected faults: `mcpvisor-authserver --list-faults`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisor_testkit::auth_server::main()
}
