//! The live screen of `status --watch` and of `demo`.
//!
//! [`model`] is what is shown and what keys do to it, [`view`] draws it: both are pure. [`live`] is
//! the loop that feeds the one and calls the other; [`terminal`] takes the terminal and gives it back.

mod keys;
mod live;
mod model;
mod row;
mod terminal;
mod view;

use std::io::IsTerminal;

use crate::output::is_dumb;

pub(crate) use live::{Live, News, Story, watch};
pub(crate) use model::{Meaning, Told};

/// Whether there is a terminal to draw on and to read keys from.
pub(crate) fn possible() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb()
}
