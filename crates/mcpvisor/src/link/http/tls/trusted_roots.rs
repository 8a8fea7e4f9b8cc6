//! The trusted root certificates, the PEM files of an endpoint, and the TLS client configs built
//! from them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::verifier::ConfiguredCertVerifier;
use crate::link::OpenFailure;
use crate::link::http::endpoint::HttpEndpoint;
use crate::link::http::target::invalid;
use crate::state::file_ops::{FileOps, READ_TIMEOUT, is_unresponsive, read_regular};

/// The name under which the file operations of the system's certificates run.
const SYSTEM: &str = "system certificates";

/// Age at which the system's certificates are read again for a new connection. They are rotated
/// while programs run.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Bytes of a certificate file; a larger one is refused.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Builds TLS configs from the system's certificates and those of an endpoint.
#[derive(Debug)]
pub(crate) struct TrustedRoots {
    /// Read when first needed.
    system: Mutex<Option<SystemTrust>>,
    /// Reads the system's certificates.
    read: fn() -> RootCertStore,
    max_age: Duration,
    /// Bounds the time of file operations.
    ops: FileOps,
}

/// What the system trusts.
#[derive(Debug, Clone)]
struct SystemTrust {
    roots: Arc<RootCertStore>,
    /// For endpoints without configured certificates. It caches TLS sessions.
    config: Arc<ClientConfig>,
    read_at: Instant,
}

impl TrustedRoots {
    pub(crate) fn new(ops: FileOps) -> Self {
        Self {
            system: Mutex::default(),
            read: read_system_roots,
            max_age: MAX_AGE,
            ops,
        }
    }

    /// The TLS config for an endpoint. Its own certificate files are read for every connection,
    /// because certificates are renewed.
    pub(crate) async fn client_config(
        &self,
        endpoint: &HttpEndpoint,
    ) -> Result<Arc<ClientConfig>, OpenFailure> {
        if endpoint.root_certificates.is_empty() && endpoint.client_certificate.is_none() {
            Ok(self.system().await?.config)
        } else {
            self.with_configured_certificates(endpoint).await
        }
    }

    /// What the system trusts, read again if it is too old. Reading may hang with the disk, so it
    /// is bounded in time, and falls back to what was read before.
    async fn system(&self) -> Result<SystemTrust, OpenFailure> {
        let mut system = self.system.lock().await;
        if let Some(known) = &*system
            && known.read_at.elapsed() < self.max_age
        {
            return Ok(known.clone());
        }
        let read = self.read;
        let read = self
            .ops
            .run(Path::new(SYSTEM), READ_TIMEOUT, move || Ok(read()));
        let read = read.await.map_err(|problem| {
            OpenFailure::transient(format!("cannot read the system's certificates: {problem}"))
        });
        let read_at = Instant::now();
        let fresh = match (read, &mut *system) {
            // A store that cannot be read, or is empty because it is just being replaced, revokes
            // no trust. An unchanged one keeps its config with the cached sessions.
            (read, Some(known))
                if read
                    .as_ref()
                    .is_ok_and(|read| !read.is_empty() && read.roots != known.roots.roots) =>
            {
                read?
            }
            (_, Some(known)) => {
                known.read_at = read_at;
                return Ok(known.clone());
            }
            (read, None) => read?,
        };
        let roots = Arc::new(fresh);
        let config = build_config(RootCertStore::clone(&roots), Vec::new(), None)?;
        let fresh = SystemTrust {
            roots,
            config: Arc::new(config),
            read_at,
        };
        *system = Some(fresh.clone());
        Ok(fresh)
    }

    async fn with_configured_certificates(
        &self,
        endpoint: &HttpEndpoint,
    ) -> Result<Arc<ClientConfig>, OpenFailure> {
        let mut roots = RootCertStore::clone(self.system().await?.roots.as_ref());
        let endpoint = endpoint.clone();
        let files = &endpoint.root_certificates;
        let first = files.first().or(endpoint.client_certificate.as_ref());
        let first = first.cloned().unwrap_or_default();
        let shown = endpoint.shown(&first);
        let read = move || {
            let mut configured = Vec::new();
            for path in &endpoint.root_certificates {
                let file = CertificateFile::new(&endpoint, path);
                let certificates = file.read_certificates()?;
                configured.extend(certificates.iter().cloned());
                let (added, ignored) = roots.add_parsable_certificates(certificates);
                if added == 0 {
                    return Err(file.unusable("none of its certificates can be a root"));
                }
                if ignored > 0 {
                    tracing::warn!(
                        file = file.shown,
                        ignored,
                        "ignored certificates that cannot be roots"
                    );
                }
            }
            let client = endpoint.client_certificate.as_deref();
            let client =
                client.map(|path| CertificateFile::new(&endpoint, path).read_client_certificate());
            build_config(roots, configured, client.transpose()?).map(Arc::new)
        };
        // One operation for all files, under the name of the first.
        let read = self.ops.run(&first, READ_TIMEOUT, || Ok(read())).await;
        read.unwrap_or_else(|problem| {
            // The error of the operation contains the path, which may hold a secret.
            let problem = match is_unresponsive(&problem) {
                true => format!("{shown} does not respond; check its disk or network mount"),
                false => problem.to_string(),
            };
            // A disk that does not respond may do so later, so this failure is retried.
            let problem = format!("cannot read the certificates: {problem}");
            Err(OpenFailure::transient(problem))
        })
    }
}

/// The certificate chain of the client, and its key.
type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A PEM file, and its redacted path for messages.
struct CertificateFile<'p> {
    path: &'p Path,
    shown: String,
}

impl<'p> CertificateFile<'p> {
    fn new(endpoint: &HttpEndpoint, path: &'p Path) -> Self {
        let shown = endpoint.shown(path);
        Self { path, shown }
    }

    fn read_certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenFailure> {
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
    fn read_client_certificate(&self) -> Result<ClientCertificate, OpenFailure> {
        let key = PrivateKeyDer::from_pem_slice(&self.read()?);
        let key = key.map_err(|problem| self.unusable(&problem.to_string()));
        Ok((self.read_certificates()?, key?))
    }

    fn unusable(&self, problem: &str) -> OpenFailure {
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

/// Unreadable certificates are ignored, as browsers do. Without any, no server is trusted.
fn read_system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for problem in &found.errors {
        tracing::debug!(%problem, "ignored an unreadable system certificate");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

fn build_config(
    roots: RootCertStore,
    configured: Vec<CertificateDer<'static>>,
    client: Option<ClientCertificate>,
) -> Result<ClientConfig, OpenFailure> {
    // An explicit provider, so that none is installed for the whole process.
    let provider = Arc::new(crypto::ring::default_provider());
    let unusable = |problem: String| invalid(format!("cannot set up TLS: {problem}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|problem| unusable(problem.to_string()))?;
    let builder = if roots.is_empty() {
        // Trusts nothing. `WebPkiServerVerifier` refuses to be built without roots.
        builder.with_root_certificates(roots)
    } else {
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|problem| unusable(problem.to_string()))?;
        let verifier = ConfiguredCertVerifier { webpki, configured };
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    };
    let mut config = match client {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|problem| {
                invalid(format!("the client certificate cannot be used: {problem}"))
            })?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn roots_from_file(name: &str) -> RootCertStore {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/tests/http/certificates/"
        );
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(format!("{folder}{name}"));
        roots.add(certificate.unwrap()).unwrap();
        roots
    }

    /// Returns one certificate twice, then another one, then none, then hangs.
    fn rotated() -> RootCertStore {
        static READ: AtomicUsize = AtomicUsize::new(0);
        match READ.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => roots_from_file("ca.pem"),
            2 => roots_from_file("client.pem"),
            3 => RootCertStore::empty(),
            _ => loop {
                std::thread::park();
            },
        }
    }

    #[tokio::test]
    async fn system_certificates_are_read_again_and_the_last_good_ones_stay() {
        let store = TrustedRoots {
            read: rotated,
            max_age: Duration::ZERO,
            ..TrustedRoots::new(FileOps::default())
        };
        let first = store.system().await.unwrap();
        let same = store.system().await.unwrap();
        assert!(
            Arc::ptr_eq(&first.config, &same.config),
            "with its sessions"
        );
        let second = store.system().await.unwrap();
        assert_eq!(second.roots.roots, roots_from_file("client.pem").roots);
        assert!(!Arc::ptr_eq(&first.config, &second.config));
        for problem in ["empty", "hangs"] {
            let last = store.system().await.unwrap();
            assert!(Arc::ptr_eq(&second.config, &last.config), "{problem}");
        }
        let store = TrustedRoots {
            read: || panic!("it is read once"),
            max_age: MAX_AGE,
            system: Mutex::new(Some(second)),
            ..TrustedRoots::new(FileOps::default())
        };
        store.system().await.unwrap();
    }

    #[tokio::test]
    async fn an_unreadable_certificate_is_named_without_its_secret() {
        let endpoint = || HttpEndpoint::new("https://localhost/").secret("zq7");
        for endpoint in [
            endpoint().client_certificate("/nope/zq7.pem"),
            endpoint().root_certificate("/nope/zq7.pem"),
        ] {
            let store = TrustedRoots::new(FileOps::default());
            let failure = store.client_config(&endpoint).await.unwrap_err();
            assert!(failure.message.contains("/nope/***.pem"), "{failure:?}");
        }
    }
}
