//! TLS connections: trusted authorities and client certificates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mcpvisor::{FaultClass, HttpEndpoint, Transport};
use mcpvisor_testkit::in_own_process;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

use crate::harness::{LONG, call, started, until};
use mcpvisor_testkit::stub_server::{StubServer, default_reply};

/// The certificates are valid for a hundred years, and trusted only by these tests.
fn pem(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/certificates");
    PathBuf::from(folder).join(name)
}

/// Terminates TLS in front of a plain server. Returns the port.
pub async fn encrypted(server: &StubServer, wants_client: bool) -> u16 {
    encrypted_by(server, wants_client, &pem("server.pem")).await
}

/// The same, with the certificate and the key in this file.
async fn encrypted_by(server: &StubServer, wants_client: bool, own: &Path) -> u16 {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(pem("ca.pem")).unwrap())
            .unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let certificate = CertificateDer::from_pem_file(own).unwrap();
    let key = PrivateKeyDer::from_pem_file(own).unwrap();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let (port, behind) = (listener.local_addr().unwrap().port(), server.port);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut behind = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut behind).await
            });
        }
    });
    port
}

/// An endpoint at that port that trusts its certificate.
pub fn trusting(port: u16) -> HttpEndpoint {
    let url = format!("https://127.0.0.1:{port}/mcp");
    Transport::http(url).root_certificate(pem("ca.pem"))
}

/// Other tests of this binary install a crypto provider for bare rmcp, so this one runs in its own
/// process.
#[test]
fn a_server_is_trusted_by_a_certificate_of_the_config_and_not_without() {
    let name = "tls::a_server_is_trusted_by_a_certificate_of_the_config_and_not_without";
    in_own_process(name, 2 * LONG, async || {
        let server = StubServer::start(default_reply).await;
        let port = encrypted(&server, false).await;
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("https://{host}:{port}/mcp");
            let (runtime, web) =
                started(Transport::http(&url).root_certificate(pem("ca.pem"))).await;
            assert_eq!(call(&web).await.unwrap(), "hello");
            runtime.shutdown(LONG).await;
            let (runtime, web) = started(Transport::http(&url)).await;
            until("a try failed", || web.status().last_error.is_some()).await;
            let fault = web.status().last_error.unwrap();
            assert_eq!(fault.class, FaultClass::ConnectFailed);
            assert!(fault.message.contains("certificate"), "{fault}");
            runtime.shutdown(LONG).await;
        }
        assert!(
            crypto::CryptoProvider::get_default().is_none(),
            "nothing is installed for the whole process"
        );
    });
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_wants_one() {
    let server = StubServer::start(default_reply).await;
    let port = encrypted(&server, true).await;
    let known = trusting(port).client_certificate(pem("client.pem"));
    let (runtime, web) = started(known).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
    let (runtime, web) = started(trusting(port)).await;
    until("a try failed", || web.status().last_error.is_some()).await;
    runtime.shutdown(LONG).await;
}

/// The outcome of a call to a server with its own certificate, when the config lists this one.
async fn called(own: &Path, listed: &Path, host: &str) -> Result<String, String> {
    let server = StubServer::start(default_reply).await;
    let port = encrypted_by(&server, false, own).await;
    let url = format!("https://{host}:{port}/mcp");
    let (runtime, web) = started(Transport::http(&url).root_certificate(listed)).await;
    let failed = || web.status().last_error;
    until("an outcome", || runtime_is_settled(&web)).await;
    let outcome = match failed() {
        None => Ok(call(&web).await.unwrap()),
        Some(fault) => Err(fault.to_string()),
    };
    runtime.shutdown(LONG).await;
    outcome
}

fn runtime_is_settled(web: &mcpvisor::ServerHandle) -> bool {
    let status = web.status();
    status.last_error.is_some() || status.state == mcpvisor::StateName::Connected
}

/// `openssl req -x509` marks a certificate as an authority.
#[tokio::test]
async fn a_server_s_own_certificate_is_trusted_where_it_is_listed_though_it_is_an_authority() {
    let own = pem("self-signed.pem");
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(called(&own, &own, host).await.unwrap(), "hello", "{host}");
    }
    let other_name = called(&own, &own, "127.0.0.2").await.unwrap_err();
    assert!(other_name.contains("not valid for name"), "{other_name}");
    let unlisted = called(&own, &pem("ca.pem"), "localhost").await.unwrap_err();
    assert!(unlisted.contains("rootCertificates"), "{unlisted}");
    let nameless = pem("self-signed-nameless.pem");
    let nameless = called(&nameless, &nameless, "localhost").await.unwrap_err();
    let what_to_do = "-addext subjectAltName=DNS:localhost";
    assert!(nameless.contains(what_to_do), "{nameless}");
    let expired = pem("self-signed-expired.pem");
    let expired = called(&expired, &expired, "localhost").await.unwrap_err();
    assert!(expired.contains("expired"), "{expired}");
}

#[tokio::test]
async fn a_certificate_that_openssl_makes_by_default_is_trusted_where_it_is_listed() {
    let folder = std::env::temp_dir().join(format!("mcpvisor-openssl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
    ]);
    openssl.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    let made = openssl
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    let Ok(made) = made.output() else {
        eprintln!("openssl is not installed; the certificates beside this file are used alone");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let own = folder.join("own.pem");
    let both = [certificate.clone(), key].map(|file| std::fs::read(file).unwrap());
    std::fs::write(&own, both.concat()).unwrap();
    let outcome = called(&own, &certificate, "localhost").await;
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(outcome.unwrap(), "hello");
}
