//! Estimates the memory of a page of a listing.
//!
//! One page is bounded by the limit of one message; a hundred pages are not. The estimate is the
//! upper bound that the codec uses: a few bytes of JSON can cost a hundred times as much as parsed
//! values.

use std::io::{self, Write};

use rmcp::model::ServerResult;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Memory of a value, at most: its entry in a list or map that has grown and may be half full.
const VALUE: usize = 128;

/// Memory of an object beside its members: the smallest map has space for several.
const OBJECT: usize = 640;

/// The estimated memory of a page, in bytes.
pub(super) fn weigh(page: &ServerResult) -> usize {
    let mut texts = Count(0);
    let mut values = Values(0);
    // It was parsed from JSON, so it serializes; on an error the estimate is that of the written
    // part.
    let _ = page.serialize(&mut Serializer::with_formatter(&mut texts, &mut values));
    texts.0.saturating_add(values.0)
}

/// Counts bytes.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the memory of values beside their bytes.
struct Values(usize);

impl Formatter for &mut Values {
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0 = self.0.saturating_add(OBJECT);
        writer.write_all(b"{")
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0 = self.0.saturating_add(VALUE);
        writer.write_all(b":")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, _: bool) -> io::Result<()> {
        self.0 = self.0.saturating_add(VALUE);
        writer.write_all(b",")
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ListToolsResult, Tool};
    use serde_json::json;

    use super::*;

    fn page(description: &str, schema: serde_json::Value) -> ServerResult {
        let schema = schema.as_object().unwrap().clone();
        let tool = Tool::new("t", description.to_owned(), schema);
        ListToolsResult::with_all_items(vec![tool]).into()
    }

    #[test]
    fn texts_weigh_their_bytes_and_values_more() {
        let empty = weigh(&page("", json!({})));
        let text = weigh(&page(&"x".repeat(1_000), json!({})));
        assert_eq!(text, empty + 1_000);
        let objects: Vec<_> = (0..100).map(|_| json!({})).collect();
        let values = weigh(&page("", json!({ "examples": objects })));
        assert!(values > empty + 100 * OBJECT, "{values}");
    }
}
