//! The transport of a server: a description, which the connection task opens.

pub(crate) mod check;

#[cfg(feature = "http")]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;

#[cfg(feature = "stream")]
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "http")]
pub use crate::link::http::HttpEndpoint;
use crate::link::in_process::{self, ServeFn, ServerEnd};
#[cfg(feature = "stdio")]
pub use crate::link::stdio::StdioCommand;
#[cfg(feature = "stream")]
use crate::link::stream::StreamOpener;
use crate::secret::{Secret, Secrets};
use crate::state::fingerprint;

/// The labels of transports, as shown in the status.
const STDIO: &str = "stdio";
const HTTP: &str = "http";
pub(crate) const SSE: &str = "sse";
#[cfg(feature = "stream")]
const STREAM: &str = "stream";
const IN_PROCESS: &str = "in_process";

/// How to connect to a server.
#[derive(Clone)]
pub struct Transport(pub(crate) TransportKind);

#[derive(Clone)]
pub(crate) enum TransportKind {
    #[cfg(feature = "stdio")]
    Stdio(StdioCommand),
    #[cfg(feature = "http")]
    Http(HttpEndpoint),
    #[cfg(feature = "stream")]
    Stream(StreamOpener),
    Channel {
        serve: ServeFn,
        label: &'static str,
    },
}

impl Transport {
    /// A child process that communicates over its stdin and stdout.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let files = Transport::stdio("npx")
    ///     .args(["-y", "@modelcontextprotocol/server-filesystem", "."])
    ///     .env("LOG_LEVEL", "warn");
    /// ```
    #[cfg(feature = "stdio")]
    pub fn stdio(program: impl Into<std::ffi::OsString>) -> StdioCommand {
        StdioCommand::new(program)
    }

    /// A server over Streamable HTTP, or over HTTP+SSE if it speaks only that.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let github = Transport::http("https://example.com/mcp").bearer_token_env("GITHUB_TOKEN");
    /// ```
    #[cfg(feature = "http")]
    pub fn http(url: impl Into<String>) -> HttpEndpoint {
        HttpEndpoint::new(url)
    }

    /// A server over HTTP+SSE, the transport of 2024-11-05, at the address of its event stream.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let old = Transport::sse("https://example.com/sse");
    /// assert_eq!(Transport::from(old).label(), "sse");
    /// ```
    #[cfg(feature = "http")]
    pub fn sse(url: impl Into<String>) -> HttpEndpoint {
        HttpEndpoint::new(url).sse()
    }

    /// A server over byte streams that the program opens itself, for example through SSH, a container
    /// or a virtual machine. The messages are lines of JSON, as over stdio.
    ///
    /// The function is called for every connection, because a lost connection is replaced. Its error
    /// is a failed attempt to connect. To close a connection, the writer is shut down, what the server
    /// still sends is read for `close.stdin`, and both are dropped.
    ///
    /// ```
    /// use mcpvisor::Transport;
    /// use tokio::net::TcpStream;
    ///
    /// let remote = Transport::stream(|| async {
    ///     let stream = TcpStream::connect("127.0.0.1:7000").await?;
    ///     Ok(stream.into_split())
    /// });
    /// assert_eq!(remote.label(), "stream");
    /// ```
    #[cfg(feature = "stream")]
    pub fn stream<F, Fut, R, W>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::io::Result<(R, W)>> + Send + 'static,
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        Self(TransportKind::Stream(StreamOpener::each(open)))
    }

    /// A server over one pair of byte streams, which exist already. When they end, the server is
    /// `permanently_failed` until it is configured with other ones: prefer [`Transport::stream`].
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let (ours, _theirs) = tokio::io::duplex(64 * 1024);
    /// let (reader, writer) = tokio::io::split(ours);
    /// let once = Transport::stream_once(reader, writer);
    /// ```
    #[cfg(feature = "stream")]
    pub fn stream_once(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
    ) -> Self {
        Self(TransportKind::Stream(StreamOpener::once(reader, writer)))
    }

    /// A server in this process. Each connection gets a clone of the service; messages are passed
    /// as typed values, without JSON.
    ///
    /// ```
    /// use mcpvisor::{Transport, rmcp};
    ///
    /// #[derive(Clone)]
    /// struct Clock;
    /// impl rmcp::ServerHandler for Clock {}
    ///
    /// let clock = Transport::in_process(Clock);
    /// ```
    #[cfg(feature = "in-process")]
    pub fn in_process<S>(service: S) -> Self
    where
        S: rmcp::Service<rmcp::RoleServer> + Clone,
    {
        Self::in_process_with(move || service.clone())
    }

    /// A server in this process. Each connection gets a fresh service.
    #[cfg(feature = "in-process")]
    pub fn in_process_with<S, F>(make: F) -> Self
    where
        S: rmcp::Service<rmcp::RoleServer>,
        F: Fn() -> S + Send + Sync + 'static,
    {
        Self(TransportKind::Channel {
            serve: in_process::serve_made(make),
            label: IN_PROCESS,
        })
    }

    /// A server as a function of its end of two typed channels. The connection is lost when the
    /// future ends.
    pub fn channel<F, Fut>(serve: F) -> Self
    where
        F: Fn(ServerEnd) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self(TransportKind::Channel {
            serve: in_process::serve_fn(serve),
            label: "channel",
        })
    }

    /// The command, if the server is a child process.
    #[cfg(feature = "stdio")]
    pub fn as_stdio(&self) -> Option<&StdioCommand> {
        match &self.0 {
            TransportKind::Stdio(command) => Some(command),
            #[allow(unreachable_patterns, reason = "which kinds there are, features say")]
            _ => None,
        }
    }

    /// The endpoint, if the server is reached over HTTP.
    #[cfg(feature = "http")]
    pub fn as_http(&self) -> Option<&HttpEndpoint> {
        match &self.0 {
            TransportKind::Http(endpoint) => Some(endpoint),
            #[allow(unreachable_patterns, reason = "which kinds there are, features say")]
            _ => None,
        }
    }

    /// The configured working directory of a child process.
    #[cfg(feature = "stdio")]
    pub fn folder(&self) -> Option<std::path::PathBuf> {
        self.as_stdio()?.folder().map(Into::into)
    }

    /// Whether the transport needs tokio's I/O driver.
    pub(crate) fn needs_io(&self) -> bool {
        self.is_stdio() || self.is_http()
    }

    /// The kind of transport, as shown in the status.
    pub fn label(&self) -> &'static str {
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(_) => STDIO,
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) if endpoint.is_sse => SSE,
            #[cfg(feature = "http")]
            TransportKind::Http(_) => HTTP,
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => STREAM,
            TransportKind::Channel { label, .. } => label,
        }
    }

    /// The config keys in which two transports differ.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        match (&self.0, &other.0) {
            #[cfg(feature = "stdio")]
            (TransportKind::Stdio(ours), TransportKind::Stdio(theirs)) => ours.differences(theirs),
            #[cfg(feature = "http")]
            (TransportKind::Http(ours), TransportKind::Http(theirs)) => ours.differences(theirs),
            #[cfg(feature = "stream")]
            (TransportKind::Stream(ours), TransportKind::Stream(theirs))
                if ours.is_same(theirs) =>
            {
                Vec::new()
            }
            (
                TransportKind::Channel { serve: ours, .. },
                TransportKind::Channel { serve: theirs, .. },
            ) if std::sync::Arc::ptr_eq(ours, theirs) => Vec::new(),
            _ => vec!["transport"],
        }
    }

    /// Whether two transports reach the same server, judged by their settings alone.
    pub(crate) fn is_reached_as(&self, other: &Self) -> bool {
        self.differences(other).is_empty()
    }

    /// Whether the headers differ and are valid, so that the next request can use the new ones.
    pub(crate) fn sends_otherwise(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            #[cfg(feature = "http")]
            (TransportKind::Http(ours), TransportKind::Http(theirs)) => {
                ours.sends_otherwise(theirs) && theirs.check_headers().is_ok()
            }
            _ => false,
        }
    }

    /// Whether another credential may be needed than for the other transport.
    #[cfg(feature = "http")]
    pub(crate) fn is_authorized_otherwise(&self, other: &Self) -> bool {
        !self.is_reached_as(other) || self.sends_otherwise(other)
    }

    /// The bearer token, resolved with the current environment.
    pub(crate) fn token(&self) -> Option<Secret<OsString>> {
        match &self.0 {
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => endpoint.token(),
            #[allow(unreachable_patterns, reason = "which kinds there are, features say")]
            _ => None,
        }
    }

    /// Identifies the server across runs: a hash of the command and its arguments, or of the URL, the
    /// socket and the account. Over HTTP it is the same server, whatever transport it speaks.
    pub(crate) fn fingerprint(&self) -> String {
        let label = std::iter::once(self.label().as_bytes());
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => fingerprint::of_parts(label.chain(command.identity())),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => {
                let parts = [HTTP.as_bytes(), endpoint.identity().as_bytes()].into_iter();
                let socket = endpoint.socket_path().map(|path| path.as_os_str());
                let socket = socket.map(OsStr::as_encoded_bytes);
                // An account is not mistaken for a socket.
                let socket = socket.into_iter().flat_map(|path| [&b"socket"[..], path]);
                let account = endpoint.account().map(str::as_bytes);
                fingerprint::of_parts(parts.chain(socket).chain(account))
            }
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => fingerprint::of_parts(label),
            TransportKind::Channel { .. } => fingerprint::of_parts(label),
        }
    }

    /// Whether it can be used with several accounts.
    pub(crate) fn has_accounts(&self) -> bool {
        #[cfg(feature = "auth")]
        return self.is_http();
        #[cfg(not(feature = "auth"))]
        false
    }

    /// The same server with another account.
    #[cfg_attr(
        not(feature = "auth"),
        allow(unused_variables, reason = "it has no accounts")
    )]
    pub(crate) fn with_account(&self, account: &str) -> Self {
        match &self.0 {
            #[cfg(feature = "auth")]
            TransportKind::Http(endpoint) => {
                let mut endpoint = endpoint.clone();
                endpoint.auth.account = Some(account.to_owned());
                Self(TransportKind::Http(endpoint))
            }
            _ => self.clone(),
        }
    }

    /// The account, where the server is used with several.
    pub(crate) fn account(&self) -> Option<&str> {
        match &self.0 {
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => endpoint.account(),
            #[allow(unreachable_patterns, reason = "which kinds there are, features say")]
            _ => None,
        }
    }

    /// The credential that the config itself provides, in parts; empty without one.
    pub(crate) fn static_credential(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => endpoint.static_credential(),
            #[allow(unreachable_patterns, reason = "which kinds there are, features say")]
            _ => Vec::new(),
        }
    }

    /// The secrets of the transport, resolved with the current environment.
    pub(crate) fn secrets(&self) -> Secrets {
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => command.secrets(|name| std::env::var_os(name)),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => endpoint.secrets(|name| std::env::var_os(name)),
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => Secrets::default(),
            TransportKind::Channel { .. } => Secrets::default(),
        }
    }

    /// Whether the server runs in this process.
    pub(crate) fn is_in_process(&self) -> bool {
        self.label() == IN_PROCESS
    }

    /// Whether the server is reached over HTTP, in either way.
    pub(crate) fn is_http(&self) -> bool {
        matches!(self.label(), HTTP | SSE)
    }

    pub(crate) fn is_stdio(&self) -> bool {
        self.label() == STDIO
    }
}

#[cfg(feature = "stdio")]
impl From<StdioCommand> for Transport {
    fn from(command: StdioCommand) -> Self {
        Self(TransportKind::Stdio(command))
    }
}

#[cfg(feature = "http")]
impl From<HttpEndpoint> for Transport {
    fn from(endpoint: HttpEndpoint) -> Self {
        Self(TransportKind::Http(endpoint))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => fmt::Debug::fmt(command, f),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => fmt::Debug::fmt(endpoint, f),
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => f.write_str(STREAM),
            TransportKind::Channel { label, .. } => f.write_str(label),
        }
    }
}

/// Describes the transport without possible secrets.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => fmt::Display::fmt(command, f),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => fmt::Display::fmt(endpoint, f),
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => f.write_str(STREAM),
            TransportKind::Channel { label, .. } => f.write_str(label),
        }
    }
}
