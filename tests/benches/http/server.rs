//! The bench server over HTTP, and its process.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::Outcome;
use crate::service::BenchServer;

/// When the server sends small packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Packets {
    /// Immediately.
    AtOnce,
    /// Once the client has acknowledged the previous one, as with a server that leaves Nagle's
    /// algorithm on.
    Delayed,
}

impl Packets {
    fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "at-once",
            Self::Delayed => "delayed",
        }
    }
}

/// Serves until its stdin is closed, so that it ends with the client even after a crash. The first
/// line of its output is its address. With a token, other requests are refused.
pub(crate) async fn serve(packets: &str, token: Option<&str>) -> Outcome<()> {
    let service = StreamableHttpService::new(
        || Ok(BenchServer),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let mut router = Router::new().nest_service("/mcp", service);
    if let Some(token) = token {
        router = router.layer(middleware::from_fn_with_state(
            format!("Bearer {token}"),
            check_token,
        ));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let nodelay = packets == Packets::AtOnce.word();
    let listener = listener.tap_io(move |stream| {
        let _ = stream.set_nodelay(nodelay);
    });
    let mut out = std::io::stdout();
    writeln!(out, "http://{address}/mcp")?;
    out.flush()?;
    let mut stdin = tokio::io::stdin();
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        closed = stdin.read_u8() => drop(closed),
    }
    Ok(())
}

async fn check_token(State(bearer): State<String>, request: Request, next: Next) -> Response {
    match request.headers().get(AUTHORIZATION) {
        Some(sent) if *sent == bearer => next.run(request).await,
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// A server process, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    _process: Child,
}

impl Server {
    pub(crate) async fn start(packets: Packets) -> Outcome<Self> {
        Self::start_with(packets, None).await
    }

    /// Starts a server that refuses requests without this token.
    pub(crate) async fn protected(token: &str) -> Outcome<Self> {
        Self::start_with(Packets::AtOnce, Some(token)).await
    }

    async fn start_with(packets: Packets, token: Option<&str>) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["http-server", packets.word()])
            .args(token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no output of the server")?;
        let mut lines = BufReader::new(stdout).lines();
        let url = lines.next_line().await?.ok_or("the server ended at once")?;
        Ok(Self {
            url,
            _process: process,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}
