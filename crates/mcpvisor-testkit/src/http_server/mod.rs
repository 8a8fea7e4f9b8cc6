//! An MCP server over Streamable HTTP, or over HTTP+SSE, with injected faults, for tests.
//!
//! It runs in the test's own process on its own port. A test controls it while it serves: it can
//! forget its sessions, freeze, stop, resume on its port, or inject a fault. It counts connections,
//! sessions, requests, and how often each side effect ran. HTTP is implemented by hand, because the
//! faults must be exact: which bytes are sent, which are withheld, and when the socket closes.
//! `mcpvisor-badserver --http` is the same server as a program.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use mcpvisor_testkit::http_server::{HttpOptions, HttpServer};
//!
//! let server = HttpServer::start(HttpOptions::default()).await;
//! server.fault("http-404").on("tools/call").once();
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! assert_eq!(server.sessions_opened(), 0);
//! # }
//! ```

mod answers;
mod connection;
mod control;
mod exchange;
mod fault;
mod guard;
mod http_sse;
mod inject;
mod listener;
mod modern;
mod other_origin;
mod record;
mod streams;
mod wire;
mod wire_reply;

use std::time::Duration;

pub use control::{FaultBuilder, HttpServer};
pub use fault::{HttpFault, list_faults};
pub use record::Received;

// Shared with the authorization server.
pub(crate) use control::WeakHttpServer;
pub(crate) use guard::RequestGuard;
pub(crate) use listener::{Listener, Service};
pub(crate) use wire::{Request, Wire};
pub(crate) use wire_reply::{Body, WireReply};

/// How a server without faults replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// One JSON body.
    Json,
    /// An event stream that ends with the reply.
    Sse,
    /// The stream of the session: the server speaks HTTP+SSE (2024-11-05), not Streamable HTTP.
    Session,
}

/// The protocol revisions that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpEra {
    /// Only `initialize`.
    Legacy,
    /// Only 2026-07-28.
    Modern,
    /// Both; the client's first request decides.
    Both,
}

/// How a server reports an unknown session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostSession {
    /// 404, as the protocol requires.
    NotFound,
    /// 400 with a text in a JSON-RPC error without an id, as `server-everything` does.
    BadRequest,
    /// 410 with a text in a JSON-RPC error without an id.
    Gone,
    /// 200 with a JSON-RPC error under the request's id.
    Answer,
}

/// The options of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpOptions {
    /// How it replies.
    pub reply: ReplyKind,
    /// Which revisions it speaks.
    pub era: HttpEra,
    /// Whether it assigns session ids, in the revisions that have them.
    pub sessions: bool,
    /// How it reports an unknown session.
    pub lost: LostSession,
    /// Whether it offers a server stream (GET).
    pub stream: bool,
    /// Whether event streams start with an id from which they can be resumed.
    pub resumable: bool,
    /// Whether small packets are sent immediately (`TCP_NODELAY`). Without it, replies may wait for
    /// the client's acknowledgement.
    pub nodelay: bool,
    /// Keep-alive timeout of idle connections, as exact as uvicorn's.
    pub keep_alive: Option<Duration>,
    /// The `Keep-Alive: timeout` that it announces, in seconds.
    pub announced: Option<u64>,
    /// Whether it has the tools of [`TaskBook`](crate::task_book::TaskBook), and runs them as tasks.
    pub tasks: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            reply: ReplyKind::Json,
            era: HttpEra::Legacy,
            sessions: true,
            lost: LostSession::NotFound,
            stream: true,
            resumable: false,
            nodelay: true,
            keep_alive: None,
            announced: None,
            tasks: false,
        }
    }
}

impl HttpOptions {
    /// Replies with event streams.
    pub fn sse() -> Self {
        Self {
            reply: ReplyKind::Sse,
            ..Self::default()
        }
    }

    /// Speaks HTTP+SSE, the transport of 2024-11-05.
    pub fn http_sse() -> Self {
        Self {
            reply: ReplyKind::Session,
            ..Self::default()
        }
    }

    /// Replies with event streams that can be resumed.
    pub fn resumable() -> Self {
        Self {
            resumable: true,
            ..Self::sse()
        }
    }

    /// Speaks only 2026-07-28, which has no sessions.
    pub fn modern() -> Self {
        Self {
            era: HttpEra::Modern,
            sessions: false,
            ..Self::default()
        }
    }

    /// Runs tools as tasks.
    #[must_use]
    pub fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// Assigns no session ids.
    pub fn without_sessions() -> Self {
        Self {
            sessions: false,
            ..Self::default()
        }
    }

    /// The same options, but lost sessions are reported in this way.
    #[must_use]
    pub fn lost(mut self, lost: LostSession) -> Self {
        self.lost = lost;
        self
    }
}
