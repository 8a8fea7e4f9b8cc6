//! Names and other text: patterns, exposed names, suspicious characters.

pub mod glob;
pub mod names;
pub mod suspicion;
