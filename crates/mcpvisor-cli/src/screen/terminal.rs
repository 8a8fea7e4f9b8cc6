//! Takes the terminal for a screen, and gives it back as it was: at the end, after a panic, and when
//! the process is asked to stop.

use std::io::{self, Stdout, Write};
use std::sync::{Mutex, PoisonError};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::failure::Failure;
use crate::output::printable_lines;

/// What threads beside the screen's own said as they panicked, to be shown when the screen is gone.
static LAST_WORDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// No more of them are kept.
const MAX_LAST_WORDS: usize = 20;

/// A terminal in raw mode, on its other screen. Dropping it gives it back.
pub(super) struct Taken {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Taken {
    pub(super) fn take() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::unexpected(format!("the terminal cannot be used: {error}"));
        hook_panics();
        enable_raw_mode().map_err(failed)?;
        let terminal = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back();
                Err(failed(error))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
        let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        for line in words.drain(..) {
            let _ = writeln!(io::stderr(), "{}", printable_lines(&line));
        }
        // The hook of the standard library comes back: from here on the screen is a normal one.
        if !std::thread::panicking() {
            drop(std::panic::take_hook());
        }
    }
}

/// A terminal that cannot be given back is past caring.
fn give_back() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A panic of the screen's own thread gives the terminal back before its message is printed. Other
/// threads are the fleet's, which survives its panics: their message must not be painted over.
fn hook_panics() {
    let own = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == own {
            give_back();
            before(panic);
            return;
        }
        let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() < MAX_LAST_WORDS {
            words.push(panic.to_string());
        }
    }));
}
