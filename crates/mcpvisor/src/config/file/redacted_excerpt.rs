//! Excerpts of a config for diagnostics, with secrets redacted.
//!
//! A line of a config may hold a token, so it is never shown unchanged. After parsing, keys, flags,
//! and the numbers and durations of settings are shown, and every other value is redacted. If the
//! text cannot be parsed, values cannot be distinguished from keys: only the known words of configs
//! are shown.

use std::path::Path;

use super::keys;
use super::syntax_tree::{Member, Node, Span, Value};
use crate::config::ConfigSource;
use crate::config::location::{Location, harmless};
use crate::config::redact_args::HIDDEN;

/// Bytes of a line that are shown before the marked position.
const BEFORE: usize = 80;

/// Bytes of a line that are shown from the marked position on.
const AFTER: usize = 120;

/// In longer lines columns are counted in bytes, so that a config on one huge line costs no time.
const LONG_LINE: usize = 4 * 1024;

/// Objects whose keys are chosen by the user and are never settings.
const USER_KEYED: [&str; 6] = [
    "env",
    "environment",
    "headers",
    "http_headers",
    "env_http_headers",
    "settings",
];

/// The text of a config, and which parts may be shown.
pub(super) struct SourceText<'a> {
    file: Option<&'a Path>,
    pub(super) text: &'a str,
    /// The offsets at which lines begin.
    lines: Vec<usize>,
    /// Keys and values, in the order of the text.
    parts: Vec<Part>,
    /// Whether it is TOML, so that suggestions are TOML too.
    pub(super) toml: bool,
}

struct Part {
    span: Span,
    shown: bool,
}

impl<'a> SourceText<'a> {
    /// A text that is not parsed yet.
    pub(super) fn new(file: Option<&'a Path>, text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self {
            file,
            text,
            lines: std::iter::once(0)
                .chain(breaks.map(|(at, _)| at + 1))
                .collect(),
            parts: Vec::new(),
            toml: false,
        }
    }

    /// The text of a file.
    pub(super) fn of(source: &'a ConfigSource) -> Self {
        Self {
            toml: source.is_toml(),
            ..Self::new(Some(source.path()), source.text())
        }
    }

    /// Records which parts of the parsed text are keys and values.
    pub(super) fn set_tree(&mut self, root: &Node) {
        let mut parts = Vec::new();
        collect(root, None, &mut parts);
        parts.sort_by_key(|part| part.span.start);
        self.parts = parts;
    }

    /// The location of a range, with its redacted line.
    pub(super) fn locate(&self, span: &Span) -> Location {
        let at = self.boundary(span.start);
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        let start = self.lines[line - 1];
        let end = self
            .lines
            .get(line)
            .map_or(self.text.len(), |next| next - 1);
        let before = &self.text[start..at];
        let column = if before.len() > LONG_LINE {
            before.len()
        } else {
            before.trim_start_matches('\u{feff}').chars().count()
        };
        let window = self.boundary(start.max(at.saturating_sub(BEFORE)))
            ..self.boundary(end.min(at + AFTER)).max(at);
        let mark = at..self.boundary(span.end).clamp(at, window.end);
        let mut excerpt = Excerpt::default();
        if window.start > start {
            excerpt.push(window.start..window.start, "…", false);
        }
        self.show(window.clone(), &mut excerpt);
        if window.end < end {
            excerpt.push(window.end..window.end, "…", false);
        }
        let (source, mark) = excerpt.finish(&mark);
        Location {
            file: self.file.map(Path::to_owned),
            line,
            column: column + 1,
            source,
            mark,
        }
    }

    /// The nearest character boundary at or before an offset.
    fn boundary(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        let mut below = (at.saturating_sub(3)..=at).rev();
        below
            .find(|at| self.text.is_char_boundary(*at))
            .unwrap_or(0)
    }

    fn show(&self, window: Span, excerpt: &mut Excerpt) {
        let mut at = window.start;
        let first = self.parts.partition_point(|part| part.span.end <= at);
        let mut parts = self.parts[first..].iter().peekable();
        while at < window.end {
            while parts.next_if(|part| part.span.end <= at).is_some() {}
            let next = parts.peek().map_or(window.end, |part| part.span.start);
            match parts.peek() {
                Some(part) if part.span.start <= at => {
                    let end = part.span.end.min(window.end);
                    if part.shown {
                        excerpt.push(at..end, &harmless(&self.text[at..end]), false);
                    } else {
                        excerpt.hide(at..end, self.text[at..end].starts_with('"'));
                    }
                    at = end;
                }
                _ => at = self.show_word(at, next.min(window.end), excerpt),
            }
        }
    }

    /// Shows one structural character or one known word, and redacts any other word. Returns the
    /// next offset.
    fn show_word(&self, at: usize, end: usize, excerpt: &mut Excerpt) -> usize {
        let rest = &self.text[at..end];
        let length = rest.find(is_structure).unwrap_or(rest.len());
        if length == 0 {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            excerpt.push(at..at + length, &harmless(&rest[..length]), false);
            return at + length;
        }
        let word = &rest[..length];
        if keys::is_word(word) {
            excerpt.push(at..at + length, word, false);
        } else {
            excerpt.hide(at..at + length, false);
        }
        at + length
    }
}

fn is_structure(c: char) -> bool {
    c.is_whitespace() || "{}[]:,=\"'.".contains(c)
}

/// Collects the parts of a value and whether they may be shown; `key` is the key of the value.
fn collect(node: &Node, key: Option<&str>, parts: &mut Vec<Part>) {
    let shown = match &node.value {
        Value::List(nodes) => {
            nodes.iter().for_each(|node| collect(node, None, parts));
            return;
        }
        Value::Object(members) => {
            members
                .iter()
                .for_each(|member| collect_member(member, key, parts));
            return;
        }
        Value::Null | Value::Flag(_) => true,
        Value::Number(_) => key.is_some_and(keys::is_measure),
        Value::Text(value) => {
            let measure = key.is_some_and(keys::is_measure) && is_measure(value);
            measure || keys::is_word(value) || is_reference(value)
        }
        Value::Other => false,
    };
    parts.push(Part {
        span: node.span.clone(),
        shown,
    });
}

fn collect_member(member: &Member, parent: Option<&str>, parts: &mut Vec<Part>) {
    parts.push(Part {
        span: member.key_span.clone(),
        shown: true,
    });
    let user_keyed = parent.is_some_and(|parent| USER_KEYED.contains(&parent));
    let key = if user_keyed {
        "env"
    } else {
        member.key.as_str()
    };
    collect(&member.node, Some(key), parts);
}

/// Whether a text looks like a duration, valid or not.
fn is_measure(text: &str) -> bool {
    text.len() <= 12
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || " .+-mshdw".contains(c))
}

/// Whether a text is exactly one variable: a name is not a secret.
fn is_reference(text: &str) -> bool {
    let inside = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    inside.is_some_and(|name| name.len() <= 40 && name.chars().all(plain))
}

/// A line under construction, with the source range of each piece.
#[derive(Default)]
struct Excerpt(Vec<Piece>);

struct Piece {
    from: Span,
    text: String,
    hidden: bool,
}

impl Excerpt {
    fn push(&mut self, from: Span, text: &str, hidden: bool) {
        self.0.push(Piece {
            from,
            text: text.to_owned(),
            hidden,
        });
    }

    /// Redacts a piece. Adjacent redacted pieces, with spaces between, are merged.
    fn hide(&mut self, from: Span, quoted: bool) {
        if quoted {
            return self.push(from, &format!("\"{HIDDEN}\""), false);
        }
        let is_space = |piece: &Piece| piece.text.chars().all(|c| c == ' ');
        let kept = self.0.iter().rposition(|piece| !is_space(piece));
        match kept {
            Some(last) if self.0[last].hidden => {
                self.0.truncate(last + 1);
                self.0[last].from.end = from.end;
            }
            _ => self.push(from, HIDDEN, true),
        }
    }

    fn finish(self, mark: &Span) -> (String, Span) {
        let mut line = String::new();
        let mut start = None;
        let mut end = None;
        for piece in &self.0 {
            // A piece of the same length is unchanged, so offsets within it are known.
            let within = |at: usize| {
                let exact = piece.text.len() == piece.from.len() && !piece.hidden;
                if exact { at - piece.from.start } else { 0 }
            };
            if start.is_none() && mark.start < piece.from.end {
                start = Some(line.len() + within(mark.start.max(piece.from.start)));
            }
            if end.is_none() && mark.end <= piece.from.end && mark.end > piece.from.start {
                let within = match within(mark.end) {
                    0 => piece.text.len(),
                    within => within,
                };
                end = Some(line.len() + within);
            }
            line.push_str(&piece.text);
        }
        let line = line.trim_end().to_owned();
        let inside = |at: Option<usize>| {
            let at = at.unwrap_or(line.len()).min(line.len());
            (0..=at)
                .rev()
                .find(|at| line.is_char_boundary(*at))
                .unwrap_or(0)
        };
        let (start, end) = (inside(start), inside(end));
        (line, start..end.max(start))
    }
}
