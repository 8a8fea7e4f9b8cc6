//! Names and other text: patterns, exposed names, suspicious characters, search.

pub mod glob;
pub mod names;
pub mod search;
pub mod suspicion;
pub mod words;
