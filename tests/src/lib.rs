//! Tests across crates are in `tests/` beside this file; this library is almost empty.
//!
//! The package exists for its fixture binaries: `CARGO_BIN_EXE_*` is set only inside the package
//! that owns the binary.

/// Installs the TLS provider for rmcp's own client, once per process and before the client is
/// built. That client is built with TLS so that it can do what ours can; ours brings its own
/// provider.
pub fn provide_tls() {
    // An error means that one is already installed.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}
