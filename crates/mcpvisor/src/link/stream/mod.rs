//! The transport over byte streams that the embedding program opens: lines of JSON, as over stdio.
//!
//! [`StreamLink`] exchanges the messages of one connection. [`StreamOpener`] opens the streams of each.

mod link;
mod opener;

pub(crate) use self::link::StreamLink;
pub(crate) use self::opener::StreamOpener;

#[cfg(test)]
mod tests;
