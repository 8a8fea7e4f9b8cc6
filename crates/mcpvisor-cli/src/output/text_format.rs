//! What a stream can show: colors and line width.

use std::io::{self, IsTerminal};

/// Whether `TERM` is `dumb`: no colors, no bars, no screens.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether a stream shows colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorMode {
    /// A terminal that supports colors.
    Colored,
    /// A file, a pipe, a dumb terminal, or `NO_COLOR`.
    Plain,
}

impl ColorMode {
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if terminal && !no_color && !is_dumb() {
            Self::Colored
        } else {
            Self::Plain
        }
    }
}

/// How text is laid out on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextFormat {
    pub(crate) color: ColorMode,
    /// Columns; `None` for a pipe.
    pub(crate) width: Option<usize>,
}

impl TextFormat {
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal(), ColorMode::of_stdout())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal(), ColorMode::of_stderr())
    }

    fn of(terminal: bool, color: ColorMode) -> Self {
        let width = terminal
            .then(crossterm::terminal::size)
            .and_then(Result::ok)
            .map(|(columns, _)| usize::from(columns))
            .filter(|columns| *columns > 0);
        Self { color, width }
    }

    /// A pipe: no colors, lines of any length.
    #[cfg(test)]
    pub(crate) fn pipe() -> Self {
        Self {
            color: ColorMode::Plain,
            width: None,
        }
    }
}

/// Text with an SGR sequence where colors are shown; "0" adds none.
pub(crate) fn paint(mode: ColorMode, sgr: &str, text: &str) -> String {
    match mode {
        ColorMode::Colored if sgr != "0" => format!("\x1b[{sgr}m{text}\x1b[0m"),
        ColorMode::Colored | ColorMode::Plain => text.to_owned(),
    }
}

/// The SGR color of a state: green is good, yellow is in progress, red needs a person.
pub(crate) fn state_color(state: &str) -> &'static str {
    match state {
        "connected" => "32",
        "connecting" | "reconnecting" | "disabling" => "33",
        "disconnected" | "permanently_failed" => "31",
        _ => "2",
    }
}
