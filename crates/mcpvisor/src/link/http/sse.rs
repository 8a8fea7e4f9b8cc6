//! Reads a stream of server-sent events, part by part.
//!
//! Only what a message needs is kept: its data, the id to resume after, and the server's wish how
//! long to wait before that.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use memchr::memchr2;

/// An id that is longer is not kept: it has to fit into a header.
const MAX_ID: usize = 4 * 1024;

/// An event that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Where a stream ended, for the one that goes on with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The id of the last whole event that had one.
    pub(super) last_id: Option<String>,
    /// How long the server wants us to wait before we resume. It counts until it says otherwise.
    pub(super) retry: Option<Duration>,
}

/// The state between two parts.
#[derive(Debug)]
pub(super) struct Sse {
    /// An event may have so many bytes.
    limit: usize,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// It is an event of another kind than a message.
    other: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// The last part ended in a carriage return, which a line feed may belong to.
    after_return: bool,
    begun: bool,
    /// An event came.
    moved: bool,
}

impl Sse {
    /// A new stream. An event may have so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self::after(Place::default(), limit)
    }

    /// Goes on where another one ended.
    pub(super) fn after(place: Place, limit: usize) -> Self {
        Self {
            limit,
            last_id: place.last_id,
            retry: place.retry,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            other: false,
            id: None,
            after_return: false,
            begun: false,
            moved: false,
        }
    }

    /// The data of the next message in a part, of which it takes away what was read. Nothing: the
    /// part is used up.
    pub(super) fn next(&mut self, part: &mut Bytes) -> Result<Option<Bytes>, TooLong> {
        if !self.begun && !part.is_empty() {
            self.begun = true;
            if part.starts_with(b"\xEF\xBB\xBF") {
                part.advance(3);
            }
        }
        while !part.is_empty() {
            if std::mem::take(&mut self.after_return) && part[0] == b'\n' {
                part.advance(1);
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', part) else {
                self.line.extend_from_slice(part);
                part.clear();
                break;
            };
            self.after_return = part[end] == b'\r';
            let line = part.split_to(end);
            part.advance(1);
            let event = if self.line.is_empty() {
                self.take_line(&line)
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(&line);
                self.take_line(&whole)
            };
            if self.is_too_long() {
                return Err(TooLong);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        if self.is_too_long() {
            return Err(TooLong);
        }
        Ok(None)
    }

    /// So many bytes an event may have.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How much of an event is kept.
    pub(super) fn buffered(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn is_too_long(&self) -> bool {
        self.buffered() > self.limit
    }

    /// Where it has come to.
    pub(super) fn place(&self) -> Place {
        Place {
            last_id: self.last_id.clone(),
            retry: self.retry,
        }
    }

    /// Whether any event came.
    pub(super) fn has_moved(&self) -> bool {
        self.moved
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
            b"event" => self.other = !matches!(value, b"" | b"message"),
            b"id" if value.len() <= MAX_ID && !value.contains(&0) => {
                self.id = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" => {
                let millis = std::str::from_utf8(value).ok();
                let millis = millis.and_then(|text| text.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            // Comments, which keep a connection alive, and what nobody knows.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Bytes> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.moved |= self.has_data;
        let data = std::mem::take(&mut self.data);
        let has_data = std::mem::take(&mut self.has_data);
        let other = std::mem::take(&mut self.other);
        (has_data && !other && !data.is_empty()).then(|| Bytes::from(data))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MAX_EVENT: usize = 16 * 1024 * 1024;

    /// All messages of a stream that comes in these parts.
    pub(in crate::link::http) fn read(parts: &[&[u8]]) -> (Vec<String>, Sse) {
        let mut sse = Sse::new(MAX_EVENT);
        let mut messages = Vec::new();
        for part in parts {
            let mut part = Bytes::copy_from_slice(part);
            while let Some(message) = sse.next(&mut part).unwrap() {
                messages.push(String::from_utf8_lossy(&message).into_owned());
            }
            assert!(part.is_empty());
        }
        (messages, sse)
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
    fn ids_and_the_wish_to_wait_are_kept_and_other_events_passed_over() {
        let text = b"\xEF\xBB\xBFid: 1\nretry: 250\ndata:\n\n: comment\nevent: ping\ndata: x\nid: 2\n\nid: 3\nevent: message\ndata: {\ndata: }\nretry: soon\n\nid: 4\ndata: cut";
        let (messages, sse) = read(&[text]);
        assert_eq!(messages, ["{\n}"]);
        let place = Place {
            last_id: Some("3".to_owned()),
            retry: Some(Duration::from_millis(250)),
        };
        assert_eq!(
            sse.place(),
            place,
            "an event that is cut off does not count"
        );
        let mut next = Sse::after(place.clone(), MAX_EVENT);
        next.next(&mut Bytes::from_static(b": nothing new\n\n"))
            .unwrap();
        assert_eq!(next.place(), place, "neither id nor wish is forgotten");
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept() {
        let mut sse = Sse::new(MAX_EVENT);
        let mut fed = 0;
        let failed = loop {
            let mut part = Bytes::from(vec![b'x'; 1024 * 1024]);
            fed += part.len();
            if sse.next(&mut part).is_err() {
                break fed;
            }
        };
        assert!(failed <= MAX_EVENT + 1024 * 1024, "{failed}");
        let mut sse = Sse::new(MAX_EVENT);
        let line = [b"data: ".to_vec(), vec![b'x'; 1024 * 1024], b"\n".to_vec()].concat();
        let too_long = (0..20).any(|_| sse.next(&mut Bytes::from(line.clone())).is_err());
        assert!(too_long);
    }
}
