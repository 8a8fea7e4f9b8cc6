//! A timer that sends an actor one message.

use std::time::Instant;

use ractor::{ActorRef, Message};
use tokio::task::JoinHandle;

/// Sends its message at a time, unless it is dropped before.
pub(crate) struct MessageTimer {
    at: Instant,
    task: JoinHandle<()>,
}

impl MessageTimer {
    pub(crate) fn start<M: Message>(actor: &ActorRef<M>, at: Instant, message: fn() -> M) -> Self {
        let actor = actor.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            // Without an actor there is nothing to wake.
            let _ = actor.send_message(message());
        });
        Self { at, task }
    }

    /// Starts a timer unless there is one that is due before. A timer that fires early does no
    /// harm, so it is replaced only by an earlier one.
    pub(crate) fn arm<M: Message>(
        timer: &mut Option<Self>,
        actor: &ActorRef<M>,
        at: Option<Instant>,
        message: fn() -> M,
    ) {
        if let Some(at) = at
            && timer.as_ref().is_none_or(|timer| at < timer.at)
        {
            *timer = Some(Self::start(actor, at, message));
        }
    }
}

impl Drop for MessageTimer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
