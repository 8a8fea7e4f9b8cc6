//! The tail of a server's stderr.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last bytes that a server wrote on stderr, up to the configured capacity. The output of an
/// earlier connection stays until the current one writes something, so that a server in a crash
/// loop does not lose the output that explains the crash.
#[derive(Debug)]
pub(crate) struct StderrRing(Mutex<Ring>);

#[derive(Debug)]
struct Ring {
    capacity: usize,
    bytes: VecDeque<u8>,
    /// The bytes are from an earlier connection.
    outdated: bool,
}

impl StderrRing {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Mutex::new(Ring {
            capacity,
            bytes: VecDeque::new(),
            outdated: false,
        }))
    }

    pub(crate) fn set_capacity(&self, capacity: usize) {
        let mut ring = self.lock();
        ring.capacity = capacity;
        let surplus = ring.bytes.len().saturating_sub(capacity);
        ring.bytes.drain(..surplus);
    }

    /// Appends bytes and evicts the oldest ones.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut ring = self.lock();
        let bytes = &bytes[bytes.len().saturating_sub(ring.capacity)..];
        if std::mem::take(&mut ring.outdated) {
            ring.bytes.clear();
        }
        let surplus = (ring.bytes.len() + bytes.len()).saturating_sub(ring.capacity);
        ring.bytes.drain(..surplus);
        ring.bytes.extend(bytes);
    }

    /// The bytes as text; invalid UTF-8 is replaced.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(self.lock().bytes.make_contiguous()).into_owned()
    }

    /// The same, but empty if the bytes are from an earlier connection.
    pub(crate) fn current_tail(&self) -> String {
        if self.lock().outdated {
            return String::new();
        }
        self.tail()
    }

    /// Marks the bytes as those of an earlier connection.
    pub(crate) fn start_connection(&self) {
        self.lock().outdated = true;
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // No panic while the lock is held can leave the bytes invalid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_STDERR: usize = 64 * 1024;

    #[test]
    fn the_ring_keeps_the_last_bytes_up_to_its_capacity() {
        let ring = StderrRing::new(MAX_STDERR);
        ring.push(&vec![b'a'; MAX_STDERR - 1]);
        ring.push(b"bc");
        let tail = ring.tail();
        assert_eq!(tail.len(), MAX_STDERR);
        assert!(tail.starts_with('a') && tail.ends_with("abc"));

        ring.push(&vec![b'd'; 3 * MAX_STDERR]);
        assert_eq!(ring.tail(), "d".repeat(MAX_STDERR));

        ring.start_connection();
        assert_eq!(
            ring.tail(),
            "d".repeat(MAX_STDERR),
            "output of the earlier connection"
        );
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
    fn a_character_cut_in_half_is_replaced() {
        let ring = StderrRing::new(MAX_STDERR);
        ring.push(&"ä".as_bytes()[1..]);
        ring.push(b"ok");
        assert_eq!(ring.tail(), "\u{fffd}ok");
    }
}
