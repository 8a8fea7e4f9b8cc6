//! Outgoing notifications and replies.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::link::http::exchange::outgoing::Outgoing;
use crate::link::http::headers::LinkHeaders;

/// Messages in flight at once.
const MAX_IN_FLIGHT: usize = 8;

/// Queued messages; further ones are dropped.
const MAX_QUEUED: usize = 256;

/// Messages that wait until fewer are in flight.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    pub(crate) queued: VecDeque<Outgoing>,
    in_flight: usize,
}

impl MessageQueue {
    /// Queues a message, or drops it if the queue is full.
    pub(crate) fn push(&mut self, message: Outgoing) {
        if self.queued.len() < MAX_QUEUED {
            self.queued.push_back(message);
        }
    }

    /// Takes the next message to send. It counts as in flight until [`Self::finished`].
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let message = self.queued.pop_front()?;
        self.in_flight += 1;
        Some(message)
    }

    /// A message is no longer in flight.
    pub(crate) fn finished(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether no message is queued or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.in_flight == 0
    }

    pub(crate) fn update_headers(&mut self, headers: &Arc<LinkHeaders>) {
        for message in &mut self.queued {
            message.headers = Arc::clone(headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;

    fn message(number: usize) -> Outgoing {
        Outgoing::new(Method::POST, &Arc::default(), vec![number as u8])
    }

    #[test]
    fn messages_are_sent_in_order_and_a_few_at_once() {
        let mut queue = MessageQueue::default();
        for number in 0..MAX_IN_FLIGHT + 2 {
            queue.push(message(number));
        }
        let sent: Vec<u8> = std::iter::from_fn(|| queue.next())
            .map(|message| message.body[0])
            .collect();
        assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7]);
        queue.finished();
        assert_eq!(queue.next().unwrap().body[0], 8);
        assert!(queue.next().is_none());
    }

    #[test]
    fn a_full_queue_drops_further_messages() {
        let mut queue = MessageQueue::default();
        for number in 0..2 * MAX_QUEUED {
            queue.push(message(number));
        }
        assert_eq!(queue.queued.len(), MAX_QUEUED);
        queue.queued.clear();
        assert!(queue.next().is_none());
    }

    #[test]
    fn queued_messages_are_sent_with_new_headers() {
        let mut queue = MessageQueue::default();
        queue.push(message(0));
        let value = HeaderValue::from_static("new");
        let mut fresh = LinkHeaders::default();
        fresh.insert(http::header::USER_AGENT, value);
        queue.update_headers(&Arc::new(fresh));
        assert_eq!(queue.next().unwrap().headers["user-agent"], "new");
    }
}
