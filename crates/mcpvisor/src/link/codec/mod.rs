//! Turns messages into lines of JSON and back.
//!
//! Reading is lenient where rmcp is, and fast where it matters: a reply is decoded as what its
//! request expects, so that rmcp's untagged union, which tries every kind of result in turn, is only
//! the fallback. What a line may cost is bounded before it is read. Where lines come from and where
//! they go is the link's business, and so is how much of what nobody asked for there is room for.

mod batch;
mod decode;
mod encode;
mod envelope;
mod partial_message;
mod weigh;

#[cfg(any(test, feature = "stdio"))]
pub(crate) use decode::decode_oversized;
pub(crate) use decode::{Decoded, decode};
#[cfg(feature = "http")]
pub(crate) use decode::{decode_error_body, decode_error_without_id};
pub(crate) use encode::{encode, encode_request};
#[cfg(test)]
pub(crate) use partial_message::END;
#[cfg(any(test, feature = "stdio"))]
pub(crate) use partial_message::Ends;
pub(crate) use weigh::{check_limits, check_limits_inline};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
