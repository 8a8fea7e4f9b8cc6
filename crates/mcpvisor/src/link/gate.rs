//! Lets in what nobody asked for, within a bound, and tells what it refused.
//!
//! Replies do not come by here. What is refused is told in one message every now and then, so that a
//! flood costs those who hear of it next to nothing, however fast it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcpvisor_core::ListKind;
use tokio::time::{Instant, Sleep};

use super::Inbound;
use super::bucket::Bucket;
use super::codec::Decoded;

/// What was refused is told so often.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// A message takes one place in the bucket for every so many bytes of memory begun, so that what
/// waits to be looked at is bounded too. Nearly every message takes one.
const BYTES_PER_PLACE: usize = 16 * 1024;

/// The gate of one connection.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    bucket: Bucket,
    refused: Option<Refused>,
    /// Something was refused since that was last asked for.
    flooded: bool,
}

/// What was refused since the last report.
#[derive(Debug)]
struct Refused {
    dropped: u64,
    strays: u64,
    changed: Vec<ListKind>,
    report: Pin<Box<Sleep>>,
}

impl Gate {
    /// The room that there is now.
    pub(crate) fn room(&self) -> Room {
        Room(self.bucket.free(Instant::now().into_std()))
    }

    /// Lets in what was read and fits; what is refused comes up later, in a report.
    pub(crate) fn admit(&mut self, decoded: Decoded) -> Option<Inbound> {
        match decoded {
            Decoded::Nothing => None,
            Decoded::Answer(inbound) => Some(inbound),
            Decoded::Unasked(inbound, bytes) => {
                self.let_in(bytes);
                Some(inbound)
            }
            Decoded::Refused(changed) => {
                self.refuse(changed);
                None
            }
            Decoded::RefusedNoise => {
                self.refused().strays += 1;
                None
            }
        }
    }

    /// A message that takes so many bytes was let in.
    fn let_in(&mut self, bytes: usize) {
        self.bucket.take(Instant::now().into_std(), places(bytes));
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

    /// Whether something was refused since this was last asked for.
    #[cfg(feature = "stdio")]
    pub(crate) fn was_flooded(&mut self) -> bool {
        std::mem::take(&mut self.flooded)
    }

    fn refused(&mut self) -> &mut Refused {
        self.flooded = true;
        self.refused.get_or_insert_with(|| Refused {
            dropped: 0,
            strays: 0,
            changed: Vec::new(),
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
        })
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

fn places(bytes: usize) -> u32 {
    // Nothing that is read takes so much that this would be cut off.
    u32::try_from(bytes / BYTES_PER_PLACE + 1).unwrap_or(u32::MAX)
}
