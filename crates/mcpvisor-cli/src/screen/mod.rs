//! The live screen of `status --watch` and of `demo`.
//!
//! [`model`] is the state and its keys, [`view`] draws it: both are pure. [`event_loop`] feeds the
//! model and draws; [`terminal`] takes over the terminal and restores it.

mod event_loop;
mod keys;
mod model;
mod server_row;
mod terminal;
mod view;

pub(crate) use event_loop::{LiveScreen, ScreenUpdate, UpdateSender, watch};
pub(crate) use model::{StoryLine, Tone};
pub(crate) use terminal::is_available;
