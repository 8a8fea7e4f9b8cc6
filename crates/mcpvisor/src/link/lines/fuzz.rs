//! The lines of a stream do not depend on how it is split into reads.

use std::task::{Context, Poll, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::line_buffer::{Frame, LineBuffer};
use crate::fuzz::budget;

/// Reads of any length, with newlines anywhere.
fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![2 => Just(b'\n'), 1 => Just(b'\r'), 9 => any::<u8>()];
    // Some are larger than the initial buffer.
    let long = (any::<u8>(), 1..20_000_usize).prop_map(|(byte, length)| vec![byte; length]);
    let piece = prop_oneof![9 => vec(byte, 0..40), 1 => long];
    vec(piece, 0..12)
}

fn read(lines: &mut LineBuffer, mut piece: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    while !piece.is_empty() {
        let before = piece.len();
        let Poll::Ready(Ok(length)) = lines.poll_fill(&mut cx, &mut piece, usize::MAX) else {
            panic!("a slice is always ready");
        };
        assert_eq!(length, before - piece.len());
    }
}

proptest! {
    #![proptest_config(budget(150))]

    #[test]
    fn split_reads_give_the_lines_of_the_whole_stream(pieces in pieces(), eager in any::<bool>()) {
        let mut lines = LineBuffer::new(16 * 1024 * 1024);
        let mut found: Vec<Vec<u8>> = Vec::new();
        let mut take = |lines: &mut LineBuffer| {
            while let Ok(Some(Frame::Line(line))) = lines.next() {
                found.push(lines.get(line).to_vec());
            }
        };
        for piece in &pieces {
            read(&mut lines, piece);
            if eager {
                take(&mut lines);
            }
        }
        take(&mut lines);
        let rest = lines.take_rest();
        found.push(lines.get(rest).to_vec());
        let stream = pieces.concat();
        let expected: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
        prop_assert_eq!(found, expected);
    }
}
