//! TLS: which certificates are trusted, and which one the client presents.

pub(crate) mod trusted_roots;
pub(crate) mod verifier;
