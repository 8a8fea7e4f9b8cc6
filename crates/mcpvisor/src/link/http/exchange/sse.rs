//! Parses a stream of server-sent events incrementally.
//!
//! It extracts the data of messages, the last event id, and the reconnection time (`retry`).

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use memchr::memchr2;

/// Bytes of an event id. A longer one is ignored, because it has to fit into a header.
const MAX_EVENT_ID: usize = 4 * 1024;

/// An event that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// Where a stream ended, for the stream that resumes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventCursor {
    /// The id of the last complete event that had one.
    pub(crate) last_id: Option<String>,
    /// The delay before resuming that the server requested last.
    pub(crate) retry: Option<Duration>,
}

/// The parser state between two chunks.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    /// Bytes of an event.
    pub(super) limit: usize,
    /// The start of an incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The event is not a message.
    is_other_type: bool,
    id: Option<String>,
    /// Where the stream would be resumed now.
    pub(crate) cursor: EventCursor,
    /// The last line ended in a carriage return, so a line feed next belongs to it.
    ends_in_cr: bool,
    started: bool,
    /// An event with data came.
    pub(super) has_events: bool,
}

impl EventParser {
    /// A stream that continues at the cursor, with a limit for the bytes of an event.
    pub(crate) fn new(cursor: EventCursor, limit: usize) -> Self {
        Self {
            limit,
            cursor,
            ..Self::default()
        }
    }

    /// Parses the next message of a chunk and removes what was parsed. `None`: the chunk is used
    /// up.
    pub(crate) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, EventTooLong> {
        if !self.started && !chunk.is_empty() {
            self.started = true;
            if chunk.starts_with(b"\xEF\xBB\xBF") {
                chunk.advance(3);
            }
        }
        while !chunk.is_empty() {
            if std::mem::take(&mut self.ends_in_cr) && chunk[0] == b'\n' {
                chunk.advance(1);
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', chunk) else {
                self.line.extend_from_slice(chunk);
                chunk.clear();
                break;
            };
            self.ends_in_cr = chunk[end] == b'\r';
            let line = chunk.split_to(end);
            chunk.advance(1);
            let event = if self.line.is_empty() {
                self.take_line(&line)
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(&line);
                self.take_line(&whole)
            };
            if self.is_too_long() {
                return Err(EventTooLong);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        if self.is_too_long() {
            return Err(EventTooLong);
        }
        Ok(None)
    }

    /// Buffered bytes of an incomplete event.
    pub(crate) fn buffered(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn is_too_long(&self) -> bool {
        self.buffered() > self.limit
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Bytes> {
        if line.is_empty() {
            return self.dispatch();
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[..0]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.is_other_type = !matches!(value, b"" | b"message"),
            b"id" if value.len() <= MAX_EVENT_ID && !value.contains(&0) => {
                self.id = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" => {
                let millis = std::str::from_utf8(value).ok();
                let millis = millis.and_then(|text| text.parse().ok());
                let retry = &mut self.cursor.retry;
                *retry = millis.map(Duration::from_millis).or(*retry);
            }
            // Comments, which keep a connection alive, and unknown fields.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Bytes> {
        if let Some(id) = self.id.take() {
            self.cursor.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.has_events |= self.has_data;
        let data = std::mem::take(&mut self.data);
        let has_data = std::mem::take(&mut self.has_data);
        let other = std::mem::take(&mut self.is_other_type);
        (has_data && !other && !data.is_empty()).then(|| Bytes::from(data))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MAX_EVENT: usize = 16 * 1024 * 1024;

    /// All messages of a stream that comes in these chunks.
    pub(crate) fn read(chunks: &[&[u8]]) -> (Vec<String>, EventParser) {
        let mut parser = EventParser::new(EventCursor::default(), MAX_EVENT);
        let mut messages = Vec::new();
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(message) = parser.next(&mut chunk).unwrap() {
                messages.push(String::from_utf8_lossy(&message).into_owned());
            }
            assert!(chunk.is_empty());
        }
        (messages, parser)
    }

    #[test]
    fn messages_are_read_with_every_kind_of_line_end() {
        for text in [
            "data: a\n\ndata:b\n\n",
            "data: a\r\n\r\ndata:b\r\n\r\n",
            "data: a\r\rdata:b\r\r",
        ] {
            assert_eq!(read(&[text.as_bytes()]).0, ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn ids_and_retry_are_parsed_and_events_of_other_types_ignored() {
        let text = b"\xEF\xBB\xBFid: 1\nretry: 250\ndata:\n\n: comment\nevent: ping\ndata: x\nid: 2\n\nid: 3\nevent: message\ndata: {\ndata: }\nretry: soon\n\nid: 4\ndata: cut";
        let (messages, parser) = read(&[text]);
        assert_eq!(messages, ["{\n}"]);
        let cursor = EventCursor {
            last_id: Some("3".to_owned()),
            retry: Some(Duration::from_millis(250)),
        };
        assert_eq!(parser.cursor, cursor, "an incomplete event does not count");
        let mut next = EventParser::new(cursor.clone(), MAX_EVENT);
        next.next(&mut Bytes::from_static(b": nothing new\n\n"))
            .unwrap();
        assert_eq!(next.cursor, cursor, "neither id nor retry is lost");
    }

    #[test]
    fn an_event_beyond_the_limit_is_an_error() {
        let mut parser = EventParser::new(EventCursor::default(), MAX_EVENT);
        let mut fed = 0;
        let failed = loop {
            let mut chunk = Bytes::from(vec![b'x'; 1024 * 1024]);
            fed += chunk.len();
            if parser.next(&mut chunk).is_err() {
                break fed;
            }
        };
        assert!(failed <= MAX_EVENT + 1024 * 1024, "{failed}");
        let mut parser = EventParser::new(EventCursor::default(), MAX_EVENT);
        let line = [b"data: ".to_vec(), vec![b'x'; 1024 * 1024], b"\n".to_vec()].concat();
        let too_long = (0..20).any(|_| parser.next(&mut Bytes::from(line.clone())).is_err());
        assert!(too_long);
    }
}
