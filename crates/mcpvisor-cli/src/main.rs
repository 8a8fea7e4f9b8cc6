//! The `mcpvisor` command: drive a supervised fleet of MCP servers from a terminal.

mod app;
mod args;
mod browser;
mod commands;
mod config;
mod demo;
mod elicit;
mod exit;
mod failure;
mod fleet;
#[cfg(test)]
mod fuzz;
mod interrupt;
mod invocation;
mod logging;
mod output;
mod request;
mod screen;
mod shutdown;

fn main() -> std::process::ExitCode {
    app::run().into()
}
