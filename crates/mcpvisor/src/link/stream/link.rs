//! The link over a pair of byte streams.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use tokio::time::Sleep;

use super::opener::{Reader, StreamOpener, Writer};
use crate::link::limits::MessageLimits;
use crate::link::lines::{InputPoll, LineInput, Outbox};
use crate::link::{DownKind, Inbound, Link, LinkDown, OpenFailure, PendingRequests};

/// How long to wait for the last output of a server that no longer reads.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// A pair of open streams.
pub(crate) struct StreamLink {
    /// `None` once it is closed or a write failed.
    writer: Option<Writer>,
    /// Written bytes may be in a buffer of the writer.
    needs_flush: bool,
    outbox: Outbox,
    input: LineInput<Reader>,
    /// A write failed; the last output is read until the timer fires.
    write_failure: Option<(LinkDown, Pin<Box<Sleep>>)>,
    /// No more messages will come.
    down: Option<LinkDown>,
}

impl StreamLink {
    /// Opens the streams. Cancel-safe: dropping it drops what the program has opened.
    pub(crate) async fn open(
        opener: &StreamOpener,
        limits: MessageLimits,
    ) -> Result<Self, OpenFailure> {
        let (reader, writer) = opener.open().await?;
        Ok(Self {
            writer: Some(writer),
            needs_flush: false,
            outbox: Outbox::default(),
            input: LineInput::new(reader, limits),
            write_failure: None,
            down: None,
        })
    }

    /// Writes as much as the stream accepts.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        let Poll::Ready(Err(error)) = self.poll_flush(cx) else {
            return;
        };
        self.writer = None;
        let problem = format!("the stream to the server is closed: {error}");
        let timer = Box::pin(tokio::time::sleep(DRAIN_TIMEOUT));
        let failure = (LinkDown::new(DownKind::WriteFailed, problem), timer);
        self.write_failure.get_or_insert(failure);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writer) = &mut self.writer else {
            return Poll::Ready(Ok(()));
        };
        if !self.outbox.is_empty() {
            self.needs_flush = true;
            ready!(self.outbox.poll_write(cx, writer))?;
        }
        if self.needs_flush {
            ready!(writer.as_mut().poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        if self.write_failure.is_none() {
            ready!(self.input.poll_resume(cx));
        }
        let polled = self.input.poll(cx, pending);
        self.note_input_end();
        match polled {
            InputPoll::Message(inbound) => Poll::Ready(Ok(inbound)),
            InputPoll::Busy => Poll::Pending,
            InputPoll::Drained => {
                let down = ready!(self.poll_down(cx));
                self.input.stop();
                Poll::Ready(self.input.gate.take_report().ok_or(down))
            }
        }
    }

    /// Records the end of the stream, or that the server violated the transport.
    fn note_input_end(&mut self) {
        let down = match (self.input.take_violation(), self.input.take_end()) {
            (Some(problem), _) => LinkDown::new(DownKind::Broken, problem),
            (None, Some(Ok(()))) => LinkDown::new(DownKind::Closed, "the server ended the stream"),
            (None, Some(Err(error))) => {
                let problem = format!("cannot read the stream of the server: {error}");
                LinkDown::new(DownKind::Closed, problem)
            }
            (None, None) => return,
        };
        self.down.get_or_insert(down);
    }

    /// Waits until nothing more can come.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if let Some(down) = &self.down {
            return Poll::Ready(down.clone());
        }
        let Some((failure, timer)) = &mut self.write_failure else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(cx));
        let down = failure.clone();
        self.down = Some(down.clone());
        Poll::Ready(down)
    }

    /// Writes the queued messages, shuts the writer down and reads to the end, all at once: a server
    /// that is blocked on its output does not read its input.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_at_end = self.input.poll_discard(cx).is_ready();
        if self.writer.is_some() && self.poll_flush(cx).is_ready() {
            let writer = self.writer.as_mut();
            let shut = writer.is_none_or(|writer| writer.as_mut().poll_shutdown(cx).is_ready());
            if shut {
                self.writer = None;
            }
        }
        match is_at_end && self.writer.is_none() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Link for StreamLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        self.outbox.push(&message)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        _keep_copy: bool,
    ) -> Result<u64, String> {
        match request {
            Some(request) => self.outbox.push_request(id, request),
            None => Err("the request was already sent".to_owned()),
        }
    }

    fn sent(&self) -> u64 {
        self.outbox.written()
    }

    fn withdraw(&mut self, from: u64) {
        self.outbox.withdraw(from);
    }

    fn has_capacity(&self) -> bool {
        self.outbox.has_capacity()
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        self.poll_write(cx);
        if let Poll::Ready(report) = self.input.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        let polled = self.poll_input(cx, pending);
        // Registers the timer of drops that this poll recorded.
        if polled.is_pending()
            && let Poll::Ready(report) = self.input.gate.poll_report(cx)
        {
            return Poll::Ready(Ok(report));
        }
        polled
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        let taken = self.input.take_buffered(pending);
        self.note_input_end();
        taken
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        let closed = poll_fn(|cx| self.poll_close(cx));
        let closed = tokio::time::timeout(grace.stdin, closed).await;
        self.writer = None;
        self.input.close();
        closed.map_err(|_| "the server did not end the stream in time".to_owned())
    }
}
