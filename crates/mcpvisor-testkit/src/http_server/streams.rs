//! The streams that a client opens with GET: the server's own, and answers that are resumed.

use std::io;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::control::{Shared, Told};
use super::exchange::{event, lost, say_lost};
use super::strike;
use super::wire::{Request, Wire};

pub(super) const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

pub(super) async fn open(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    request: &Request,
) -> io::Result<()> {
    if let Some(lost) = lost(shared, request, "GET") {
        return say_lost(wire, lost, &serde_json::Value::Null).await;
    }
    if let Some(fault) = shared.strikes("GET") {
        return strike::plain(wire, shared, fault).await;
    }
    let resumed = request.header("last-event-id");
    if let Some(answer) = resumed.and_then(|event| shared.take_parked(event)) {
        wire.begin(200, EVENTS).await?;
        wire.chunk(event(&answer).as_bytes()).await?;
        return wire.end().await;
    }
    let manners = shared.manners();
    if !manners.stream {
        return wire.answer(405, &[], b"").await;
    }
    let mut told = shared.streams();
    wire.begin(200, EVENTS).await?;
    follow(wire, &mut told).await?;
    wire.end().await
}

/// Passes on what streams are told, until they are ended. An error when the client left.
pub(super) async fn follow(wire: &mut Wire, told: &mut Receiver<Told>) -> io::Result<()> {
    loop {
        let message = tokio::select! {
            message = told.recv() => message,
            () = wire.left() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        match message {
            Ok(Told::Message(message)) => wire.chunk(event(&message).as_bytes()).await?,
            Err(RecvError::Lagged(_)) => {}
            Ok(Told::End) | Err(RecvError::Closed) => return Ok(()),
            Ok(Told::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}
