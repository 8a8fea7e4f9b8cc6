//! The streams that a client opens with GET: the server's own stream, and resumed replies.

use std::io;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::control::{Shared, StreamCommand};
use super::exchange::{event, lost, reject_lost_session};
use super::inject;
use super::wire::{Request, Wire};

pub(super) const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

pub(super) async fn open(
    wire: &mut Wire,
    shared: &Arc<Shared>,
    request: &Request,
) -> io::Result<()> {
    if let Some(lost) = lost(shared, request, "GET") {
        return reject_lost_session(wire, lost, &serde_json::Value::Null).await;
    }
    if let Some(fault) = shared.take_fault("GET") {
        return inject::plain(wire, shared, fault).await;
    }
    let resumed = request.header("last-event-id");
    if let Some(answer) = resumed.and_then(|event| shared.take_parked(event)) {
        wire.begin(200, EVENTS).await?;
        wire.chunk(event(&answer).as_bytes()).await?;
        return wire.end().await;
    }
    let options = shared.options();
    if !options.stream {
        return wire.answer(405, &[], b"").await;
    }
    let mut commands = shared.streams();
    wire.begin(200, EVENTS).await?;
    follow(wire, &mut commands).await?;
    wire.end().await
}

/// Forwards messages until the stream is ended. Fails when the client closes the connection.
pub(super) async fn follow(
    wire: &mut Wire,
    commands: &mut Receiver<StreamCommand>,
) -> io::Result<()> {
    loop {
        let message = tokio::select! {
            message = commands.recv() => message,
            () = wire.client_closed() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        match message {
            Ok(StreamCommand::Message(message)) => wire.chunk(event(&message).as_bytes()).await?,
            Err(RecvError::Lagged(_)) => {}
            Ok(StreamCommand::End) | Err(RecvError::Closed) => return Ok(()),
            Ok(StreamCommand::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}
