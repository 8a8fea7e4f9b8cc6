//! Encodes messages as lines of JSON and decodes them.
//!
//! Decoding is as lenient as rmcp. A reply is decoded as the kind of result that its request
//! expects; rmcp's untagged union, which tries every kind of result in turn, is only the fallback.
//! Limits are checked before a line is decoded. Reading and writing the lines is up to the link,
//! and so is the rate limit of unsolicited messages.

mod batch;
pub(crate) mod decode;
mod encode;
mod envelope;
pub(crate) mod partial_message;
mod payload;
pub(crate) mod weigh;

pub(crate) use decode::Decoded;
pub(crate) use encode::{encode, encode_request};
#[cfg(test)]
pub(crate) use partial_message::END_BYTES;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
