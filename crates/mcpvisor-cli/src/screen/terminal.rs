//! Takes over the terminal for a screen, and restores it: at the end, after a panic, and on a signal.

use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::{Mutex, PoisonError};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::failure::Failure;
use crate::output::{is_dumb, printable_lines};

/// Panic messages of other threads, printed after the screen is closed.
static PANIC_MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Stored panic messages; further ones are dropped.
const MAX_PANIC_MESSAGES: usize = 20;

/// Whether there is a terminal to draw on and to read keys from.
pub(crate) fn is_available() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb()
}

/// A terminal in raw mode on its alternate screen. Dropping it restores the terminal.
pub(super) struct TerminalGuard {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalGuard {
    pub(super) fn acquire() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::unexpected(format!("cannot use the terminal: {error}"));
        install_panic_hook();
        enable_raw_mode().map_err(failed)?;
        let terminal = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(failed(error))
            }
        }
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
        let mut messages = PANIC_MESSAGES
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for message in messages.drain(..) {
            let _ = writeln!(io::stderr(), "{}", printable_lines(&message));
        }
        // Reinstall the hook of the standard library: the normal screen is back.
        if !std::thread::panicking() {
            drop(std::panic::take_hook());
        }
    }
}

/// Restores the terminal. Errors are ignored: nothing else can be done about them.
fn restore() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A panic of the screen's own thread restores the terminal before its message is printed. Other
/// threads belong to the fleet, which survives its panics: their messages wait until the screen is
/// closed, because the next frame would overwrite them.
fn install_panic_hook() {
    let own = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == own {
            restore();
            before(panic);
            return;
        }
        let mut messages = PANIC_MESSAGES
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MAX_PANIC_MESSAGES {
            messages.push(panic.to_string());
        }
    }));
}
