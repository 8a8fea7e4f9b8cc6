//! Trusts a server certificate that the config lists itself.
//!
//! `openssl req -x509` creates certificates that are marked as a CA. webpki refuses such a
//! certificate for a server even if it is a trusted root. `curl --cacert` accepts it, so users who
//! configure the server's own certificate expect that too.

use std::sync::Arc;
use std::{fmt, io};

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
};

/// The webpki error for a CA certificate that a server uses as its own.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Accepts what webpki accepts, and configured certificates as server certificates.
#[derive(Debug)]
pub(crate) struct ConfiguredCertVerifier {
    pub(super) webpki: Arc<WebPkiServerVerifier>,
    pub(super) configured: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for ConfiguredCertVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let webpki = &self.webpki;
        let verified =
            webpki.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        match verified {
            // webpki has checked the validity period before this error.
            Err(Error::InvalidCertificate(CertificateError::Other(problem)))
                if format!("{problem:?}").contains(CA_AS_SERVER) =>
            {
                if !self.configured.contains(certificate) {
                    return Err(certificate_error(CertificateProblem::NotConfigured));
                }
                let parsed = ParsedCertificate::try_from(certificate)?;
                verify_server_name(&parsed, name).map_err(explain_missing_name)?;
                Ok(ServerCertVerified::assertion())
            }
            Err(problem) => Err(explain_missing_name(problem)),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Why a handshake failed, for people.
pub(crate) fn describe_handshake_error(problem: &io::Error) -> String {
    let inner = problem.get_ref().and_then(|it| it.downcast_ref::<Error>());
    if let Some(Error::InvalidCertificate(CertificateError::Other(other))) = inner
        && let Some(problem) = other.0.downcast_ref::<CertificateProblem>()
    {
        return problem.to_string();
    }
    problem.to_string()
}

/// Explains how to fix a certificate that names no host at all.
fn explain_missing_name(problem: Error) -> Error {
    match problem {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) if presented.is_empty() => {
            let host = expected.to_str().into_owned();
            let is_address = matches!(expected, ServerName::IpAddress(_));
            certificate_error(CertificateProblem::Nameless { host, is_address })
        }
        other => other,
    }
}

fn certificate_error(problem: CertificateProblem) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(problem))))
}

/// Why the certificate of a server cannot be used.
#[derive(Debug)]
enum CertificateProblem {
    /// It is a CA certificate that is not configured.
    NotConfigured,
    /// It has no subject alternative names.
    Nameless { host: String, is_address: bool },
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfigured => f.write_str(
                "the server uses a CA certificate as its own; add that certificate to `rootCertificates`, or make one with `-addext basicConstraints=critical,CA:FALSE`",
            ),
            Self::Nameless { host, is_address } => {
                let kind = if *is_address { "IP" } else { "DNS" };
                write!(
                    f,
                    "the certificate has no subjectAltName; make one with `openssl req -x509 … -addext subjectAltName={kind}:{host}`"
                )
            }
        }
    }
}

impl std::error::Error for CertificateProblem {}
