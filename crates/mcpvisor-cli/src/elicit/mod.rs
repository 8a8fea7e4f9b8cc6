//! Elicitation: questions of servers, asked at the terminal.

mod field;
mod keyboard;
mod prompter;

pub(crate) use keyboard::discard_typed_ahead;
pub(crate) use prompter::Prompter;
