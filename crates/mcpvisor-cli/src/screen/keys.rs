//! Keys of the screen.

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Char(char),
    /// Ctrl-C or Ctrl-D, which are plain keys in raw mode.
    Interrupt,
}

impl Key {
    /// The key of a terminal event, if the screen uses it.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let Event::Key(key) = event else { return None };
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => Some(Self::Interrupt),
            KeyCode::Char(_) if control => None,
            KeyCode::Char(c) => Some(Self::Char(c)),
            KeyCode::Up => Some(Self::Up),
            KeyCode::Down => Some(Self::Down),
            KeyCode::PageUp => Some(Self::PageUp),
            KeyCode::PageDown => Some(Self::PageDown),
            KeyCode::Home => Some(Self::Home),
            KeyCode::End => Some(Self::End),
            KeyCode::Enter => Some(Self::Enter),
            KeyCode::Esc => Some(Self::Escape),
            KeyCode::Backspace => Some(Self::Backspace),
            _ => None,
        }
    }
}
