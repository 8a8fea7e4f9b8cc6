//! A whole reply as data, also one that breaks off or never ends.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::wire::Wire;

/// Bytes per write of an endless body.
const PIECE: usize = 64 * 1024;

/// The beginning of a JSON document without an end.
const OPENING: &str = r#"{"filling":""#;

/// A reply that is written once it is complete.
#[derive(Debug, Clone)]
pub(crate) struct WireReply {
    /// The pause before the first byte.
    pub(crate) delay: Duration,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

/// What follows the head of a reply.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// These bytes.
    Whole(Vec<u8>),
    /// A JSON document without an end, as fast as the client reads.
    Endless,
    /// A JSON document without an end, one byte per interval.
    Drip(Duration),
    /// Not even a head: the connection is closed.
    Closed,
}

impl WireReply {
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            delay: Duration::ZERO,
            status,
            headers: vec![("content-type".to_owned(), kind.to_owned())],
            body: Body::Whole(body.into()),
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn redirect(status: u16, location: &str) -> Self {
        Self::text(status, "").header("location", location)
    }

    pub(crate) fn closed() -> Self {
        let mut reply = Self::text(0, "");
        reply.body = Body::Closed;
        reply
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a field to a JSON object.
    pub(crate) fn with_json_field(mut self, name: &str, value: Value) -> Self {
        if let Body::Whole(bytes) = &mut self.body
            && let Ok(mut object) = serde_json::from_slice::<Value>(bytes)
        {
            object[name] = value;
            *bytes = object.to_string().into_bytes();
        }
        self
    }

    /// The body as text; empty if it has no end.
    pub(crate) fn text_body(&self) -> String {
        match &self.body {
            Body::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::Endless | Body::Drip(_) | Body::Closed => String::new(),
        }
    }

    /// The status that the client sees, if any.
    pub(crate) fn visible_status(&self) -> Option<u16> {
        (!matches!(self.body, Body::Closed)).then_some(self.status)
    }

    /// Writes the reply. An error ends the connection.
    pub(crate) async fn send(self, wire: &mut Wire) -> io::Result<()> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let headers = self.headers.iter();
        let headers: Vec<(&str, &str)> = headers
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let (piece, pause) = match self.body {
            Body::Whole(bytes) => return wire.answer(self.status, &headers, &bytes).await,
            Body::Closed => return Err(io::ErrorKind::ConnectionAborted.into()),
            Body::Endless => ("x".repeat(PIECE), Duration::ZERO),
            Body::Drip(interval) => ("x".to_owned(), interval),
        };
        wire.begin(self.status, &headers).await?;
        wire.chunk(OPENING.as_bytes()).await?;
        loop {
            wire.chunk(piece.as_bytes()).await?;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }
}
