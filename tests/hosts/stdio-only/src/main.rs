//! The library with only the stdio feature. Its dependencies are checked separately.

#[path = "../../fleet.rs"]
mod fleet;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    if fleet::served() {
        return ExitCode::SUCCESS;
    }
    fleet::verdict("stdio-only", fleet::live().await)
}
