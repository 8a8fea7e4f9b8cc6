//! The end of what a server wrote on its stderr, within a bound.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So much of a server's stderr is kept, in bytes.
pub(crate) const MAX_STDERR: usize = 64 * 1024;

/// The last 64 KiB that a server wrote on its stderr, across its connections.
#[derive(Debug, Default)]
pub(crate) struct StderrRing {
    bytes: Mutex<VecDeque<u8>>,
}

impl StderrRing {
    /// Adds what was written; the oldest bytes make room.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(MAX_STDERR)..];
        let mut ring = self.lock();
        let surplus = (ring.len() + bytes.len()).saturating_sub(MAX_STDERR);
        ring.drain(..surplus);
        ring.extend(bytes);
    }

    /// All that is kept, as text; what is no UTF-8 is replaced.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(self.lock().make_contiguous()).into_owned()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.lock() = VecDeque::new();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // Nothing that holds the lock can leave the bytes in a bad state.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_bytes_and_no_more() {
        let ring = StderrRing::default();
        ring.push(&vec![b'a'; MAX_STDERR - 1]);
        ring.push(b"bc");
        let tail = ring.tail();
        assert_eq!(tail.len(), MAX_STDERR);
        assert!(tail.starts_with('a') && tail.ends_with("abc"));

        ring.push(&vec![b'd'; 3 * MAX_STDERR]);
        assert_eq!(ring.tail(), "d".repeat(MAX_STDERR));

        ring.clear();
        assert_eq!(ring.tail(), "");
    }

    #[test]
    fn a_character_cut_in_half_does_not_spoil_the_rest() {
        let ring = StderrRing::default();
        ring.push(&"ä".as_bytes()[1..]);
        ring.push(b"ok");
        assert_eq!(ring.tail(), "\u{fffd}ok");
    }
}
