//! The library on a single-threaded runtime, whose thread is the only one of the program.

#[path = "../../fleet.rs"]
mod fleet;

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if fleet::served() {
        return ExitCode::SUCCESS;
    }
    fleet::verdict("current-thread", fleet::live().await)
}
