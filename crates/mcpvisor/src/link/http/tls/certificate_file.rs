//! PEM files with certificates and keys.

use std::path::Path;

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::link::OpenFailure;
use crate::link::http::endpoint::HttpEndpoint;
use crate::link::http::target::invalid;
use crate::state::file_ops::read_regular;

/// Bytes of a certificate file; a larger one is refused.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The certificate chain of the client, and its key.
pub(super) type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A PEM file, and its redacted path for messages.
pub(super) struct CertificateFile<'p> {
    path: &'p Path,
    pub(super) shown: String,
}

impl<'p> CertificateFile<'p> {
    pub(super) fn new(endpoint: &HttpEndpoint, path: &'p Path) -> Self {
        let shown = endpoint.shown(path);
        Self { path, shown }
    }

    pub(super) fn read_certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenFailure> {
        let unreadable = |problem: pem::Error| self.unusable(&problem.to_string());
        let found: Vec<_> = CertificateDer::pem_slice_iter(&self.read()?)
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        if found.is_empty() {
            return Err(self.unusable("it contains no certificate"));
        }
        Ok(found)
    }

    /// Reads the certificates and the key next to them.
    pub(super) fn read_client_certificate(&self) -> Result<ClientCertificate, OpenFailure> {
        let key = PrivateKeyDer::from_pem_slice(&self.read()?);
        let key = key.map_err(|problem| self.unusable(&problem.to_string()));
        Ok((self.read_certificates()?, key?))
    }

    pub(super) fn unusable(&self, problem: &str) -> OpenFailure {
        invalid(format!(
            "the certificate file {} cannot be used: {problem}",
            self.shown
        ))
    }

    fn read(&self) -> Result<Vec<u8>, OpenFailure> {
        read_regular(self.path, MAX_FILE_BYTES)
            .map_err(|problem| self.unusable(&problem.to_string()))
    }
}
