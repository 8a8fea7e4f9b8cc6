//! Where results, warnings and failures go.
//!
//! A reader that closes the pipe early is not a failure.

use std::io::{self, Write};

use mcpvisor::config::{ConfigProblem, Severity};
use serde::Serialize;

use super::{ColorMode, Diagnostic, Table, TextFormat, printable, printable_json, printable_lines};
use crate::exit::Exit;
use crate::failure::Failure;

/// Writes results to stdout, and everything else to stderr.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether the result is one JSON document.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Prints a table as wide as the terminal is.
    pub(crate) fn table(&self, table: &Table) -> Result<(), Failure> {
        self.text(&table.render(TextFormat::of_stdout()))
    }

    /// Prints one JSON document on a line of its own, for commands that go on, and says whether
    /// someone still reads.
    pub(crate) fn json_line(&self, document: &impl Serialize) -> Result<bool, Failure> {
        let text = serde_json::to_string(document)
            .map_err(|error| Failure::unexpected(error.to_string()))?;
        self.print(&printable_json(&text))
    }

    /// Prints the one JSON document of a command.
    pub(crate) fn document(&self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::unexpected(error.to_string()))?;
        self.text(&printable_json(&text))
    }

    /// Prints lines on stdout.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        self.print(text).map(drop)
    }

    /// Prints lines on stdout, and says whether someone still reads.
    fn print(&self, text: &str) -> Result<bool, Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| {
            if !text.is_empty() && !text.ends_with('\n') {
                stdout.write_all(b"\n")?;
            }
            stdout.flush()
        });
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::unexpected(
                format!("cannot write to stdout: {error}"),
            )),
            Err(_) => Ok(false),
            Ok(()) => Ok(true),
        }
    }

    /// Says something on stderr that is no failure. With JSON it is a log line, so that what a
    /// program reads there by default is the error alone.
    pub(crate) fn warning(&self, text: &str) {
        if self.json {
            tracing::warn!("{text}");
        } else {
            let _ = writeln!(io::stderr(), "mcpvisor: warning: {}", printable(text));
        }
    }

    /// Says what is wrong in a config, with the line that is meant. An entry that costs its server
    /// is an error for programs too.
    pub(crate) fn problem(&self, problem: &ConfigProblem) {
        if self.json && problem.severity == Severity::LeftOut {
            let failure = Failure::unusable(problem);
            self.failure(&match &problem.server {
                Some(server) => failure.with_server(server),
                None => failure,
            });
        } else if self.json {
            self.warning(&problem.to_string());
        } else {
            let shown = Diagnostic::from(problem).whole(ColorMode::of_stderr());
            let _ = writeln!(io::stderr(), "mcpvisor: {shown}");
        }
    }

    /// Says what failed in a part of a command that goes on without it.
    pub(crate) fn partly(&self, failure: &Failure) {
        if self.json {
            self.failure(failure);
        } else {
            self.warning(&failure.message);
        }
    }

    /// Shows a failure, and gives its exit code.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        let line = if self.json {
            printable_json(&serde_json::to_string(failure).unwrap_or_default())
        } else if let Some(diagnostic) = &failure.diagnostic {
            format!("mcpvisor: {}", diagnostic.whole(ColorMode::of_stderr()))
        } else {
            // A line that a server made looks like no line of ours.
            let message = printable_lines(&failure.message).replace('\n', "\n  ");
            format!("mcpvisor: {message}")
        };
        let _ = writeln!(io::stderr(), "{line}");
        failure.exit
    }
}

/// A number of things, in the plural unless it is one.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
