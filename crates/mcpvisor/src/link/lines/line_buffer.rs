//! Splits a byte stream into lines, within a size limit.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncRead;
use tokio_util::bytes::BufMut;
use tokio_util::io::poll_read_buf;

#[cfg(test)]
use crate::link::codec::END_BYTES;
use crate::link::codec::partial_message::{MAX_SKIPPED_FACTOR, OversizedLine};

/// The buffer size of an idle link.
const INITIAL_BYTES: usize = 8 * 1024;

/// A larger buffer is freed once it is empty.
const RETAINED_BYTES: usize = 256 * 1024;

/// The line is longer than this many bytes, and its end is not worth waiting for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::link) struct EndlessLine(pub(in crate::link) usize);

#[derive(Debug, PartialEq, Eq)]
pub(in crate::link) enum Frame {
    /// A line without its newline, as a range of the buffer that is valid until the next read.
    Line(Range<usize>),
    /// A line beyond the maximum length; only its head and tail are kept.
    Oversized(OversizedLine),
}

/// Bytes that were read and not yet taken as lines.
#[derive(Debug)]
pub(in crate::link) struct LineBuffer {
    /// The maximum length of a line.
    max_bytes: usize,
    buffer: Vec<u8>,
    /// The start of the next line.
    start: usize,
    /// `start..scanned` contains no newline.
    scanned: usize,
    /// Set while the bytes at `start` continue an oversized line.
    skipping: Option<SkippedLine>,
}

/// The part of an oversized line that was skipped.
#[derive(Debug, Default)]
struct SkippedLine {
    line: OversizedLine,
    length: usize,
}

impl LineBuffer {
    pub(in crate::link) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            skipping: None,
        }
    }

    /// Sets the maximum length of the next lines.
    pub(in crate::link) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Takes the next complete line.
    pub(in crate::link) fn next(&mut self) -> Result<Option<Frame>, EndlessLine> {
        let found = memchr::memchr(b'\n', &self.buffer[self.scanned..]);
        let line_end = found.map_or(self.buffer.len(), |offset| self.scanned + offset);
        self.scanned = line_end;
        if self.skipping.is_some() || line_end - self.start > self.max_bytes {
            return self.skip(line_end, found.is_some());
        }
        Ok(found.map(|_| {
            let line = self.start..line_end;
            self.advance(line_end + 1);
            Frame::Line(line)
        }))
    }

    /// The bytes of a line that was taken since the last read.
    pub(in crate::link) fn get(&self, line: Range<usize>) -> &[u8] {
        self.buffer.get(line).unwrap_or_default()
    }

    /// Moves the buffer of the lines that were taken out; only the bytes after them are copied.
    pub(in crate::link) fn detach(&mut self) -> Vec<u8> {
        let rest = self.buffer[self.start..].to_vec();
        self.advance(0);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Takes the bytes after the last newline, once the stream ended. Empty for an oversized line.
    pub(in crate::link) fn take_rest(&mut self) -> Range<usize> {
        let rest = self.start..self.buffer.len();
        self.advance(rest.end);
        match self.skipping.take() {
            None => rest,
            Some(_) => rest.end..rest.end,
        }
    }

    /// Reads once, at most `max_read` bytes, and returns the number of bytes; 0 means the end of
    /// the stream.
    pub(in crate::link) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        max_read: usize,
    ) -> Poll<io::Result<usize>> {
        self.reserve();
        let spare = self.buffer.capacity() - self.buffer.len();
        let mut buffer = (&mut self.buffer).limit(max_read.min(spare));
        poll_read_buf(Pin::new(reader), cx, &mut buffer)
    }

    /// The number of bytes that were read and not yet taken.
    pub(in crate::link) fn unfinished(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn advance(&mut self, to: usize) {
        self.start = to;
        self.scanned = to;
    }

    /// Skips a part of an oversized line.
    fn skip(&mut self, line_end: usize, ends_here: bool) -> Result<Option<Frame>, EndlessLine> {
        let part = &self.buffer[self.start..line_end];
        let skipped = self.skipping.get_or_insert_default();
        skipped.length += part.len();
        skipped.line.push(part);
        if !skipped.line.may_be_message() {
            return Err(EndlessLine(self.max_bytes));
        }
        let limit = self.max_bytes.saturating_mul(MAX_SKIPPED_FACTOR);
        if skipped.length > limit {
            return Err(EndlessLine(limit));
        }
        if !ends_here {
            self.buffer.clear();
            self.advance(0);
            return Ok(None);
        }
        self.advance(line_end + 1);
        Ok(self
            .skipping
            .take()
            .map(|skipped| Frame::Oversized(skipped.line)))
    }

    fn reserve(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.advance(0);
            if self.buffer.capacity() > RETAINED_BYTES {
                self.buffer = Vec::new();
            }
        }
        let length = self.buffer.len();
        if length < self.buffer.capacity() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        } else {
            // The max_bytes line, and enough beyond it to detect an oversized one.
            let largest = self.max_bytes + INITIAL_BYTES;
            let larger = (2 * length).clamp(INITIAL_BYTES, largest);
            self.buffer.reserve_exact(larger.saturating_sub(length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LINE: usize = 16 * 1024 * 1024;
    const MAX_SKIPPED: usize = MAX_SKIPPED_FACTOR * MAX_LINE;
    const LARGEST: usize = MAX_LINE + INITIAL_BYTES;

    /// Reads all of `bytes`, at most `step` at a time.
    fn fill(lines: &mut LineBuffer, mut bytes: &[u8], step: usize) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !bytes.is_empty() {
            let mut piece = &bytes[..step.min(bytes.len())];
            let Poll::Ready(Ok(length)) = lines.poll_fill(&mut cx, &mut piece, usize::MAX) else {
                panic!("a slice is always ready");
            };
            bytes = &bytes[length..];
        }
    }

    fn all(lines: &mut LineBuffer) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(frame) = lines.next().unwrap() {
            let Frame::Line(line) = frame else {
                panic!("{frame:?}");
            };
            found.push(String::from_utf8(lines.get(line).to_vec()).unwrap());
        }
        found
    }

    /// Reads all of `bytes` as a link does, and returns the last frame.
    fn stream(lines: &mut LineBuffer, bytes: &[u8]) -> Result<Option<Frame>, EndlessLine> {
        let mut last = None;
        for chunk in bytes.chunks(INITIAL_BYTES) {
            fill(lines, chunk, usize::MAX);
            while let Some(frame) = lines.next()? {
                last = Some(frame);
            }
        }
        Ok(last)
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        for step in [1, 2, 3, 7, 100] {
            let mut lines = LineBuffer::new(MAX_LINE);
            let mut found = Vec::new();
            for piece in b"one\n\ntwo\r\nthree".chunks(step) {
                fill(&mut lines, piece, step);
                found.extend(all(&mut lines));
            }
            assert_eq!(found, ["one", "", "two\r"], "in steps of {step}");
            let rest = lines.take_rest();
            assert_eq!(lines.get(rest), b"three");
            assert!(lines.take_rest().is_empty());
        }
    }

    #[test]
    fn a_long_line_grows_the_buffer_and_frees_it() {
        let mut lines = LineBuffer::new(MAX_LINE);
        let text = "x".repeat(3 * RETAINED_BYTES);
        fill(&mut lines, text.as_bytes(), usize::MAX);
        assert!(all(&mut lines).is_empty());
        fill(&mut lines, b"\nshort\n", usize::MAX);
        assert_eq!(all(&mut lines), [text, "short".to_owned()]);
        fill(&mut lines, b"x", usize::MAX);
        assert_eq!(lines.buffer.capacity(), INITIAL_BYTES);
    }

    #[test]
    fn a_line_can_be_detached_and_the_others_stay() {
        let mut lines = LineBuffer::new(MAX_LINE);
        fill(&mut lines, b"one\ntwo\nthree\nfo", usize::MAX);
        assert_eq!(lines.next(), Ok(Some(Frame::Line(0..3))));
        let Ok(Some(Frame::Line(two))) = lines.next() else {
            panic!("no line");
        };
        assert_eq!(&lines.detach()[two], b"two");
        fill(&mut lines, b"ur\n", usize::MAX);
        assert_eq!(all(&mut lines), ["three", "four"]);
    }

    #[test]
    fn the_longest_line_is_a_line_and_takes_little_more_than_its_length() {
        let mut lines = LineBuffer::new(MAX_LINE);
        let mut text = vec![b'x'; MAX_LINE];
        text.push(b'\n');
        assert_eq!(
            stream(&mut lines, &text),
            Ok(Some(Frame::Line(0..MAX_LINE)))
        );
        assert!(lines.buffer.capacity() <= LARGEST);
    }

    #[test]
    fn an_oversized_line_keeps_its_head_and_tail_and_the_next_line_is_whole() {
        for surplus in [1, END_BYTES, 3 * MAX_LINE] {
            let mut text = vec![b'{'; END_BYTES];
            text.resize(MAX_LINE - END_BYTES + surplus, b'b');
            text.resize(MAX_LINE + surplus, b'c');
            text.extend_from_slice(b"\n");
            let mut lines = LineBuffer::new(MAX_LINE);
            let ends = OversizedLine {
                head: vec![b'{'; END_BYTES],
                tail: vec![b'c'; END_BYTES],
            };
            assert_eq!(stream(&mut lines, &text), Ok(Some(Frame::Oversized(ends))));
            assert!(lines.buffer.capacity() <= LARGEST, "{surplus}");
            assert_eq!(
                stream(&mut lines, b"next\n").unwrap().unwrap(),
                Frame::Line(0..4)
            );
        }
    }

    #[test]
    fn an_endless_line_is_an_error_and_keeps_no_memory() {
        let mut lines = LineBuffer::new(MAX_LINE);
        let part = vec![b'{'; MAX_LINE];
        for _ in 0..MAX_SKIPPED / MAX_LINE {
            assert_eq!(stream(&mut lines, &part), Ok(None));
        }
        assert!(lines.buffer.capacity() <= RETAINED_BYTES);
        assert_eq!(stream(&mut lines, &part), Err(EndlessLine(MAX_SKIPPED)));
        assert!(lines.take_rest().is_empty());
    }

    #[test]
    fn an_oversized_line_that_is_no_message_is_an_error_at_once() {
        let mut lines = LineBuffer::new(MAX_LINE);
        assert_eq!(stream(&mut lines, &vec![b'x'; MAX_LINE]), Ok(None));
        assert_eq!(stream(&mut lines, b"x"), Err(EndlessLine(MAX_LINE)));
    }
}
