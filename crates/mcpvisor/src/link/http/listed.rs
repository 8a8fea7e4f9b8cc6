//! Trusts a server by a certificate that the config lists.
//!
//! `openssl req -x509` makes certificates that say of themselves that they are authorities. Used as
//! the certificate of a server, webpki refuses them, wherever they are listed. `curl --cacert` does
//! not, so whoever lists the server's own certificate expects it to be taken.

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

/// What webpki says of an authority that is used as the certificate of a server.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// Accepts what webpki accepts, and listed certificates as themselves.
#[derive(Debug)]
pub(super) struct ListedVerifier {
    pub(super) webpki: Arc<WebPkiServerVerifier>,
    pub(super) listed: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for ListedVerifier {
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
            // Its validity period was checked before that.
            Err(Error::InvalidCertificate(CertificateError::Other(problem)))
                if format!("{problem:?}").contains(AUTHORITY) =>
            {
                if !self.listed.contains(certificate) {
                    return Err(explained(Unusable::NotListed));
                }
                let parsed = ParsedCertificate::try_from(certificate)?;
                verify_server_name(&parsed, name).map_err(with_missing_name)?;
                Ok(ServerCertVerified::assertion())
            }
            Err(problem) => Err(with_missing_name(problem)),
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

/// Why a handshake failed, to a person.
pub(super) fn explain(problem: &io::Error) -> String {
    let inner = problem.get_ref().and_then(|it| it.downcast_ref::<Error>());
    if let Some(Error::InvalidCertificate(CertificateError::Other(other))) = inner
        && let Some(why) = other.0.downcast_ref::<Unusable>()
    {
        return why.to_string();
    }
    problem.to_string()
}

/// A certificate that names no host at all is refused with what to do about it.
fn with_missing_name(problem: Error) -> Error {
    match problem {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) if presented.is_empty() => {
            let host = expected.to_str().into_owned();
            let is_address = matches!(expected, ServerName::IpAddress(_));
            explained(Unusable::Nameless { host, is_address })
        }
        other => other,
    }
}

fn explained(why: Unusable) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

/// Why the certificate of a server cannot be used.
#[derive(Debug)]
enum Unusable {
    /// It is an authority, and not listed.
    NotListed,
    /// It has no alternative names.
    Nameless { host: String, is_address: bool },
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => f.write_str(
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

impl std::error::Error for Unusable {}
