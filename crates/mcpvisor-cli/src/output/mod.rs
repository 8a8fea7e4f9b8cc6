//! What a command shows: on stdout its result, on stderr everything else.
//!
//! A reader that closed the pipe has seen enough: that is no failure.

mod drawn;
mod printable;
mod quoted;
mod saved;
mod table;
mod unread;
mod wrap;

use std::io::{self, IsTerminal, Write};

use mcpvisor::config::{ConfigProblem, Severity};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) use drawn::Drawn;
pub(crate) use printable::{printable, printable_json, printable_lines};
pub(crate) use quoted::{hanging, quoted};
pub(crate) use saved::Saved;
pub(crate) use table::Table;
pub(crate) use unread::unread;
pub(crate) use wrap::cut;

/// Where results, warnings and failures go.
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
        self.text(&table.render(Screen::of_stdout()))
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
                Some(server) => failure.at(server),
                None => failure,
            });
        } else if self.json {
            self.warning(&problem.to_string());
        } else {
            let shown = Drawn::from(problem).whole(Tty::of_stderr());
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
        } else if let Some(drawn) = &failure.drawn {
            format!("mcpvisor: {}", drawn.whole(Tty::of_stderr()))
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

/// Whether the terminal says that it obeys nothing: no colours, no bars, no screens.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether a stream shows colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tty {
    /// A terminal that may be coloured.
    Colours,
    /// A file, a pipe, or a person who wants none.
    Plain,
}

impl Tty {
    /// Colours only on a terminal that obeys, and never against `NO_COLOR`.
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    /// The same for stderr.
    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if terminal && !unwanted && !is_dumb() {
            Self::Colours
        } else {
            Self::Plain
        }
    }
}

/// What a stream can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) tty: Tty,
    /// Columns; a pipe has no width.
    pub(crate) width: Option<usize>,
}

impl Screen {
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal(), Tty::of_stdout())
    }

    /// The same for stderr.
    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal(), Tty::of_stderr())
    }

    fn of(terminal: bool, tty: Tty) -> Self {
        let width = terminal
            .then(crossterm::terminal::size)
            .and_then(Result::ok)
            .map(|(columns, _)| usize::from(columns))
            .filter(|columns| *columns > 0);
        Self { tty, width }
    }

    /// A pipe: no colours, and lines as long as they are.
    #[cfg(test)]
    pub(crate) fn pipe() -> Self {
        Self {
            tty: Tty::Plain,
            width: None,
        }
    }
}

/// Text in a colour, where colours are shown; "0" is none.
pub(crate) fn paint(tty: Tty, colour: &str, text: &str) -> String {
    match tty {
        Tty::Colours if colour != "0" => format!("\x1b[{colour}m{text}\x1b[0m"),
        Tty::Colours | Tty::Plain => text.to_owned(),
    }
}

/// The colour of a state: good is green, on its way yellow, in need of a person red.
pub(crate) fn state_colour(state: &str) -> &'static str {
    match state {
        "connected" => "32",
        "connecting" | "reconnecting" | "disabling" => "33",
        "disconnected" | "permanently_failed" => "31",
        _ => "2",
    }
}
