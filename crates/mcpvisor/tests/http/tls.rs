//! Encrypted connections: who is trusted, and who we show ourselves to be.

use std::path::PathBuf;
use std::sync::Arc;

use mcpvisor::{FaultClass, HttpEndpoint, Transport};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

use crate::server::{Server, manners};
use crate::{LONG, call, started, until};

/// The certificates of these tests are valid for a hundred years; nobody else trusts them.
fn pem(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/certificates");
    PathBuf::from(folder).join(name)
}

/// Passes what comes encrypted on to a server that knows nothing of it; the port to use.
pub async fn encrypted(server: &Server, wants_client: bool) -> u16 {
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
    let certificate = CertificateDer::from_pem_file(pem("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(pem("server.pem")).unwrap();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
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

/// The way to that port, for someone who trusts the certificate there.
pub fn trusting(port: u16) -> HttpEndpoint {
    let url = format!("https://127.0.0.1:{port}/mcp");
    Transport::http(url).root_certificate(pem("ca.pem"))
}

#[tokio::test]
async fn a_server_is_trusted_by_a_certificate_of_the_config_and_not_without() {
    let server = Server::start(manners).await;
    let port = encrypted(&server, false).await;
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{port}/mcp");
        let (runtime, web) = started(Transport::http(&url).root_certificate(pem("ca.pem"))).await;
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
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_wants_one() {
    let server = Server::start(manners).await;
    let port = encrypted(&server, true).await;
    let known = trusting(port).client_certificate(pem("client.pem"));
    let (runtime, web) = started(known).await;
    assert_eq!(call(&web).await.unwrap(), "hello");
    runtime.shutdown(LONG).await;
    let (runtime, web) = started(trusting(port)).await;
    until("a try failed", || web.status().last_error.is_some()).await;
    runtime.shutdown(LONG).await;
}
