//! Lets in what nobody asked for, within a bound, and tells what it refused.
//!
//! Replies do not come by here. What is refused is told in one message every now and then, so that a
//! flood costs those who hear of it next to nothing, however fast it is.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::ListKind;
use rmcp::model::RequestId;
use tokio::time::{Instant, Sleep};

use super::codec::Decoded;
use super::token_bucket::Bucket;
use super::{Inbound, Refusal};

/// What was refused is told so often.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// A message takes one place in the bucket for every so many bytes of memory begun, so that what
/// waits to be looked at is bounded too. Nearly every message takes one.
const BYTES_PER_PLACE: usize = 16 * 1024;

/// So many requests that were refused are told in one report; more would be a flood of answers.
const TOLD: usize = 16;

/// The gate of one connection.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    bucket: Bucket,
    refused: Option<Refused>,
    /// A request takes so many places more.
    request_places: u32,
}

/// What was refused since the last report.
#[derive(Debug)]
struct Refused {
    dropped: u64,
    strays: u64,
    changed: Vec<ListKind>,
    requests: Vec<(RequestId, Refusal)>,
    report: Pin<Box<Sleep>>,
}

impl Gate {
    /// A request takes so many places more, because answering it costs more than reading it.
    #[cfg(feature = "http")]
    pub(crate) fn with_request_places(places: u32) -> Self {
        Self {
            request_places: places,
            ..Self::default()
        }
    }

    /// The room that there is now.
    pub(crate) fn room(&self) -> Room {
        Room(self.bucket.free(Instant::now().into_std()))
    }

    /// Lets in what was read and fits; what is refused comes up later, in a report. Of a batch the
    /// first message is given, and the others are put `behind`.
    pub(crate) fn admit(
        &mut self,
        decoded: Decoded,
        behind: &mut VecDeque<Inbound>,
    ) -> Option<Inbound> {
        match decoded {
            Decoded::Nothing => None,
            Decoded::Answer(inbound) => Some(inbound),
            Decoded::Unasked(inbound, bytes) => {
                self.let_in(bytes, &inbound);
                Some(inbound)
            }
            Decoded::Refused(changed) => {
                self.refuse(changed);
                None
            }
            Decoded::RefusedRequest(id, why) => {
                let refused = self.refused();
                refused.dropped += 1;
                if refused.requests.len() < TOLD {
                    refused.requests.push((id, why));
                }
                None
            }
            Decoded::RefusedNoise => {
                self.refused().strays += 1;
                None
            }
            Decoded::Batch(messages) => {
                let mut first = None;
                for message in messages {
                    let admitted = self.admit(message, behind);
                    put(admitted, &mut first, behind);
                }
                first
            }
        }
    }

    /// A message that takes so many bytes was let in.
    fn let_in(&mut self, bytes: usize, inbound: &Inbound) {
        let more = match inbound {
            Inbound::Request { .. } => self.request_places,
            _ => 0,
        };
        let places = places(bytes).saturating_add(more);
        self.bucket.take(Instant::now().into_std(), places);
    }

    /// A message was refused. That a list changed is not lost: it is told with the report.
    fn refuse(&mut self, changed: &[ListKind]) {
        let refused = self.refused();
        if changed.is_empty() {
            refused.dropped += 1;
        }
        for list in changed {
            if !refused.changed.contains(list) {
                refused.changed.push(*list);
            }
        }
    }

    fn refused(&mut self) -> &mut Refused {
        self.refused.get_or_insert_with(|| Refused {
            dropped: 0,
            strays: 0,
            changed: Vec::new(),
            requests: Vec::new(),
            report: Box::pin(tokio::time::sleep(REPORT_EVERY)),
        })
    }

    /// Waits for the next report; without anything to report, for ever.
    pub(crate) fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<Inbound> {
        let Some(refused) = &mut self.refused else {
            return Poll::Pending;
        };
        ready!(refused.report.as_mut().poll(cx));
        self.take_report().map_or(Poll::Pending, Poll::Ready)
    }

    /// What there is to report, before its time.
    pub(crate) fn take_report(&mut self) -> Option<Inbound> {
        self.refused.take().map(|refused| Inbound::Refused {
            dropped: refused.dropped,
            strays: refused.strays,
            changed: refused.changed,
            requests: refused.requests,
        })
    }
}

/// Puts a message first, or behind the others if there is a first one.
pub(crate) fn put(
    message: Option<Inbound>,
    first: &mut Option<Inbound>,
    behind: &mut VecDeque<Inbound>,
) {
    match first {
        Some(_) => behind.extend(message),
        None => *first = message,
    }
}

/// Room for something that nobody asked for, in places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room(u32);

impl Room {
    /// Whether a message that takes so many bytes of memory fits in.
    pub(crate) fn has(self, bytes: usize) -> bool {
        places(bytes) <= self.0
    }
}

/// The bytes of the places that a message takes.
pub(crate) fn span(bytes: usize) -> usize {
    (bytes / BYTES_PER_PLACE + 1) * BYTES_PER_PLACE
}

fn places(bytes: usize) -> u32 {
    // Nothing that is read takes so much that this would be cut off.
    u32::try_from(bytes / BYTES_PER_PLACE + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_the_requests_that_are_refused_a_few_are_told_and_all_are_counted() {
        let mut gate = Gate::default();
        for number in 0..1_000 {
            let request = Decoded::RefusedRequest(RequestId::Number(number), Refusal::TooMany);
            assert!(gate.admit(request, &mut VecDeque::new()).is_none());
        }
        let Some(Inbound::Refused {
            dropped, requests, ..
        }) = gate.take_report()
        else {
            panic!("there is no report");
        };
        assert_eq!((dropped, requests.len()), (1_000, TOLD));
        assert_eq!(requests[0], (RequestId::Number(0), Refusal::TooMany));
    }
}
