//! What all HTTP connections of one runtime share: the trusted certificates and the proxies.
//!
//! Nothing of it is global, so two runtimes never meet. Connections themselves are not shared: each
//! belongs to the link that opened it, and ends with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::endpoint::HttpEndpoint;
use super::keep_alive::Learned;
use super::listed::ListedVerifier;
use super::lookup::Lookups;
use super::no_proxy::Direct;
use super::target::{Target, invalid};
use crate::link::{OpenFailure, OpenFailureClass};
use crate::state::file_ops::{FileOps, READ_TIMEOUT, is_unresponsive, read_regular};

/// Stands for the files of the system's certificates.
const SYSTEM: &str = "system certificates";

/// A file of certificates that is larger is refused.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The system's certificates are read again for a connection that is opened so long after. They are
/// rotated while programs run.
const FRESH: Duration = Duration::from_secs(60);

/// What all HTTP connections of one runtime share.
#[derive(Debug)]
pub(crate) struct HttpShared {
    proxies: Matcher,
    direct: Direct,
    lookups: Lookups,
    /// The certificates that the system trusts, read when they are first needed.
    system: Mutex<Option<System>>,
    /// Reads them.
    read: fn() -> RootCertStore,
    /// They are read again for a connection that is opened so long after.
    fresh_for: Duration,
    /// Bounds the reading of certificates.
    ops: FileOps,
    /// How long servers keep idle connections.
    pub(super) keep_alive: Arc<Learned>,
}

/// What the system trusts.
#[derive(Debug, Clone)]
struct System {
    roots: Arc<RootCertStore>,
    /// For servers without certificates of their own. It remembers sessions of TLS.
    plain: Arc<ClientConfig>,
    read_at: Instant,
}

impl HttpShared {
    /// The proxies are those of this process's environment now.
    pub(crate) fn new(ops: FileOps) -> Self {
        Self {
            proxies: Matcher::from_env(),
            direct: Direct::of_environment(),
            lookups: Lookups::default(),
            system: Mutex::default(),
            read: system_roots,
            fresh_for: FRESH,
            ops,
            keep_alive: Arc::default(),
        }
    }

    /// With these proxies.
    #[cfg(test)]
    pub(super) fn with_proxies(proxies: Matcher) -> Self {
        Self {
            proxies,
            ..Self::new(FileOps::default())
        }
    }

    /// Adds to a target how it is reached.
    pub(super) async fn equip(
        &self,
        target: &mut Target,
        endpoint: &HttpEndpoint,
    ) -> Result<(), OpenFailure> {
        if !self.direct.contains(target) {
            target.proxy = self.proxies.intercept(&target.origin());
        }
        target.lookups = self.lookups.clone();
        if target.scheme != http::uri::Scheme::HTTPS {
            return Ok(());
        }
        let own = !endpoint.root_certificates.is_empty() || endpoint.client_certificate.is_some();
        target.tls = Some(if own {
            // Read anew for every connection, because certificates are renewed.
            self.with_certificates(endpoint).await?
        } else {
            self.system().await?.plain
        });
        Ok(())
    }

    /// What the system trusts, read again if that was long ago. Reading may hang with its disk, so
    /// nothing waits for it for long if there is something from before.
    async fn system(&self) -> Result<System, OpenFailure> {
        let mut system = self.system.lock().await;
        if let Some(known) = &*system
            && known.read_at.elapsed() < self.fresh_for
        {
            return Ok(known.clone());
        }
        let read = self.read;
        let read = self
            .ops
            .run(Path::new(SYSTEM), READ_TIMEOUT, move || Ok(read()));
        let read = read.await.map_err(|problem| {
            unread(format!(
                "the system's certificates cannot be read: {problem}"
            ))
        });
        let read_at = Instant::now();
        let fresh = match (read, &mut *system) {
            // Kept with the sessions that its config remembers. What cannot be read, or is empty
            // because it is just being replaced, takes no trust away.
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
        let plain = configure(RootCertStore::clone(&roots), Vec::new(), None)?;
        let fresh = System {
            roots,
            plain: Arc::new(plain),
            read_at,
        };
        *system = Some(fresh.clone());
        Ok(fresh)
    }

    async fn with_certificates(
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
            let mut listed = Vec::new();
            for path in &endpoint.root_certificates {
                let file = File::of(&endpoint, path);
                let certificates = file.certificates()?;
                listed.extend(certificates.iter().cloned());
                let (added, odd) = roots.add_parsable_certificates(certificates);
                if added == 0 {
                    return Err(file.unusable("none of its certificates can be a root"));
                }
                if odd > 0 {
                    tracing::warn!(
                        file = file.shown,
                        odd,
                        "certificates that cannot be roots are left out"
                    );
                }
            }
            let client = endpoint.client_certificate.as_deref();
            let client = client.map(|path| File::of(&endpoint, path).client());
            configure(roots, listed, client.transpose()?).map(Arc::new)
        };
        // One operation for all files, under the name of the first.
        let read = self.ops.run(&first, READ_TIMEOUT, || Ok(read())).await;
        read.unwrap_or_else(|problem| {
            // The path may hold a secret.
            let problem = match is_unresponsive(&problem) {
                true => format!("{shown} does not answer; check its disk or network mount"),
                false => problem.to_string(),
            };
            Err(unread(format!(
                "the certificates cannot be read: {problem}"
            )))
        })
    }
}

/// A disk that does not answer may do so later, so there are further attempts.
fn unread(message: String) -> OpenFailure {
    OpenFailure {
        class: OpenFailureClass::Transient,
        message,
        action: None,
    }
}

/// Those that cannot be read are left out, as browsers do; without any, no server is trusted.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for problem in &found.errors {
        tracing::debug!(%problem, "a certificate of the system cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn configure(
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
    client: Option<ClientCertificate>,
) -> Result<ClientConfig, OpenFailure> {
    // Named here, so that nothing is installed for the whole process.
    let provider = Arc::new(crypto::ring::default_provider());
    let unusable = |problem: String| invalid(format!("TLS cannot be set up: {problem}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|problem| unusable(problem.to_string()))?;
    let builder = if roots.is_empty() {
        // Nothing is trusted then, which a verifier of its own does not allow for.
        builder.with_root_certificates(roots)
    } else {
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|problem| unusable(problem.to_string()))?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ListedVerifier { webpki, listed }))
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

/// A file of certificates, with its name as it may be shown.
struct File<'p> {
    path: &'p Path,
    shown: String,
}

impl<'p> File<'p> {
    fn of(endpoint: &HttpEndpoint, path: &'p Path) -> Self {
        let shown = endpoint.shown(path);
        Self { path, shown }
    }

    fn contents(&self) -> Result<Vec<u8>, OpenFailure> {
        read_regular(self.path, MAX_BYTES).map_err(|problem| self.unusable(&problem.to_string()))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OpenFailure> {
        let read = |problem: pem::Error| self.unusable(&problem.to_string());
        let found: Vec<_> = CertificateDer::pem_slice_iter(&self.contents()?)
            .collect::<Result<_, _>>()
            .map_err(read)?;
        if found.is_empty() {
            return Err(self.unusable("there is no certificate in it"));
        }
        Ok(found)
    }

    /// The certificates, and the key beside them.
    fn client(&self) -> Result<ClientCertificate, OpenFailure> {
        let key = PrivateKeyDer::from_pem_slice(&self.contents()?);
        let key = key.map_err(|problem| self.unusable(&problem.to_string()));
        Ok((self.certificates()?, key?))
    }

    fn unusable(&self, problem: &str) -> OpenFailure {
        invalid(format!(
            "the certificate file {} cannot be used: {problem}",
            self.shown
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn of_file(name: &str) -> RootCertStore {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/tests/http/certificates/"
        );
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(format!("{folder}{name}"));
        roots.add(certificate.unwrap()).unwrap();
        roots
    }

    /// The first time one certificate, then another one, then nothing, then it hangs.
    fn rotated() -> RootCertStore {
        static READ: AtomicUsize = AtomicUsize::new(0);
        match READ.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => of_file("ca.pem"),
            2 => of_file("client.pem"),
            3 => RootCertStore::empty(),
            _ => loop {
                std::thread::park();
            },
        }
    }

    #[tokio::test]
    async fn the_certificates_of_the_system_are_read_again_and_the_last_good_ones_stay() {
        let shared = HttpShared {
            read: rotated,
            fresh_for: Duration::ZERO,
            ..HttpShared::new(FileOps::default())
        };
        let first = shared.system().await.unwrap();
        let same = shared.system().await.unwrap();
        assert!(Arc::ptr_eq(&first.plain, &same.plain), "with its sessions");
        let second = shared.system().await.unwrap();
        assert_eq!(second.roots.roots, of_file("client.pem").roots);
        assert!(!Arc::ptr_eq(&first.plain, &second.plain));
        for problem in ["empty", "hangs"] {
            let last = shared.system().await.unwrap();
            assert!(Arc::ptr_eq(&second.plain, &last.plain), "{problem}");
        }
        let shared = HttpShared {
            read: || panic!("it is read once"),
            fresh_for: FRESH,
            system: Mutex::new(Some(second)),
            ..HttpShared::new(FileOps::default())
        };
        shared.system().await.unwrap();
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_read_is_named_without_what_is_secret() {
        let endpoint = || HttpEndpoint::new("https://localhost/").secret("zq7");
        for endpoint in [
            endpoint().client_certificate("/nope/zq7.pem"),
            endpoint().root_certificate("/nope/zq7.pem"),
        ] {
            let mut target = Target::check(&endpoint, |_| None).unwrap();
            let shared = HttpShared::new(FileOps::default());
            let failure = shared.equip(&mut target, &endpoint).await.unwrap_err();
            assert!(failure.message.contains("/nope/***.pem"), "{failure:?}");
        }
    }
}
