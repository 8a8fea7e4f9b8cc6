//! Parses a stream of server-sent events incrementally.
//!
//! It extracts the data of messages, the last event id, and the reconnection time (`retry`). On the
//! stream of a session (HTTP+SSE) it also extracts the endpoint, and skips oversized messages.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use memchr::memchr2;

use crate::link::codec::partial_message::{MAX_SKIPPED_FACTOR, OversizedLine};

/// Bytes of an event id. A longer one is ignored, because it has to fit into a header.
const MAX_EVENT_ID: usize = 4 * 1024;

/// Bytes of a line that are buffered while an oversized message is skipped.
const SKIPPED_PIECE: usize = 64 * 1024;

/// An event that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// An event of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SseEvent {
    /// A message.
    Message(Bytes),
    /// The address for messages to the server. Only the first one of a session is reported.
    Endpoint(Bytes),
    /// A message beyond the limit; only its head and tail are kept.
    Oversized(OversizedLine),
}

/// The type of an event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum EventType {
    #[default]
    Message,
    Endpoint,
    Other,
}

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
    /// Set while the rest of a line follows whose start was skipped: whether the line is data.
    rest_is_data: Option<bool>,
    data: Vec<u8>,
    has_data: bool,
    event_type: EventType,
    id: Option<String>,
    /// Where the stream would be resumed now.
    pub(crate) cursor: EventCursor,
    /// The last line ended in a carriage return, so a line feed next belongs to it.
    ends_in_cr: bool,
    started: bool,
    /// An event with data came.
    pub(super) has_events: bool,
    /// The endpoint of the session has not come yet.
    awaits_endpoint: bool,
    /// Oversized messages do not end the stream.
    skips_oversized: bool,
    /// The oversized message that is being skipped.
    skipped: Option<SkippedEvent>,
}

/// An oversized message.
#[derive(Debug, Default)]
struct SkippedEvent {
    text: OversizedLine,
    length: usize,
}

impl SkippedEvent {
    fn push(&mut self, part: &[u8]) {
        self.text.push(part);
        self.length += part.len();
    }
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

    /// The stream of a session, which begins with an endpoint and carries all messages.
    pub(crate) fn of_session(limit: usize) -> Self {
        Self {
            limit,
            awaits_endpoint: true,
            skips_oversized: true,
            ..Self::default()
        }
    }

    /// Parses the next event of a chunk and removes what was parsed. `None`: the chunk is used up.
    pub(crate) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<SseEvent>, EventTooLong> {
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
            self.check_length()?;
            if event.is_some() {
                return Ok(event);
            }
        }
        self.check_length()?;
        Ok(None)
    }

    /// Bytes of an incomplete event, buffered or skipped.
    pub(crate) fn unfinished(&self) -> usize {
        let skipped = self.skipped.as_ref();
        self.buffered() + skipped.map_or(0, |skipped| skipped.length)
    }

    fn buffered(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Fails if the event is too long, or skips what is buffered of it.
    fn check_length(&mut self) -> Result<(), EventTooLong> {
        let buffered = match self.skipped {
            Some(_) => SKIPPED_PIECE.min(self.limit),
            None => self.limit,
        };
        if self.buffered() > buffered {
            if !self.skips_oversized {
                return Err(EventTooLong);
            }
            self.skip();
        }
        let Some(skipped) = &self.skipped else {
            return Ok(());
        };
        let is_endless = skipped.length > self.limit.saturating_mul(MAX_SKIPPED_FACTOR);
        match is_endless || !skipped.text.may_be_message() {
            true => Err(EventTooLong),
            false => Ok(()),
        }
    }

    /// Skips what is buffered of an oversized message. The start of a line that is not data, such as a
    /// comment, is dropped.
    fn skip(&mut self) {
        let line = std::mem::take(&mut self.line);
        let starts_line = self.rest_is_data.is_none();
        let data = match self.rest_is_data {
            Some(is_data) => Some(&*line).filter(|_| is_data),
            None => line.strip_prefix(b"data:"),
        };
        if !line.is_empty() {
            self.rest_is_data = Some(data.is_some());
        }
        if data.is_none() && self.skipped.is_none() && self.data.len() <= self.limit {
            return;
        }
        let skipped = self.skipped.get_or_insert_default();
        skipped.push(&std::mem::take(&mut self.data));
        let Some(data) = data else {
            return;
        };
        if !starts_line {
            return skipped.push(data);
        }
        if std::mem::replace(&mut self.has_data, true) {
            skipped.push(b"\n");
        }
        skipped.push(data.strip_prefix(b" ").unwrap_or(data));
    }

    fn take_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        if let Some(is_data) = self.rest_is_data.take() {
            if is_data {
                self.append_data(line);
            }
            return None;
        }
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
                    self.append_data(b"\n");
                }
                self.append_data(value);
            }
            b"event" => {
                self.event_type = match value {
                    b"" | b"message" => EventType::Message,
                    b"endpoint" => EventType::Endpoint,
                    _ => EventType::Other,
                };
            }
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

    fn append_data(&mut self, part: &[u8]) {
        match &mut self.skipped {
            Some(skipped) => skipped.push(part),
            None => self.data.extend_from_slice(part),
        }
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        if let Some(id) = self.id.take() {
            self.cursor.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.has_events |= self.has_data;
        let data = std::mem::take(&mut self.data);
        let has_data = std::mem::take(&mut self.has_data);
        let skipped = self.skipped.take();
        match std::mem::take(&mut self.event_type) {
            EventType::Message if skipped.is_some() => {
                skipped.map(|skipped| SseEvent::Oversized(skipped.text))
            }
            EventType::Message if has_data && !data.is_empty() => {
                Some(SseEvent::Message(Bytes::from(data)))
            }
            EventType::Endpoint if has_data && std::mem::take(&mut self.awaits_endpoint) => {
                Some(SseEvent::Endpoint(Bytes::from(data)))
            }
            EventType::Message | EventType::Endpoint | EventType::Other => None,
        }
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
            while let Some(event) = parser.next(&mut chunk).unwrap() {
                let SseEvent::Message(message) = event else {
                    panic!("{event:?}");
                };
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

    /// The events of a session's stream with this limit, or `None` for one that is too long.
    pub(crate) fn read_session(chunks: &[&[u8]], limit: usize) -> Vec<Option<SseEvent>> {
        let mut parser = EventParser::of_session(limit);
        let mut events = Vec::new();
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk);
            loop {
                match parser.next(&mut chunk) {
                    Ok(Some(event)) => events.push(Some(event)),
                    Ok(None) => break,
                    Err(EventTooLong) => {
                        events.push(None);
                        return events;
                    }
                }
            }
        }
        events
    }

    fn message(text: &'static str) -> Option<SseEvent> {
        Some(SseEvent::Message(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn only_the_first_endpoint_of_a_session_is_reported() {
        let text = b"event: other\ndata: x\n\nevent: endpoint\n\nevent: endpoint\ndata: /a\n\n\
                     data: m\n\nevent: endpoint\ndata: /b\n\n";
        let endpoint = Some(SseEvent::Endpoint(Bytes::from_static(b"/a")));
        assert_eq!(read_session(&[text], 100), [endpoint, message("m")]);
        assert_eq!(read(&[text]).0, ["m"], "other streams have no endpoint");
    }

    #[test]
    fn an_oversized_message_of_a_session_is_skipped_and_the_next_one_is_read() {
        let filling = "x".repeat(300);
        for (event, end) in [
            (format!("data: {{\"id\":7,{filling}}}\n\n"), "x}"),
            (
                format!("data: {{\"id\":7,\ndata: {filling}\ndata:}}\n\n"),
                "x\n}",
            ),
        ] {
            let stream = format!("{event}data: next\n\n");
            for step in [1, 7, 1_000] {
                let chunks: Vec<&[u8]> = stream.as_bytes().chunks(step).collect();
                let mut events = read_session(&chunks, 100);
                assert_eq!(events.pop().unwrap(), message("next"), "{event}");
                let Some(Some(SseEvent::Oversized(line))) = events.pop() else {
                    panic!("{event}: {events:?}");
                };
                assert!(line.head.starts_with(b"{\"id\":7"), "{line:?}");
                assert!(line.tail.ends_with(end.as_bytes()), "{line:?}");
                assert!(events.is_empty());
            }
        }
    }

    #[test]
    fn a_long_comment_is_dropped_and_the_event_around_it_is_read() {
        let long = "x".repeat(1_000);
        let text = format!("data: one\n:{long}\nid{long}\ndata: two\n\n:{long}");
        for step in [1, 10, 5_000] {
            let mut parser = EventParser::of_session(100);
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(step) {
                let mut chunk = Bytes::copy_from_slice(chunk);
                events.extend(parser.next(&mut chunk).unwrap());
                assert!(parser.unfinished() <= 100 + step, "{}", parser.unfinished());
            }
            assert_eq!(events, [message("one\ntwo").unwrap()], "{step}");
        }
    }

    #[test]
    fn what_is_no_message_or_has_no_end_is_an_error_on_a_session_too() {
        let long = "x".repeat(1_000);
        for text in [
            format!("data: {{{long}"),
            format!("data: {long}"),
            format!("data: {{\n{}", "data: x\n".repeat(500)),
        ] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(10).collect();
            assert_eq!(read_session(&chunks, 100), [None], "{text:.20}");
        }
    }
}
