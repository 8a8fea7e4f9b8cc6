//! The task that runs an in-process server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Sleep;

use crate::link::{DownKind, LinkDown};

/// How long to wait for the end of a server that closed its channel, to report a panic.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// The server's task; aborted when dropped.
#[derive(Debug)]
pub(super) struct ServerTask {
    task: JoinHandle<()>,
    ended: Option<LinkDown>,
    drain_timer: Option<Pin<Box<Sleep>>>,
}

impl ServerTask {
    pub(super) fn spawn(server: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            task: tokio::spawn(server),
            ended: None,
            drain_timer: None,
        }
    }

    pub(super) fn abort(&self) {
        self.task.abort();
    }

    /// Waits for the task to end.
    pub(super) async fn end(&mut self) {
        poll_fn(|cx| self.poll_end(cx)).await;
    }

    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_none() {
            let result = ready!(Pin::new(&mut self.task).poll(cx));
            self.ended = Some(LinkDown::new(DownKind::Closed, describe_end(result)));
        }
        Poll::Ready(())
    }

    /// Why the server sends no more messages: its task ended, or it dropped its sender.
    pub(super) fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<LinkDown> {
        if self.poll_end(cx).is_pending() {
            let drain_timer = self
                .drain_timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
            ready!(drain_timer.as_mut().poll(cx));
        }
        Poll::Ready(
            self.ended.clone().unwrap_or_else(|| {
                LinkDown::new(DownKind::Closed, "the server closed its channel")
            }),
        )
    }
}

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn describe_end(result: Result<(), JoinError>) -> String {
    let Err(error) = result else {
        return "the server ended".to_owned();
    };
    let Ok(panic) = error.try_into_panic() else {
        return "the server was aborted".to_owned();
    };
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => format!("the server panicked: {text}"),
        None => "the server panicked".to_owned(),
    }
}
