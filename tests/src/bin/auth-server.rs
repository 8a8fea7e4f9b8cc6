//! `mcpvisor-authserver` under another name, because tests cannot find a binary of another package.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisor_testkit::auth_server::main()
}
