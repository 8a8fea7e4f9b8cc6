//! TLS: which certificates are trusted, and which one the client presents.

mod certificate_file;
pub(crate) mod trust_store;
pub(crate) mod verifier;
