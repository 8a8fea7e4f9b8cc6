//! The loopback listener that receives the callback of a login.
//!
//! Any local program and any web page can send requests to it, so every connection is bounded, and
//! what does not belong to the login is answered with 400 while the listener goes on waiting. A page
//! whose host name was rebound to this machine names that host in its requests, which are refused.

mod address;
mod host;
mod page;

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::callback::{Callback, ExpectedCallback};
use crate::error::AuthError;
use crate::secret::Secret;

pub use address::ListenAddress;
use host::ExpectedHost;
use page::Page;

/// Bytes of a request line and its headers.
pub const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// Time for one connection.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections at once; further ones wait.
pub const MAX_CONNECTIONS: usize = 8;

/// The pause after a failed accept, such as for want of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why the listener could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program uses the port.
    #[error("port {port} is in use; end the program that uses it or configure another port")]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The redirect URI cannot be used.
    #[error("the redirect URI is not valid: {0}")]
    InvalidRedirectUri(&'static str),
    /// The system refused to listen.
    #[error("cannot listen for the callback of the login: {0}")]
    Io(#[from] io::Error),
}

impl From<ListenError> for AuthError {
    fn from(error: ListenError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Listens on the loopback interface for the callback of a login.
#[derive(Debug)]
pub struct CallbackListener {
    ipv4: TcpListener,
    /// For `localhost`, which browsers may resolve to `::1` first.
    ipv6: Option<TcpListener>,
    host: ExpectedHost,
    redirect_uri: String,
}

/// What the listener does with a callback of its login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Finished,
}

impl CallbackListener {
    /// Binds the loopback interface, before the redirect URI is shown to anyone.
    pub async fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        let in_use = |error: io::Error, port| match error.kind() {
            io::ErrorKind::AddrInUse => ListenError::PortInUse { port },
            _ => ListenError::Io(error),
        };
        let ipv4 = TcpListener::bind(("127.0.0.1", address.port()))
            .await
            .map_err(|error| in_use(error, address.port()))?;
        let port = ipv4.local_addr()?.port();
        let ipv6 = match address.is_localhost() {
            true => TcpListener::bind(("::1", port)).await,
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        let ipv6 = match ipv6 {
            Ok(listener) => Some(listener),
            // Another program there would receive the callback.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(in_use(error, port));
            }
            // Without IPv6 the browser uses IPv4.
            Err(_) => None,
        };
        Ok(Self {
            ipv4,
            ipv6,
            host: ExpectedHost::new(address, port),
            redirect_uri: address.redirect_uri(port),
        })
    }

    /// The redirect URI of the login.
    pub fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Waits for the callback of the login: its code, or why the login failed. Dropping it closes all
    /// connections.
    pub async fn wait(&self, expected: &ExpectedCallback) -> Result<Secret, AuthError> {
        self.serve(expected, Phase::Waiting).await
    }

    /// Answers repeated callbacks, such as a reloaded page, while the code is redeemed. Never ends.
    pub async fn answer_repeated(&self, expected: &ExpectedCallback) -> Infallible {
        loop {
            let _ = self.serve(expected, Phase::Finished).await;
        }
    }

    async fn serve(&self, expected: &ExpectedCallback, phase: Phase) -> Result<Secret, AuthError> {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                stream = self.accept(), if connections.len() < MAX_CONNECTIONS => match stream {
                    Ok(stream) => connections.push(self.handle(stream, expected, phase)),
                    Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                },
                Some(outcome) = connections.next() => {
                    if let Some(outcome) = outcome {
                        return outcome;
                    }
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        let accepted = match &self.ipv6 {
            None => self.ipv4.accept().await,
            Some(ipv6) => tokio::select! {
                accepted = self.ipv4.accept() => accepted,
                accepted = ipv6.accept() => accepted,
            },
        };
        accepted.map(|(stream, _)| stream)
    }

    /// Answers one connection. Returns the outcome of the login if this was its callback, even if
    /// the browser did not take the page.
    async fn handle(
        &self,
        mut stream: TcpStream,
        expected: &ExpectedCallback,
        phase: Phase,
    ) -> Option<Result<Secret, AuthError>> {
        let request = timeout(CONNECTION_TIMEOUT, read_request(&mut stream)).await;
        let (page, outcome) = match request {
            Ok(Ok(ReceivedRequest::Get { host, .. })) if !self.host.accepts(host.as_deref()) => {
                (Page::BadRequest, None)
            }
            Ok(Ok(request)) => answer(&request, expected, phase),
            // Gone or too slow: there is nothing to answer.
            Ok(Err(_)) | Err(_) => return None,
        };
        let _ = timeout(CONNECTION_TIMEOUT, send(&mut stream, &page)).await;
        outcome
    }
}

async fn send(stream: &mut TcpStream, page: &Page) -> io::Result<()> {
    stream.write_all(page.response().as_bytes()).await?;
    stream.shutdown().await
}

/// The page for a request, and the outcome of the login if it was the callback.
fn answer(
    request: &ReceivedRequest,
    expected: &ExpectedCallback,
    phase: Phase,
) -> (Page, Option<Result<Secret, AuthError>>) {
    let target = match request {
        ReceivedRequest::Get { target, .. } => target,
        ReceivedRequest::OtherMethod => return (Page::MethodNotAllowed, None),
        ReceivedRequest::Malformed => return (Page::BadRequest, None),
        ReceivedRequest::TooLarge => return (Page::TooLarge, None),
    };
    if target == "/favicon.ico" {
        return (Page::NotFound, None);
    }
    match (expected.read_target(target), phase) {
        (Callback::Ignored(_), _) => (Page::BadRequest, None),
        (_, Phase::Finished) => (Page::Repeated, None),
        (Callback::Code(code), Phase::Waiting) => (Page::Received, Some(Ok(code))),
        (Callback::Failed(error), Phase::Waiting) => {
            (Page::Failed(error.to_string()), Some(Err(error)))
        }
    }
}

/// What a connection sent.
#[derive(Debug, PartialEq, Eq)]
enum ReceivedRequest {
    Get {
        target: String,
        /// The value of its only `Host` header.
        host: Option<String>,
    },
    OtherMethod,
    Malformed,
    TooLarge,
}

/// Reads up to the end of the headers.
async fn read_request(stream: &mut TcpStream) -> io::Result<ReceivedRequest> {
    let mut received = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The end may straddle two reads.
        let from = received.len().saturating_sub(3);
        received.extend_from_slice(&chunk[..count]);
        let end = received[from..]
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|position| from + position);
        match end {
            Some(end) if end <= MAX_REQUEST_BYTES => return Ok(parse_request(&received[..end])),
            None if received.len() <= MAX_REQUEST_BYTES => {}
            _ => return Ok(ReceivedRequest::TooLarge),
        }
    }
}

/// Reads the request line and the host; the other headers do not matter.
fn parse_request(head: &[u8]) -> ReceivedRequest {
    let Ok(head) = std::str::from_utf8(head) else {
        return ReceivedRequest::Malformed;
    };
    let mut lines = head.split("\r\n");
    let mut parts = lines.next().unwrap_or_default().split(' ');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("GET"), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None)
            if target.starts_with('/') =>
        {
            ReceivedRequest::Get {
                target: target.to_owned(),
                host: only_host(lines),
            }
        }
        (Some(method), Some(_), Some("HTTP/1.1" | "HTTP/1.0"), None) if method != "GET" => {
            ReceivedRequest::OtherMethod
        }
        _ => ReceivedRequest::Malformed,
    }
}

/// The value of the `Host` header; `None` if there is none, or more than one.
fn only_host<'h>(headers: impl Iterator<Item = &'h str>) -> Option<String> {
    let mut hosts = headers.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let host = hosts.next()?;
    hosts.next().is_none().then(|| host.to_owned())
}

#[cfg(test)]
mod tests;
