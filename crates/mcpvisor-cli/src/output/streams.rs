//! Where results, warnings and failures go.
//!
//! A reader that closes the pipe early is not a failure.

use std::collections::BTreeMap;
use std::io::{self, Write};

use mcpvisor::config::{ConfigProblem, Severity};
use mcpvisor::raw_definition;
use serde::Serialize;
use serde_json::Value;

use super::{ColorMode, Diagnostic, printable, printable_json, printable_lines};
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

    /// Prints the result of a command: one JSON document, or text.
    pub(crate) fn result(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<Exit, Failure> {
        match self.json {
            true => self.document(document)?,
            false => self.text(&text())?,
        }
        Ok(Exit::Ok)
    }

    /// Prints the result of a server: one JSON document as the server sent it, or text.
    pub(crate) fn server_result(
        &self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<Exit, Failure> {
        let raw = self.json.then(|| raw_definition(result));
        match raw.filter(|raw| has_unknown_fields(result, raw)) {
            Some(raw) => self.result(&raw, text),
            // In the order of the protocol.
            None => self.result(result, text),
        }
    }

    /// Prints one JSON line of a long-lived command. Returns whether stdout is still open.
    pub(crate) fn json_line(&self, document: &impl Serialize) -> Result<bool, Failure> {
        let text = serde_json::to_string(document).map_err(Failure::unexpected)?;
        self.print(&printable_json(&text))
    }

    /// Prints the one JSON document of a command.
    pub(crate) fn document(&self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document).map_err(Failure::unexpected)?;
        self.text(&printable_json(&text))
    }

    /// Prints lines to stdout.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        self.print(text).map(drop)
    }

    /// Prints lines to stdout. Returns whether stdout is still open.
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

    /// Prints a line about the progress of the command to stderr. With JSON it is a log line.
    pub(crate) fn notice(&self, text: &str) {
        if self.json {
            tracing::info!("{text}");
        } else {
            let _ = writeln!(io::stderr(), "{}", printable(text));
        }
    }

    /// Prints a warning to stderr. With JSON it is a log line, so that stderr holds only errors by
    /// default.
    pub(crate) fn warning(&self, text: &str) {
        if self.json {
            tracing::warn!("{text}");
        } else {
            let _ = writeln!(io::stderr(), "mcpvisor: warning: {}", printable(text));
        }
    }

    /// Prints a problem of a config with its line. With JSON an unusable entry is an error.
    pub(crate) fn problem(&self, problem: &ConfigProblem) {
        if self.json && problem.severity == Severity::Excluded {
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

    /// Prints the failure of one server in a command that goes on.
    pub(crate) fn partial_failure(&self, failure: &Failure) {
        if self.json {
            self.failure(failure);
        } else {
            self.warning(&failure.message);
        }
    }

    /// Prints a failure, and returns its exit code.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        let line = if self.json {
            let document = BTreeMap::from([("error", failure)]);
            printable_json(&serde_json::to_string(&document).unwrap_or_default())
        } else if let Some(diagnostic) = &failure.diagnostic {
            format!("mcpvisor: {}", diagnostic.whole(ColorMode::of_stderr()))
        } else {
            // Further lines may be text of a server, so they are indented.
            let message = printable_lines(&failure.message).replace('\n', "\n  ");
            format!("mcpvisor: {message}")
        };
        let _ = writeln!(io::stderr(), "{line}");
        failure.exit
    }
}

/// A count with its noun, in the plural unless it is 1.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Whether a result as the server sent it has more than its type.
fn has_unknown_fields(result: &impl Serialize, raw: &Value) -> bool {
    let text = serde_json::to_string(result).unwrap_or_default();
    !serde_json::from_str::<Value>(&text).is_ok_and(|known| known == *raw)
}
