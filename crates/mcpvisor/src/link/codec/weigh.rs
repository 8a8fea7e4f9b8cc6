//! Estimates the memory that decoding a line would take, and checks the message limits.
//!
//! Decoded JSON can take a hundred times its size: 16 MiB of `1,1,1,…` become more than a gigabyte.
//! The estimate is an upper limit for the types of rmcp and `serde_json`. Whether the line is valid
//! JSON is not checked.

use std::fmt;

use mcpvisor_core::settings::MessageSettings;

use crate::link::limits::format_bytes;

/// Shorter lines need no estimate: they cannot take much memory.
pub(crate) const LARGE_LINE: usize = 64 * 1024;

/// The most memory that one byte of a line can take. The worst case is `{},`, an object and its
/// place in a list, with a reserve for nested objects.
const MAX_MEMORY_PER_BYTE: usize = 300;

/// Longer lines are checked and decoded on a blocking thread.
const MAX_INLINE_BYTES: usize = 1024 * 1024;

/// Lines with more values are decoded on a blocking thread.
const MAX_INLINE_VALUES: usize = 16 * 1024;

/// The memory of shorter messages, which are most notifications, is not estimated.
const MIN_WEIGHED_BYTES: usize = 256;

/// The memory of a value: its place in a list or map, which may be half empty after growing.
const VALUE_BYTES: usize = 128;

/// The memory of an object without its members: the smallest map has space for several.
const OBJECT_BYTES: usize = 640;

/// The memory of a string without its content.
const STRING_BYTES: usize = 32;

/// A limit that a line exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// [`MessageSettings::max_depth`]
    Depth(usize),
    /// [`MessageSettings::max_values`]
    Values(usize),
    /// [`MessageSettings::max_memory`]
    Memory(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth(limit) => write!(f, "it is nested deeper than {limit}"),
            Self::Values(limit) => write!(f, "it has more than {limit} JSON values"),
            Self::Memory(limit) => {
                let limit = format_bytes(*limit);
                write!(f, "decoding it takes more than {limit} of memory")
            }
        }
    }
}

/// The result of checking a line, which must not be decoded if it exceeds a limit.
pub(crate) type LimitCheck = Result<(), Limit>;

/// Checks a line. `None` if checking or decoding it would hold an async worker for long.
pub(crate) fn check_limits_inline(line: &[u8], limits: &MessageSettings) -> Option<LimitCheck> {
    if line.len() > MAX_INLINE_BYTES {
        return None;
    }
    if line.len() <= unweighed_bytes(limits) {
        return Some(check_depth(line, limits));
    }
    match weigh(line, limits) {
        Ok(weight) if weight.values > MAX_INLINE_VALUES => None,
        weighed => Some(weighed.map(drop)),
    }
}

/// A line up to this length can exceed only the depth limit, since each value takes at least a
/// byte.
fn unweighed_bytes(limits: &MessageSettings) -> usize {
    let by_memory = limits.max_memory() / MAX_MEMORY_PER_BYTE;
    LARGE_LINE.min(by_memory).min(limits.max_values)
}

/// Checks a line of any length.
pub(crate) fn check_limits(line: &[u8], limits: &MessageSettings) -> LimitCheck {
    weigh(line, limits).map(drop)
}

/// Estimates the memory of a decoded line, including the line itself. A line beyond a default limit
/// counts as the maximum.
pub(crate) fn estimate_memory(line: &[u8]) -> usize {
    if line.len() < MIN_WEIGHED_BYTES {
        return line.len();
    }
    let limits = MessageSettings::default();
    weigh(line, &limits).map_or(limits.max_memory(), |weight| {
        weight.memory + weight.longest_escaped + line.len()
    })
}

/// Checks the depth. Nearly every line has too few brackets to exceed it, so counting them is
/// enough.
fn check_depth(line: &[u8], limits: &MessageSettings) -> LimitCheck {
    let opens = |byte: &&u8| matches!(**byte, b'{' | b'[');
    // Each level takes an opening and a closing bracket.
    let short = line.len() < 2 * limits.max_depth;
    if short || line.iter().filter(opens).count() <= limits.max_depth {
        return Ok(());
    }
    match weigh(line, limits) {
        Err(limit @ Limit::Depth(_)) => Err(limit),
        Ok(_) | Err(Limit::Values(_) | Limit::Memory(_)) => Ok(()),
    }
}

/// The contents of a line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Weight {
    /// All values; member names do not count.
    values: usize,
    /// The memory without the line itself and the longest escaped string.
    memory: usize,
    /// The parser unescapes strings in a buffer that it keeps.
    longest_escaped: usize,
    depth: usize,
}

fn weigh(line: &[u8], limits: &MessageSettings) -> Result<Weight, Limit> {
    let max_memory = limits.max_memory();
    let mut weight = Weight::default();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at = match byte {
            b'"' => weight.add_string(line, at),
            b'{' | b'[' => weight.open(byte, at, limits.max_depth)?,
            b'}' | b']' => {
                weight.depth = weight.depth.saturating_sub(1);
                at + 1
            }
            b':' => {
                // The string before it was a member name.
                weight.values = weight.values.saturating_sub(1);
                at + 1
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' => at + 1,
            _ => {
                weight.values += 1;
                weight.memory += VALUE_BYTES;
                at + literal_length(&line[at..])
            }
        };
        if weight.values > limits.max_values {
            return Err(Limit::Values(limits.max_values));
        }
        if weight.memory + weight.longest_escaped + line.len() > max_memory {
            return Err(Limit::Memory(max_memory));
        }
    }
    Ok(weight)
}

impl Weight {
    fn open(&mut self, bracket: u8, at: usize, max_depth: usize) -> Result<usize, Limit> {
        self.depth += 1;
        self.values += 1;
        self.memory += if bracket == b'{' {
            OBJECT_BYTES + VALUE_BYTES
        } else {
            VALUE_BYTES
        };
        if self.depth > max_depth {
            return Err(Limit::Depth(max_depth));
        }
        Ok(at + 1)
    }

    /// Adds the string that starts at a quotation mark, and returns its end.
    fn add_string(&mut self, line: &[u8], start: usize) -> usize {
        let mut at = start + 1;
        let mut escaped = false;
        let end = loop {
            let rest = line.get(at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                Some(found) if rest[found] == b'\\' => {
                    escaped = true;
                    at += found + 2;
                }
                Some(found) => break at + found + 1,
                None => break line.len(),
            }
        };
        let length = end - start;
        self.values += 1;
        self.memory += VALUE_BYTES + STRING_BYTES + length;
        if escaped {
            // Types that inspect a value before decoding it copy the string once more.
            self.memory += length;
            self.longest_escaped = self.longest_escaped.max(length);
        }
        end
    }
}

/// The length of a number, `true`, `false` or `null`, at least one byte.
fn literal_length(rest: &[u8]) -> usize {
    let ends = |byte: &u8| {
        let ends = b",}]: \t\r\n\"{[";
        ends.contains(byte)
    };
    rest.iter().position(ends).unwrap_or(rest.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: MessageSettings = MessageSettings::DEFAULT;
    const MAX_VALUES: usize = DEFAULTS.max_values;
    const MAX_DEPTH: usize = DEFAULTS.max_depth;

    fn values(line: &str) -> usize {
        weigh(line.as_bytes(), &DEFAULTS).unwrap().values
    }

    fn check_limits(line: &[u8]) -> LimitCheck {
        super::check_limits(line, &DEFAULTS)
    }

    fn check_limits_inline(line: &[u8]) -> Option<LimitCheck> {
        super::check_limits_inline(line, &DEFAULTS)
    }

    #[test]
    fn values_are_counted_and_member_names_are_not() {
        for (line, expected) in [
            ("", 0),
            ("1", 1),
            ("[]", 1),
            ("[1, 2.5e3 ,true,null,\"a,b,[c\"]", 6),
            (r#"{"a":1,"b":{"c":[{}]}}"#, 5),
            (r#"{"a":"\"1,1,1\\","b":"\\\"["}"#, 3),
            ("no json, at all", 4),
            ("{\r\n\t\"a\": 1,\n\t\"b\": [\n\t\t2\n\t]\n}\n", 4),
        ] {
            assert_eq!(values(line), expected, "{line}");
        }
    }

    #[test]
    fn the_maximum_number_of_values_is_accepted() {
        let line = |count: usize| format!("[{}1]", "1,".repeat(count - 2));
        assert_eq!(values(&line(MAX_VALUES)), MAX_VALUES);
        assert_eq!(check_limits(line(MAX_VALUES).as_bytes()), Ok(()));
        let beyond = line(MAX_VALUES + 1);
        assert_eq!(
            check_limits(beyond.as_bytes()),
            Err(Limit::Values(MAX_VALUES))
        );
    }

    #[test]
    fn nesting_is_limited_in_short_and_long_lines_but_not_inside_strings() {
        let deep = |depth: usize, text: &str| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("{open}\"{text}\"{close}")
        };
        let brackets = "[{".repeat(200);
        let long = "x".repeat(2 * LARGE_LINE);
        for text in ["", &brackets, &long] {
            let fine = deep(MAX_DEPTH, text);
            assert_eq!(check_limits_inline(fine.as_bytes()), Some(Ok(())));
            let beyond = deep(MAX_DEPTH + 1, text);
            let crossed = Some(Err(Limit::Depth(MAX_DEPTH)));
            assert_eq!(check_limits_inline(beyond.as_bytes()), crossed);
        }
        let many = "[],".repeat(1_000);
        assert_eq!(check_limits_inline(many.as_bytes()), Some(Ok(())));
    }

    #[test]
    fn memory_is_estimated_by_the_kind_of_value() {
        let objects = |count: usize| format!("[{}0]", r#"{"a":0},"#.repeat(count));
        assert_eq!(check_limits(objects(40_000).as_bytes()), Ok(()));
        let crossed = Err(Limit::Memory(48 * 1024 * 1024));
        assert_eq!(check_limits(objects(60_000).as_bytes()), crossed);

        let mib = 1024 * 1024;
        let plain = format!("\"{}\"", "x".repeat(15 * mib));
        assert_eq!(check_limits(plain.as_bytes()), Ok(()));
        let escaped = |length: usize| format!("\"\\n{}\"", "x".repeat(length));
        assert_eq!(check_limits(escaped(11 * mib).as_bytes()), Ok(()));
        assert_eq!(check_limits(escaped(13 * mib).as_bytes()), crossed);
    }

    #[test]
    fn a_line_that_takes_long_to_check_or_decode_is_not_checked_inline() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length));
        assert_eq!(
            check_limits_inline(text(MAX_INLINE_BYTES - 2).as_bytes()),
            Some(Ok(()))
        );
        assert_eq!(check_limits_inline(text(MAX_INLINE_BYTES).as_bytes()), None);
        let list = |count: usize| format!("[{}1]{}", "1,".repeat(count), " ".repeat(LARGE_LINE));
        assert_eq!(check_limits_inline(list(10_000).as_bytes()), Some(Ok(())));
        assert_eq!(check_limits_inline(list(20_000).as_bytes()), None);
    }

    #[test]
    fn configured_limits_apply_to_short_lines_too() {
        let mut small = DEFAULTS;
        small.max_bytes = MessageSettings::LEAST_BYTES;
        small.max_depth = 16;
        small.max_values = 1_024;
        let here = |line: &str| super::check_limits_inline(line.as_bytes(), &small);
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(here(&deep(16)), Some(Ok(())));
        let crossed = |limit| Some(Err(limit));
        assert_eq!(here(&deep(17)), crossed(Limit::Depth(16)));
        let numbers = |count: usize| format!("[{}1]", "1,".repeat(count - 2));
        assert_eq!(here(&numbers(1_024)), Some(Ok(())));
        assert_eq!(here(&numbers(1_025)), crossed(Limit::Values(1_024)));
        // Three times the longest line is less than what a short line of objects takes.
        let mut many = small;
        many.max_values = MAX_VALUES;
        let objects = |count: usize| format!("[{}0]", "{},".repeat(count));
        let here = |line: &str| super::check_limits_inline(line.as_bytes(), &many);
        let most = Limit::Memory(3 * 1024 * 1024);
        assert_eq!(here(&objects(3_000)), Some(Ok(())));
        assert_eq!(here(&objects(5_000)), crossed(most));
        for line in [objects(1_000), "[".repeat(1_000), "1,".repeat(1_000)] {
            let mut deep = DEFAULTS;
            deep.max_depth = 2_000;
            let weight = weigh(line.as_bytes(), &deep).unwrap();
            assert!(
                weight.memory + line.len() <= MAX_MEMORY_PER_BYTE * line.len(),
                "{line}"
            );
        }
    }
}
