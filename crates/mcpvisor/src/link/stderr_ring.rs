//! The end of what a server wrote on its stderr, within a bound.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last bytes that a server wrote on its stderr, as many as its config says. What it wrote on an earlier connection stays
/// until it writes something on the present one: a server that ends at once, and is started again at
/// once, must not take its last words along.
#[derive(Debug)]
pub(crate) struct StderrRing(Mutex<Ring>);

#[derive(Debug)]
struct Ring {
    /// So many are kept.
    most: usize,
    bytes: VecDeque<u8>,
    /// What is kept is of an earlier connection.
    outdated: bool,
}

impl StderrRing {
    /// Nothing yet. So many bytes are kept.
    pub(crate) fn new(most: usize) -> Self {
        Self(Mutex::new(Ring {
            most,
            bytes: VecDeque::new(),
            outdated: false,
        }))
    }

    /// So many bytes are kept from now on.
    pub(crate) fn set_capacity(&self, most: usize) {
        let mut ring = self.lock();
        ring.most = most;
        let surplus = ring.bytes.len().saturating_sub(most);
        ring.bytes.drain(..surplus);
    }

    /// Adds what was written; the oldest bytes make room.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut ring = self.lock();
        let bytes = &bytes[bytes.len().saturating_sub(ring.most)..];
        if std::mem::take(&mut ring.outdated) {
            ring.bytes.clear();
        }
        let surplus = (ring.bytes.len() + bytes.len()).saturating_sub(ring.most);
        ring.bytes.drain(..surplus);
        ring.bytes.extend(bytes);
    }

    /// All that is kept, as text; what is no UTF-8 is replaced.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(self.lock().bytes.make_contiguous()).into_owned()
    }

    /// The same, unless it is all of an earlier connection.
    pub(crate) fn current_tail(&self) -> String {
        if self.lock().outdated {
            return String::new();
        }
        self.tail()
    }

    /// A new connection begins.
    pub(crate) fn start_connection(&self) {
        self.lock().outdated = true;
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Nothing that holds the lock can leave the bytes in a bad state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_STDERR: usize = 64 * 1024;

    #[test]
    fn the_ring_keeps_the_last_bytes_and_no_more() {
        let ring = StderrRing::new(MAX_STDERR);
        ring.push(&vec![b'a'; MAX_STDERR - 1]);
        ring.push(b"bc");
        let tail = ring.tail();
        assert_eq!(tail.len(), MAX_STDERR);
        assert!(tail.starts_with('a') && tail.ends_with("abc"));

        ring.push(&vec![b'd'; 3 * MAX_STDERR]);
        assert_eq!(ring.tail(), "d".repeat(MAX_STDERR));

        ring.start_connection();
        assert_eq!(ring.tail(), "d".repeat(MAX_STDERR), "the last words");
        assert_eq!(ring.current_tail(), "");
        ring.push(b"new");
        ring.push(b"er");
        assert_eq!(ring.tail(), "newer");
        assert_eq!(ring.current_tail(), "newer");
        ring.set_capacity(3);
        assert_eq!(ring.tail(), "wer");
        ring.push(b"st");
        assert_eq!(ring.tail(), "rst");
    }

    #[test]
    fn a_character_cut_in_half_does_not_spoil_the_rest() {
        let ring = StderrRing::new(MAX_STDERR);
        ring.push(&"ä".as_bytes()[1..]);
        ring.push(b"ok");
        assert_eq!(ring.tail(), "\u{fffd}ok");
    }
}
