//! An MCP server over Streamable HTTP with injected faults, for specifications.
//!
//! It runs in the test's own process on a port of its own and is controlled while it serves:
//! forget its sessions, freeze, stop, come back on its port, inject a fault. It counts what it
//! saw: connections, sessions, requests, and how often each side effect ran. HTTP is written by hand,
//! because its faults must be exact: which bytes are sent, which are withheld, and when the socket
//! closes. `mcpvisor-badserver --http` is the same server as a program.
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
mod control;
mod exchange;
mod fault;
mod inject;
mod listener;
mod modern;
mod other_origin;
mod record;
mod streams;
mod wire;

use std::time::Duration;

pub use control::{FaultBuilder, HttpServer};
pub use fault::{HttpFault, list_faults};
pub use record::Received;

/// How a server answers when nothing is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// One JSON body.
    Json,
    /// A stream of events that ends with the answer.
    Sse,
}

/// The revisions of the protocol that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpEra {
    /// `initialize` alone.
    Legacy,
    /// 2026-07-28 alone.
    Modern,
    /// Both, whichever the client begins with.
    Both,
}

/// How a server says that it does not know a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostSession {
    /// 404, as the protocol wants it.
    NotFound,
    /// 400 with a text in a JSON-RPC error without an id, as `server-everything` does.
    BadRequest,
    /// 410 with a text in a JSON-RPC error without an id.
    Gone,
    /// 200 with a JSON-RPC error under the request's id.
    Answer,
}

/// What kind of server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpOptions {
    /// How it answers.
    pub reply: ReplyKind,
    /// Which revisions it speaks.
    pub era: HttpEra,
    /// Whether it gives out session ids, in the revisions that have them.
    pub sessions: bool,
    /// How it says that it does not know one.
    pub lost: LostSession,
    /// Whether it offers a server stream (GET), apart from the answers.
    pub stream: bool,
    /// Whether streams of events begin with an id from which they could be resumed.
    pub resumable: bool,
    /// Whether small packets leave at once. Without it answers may wait for the client's
    /// acknowledgement, as with a server that does not think of it.
    pub nodelay: bool,
    /// Keep-alive timeout of idle connections, as exact as that of uvicorn.
    pub keep_alive: Option<Duration>,
    /// The seconds that `Keep-Alive: timeout` announces.
    pub announced: Option<u64>,
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
        }
    }
}

impl HttpOptions {
    /// Answers with streams of events.
    pub fn sse() -> Self {
        Self {
            reply: ReplyKind::Sse,
            ..Self::default()
        }
    }

    /// Answers with streams of events that name an id to resume them from.
    pub fn resumable() -> Self {
        Self {
            resumable: true,
            ..Self::sse()
        }
    }

    /// Speaks 2026-07-28 alone, which has no sessions.
    pub fn modern() -> Self {
        Self {
            era: HttpEra::Modern,
            sessions: false,
            ..Self::default()
        }
    }

    /// Gives out no session ids.
    pub fn without_sessions() -> Self {
        Self {
            sessions: false,
            ..Self::default()
        }
    }

    /// The same, but it says in this way that a session is lost.
    #[must_use]
    pub fn lost(mut self, lost: LostSession) -> Self {
        self.lost = lost;
        self
    }
}
