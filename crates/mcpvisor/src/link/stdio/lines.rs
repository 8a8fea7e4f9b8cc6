//! Cuts a stream of bytes into lines, within a bound.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncRead;
use tokio_util::bytes::BufMut;
use tokio_util::io::poll_read_buf;

#[cfg(test)]
use crate::link::codec::END;
use crate::link::codec::Ends;

/// A line that is too long is passed over up to its end, which must come within so many times the
/// bytes of the longest one.
const SKIPPED: usize = 4;

/// The buffer of a link that has nothing to do.
const SMALL: usize = 8 * 1024;

/// A buffer that grew beyond this is given back once it is empty.
const KEPT: usize = 256 * 1024;

/// A line is longer than so many bytes, and there is no use in waiting for its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hopeless(pub(super) usize);

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A line, without its end. Its bytes are here until more is read.
    Line(Range<usize>),
    /// A line that is too long, of which only the ends were kept.
    TooLong(Ends),
}

/// Bytes that were read and not yet taken as lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// No line may be longer, in bytes.
    longest: usize,
    /// What was read; `start` is where the next line begins.
    buffer: Vec<u8>,
    start: usize,
    /// There is no line end in `start..scanned`.
    scanned: usize,
    /// The line at `start` is the rest of one that is too long.
    skipping: Option<Skipping>,
}

/// The part of a line that was passed over.
#[derive(Debug)]
struct Skipping {
    ends: Ends,
    length: usize,
}

impl Lines {
    /// No bytes yet. No line may be longer than so many.
    pub(super) fn new(longest: usize) -> Self {
        Self {
            longest,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            skipping: None,
        }
    }

    /// From the next line on, none may be longer.
    pub(super) fn set_longest(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// The next whole line.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Hopeless> {
        let found = memchr::memchr(b'\n', &self.buffer[self.scanned..]);
        let line_end = found.map_or(self.buffer.len(), |offset| self.scanned + offset);
        self.scanned = line_end;
        if self.skipping.is_some() || line_end - self.start > self.longest {
            return self.skip(line_end, found.is_some());
        }
        Ok(found.map(|_| {
            let line = self.start..line_end;
            self.advance(line_end + 1);
            Piece::Line(line)
        }))
    }

    /// The bytes of a line that was found since the last read.
    pub(super) fn get(&self, line: Range<usize>) -> &[u8] {
        self.buffer.get(line).unwrap_or_default()
    }

    /// Takes a line away, with the buffer that it is in; only what follows it is copied.
    pub(super) fn detach(&mut self, line: Range<usize>) -> DetachedLine {
        let rest = self.buffer[self.start..].to_vec();
        self.start = 0;
        self.scanned = 0;
        DetachedLine {
            buffer: std::mem::replace(&mut self.buffer, rest),
            line,
        }
    }

    /// What follows the last line end, for when nothing more will come. Nothing is left of a line
    /// that is too long.
    pub(super) fn take_rest(&mut self) -> Range<usize> {
        let rest = self.start..self.buffer.len();
        self.advance(rest.end);
        match self.skipping.take() {
            None => rest,
            Some(_) => rest.end..rest.end,
        }
    }

    /// Reads once, so many bytes at most, and says how much came; nothing means that the stream ended.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let spare = self.buffer.capacity() - self.buffer.len();
        let mut buffer = (&mut self.buffer).limit(most.min(spare));
        poll_read_buf(Pin::new(reader), cx, &mut buffer)
    }

    /// Bytes that were read and not yet taken.
    pub(super) fn unfinished(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn advance(&mut self, to: usize) {
        self.start = to;
        self.scanned = to;
    }

    /// Passes over a part of a line that is too long, and keeps its ends.
    fn skip(&mut self, line_end: usize, ends_here: bool) -> Result<Option<Piece>, Hopeless> {
        let part = &self.buffer[self.start..line_end];
        let skipping = self.skipping.get_or_insert_with(|| Skipping {
            ends: Ends::starting_with(part),
            length: 0,
        });
        skipping.length += part.len();
        skipping.ends.push(part);
        if !skipping.ends.may_tell() {
            return Err(Hopeless(self.longest));
        }
        let most = self.longest.saturating_mul(SKIPPED);
        if skipping.length > most {
            return Err(Hopeless(most));
        }
        if !ends_here {
            self.buffer.clear();
            self.advance(0);
            return Ok(None);
        }
        self.advance(line_end + 1);
        Ok(self.skipping.take().map(|line| Piece::TooLong(line.ends)))
    }

    fn make_room(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.advance(0);
            if self.buffer.capacity() > KEPT {
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
            // A line, and enough beyond it to see that it is too long.
            let largest = self.longest + SMALL;
            let larger = (2 * length).clamp(SMALL, largest);
            self.buffer.reserve_exact(larger.saturating_sub(length));
        }
    }
}

/// A line that was taken away from the others.
#[derive(Debug)]
pub(super) struct DetachedLine {
    buffer: Vec<u8>,
    line: Range<usize>,
}

impl DetachedLine {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.line.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LINE: usize = 16 * 1024 * 1024;
    const MAX_SKIPPED: usize = SKIPPED * MAX_LINE;
    const LARGEST: usize = MAX_LINE + SMALL;

    /// Reads all of `bytes`, in pieces of at most `step`.
    fn fill(lines: &mut Lines, mut bytes: &[u8], step: usize) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !bytes.is_empty() {
            let mut piece = &bytes[..step.min(bytes.len())];
            let Poll::Ready(Ok(length)) = lines.poll_fill(&mut cx, &mut piece, usize::MAX) else {
                panic!("a slice is always ready");
            };
            bytes = &bytes[length..];
        }
    }

    fn all(lines: &mut Lines) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(piece) = lines.next().unwrap() {
            let Piece::Line(line) = piece else {
                panic!("{piece:?}");
            };
            found.push(String::from_utf8(lines.get(line).to_vec()).unwrap());
        }
        found
    }

    /// Reads all of `bytes` as a link does, and says what was found last.
    fn stream(lines: &mut Lines, bytes: &[u8]) -> Result<Option<Piece>, Hopeless> {
        let mut last = None;
        for chunk in bytes.chunks(SMALL) {
            fill(lines, chunk, usize::MAX);
            while let Some(piece) = lines.next()? {
                last = Some(piece);
            }
        }
        Ok(last)
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        for step in [1, 2, 3, 7, 100] {
            let mut lines = Lines::new(MAX_LINE);
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
    fn a_long_line_grows_the_buffer_and_gives_it_back() {
        let mut lines = Lines::new(MAX_LINE);
        let text = "x".repeat(3 * KEPT);
        fill(&mut lines, text.as_bytes(), usize::MAX);
        assert!(all(&mut lines).is_empty());
        fill(&mut lines, b"\nshort\n", usize::MAX);
        assert_eq!(all(&mut lines), [text, "short".to_owned()]);
        fill(&mut lines, b"x", usize::MAX);
        assert_eq!(lines.buffer.capacity(), SMALL);
    }

    #[test]
    fn a_line_can_be_taken_away_and_the_others_stay() {
        let mut lines = Lines::new(MAX_LINE);
        fill(&mut lines, b"one\ntwo\nthree\nfo", usize::MAX);
        assert_eq!(lines.next(), Ok(Some(Piece::Line(0..3))));
        let Ok(Some(Piece::Line(two))) = lines.next() else {
            panic!("no line");
        };
        assert_eq!(lines.detach(two).bytes(), b"two");
        fill(&mut lines, b"ur\n", usize::MAX);
        assert_eq!(all(&mut lines), ["three", "four"]);
    }

    #[test]
    fn the_longest_line_is_a_line_and_takes_little_more_than_its_length() {
        let mut lines = Lines::new(MAX_LINE);
        let mut text = vec![b'x'; MAX_LINE];
        text.push(b'\n');
        assert_eq!(
            stream(&mut lines, &text),
            Ok(Some(Piece::Line(0..MAX_LINE)))
        );
        assert!(lines.buffer.capacity() <= LARGEST);
    }

    #[test]
    fn of_a_line_beyond_the_bound_the_ends_are_kept_and_the_next_line_is_whole() {
        for surplus in [1, END, 3 * MAX_LINE] {
            let mut text = vec![b'{'; END];
            text.resize(MAX_LINE - END + surplus, b'b');
            text.resize(MAX_LINE + surplus, b'c');
            text.extend_from_slice(b"\n");
            let mut lines = Lines::new(MAX_LINE);
            let ends = Ends {
                head: vec![b'{'; END],
                tail: vec![b'c'; END],
            };
            assert_eq!(stream(&mut lines, &text), Ok(Some(Piece::TooLong(ends))));
            assert!(lines.buffer.capacity() <= LARGEST, "{surplus}");
            assert_eq!(
                stream(&mut lines, b"next\n").unwrap().unwrap(),
                Piece::Line(0..4)
            );
        }
    }

    #[test]
    fn a_line_without_end_is_given_up_and_keeps_no_memory() {
        let mut lines = Lines::new(MAX_LINE);
        let part = vec![b'{'; MAX_LINE];
        for _ in 0..MAX_SKIPPED / MAX_LINE {
            assert_eq!(stream(&mut lines, &part), Ok(None));
        }
        assert!(lines.buffer.capacity() <= KEPT);
        assert_eq!(stream(&mut lines, &part), Err(Hopeless(MAX_SKIPPED)));
        assert!(lines.take_rest().is_empty());
    }

    #[test]
    fn noise_without_end_is_given_up_at_once() {
        let mut lines = Lines::new(MAX_LINE);
        assert_eq!(stream(&mut lines, &vec![b'x'; MAX_LINE]), Ok(None));
        assert_eq!(stream(&mut lines, b"x"), Err(Hopeless(MAX_LINE)));
    }
}
