//! Messages as lines of JSON over a pair of byte streams, for child processes and for the streams of
//! an embedding program.

mod input;
mod line_buffer;
mod outbox;

pub(super) use self::input::{InputPoll, LineInput};
pub(super) use self::outbox::Outbox;

#[cfg(test)]
mod fuzz;
