//! Requests to authorization servers, on the runtime's own connections.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, HOST, HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body_util::Full;
use mcpvisor_auth::http_client::{HttpClient, HttpError, RequestLimits, SendProgress};
use tokio::time::{Instant, timeout_at};

use crate::link::http::net::conn::{Conn, SendFailure};
use crate::link::http::net::dial::dial;
use crate::link::http::target::Target;
use crate::link::http::{HttpContext, HttpEndpoint};

/// Sends the requests of one server's credential.
pub(crate) struct AuthHttpClient {
    context: Arc<HttpContext>,
    /// Trusted in addition to the certificates of the system, as for the server itself.
    root_certificates: Vec<PathBuf>,
}

impl AuthHttpClient {
    pub(crate) fn new(context: Arc<HttpContext>, endpoint: &HttpEndpoint) -> Self {
        Self {
            context,
            root_certificates: endpoint.root_certificates.clone(),
        }
    }

    fn endpoint(&self, url: &http::Uri) -> HttpEndpoint {
        let endpoint = HttpEndpoint::new(url.to_string());
        let roots = self.root_certificates.iter();
        roots.fold(endpoint, |endpoint, path| endpoint.root_certificate(path))
    }
}

impl HttpClient for AuthHttpClient {
    fn send(
        &self,
        request: Request<Bytes>,
        limits: RequestLimits,
    ) -> BoxFuture<'static, Result<Response<Bytes>, HttpError>> {
        let (context, endpoint) = (Arc::clone(&self.context), self.endpoint(request.uri()));
        let progress = request.extensions().get::<SendProgress>().cloned();
        let progress = progress.unwrap_or_default();
        progress.connecting();
        async move {
            let until = Instant::now() + limits.timeout;
            let connected = timeout_at(until, connect(&context, &endpoint, &limits)).await;
            let (target, conn) = connected.unwrap_or_else(|_| Err(not_connected(&limits)))?;
            if !progress.begin_send() {
                return Err(HttpError::NotSent("the request was cancelled".to_owned()));
            }
            let exchange = exchange(&target, conn, request, limits.max_bytes);
            let answered = timeout_at(until, exchange).await;
            answered.unwrap_or(Err(HttpError::TimedOut(limits.timeout)))
        }
        .boxed()
    }

    fn resolve(&self, host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>> {
        let (context, host) = (Arc::clone(&self.context), host.to_owned());
        async move {
            let addresses = addresses_of(&context, &host).await?;
            Ok(addresses.iter().map(SocketAddr::ip).collect())
        }
        .boxed()
    }
}

/// The addresses of a host: itself, or what its name resolves to.
async fn addresses_of(context: &HttpContext, host: &str) -> Result<Vec<SocketAddr>, HttpError> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, 0)]);
    }
    let found = context.resolver.addresses(literal).await;
    found.map_err(|problem| HttpError::NotSent(format!("{host}: {problem}")))
}

fn not_connected(limits: &RequestLimits) -> HttpError {
    let seconds = limits.timeout.as_secs();
    HttpError::NotSent(format!("no connection within {seconds} s"))
}

/// A connection for one request.
async fn connect(
    context: &HttpContext,
    endpoint: &HttpEndpoint,
    limits: &RequestLimits,
) -> Result<(Arc<Target>, Conn), HttpError> {
    let target = context.resolve_target(endpoint).await;
    let mut target = target.map_err(|failure| HttpError::NotSent(failure.message))?;
    let host = target.authority.host().to_owned();
    // The dial uses the addresses that were checked, so a name that resolves to another address the
    // second time gains nothing. A proxy resolves by itself; its operator decides what it reaches.
    if target.proxy.is_none() {
        let addresses = addresses_of(context, &host).await?;
        for address in &addresses {
            if !limits.addresses.permits(address.ip()) {
                let address = address.ip();
                return Err(HttpError::AddressRefused { host, address });
            }
        }
        target.resolver = target.resolver.pinned(addresses);
    }
    let target = Arc::new(target);
    let dialled = dial(Arc::clone(&target)).await;
    let conn = dialled.map_err(|error| HttpError::NotSent(error.problem))?;
    Ok((target, conn))
}

/// One request on its connection.
async fn exchange(
    target: &Target,
    conn: Conn,
    request: Request<Bytes>,
    max_bytes: usize,
) -> Result<Response<Bytes>, HttpError> {
    let host = target.authority.host().to_owned();
    let request = to_http(request, target);
    let (conn, response) = conn.send(request).await.map_err(|failure| match failure {
        SendFailure::NotSent => HttpError::NotSent(format!("{host} closed the connection")),
        SendFailure::Interrupted(problem) => HttpError::Interrupted(problem),
    })?;
    let (head, body) = response.into_parts();
    let body = read_body(conn, body, max_bytes).await?;
    Ok(Response::from_parts(head, body))
}

fn to_http(request: Request<Bytes>, target: &Target) -> Request<Full<Bytes>> {
    let (mut head, body) = request.into_parts();
    head.uri = target.request_uri(&target.path);
    for (name, value) in [
        (HOST, target.headers.get(HOST)),
        (USER_AGENT, target.headers.get(USER_AGENT)),
    ] {
        if let Some(value) = value {
            head.headers.insert(name, value.clone());
        }
    }
    head.headers
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    head.headers = target.with_proxy_authorization(head.headers);
    Request::from_parts(head, Full::new(body))
}

async fn read_body(
    mut conn: Conn,
    mut body: hyper::body::Incoming,
    limit: usize,
) -> Result<Bytes, HttpError> {
    let mut read = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| conn.poll_body(cx, &mut body)).await {
        let frame = frame.map_err(|error| HttpError::Interrupted(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > limit {
                return Err(HttpError::TooLarge(limit));
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read.freeze())
}
