//! The library with nothing but stdio: what it depends on then is checked beside this.

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
