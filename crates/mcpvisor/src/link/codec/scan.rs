//! Walks over a line before anything of it is read, to see what reading it would take.
//!
//! A few bytes of JSON can cost a hundred times as much once they are values: 16 MiB of `1,1,1,…`
//! become more than a gigabyte. What is counted here is an upper estimate of what rmcp's types and
//! `serde_json` make of a line. Whether the line is JSON at all is not looked at.

use std::fmt;

/// Objects and lists may be nested so deep, the message itself included.
pub(crate) const MAX_DEPTH: usize = 128;

/// So many JSON values may be in one line.
pub(crate) const MAX_VALUES: usize = 262_144;

/// Reading a line may take so many bytes of memory, the line included.
pub(crate) const MAX_MEMORY: usize = 48 * 1024 * 1024;

/// Shorter lines are read as they are: nothing in them can add up to much.
pub(crate) const LARGE: usize = 64 * 1024;

/// Longer lines are walked over and read off the async workers.
const HEAVY: usize = 1024 * 1024;

/// Lines with more values are read off the async workers too.
const MANY_VALUES: usize = 16 * 1024;

/// A line that is nested too deep has at least a bracket for each level, and one to close it.
const TOO_SHORT_TO_NEST: usize = 2 * MAX_DEPTH;

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
pub(crate) enum Bound {
    /// [`MAX_DEPTH`]
    Depth,
    /// [`MAX_VALUES`]
    Values,
    /// [`MAX_MEMORY`]
    Memory,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth => write!(f, "it is nested deeper than {MAX_DEPTH}"),
            Self::Values => write!(f, "it has more than {MAX_VALUES} JSON values"),
            Self::Memory => {
                let limit = MAX_MEMORY / 1024 / 1024;
                write!(f, "it takes more than {limit} MiB of memory to read")
            }
        }
    }
}

/// What to do with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Read it.
    Fine,
    /// Do not read it.
    Crosses(Bound),
}

/// Judges a line, unless that or reading it would hold an async worker for long.
pub(crate) fn judge_here(line: &[u8]) -> Option<Verdict> {
    if line.len() > HEAVY {
        return None;
    }
    if line.len() <= LARGE {
        return Some(judge_depth(line));
    }
    match weigh(line) {
        Ok(weight) if weight.values > MANY_VALUES => None,
        Ok(_) => Some(Verdict::Fine),
        Err(bound) => Some(Verdict::Crosses(bound)),
    }
}

/// Judges a line, however long that takes.
pub(crate) fn judge(line: &[u8]) -> Verdict {
    match weigh(line) {
        Ok(_) => Verdict::Fine,
        Err(bound) => Verdict::Crosses(bound),
    }
}

/// What it takes to read a line, the line included, as far as that is bounded.
pub(crate) fn memory(line: &[u8]) -> usize {
    if line.len() < TOO_SHORT_TO_WEIGH {
        return line.len();
    }
    weigh(line).map_or(MAX_MEMORY, |weight| {
        weight.memory + weight.longest_escaped + line.len()
    })
}

/// Nearly every line has too few brackets to be nested too deep, whatever they mean.
fn judge_depth(line: &[u8]) -> Verdict {
    let opens = |byte: &&u8| matches!(**byte, b'{' | b'[');
    if line.len() < TOO_SHORT_TO_NEST || line.iter().filter(opens).count() <= MAX_DEPTH {
        return Verdict::Fine;
    }
    match weigh(line) {
        Err(Bound::Depth) => Verdict::Crosses(Bound::Depth),
        Ok(_) | Err(Bound::Values | Bound::Memory) => Verdict::Fine,
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

fn weigh(line: &[u8]) -> Result<Weight, Bound> {
    let mut weight = Weight::default();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at = match byte {
            b'"' => weight.text(line, at),
            b'{' | b'[' => weight.open(byte, at)?,
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
        if weight.values > MAX_VALUES {
            return Err(Bound::Values);
        }
        if weight.memory + weight.longest_escaped + line.len() > MAX_MEMORY {
            return Err(Bound::Memory);
        }
    }
    Ok(weight)
}

impl Weight {
    fn open(&mut self, bracket: u8, at: usize) -> Result<usize, Bound> {
        self.depth += 1;
        self.values += 1;
        self.memory += if bracket == b'{' {
            OBJECT + VALUE
        } else {
            VALUE
        };
        if self.depth > MAX_DEPTH {
            return Err(Bound::Depth);
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

    fn values(line: &str) -> usize {
        weigh(line.as_bytes()).unwrap().values
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
        assert_eq!(judge(line(MAX_VALUES).as_bytes()), Verdict::Fine);
        let beyond = line(MAX_VALUES + 1);
        assert_eq!(judge(beyond.as_bytes()), Verdict::Crosses(Bound::Values));
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
            assert_eq!(judge_here(fine.as_bytes()), Some(Verdict::Fine));
            let beyond = deep(MAX_DEPTH + 1, text);
            let crossed = Some(Verdict::Crosses(Bound::Depth));
            assert_eq!(judge_here(beyond.as_bytes()), crossed);
        }
        let many = "[],".repeat(1_000);
        assert_eq!(judge_here(many.as_bytes()), Some(Verdict::Fine));
    }

    #[test]
    fn what_would_take_much_memory_is_told_by_its_kind() {
        let objects = |count: usize| format!("[{}0]", r#"{"a":0},"#.repeat(count));
        assert_eq!(judge(objects(40_000).as_bytes()), Verdict::Fine);
        let crossed = Verdict::Crosses(Bound::Memory);
        assert_eq!(judge(objects(60_000).as_bytes()), crossed);

        let mib = 1024 * 1024;
        let plain = format!("\"{}\"", "x".repeat(15 * mib));
        assert_eq!(judge(plain.as_bytes()), Verdict::Fine);
        let escaped = |length: usize| format!("\"\\n{}\"", "x".repeat(length));
        assert_eq!(judge(escaped(11 * mib).as_bytes()), Verdict::Fine);
        assert_eq!(judge(escaped(13 * mib).as_bytes()), crossed);
    }

    #[test]
    fn a_line_that_takes_long_to_judge_or_to_read_is_not_for_here() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length));
        assert_eq!(judge_here(text(HEAVY - 2).as_bytes()), Some(Verdict::Fine));
        assert_eq!(judge_here(text(HEAVY).as_bytes()), None);
        let list = |count: usize| format!("[{}1]{}", "1,".repeat(count), " ".repeat(LARGE));
        assert_eq!(judge_here(list(10_000).as_bytes()), Some(Verdict::Fine));
        assert_eq!(judge_here(list(20_000).as_bytes()), None);
    }
}
