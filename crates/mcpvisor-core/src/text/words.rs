//! Splits text into the terms of a search: lower case, without common endings.
//!
//! Words are runs of Unicode letters and digits, and identifiers are split: `searchIssues`,
//! `search_issues` and `search-issues` have the same terms. Scripts that write no spaces between
//! words are split into pairs of characters. Everything here depends on the text alone, so a text
//! always has the same terms.

/// Bytes of the longest term; a longer one is cut.
const MAX_TERM: usize = 40;

/// Bytes of the longest name that [`squashed`] returns.
const MAX_SQUASHED: usize = 128;

/// Words of questions and sentences that say nothing about a tool, sorted.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "could", "do", "does",
    "for", "from", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my",
    "no", "not", "of", "on", "or", "our", "please", "should", "so", "some", "that", "the", "their",
    "them", "then", "there", "these", "they", "this", "those", "to", "was", "we", "what", "when",
    "where", "which", "who", "will", "with", "would", "you", "your",
];

/// A term of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Term<'t> {
    pub(crate) text: &'t str,
    /// It says nothing about the subject of a text.
    pub(crate) is_stop_word: bool,
}

/// Calls `each` with every term of a text, in order.
pub(crate) fn for_each_term(text: &str, each: &mut impl FnMut(Term<'_>)) {
    let mut terms = Terms {
        buffer: String::with_capacity(MAX_TERM),
        each,
    };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let kind = CharKind::of(first);
        let end = rest.find(|c| CharKind::of(c) != kind).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        match kind {
            CharKind::Word => terms.word(run),
            CharKind::Unspaced => terms.pairs(run),
            CharKind::Other => {}
        }
        rest = after;
    }
}

/// The letters and digits of a name in lower case: the same for `readFile`, `read_file` and
/// `Read file`.
pub(crate) fn squashed(name: &str) -> String {
    let mut squashed = String::with_capacity(name.len().min(MAX_SQUASHED));
    let letters = name.chars().filter(|c| CharKind::of(*c) != CharKind::Other);
    push_lower(&mut squashed, letters, MAX_SQUASHED);
    squashed
}

/// Whether a character belongs to a script that writes no spaces between words.
///
/// ```
/// use mcpvisor_core::words::is_unspaced;
///
/// assert!("読む읽다อ่าน".chars().all(is_unspaced));
/// assert!(!"read чтение".chars().any(is_unspaced));
/// ```
pub fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai and Lao, Myanmar, Khmer.
        '\u{0e01}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        // Kana; Han; Hangul, which has spaces, but particles at its words.
        | '\u{3041}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{323af}' | '\u{ac00}'..='\u{d7af}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharKind {
    /// Part of a word.
    Word,
    /// Of a script without spaces.
    Unspaced,
    /// Between words.
    Other,
}

impl CharKind {
    fn of(c: char) -> Self {
        if c.is_ascii() {
            return match c.is_ascii_alphanumeric() {
                true => Self::Word,
                false => Self::Other,
            };
        }
        if is_unspaced(c) {
            Self::Unspaced
        } else if c.is_alphanumeric() || is_mark(c) || is_indic_sign(c) {
            Self::Word
        } else {
            Self::Other
        }
    }
}

/// An accent of its own, which follows its letter in decomposed text.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036f}')
}

/// A sign within an Indic word that is not a letter: the nukta, which alters a consonant, and the
/// virama, which joins two. Every block of these scripts has them at the same places.
fn is_indic_sign(c: char) -> bool {
    matches!(c, '\u{0900}'..='\u{0d7f}') && matches!(u32::from(c) & 0x7f, 0x3c | 0x4d)
}

/// Appends characters in lower case and without separate accents, at most `limit` bytes.
fn push_lower(to: &mut String, chars: impl Iterator<Item = char>, limit: usize) {
    for c in chars.flat_map(char::to_lowercase).filter(|c| !is_mark(*c)) {
        if to.len() + c.len_utf8() > limit {
            return;
        }
        to.push(c);
    }
}

/// Passes terms on. Reuses one buffer for all of them.
struct Terms<'e, E> {
    buffer: String,
    each: &'e mut E,
}

impl<E: FnMut(Term<'_>)> Terms<'_, E> {
    /// The terms of a word: its parts if it is an identifier. A name of two parts, such as
    /// `GitHub`, is also a term as a whole.
    fn word(&mut self, word: &str) {
        let mut parts = 0;
        let mut start = 0;
        for end in part_ends(word) {
            self.push(&word[start..end]);
            (start, parts) = (end, parts + 1);
        }
        if parts == 2 {
            self.push(word);
        }
    }

    fn push(&mut self, word: &str) {
        self.buffer.clear();
        push_lower(&mut self.buffer, word.chars(), MAX_TERM);
        let is_stop_word = STOP_WORDS.binary_search(&self.buffer.as_str()).is_ok();
        stem(&mut self.buffer);
        self.emit(is_stop_word);
    }

    /// The pairs of neighbouring characters, and the last character alone. So every character
    /// begins one term, and a search for one character finds it.
    fn pairs(&mut self, run: &str) {
        let mut starts = run.char_indices().map(|(at, _)| at).skip(1).peekable();
        let mut start = 0;
        loop {
            let second = starts.next();
            let end = second.and(starts.peek().copied()).unwrap_or(run.len());
            self.buffer.clear();
            push_lower(&mut self.buffer, run[start..end].chars(), MAX_TERM);
            self.emit(false);
            match second {
                Some(next) => start = next,
                None => return,
            }
        }
    }

    fn emit(&mut self, is_stop_word: bool) {
        // Lower case has no characters where a word was of accents alone.
        if !self.buffer.is_empty() {
            let text = &self.buffer;
            (self.each)(Term { text, is_stop_word });
        }
    }
}

/// Where the parts of an identifier end: before a capital that follows another kind of character,
/// and before the last capital of several that begins a word (`HTTPServer`, but not `URLs`).
fn part_ends(word: &str) -> impl Iterator<Item = usize> {
    let mut before: Option<char> = None;
    let inner = word.char_indices().filter_map(move |(at, c)| {
        let last = before.replace(c)?;
        let mut next = word[at..].chars().skip(1);
        let begins_word = |c: Option<char>| c.is_some_and(char::is_lowercase);
        let splits = c.is_uppercase()
            && (!last.is_uppercase() || (begins_word(next.next()) && begins_word(next.next())));
        splits.then_some(at)
    });
    inner.chain([word.len()])
}

/// Removes the endings of plurals and of verbs from an English word: `queries` and `query`,
/// `creates`, `created`, `creating` and `create` become the same. Words of at most three letters
/// and words with other characters stay.
fn stem(word: &mut String) {
    if word.len() <= 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return;
    }
    if word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.pop();
    }
    if let Some(stem) = word.strip_suffix("ing").filter(|stem| stem.len() >= 3) {
        cut_verb_ending(word, stem.len());
    } else if let Some(stem) = word.strip_suffix("ed").filter(|stem| stem.len() >= 4)
        && !stem.ends_with('e')
    {
        cut_verb_ending(word, stem.len());
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
}

/// Cuts an ending, and the second of two equal consonants before it. A rest without a vowel is not
/// a verb: `string`.
fn cut_verb_ending(word: &mut String, length: usize) {
    let rest = &word.as_bytes()[..length];
    if !rest.iter().any(|byte| b"aeiouy".contains(byte)) {
        return;
    }
    let is_doubled =
        length > 3 && rest[length - 1] == rest[length - 2] && !b"lsz".contains(&rest[length - 1]);
    word.truncate(length - usize::from(is_doubled));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        for_each_term(text, &mut |term| terms.push(term.text.to_owned()));
        terms
    }

    #[test]
    fn identifiers_of_every_style_have_the_same_terms() {
        for name in [
            "search_code",
            "search-code",
            "search.code",
            "search code",
            "SEARCH_CODE",
        ] {
            assert_eq!(terms(name), ["search", "cod"], "{name}");
        }
        assert_eq!(terms("searchCode"), ["search", "cod", "searchcod"]);
        assert_eq!(
            terms("parseHTTPRequest2Body"),
            ["pars", "http", "request2", "body"]
        );
        assert_eq!(
            terms("listURLs s3 OAuth2"),
            ["list", "url", "listurl", "s3", "o", "auth2", "oauth2"]
        );
        assert_eq!(terms("GitHub"), ["git", "hub", "github"]);
        assert_eq!(terms("_-.!"), [""; 0]);
    }

    #[test]
    fn forms_of_a_word_have_one_term() {
        for forms in [
            "file files Files",
            "query queries",
            "branch branches",
            "cache caches caching cached",
            "create creates created creating",
            "address addresses",
            "run runs running",
            "set sets setting settings",
            "merge merges merged merging",
            "call calls calling called",
        ] {
            let terms = terms(forms);
            assert!(terms.windows(2).all(|two| two[0] == two[1]), "{terms:?}");
        }
        for same in [
            "string", "status", "analysis", "feed", "speed", "css", "is", "ids",
        ] {
            assert_eq!(terms(same), [same]);
        }
    }

    #[test]
    fn words_of_every_script_are_terms() {
        assert_eq!(terms("Größe prüfen"), ["größe", "prüfen"]);
        assert_eq!(terms("Чтение ФАЙЛОВ"), ["чтение", "файлов"]);
        assert_eq!(terms("फ़ाइल हिन्दी।"), ["फ़ाइल", "हिन्दी"]);
        assert_eq!(terms("ano\u{303} İ"), ["ano", "i"]);
        assert_eq!(terms("读取文件"), ["读取", "取文", "文件", "件"]);
        assert_eq!(terms("图"), ["图"]);
        assert_eq!(
            terms("ファイルread読む。"),
            ["ファ", "ァイ", "イル", "ル", "read", "読む", "む"]
        );
    }

    #[test]
    fn a_long_word_is_cut_between_characters() {
        let long = "ä".repeat(100);
        assert_eq!(terms(&long), ["ä".repeat(20)]);
        assert_eq!(squashed(&long), "ä".repeat(64));
    }

    #[test]
    fn a_squashed_name_has_its_letters_and_digits_alone() {
        for name in ["readFile_2", "read-file 2", "READ.FILE/2"] {
            assert_eq!(squashed(name), "readfile2");
        }
        assert_eq!(squashed("读取_文件"), "读取文件");
    }

    #[test]
    fn stop_words_are_sorted_and_marked() {
        assert!(STOP_WORDS.is_sorted());
        let mut marked = Vec::new();
        for_each_term("How do I READ this file", &mut |term| {
            marked.push((term.text.to_owned(), term.is_stop_word));
        });
        let kept: Vec<_> = marked.iter().filter(|(_, stop)| !stop).collect();
        assert_eq!(
            kept,
            [&("read".to_owned(), false), &("fil".to_owned(), false)]
        );
    }
}
