//! Specifications across crates live in `tests/` beside this file; this library is empty.
//!
//! The package exists for its fixture binaries: `CARGO_BIN_EXE_*` is known only inside the package
//! that owns the binary.
