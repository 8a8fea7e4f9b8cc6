//! Opens a connection to the server: DNS, TCP, proxy, TLS, HTTP/1.1; or a Unix socket.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tower_service::Service as _;

use super::conn::Conn;
use super::connect_error::ConnectError;
use super::socket::{DirectReads, MaybeTls, Socket};
use crate::link::http::target::Target;
use crate::link::http::tls::verifier::describe_handshake_error;

/// Time to open a connection, all steps together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for the TCP connect. hyper divides it among the addresses of the server, so that a silent
/// address leaves time for the others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which TCP keepalive probes start.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// Headers in a response.
const MAX_HEADERS: usize = 128;

/// Bytes of a response head, and of the body that is buffered ahead of its reader.
const MAX_READ_BUFFER: usize = 256 * 1024;

/// Opens a connection. After an error, nothing was sent.
pub(crate) async fn dial(target: Arc<Target>) -> Result<Conn, ConnectError> {
    let opened = tokio::time::timeout(OPEN_TIMEOUT, open(&target)).await;
    let opened = opened.unwrap_or_else(|_| {
        let problem = format!("no connection within {OPEN_TIMEOUT:?}");
        Err(ConnectError::remote(problem))
    });
    opened.map_err(|error| error.with_destination(&target.destination()))
}

async fn open(target: &Target) -> Result<Conn, ConnectError> {
    let started = Instant::now();
    let stream = match &target.unix_socket {
        Some(path) => Either::Right(connect_unix(path).await?),
        None => Either::Left(connect(target).await?),
    };
    let round_trip = started.elapsed();
    let direct_reads = DirectReads::default();
    let stream = start_tls(target, Socket::new(stream, direct_reads.clone())).await?;
    let mut builder = http1::Builder::new();
    builder
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_READ_BUFFER);
    let handshake = builder
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await;
    let (sender, driver) = handshake.map_err(|problem| problem.to_string())?;
    Ok(Conn::new(sender, driver, direct_reads, round_trip))
}

/// Connects to the server, to a forward proxy, or through a tunnelling proxy.
async fn connect(target: &Target) -> Result<TcpStream, ConnectError> {
    let mut connector = HttpConnector::new_with_resolver(target.resolver.clone());
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(TCP_KEEPALIVE));
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let Some(proxy) = &target.proxy else {
        let connected = connector.call(target.origin()).await;
        return connected
            .map(TokioIo::into_inner)
            .map_err(|problem| ConnectError::new(&problem, target.authority.host()));
    };
    let host = proxy.uri().host().unwrap_or_default();
    let connected = if !matches!(proxy.uri().scheme_str(), Some("http") | None) {
        let problem = "only http proxies are supported".to_owned();
        Err(ConnectError::remote(problem))
    } else if target.scheme == Scheme::HTTP {
        let connected = connector.call(proxy.uri().clone()).await;
        connected.map_err(|problem| ConnectError::new(&problem, host))
    } else {
        let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let connected = tunnel.call(target.origin()).await;
        connected.map_err(|problem| ConnectError::new(&problem, host))
    };
    connected.map(TokioIo::into_inner).map_err(|mut error| {
        if !error.is_local {
            let proxy = without_user_info(proxy.uri());
            error.problem = format!("through the proxy {proxy}: {}", error.problem);
        }
        error
    })
}

async fn connect_unix(path: &Path) -> Result<UnixStream, ConnectError> {
    let connected = UnixStream::connect(path).await;
    connected.map_err(|error| match error.kind() {
        ErrorKind::NotFound => ConnectError::remote(
            "the socket does not exist: start the server, or correct \"socketPath\"".to_owned(),
        ),
        ErrorKind::ConnectionRefused => {
            ConnectError::remote("no process listens on the socket: start the server".to_owned())
        }
        ErrorKind::PermissionDenied => ConnectError::remote(
            "permission denied: change the permissions of the socket or its folder".to_owned(),
        ),
        _ => ConnectError::new(&error, "127.0.0.1"),
    })
}

/// The host and port of a proxy.
fn without_user_info(proxy: &http::Uri) -> String {
    let port = proxy
        .port_u16()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!("{}{port}", proxy.host().unwrap_or_default())
}

async fn start_tls(target: &Target, socket: Socket) -> Result<MaybeTls, String> {
    let Some(tls) = &target.tls else {
        return Ok(MaybeTls::Left(socket));
    };
    let host = target.authority.host();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host).map_err(|problem| problem.to_string())?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, socket)
        .await;
    let stream = stream.map_err(|problem| {
        let problem = describe_handshake_error(&problem);
        format!("the TLS handshake failed: {problem}")
    })?;
    Ok(MaybeTls::Right(Box::new(stream)))
}
