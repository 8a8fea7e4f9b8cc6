//! The `mcpvisor` command: drive a supervised fleet of MCP servers from a terminal.

mod again;
mod app;
mod args;
mod arguments;
mod builtin;
mod commands;
mod content;
mod deadline;
mod demo;
mod elicit;
mod exit;
mod failure;
mod fleet;
mod folder;
#[cfg(test)]
mod fuzz;
mod hints;
mod interrupt;
mod left_out;
mod logging;
mod nearest;
mod output;
mod progress;
mod screen;
mod source;
mod state;
mod target;

fn main() -> std::process::ExitCode {
    app::run().into()
}
