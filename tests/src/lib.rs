//! Specifications across crates live in `tests/` beside this file; this library holds next to nothing.
//!
//! The package exists for its fixture binaries: `CARGO_BIN_EXE_*` is known only inside the package
//! that owns the binary.

/// Says what rmcp's own client uses for TLS, once per process and before the client is built. It is
/// built with TLS so that it can do what ours can; ours brings its own.
pub fn provide_tls() {
    // An error means that it is installed already.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}
