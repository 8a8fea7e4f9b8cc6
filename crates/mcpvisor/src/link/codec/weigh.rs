//! Walks over a line before anything of it is read, to see what reading it would take.
//!
//! A few bytes of JSON can cost a hundred times as much once they are values: 16 MiB of `1,1,1,…`
//! become more than a gigabyte. What is counted here is an upper estimate of what rmcp's types and
//! `serde_json` make of a line. Whether the line is JSON at all is not looked at.

use std::fmt;

use mcpvisor_core::settings::MessageSettings;

use crate::link::limits::format_bytes;

/// Shorter lines are read as they are: nothing in them can add up to much.
pub(crate) const LARGE: usize = 64 * 1024;

/// A byte of a line takes no more bytes of memory: `{},` is an object and its place, and a few are
/// left for objects within each other.
const WORST: usize = 300;

/// Longer lines are walked over and read off the async workers.
const HEAVY: usize = 1024 * 1024;

/// Lines with more values are read off the async workers too.
const MANY_VALUES: usize = 16 * 1024;

/// Most notifications are shorter, and how much memory they take makes no difference.
const TOO_SHORT_TO_WEIGH: usize = 256;

/// What a value takes, at most: its place in a list or map that has grown, and may be half full.
const VALUE: usize = 128;

/// What an object takes beside its members: the smallest map holds several.
const OBJECT: usize = 640;

/// What a text takes beside its bytes.
const TEXT: usize = 32;

/// A bound that a line crosses.
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
            Self::Depth(most) => write!(f, "it is nested deeper than {most}"),
            Self::Values(most) => write!(f, "it has more than {most} JSON values"),
            Self::Memory(most) => {
                let most = format_bytes(*most);
                write!(f, "it takes more than {most} of memory to read")
            }
        }
    }
}

/// What to do with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitCheck {
    /// Read it.
    Within,
    /// Do not read it.
    Exceeds(Limit),
}

/// Judges a line, unless that or reading it would hold an async worker for long.
pub(crate) fn check_limits_inline(line: &[u8], bounds: &MessageSettings) -> Option<LimitCheck> {
    if line.len() > HEAVY {
        return None;
    }
    if line.len() <= light(bounds) {
        return Some(check_depth(line, bounds));
    }
    match weigh(line, bounds) {
        Ok(weight) if weight.values > MANY_VALUES => None,
        Ok(_) => Some(LimitCheck::Within),
        Err(bound) => Some(LimitCheck::Exceeds(bound)),
    }
}

/// A line of so many bytes crosses no bound but that on nesting: no value has less than one.
fn light(bounds: &MessageSettings) -> usize {
    let by_memory = bounds.max_memory() / WORST;
    LARGE.min(by_memory).min(bounds.max_values)
}

/// Judges a line, however long that takes.
pub(crate) fn check_limits(line: &[u8], bounds: &MessageSettings) -> LimitCheck {
    match weigh(line, bounds) {
        Ok(_) => LimitCheck::Within,
        Err(bound) => LimitCheck::Exceeds(bound),
    }
}

/// What it takes to read a line, the line included; what would cross a usual bound takes very much.
pub(crate) fn memory(line: &[u8]) -> usize {
    if line.len() < TOO_SHORT_TO_WEIGH {
        return line.len();
    }
    let usual = MessageSettings::default();
    weigh(line, &usual).map_or(usual.max_memory(), |weight| {
        weight.memory + weight.longest_escaped + line.len()
    })
}

/// Nearly every line has too few brackets to be nested too deep, whatever they mean.
fn check_depth(line: &[u8], bounds: &MessageSettings) -> LimitCheck {
    let opens = |byte: &&u8| matches!(**byte, b'{' | b'[');
    // There is a bracket for each level, and one to close it.
    let short = line.len() < 2 * bounds.max_depth;
    if short || line.iter().filter(opens).count() <= bounds.max_depth {
        return LimitCheck::Within;
    }
    match weigh(line, bounds) {
        Err(bound @ Limit::Depth(_)) => LimitCheck::Exceeds(bound),
        Ok(_) | Err(Limit::Values(_) | Limit::Memory(_)) => LimitCheck::Within,
    }
}

/// What a line consists of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Weight {
    /// Everything but the names of members.
    values: usize,
    /// What it takes to read it, without the line itself and the longest escaped text.
    memory: usize,
    /// Texts with escapes are put together in a buffer first, which stays.
    longest_escaped: usize,
    depth: usize,
}

fn weigh(line: &[u8], bounds: &MessageSettings) -> Result<Weight, Limit> {
    let most_memory = bounds.max_memory();
    let mut weight = Weight::default();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at = match byte {
            b'"' => weight.text(line, at),
            b'{' | b'[' => weight.open(byte, at, bounds.max_depth)?,
            b'}' | b']' => {
                weight.depth = weight.depth.saturating_sub(1);
                at + 1
            }
            b':' => {
                // What came before was a name.
                weight.values = weight.values.saturating_sub(1);
                at + 1
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' => at + 1,
            _ => {
                weight.values += 1;
                weight.memory += VALUE;
                at + plain_length(&line[at..])
            }
        };
        if weight.values > bounds.max_values {
            return Err(Limit::Values(bounds.max_values));
        }
        if weight.memory + weight.longest_escaped + line.len() > most_memory {
            return Err(Limit::Memory(most_memory));
        }
    }
    Ok(weight)
}

impl Weight {
    fn open(&mut self, bracket: u8, at: usize, most: usize) -> Result<usize, Limit> {
        self.depth += 1;
        self.values += 1;
        self.memory += if bracket == b'{' {
            OBJECT + VALUE
        } else {
            VALUE
        };
        if self.depth > most {
            return Err(Limit::Depth(most));
        }
        Ok(at + 1)
    }

    /// A text that begins at a quotation mark; says where it ends.
    fn text(&mut self, line: &[u8], start: usize) -> usize {
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
        self.memory += VALUE + TEXT + length;
        if escaped {
            // Some types copy it once more, from where they looked at its kind.
            self.memory += length;
            self.longest_escaped = self.longest_escaped.max(length);
        }
        end
    }
}

/// The length of a number or a word, at least one byte.
fn plain_length(rest: &[u8]) -> usize {
    let ends = |byte: &u8| {
        let ends = b",}]: \t\r\n\"{[";
        ends.contains(byte)
    };
    rest.iter().position(ends).unwrap_or(rest.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: MessageSettings = MessageSettings::DEFAULT;
    const MAX_VALUES: usize = USUAL.max_values;
    const MAX_DEPTH: usize = USUAL.max_depth;

    fn values(line: &str) -> usize {
        weigh(line.as_bytes(), &USUAL).unwrap().values
    }

    fn check_limits(line: &[u8]) -> LimitCheck {
        super::check_limits(line, &USUAL)
    }

    fn check_limits_inline(line: &[u8]) -> Option<LimitCheck> {
        super::check_limits_inline(line, &USUAL)
    }

    #[test]
    fn values_are_counted_and_names_and_texts_are_not() {
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
    fn the_largest_number_of_values_is_still_fine() {
        let line = |count: usize| format!("[{}1]", "1,".repeat(count - 2));
        assert_eq!(values(&line(MAX_VALUES)), MAX_VALUES);
        assert_eq!(
            check_limits(line(MAX_VALUES).as_bytes()),
            LimitCheck::Within
        );
        let beyond = line(MAX_VALUES + 1);
        assert_eq!(
            check_limits(beyond.as_bytes()),
            LimitCheck::Exceeds(Limit::Values(MAX_VALUES))
        );
    }

    #[test]
    fn nesting_is_bounded_in_short_and_long_lines_and_not_inside_of_texts() {
        let deep = |depth: usize, text: &str| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("{open}\"{text}\"{close}")
        };
        let brackets = "[{".repeat(200);
        let long = "x".repeat(2 * LARGE);
        for text in ["", &brackets, &long] {
            let fine = deep(MAX_DEPTH, text);
            assert_eq!(
                check_limits_inline(fine.as_bytes()),
                Some(LimitCheck::Within)
            );
            let beyond = deep(MAX_DEPTH + 1, text);
            let crossed = Some(LimitCheck::Exceeds(Limit::Depth(MAX_DEPTH)));
            assert_eq!(check_limits_inline(beyond.as_bytes()), crossed);
        }
        let many = "[],".repeat(1_000);
        assert_eq!(
            check_limits_inline(many.as_bytes()),
            Some(LimitCheck::Within)
        );
    }

    #[test]
    fn what_would_take_much_memory_is_told_by_its_kind() {
        let objects = |count: usize| format!("[{}0]", r#"{"a":0},"#.repeat(count));
        assert_eq!(check_limits(objects(40_000).as_bytes()), LimitCheck::Within);
        let crossed = LimitCheck::Exceeds(Limit::Memory(48 * 1024 * 1024));
        assert_eq!(check_limits(objects(60_000).as_bytes()), crossed);

        let mib = 1024 * 1024;
        let plain = format!("\"{}\"", "x".repeat(15 * mib));
        assert_eq!(check_limits(plain.as_bytes()), LimitCheck::Within);
        let escaped = |length: usize| format!("\"\\n{}\"", "x".repeat(length));
        assert_eq!(
            check_limits(escaped(11 * mib).as_bytes()),
            LimitCheck::Within
        );
        assert_eq!(check_limits(escaped(13 * mib).as_bytes()), crossed);
    }

    #[test]
    fn a_line_that_takes_long_to_judge_or_to_read_is_not_for_here() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length));
        assert_eq!(
            check_limits_inline(text(HEAVY - 2).as_bytes()),
            Some(LimitCheck::Within)
        );
        assert_eq!(check_limits_inline(text(HEAVY).as_bytes()), None);
        let list = |count: usize| format!("[{}1]{}", "1,".repeat(count), " ".repeat(LARGE));
        assert_eq!(
            check_limits_inline(list(10_000).as_bytes()),
            Some(LimitCheck::Within)
        );
        assert_eq!(check_limits_inline(list(20_000).as_bytes()), None);
    }

    #[test]
    fn other_bounds_hold_in_short_lines_too() {
        let mut small = USUAL;
        small.max_bytes = MessageSettings::LEAST_BYTES;
        small.max_depth = 16;
        small.max_values = 1_024;
        let here = |line: &str| super::check_limits_inline(line.as_bytes(), &small);
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(here(&deep(16)), Some(LimitCheck::Within));
        let crossed = |bound| Some(LimitCheck::Exceeds(bound));
        assert_eq!(here(&deep(17)), crossed(Limit::Depth(16)));
        let numbers = |count: usize| format!("[{}1]", "1,".repeat(count - 2));
        assert_eq!(here(&numbers(1_024)), Some(LimitCheck::Within));
        assert_eq!(here(&numbers(1_025)), crossed(Limit::Values(1_024)));
        // Three times the longest line is less than what a short line of objects takes.
        let mut many = small;
        many.max_values = MAX_VALUES;
        let objects = |count: usize| format!("[{}0]", "{},".repeat(count));
        let here = |line: &str| super::check_limits_inline(line.as_bytes(), &many);
        let most = Limit::Memory(3 * 1024 * 1024);
        assert_eq!(here(&objects(3_000)), Some(LimitCheck::Within));
        assert_eq!(here(&objects(5_000)), crossed(most));
        for line in [objects(1_000), "[".repeat(1_000), "1,".repeat(1_000)] {
            let mut deep = USUAL;
            deep.max_depth = 2_000;
            let weight = weigh(line.as_bytes(), &deep).unwrap();
            assert!(weight.memory + line.len() <= WORST * line.len(), "{line}");
        }
    }
}
