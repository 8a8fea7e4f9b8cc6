//! Opens one connection to the server: name, socket, proxy, TLS, HTTP/1.1.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service as _;

use super::conn::Conn;
use super::listed::explain;
use super::socket::{Fresh, Socket, Wire};
use super::target::Target;
use super::undialled::Undialled;

/// One connection may take so long to open, all steps together.
const OPEN: Duration = Duration::from_secs(15);

/// So much of it is for the socket, shared by all addresses of the server, so that one that is silent
/// does not use it up.
const CONNECT: Duration = Duration::from_secs(10);

/// A socket that is silent for so long is asked by the system whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// An answer may have so many headers.
const MAX_HEADERS: usize = 128;

/// The head of an answer, and what is read ahead of its body, take at most so many bytes.
const MAX_READ_AHEAD: usize = 256 * 1024;

/// Opens a connection. Nothing was sent if there is none.
pub(super) async fn dial(target: Arc<Target>) -> Result<Conn, Undialled> {
    let place = format!("{}://{}", target.scheme, target.authority);
    match tokio::time::timeout(OPEN, open(&target)).await {
        Ok(Ok(conn)) => Ok(conn),
        Ok(Err(failure)) => Err(failure.about(&place)),
        Err(_) => {
            let failure = Undialled::remote(format!("no connection within {OPEN:?}"));
            Err(failure.about(&place))
        }
    }
}

async fn open(target: &Target) -> Result<Conn, Undialled> {
    let begun = Instant::now();
    let tcp = connect(target).await?;
    let round_trip = begun.elapsed();
    let fresh = Fresh::default();
    let wire = encrypt(target, Socket::new(tcp, fresh.clone())).await?;
    let mut builder = http1::Builder::new();
    builder
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_READ_AHEAD);
    let handshake = builder
        .handshake::<_, Full<Bytes>>(TokioIo::new(wire))
        .await;
    let (sender, driver) = handshake.map_err(|problem| problem.to_string())?;
    Ok(Conn::new(sender, driver, fresh, round_trip))
}

/// A socket to the server, to a proxy that fetches, or through one that passes bytes on.
async fn connect(target: &Target) -> Result<TcpStream, Undialled> {
    let mut connector = HttpConnector::new_with_resolver(target.lookups.clone());
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_connect_timeout(Some(CONNECT));
    let Some(proxy) = &target.proxy else {
        let connected = connector.call(target.origin()).await;
        return connected
            .map(TokioIo::into_inner)
            .map_err(|problem| Undialled::of(&problem, target.authority.host()));
    };
    let by = |mut failure: Undialled| {
        if !failure.local {
            failure.problem = format!("by the proxy {}: {}", shown(proxy.uri()), failure.problem);
        }
        failure
    };
    let host = proxy.uri().host().unwrap_or_default();
    if !matches!(proxy.uri().scheme_str(), Some("http") | None) {
        let problem = "only http proxies are supported".to_owned();
        return Err(by(Undialled::remote(problem)));
    }
    if target.scheme == Scheme::HTTP {
        let connected = connector.call(proxy.uri().clone()).await;
        return connected
            .map(TokioIo::into_inner)
            .map_err(|problem| by(Undialled::of(&problem, host)));
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
    if let Some(auth) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(auth.clone());
    }
    let connected = tunnel.call(target.origin()).await;
    connected
        .map(TokioIo::into_inner)
        .map_err(|problem| by(Undialled::of(&problem, host)))
}

/// The address of a proxy, without its user info.
fn shown(proxy: &http::Uri) -> String {
    let port = proxy
        .port_u16()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!("{}{port}", proxy.host().unwrap_or_default())
}

async fn encrypt(target: &Target, socket: Socket) -> Result<Wire, String> {
    let Some(tls) = &target.tls else {
        return Ok(Wire::Plain(socket));
    };
    let host = target.authority.host();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host).map_err(|problem| problem.to_string())?;
    let encrypted = TlsConnector::from(Arc::clone(tls))
        .connect(name, socket)
        .await;
    let encrypted =
        encrypted.map_err(|problem| format!("the TLS handshake failed: {}", explain(&problem)))?;
    Ok(Wire::Tls(Box::new(encrypted)))
}
