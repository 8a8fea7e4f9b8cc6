//! The terms of a query.

use super::index::start_of;
use crate::words::{for_each_term, is_unspaced, squashed};

/// Bytes of a query that are read; the rest is ignored.
pub const MAX_QUERY: usize = 512;

/// Different terms of a query; further ones are ignored.
pub const MAX_QUERY_TERMS: usize = 16;

/// Characters from which a term also finds longer terms that begin with it.
const MIN_PREFIX: usize = 3;

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub(super) terms: Vec<QueryTerm>,
    /// The whole query as a name.
    pub(super) name: String,
}

/// A term of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryTerm {
    pub(super) text: String,
    /// Whether it also finds longer terms that begin with it.
    pub(super) is_prefix: bool,
}

impl Query {
    /// Reads a query: some words, or a name or the beginning of one. Stop words count only if there
    /// are no other words.
    pub fn new(text: &str) -> Self {
        let text = start_of(text, MAX_QUERY);
        let mut terms = collect(text, false);
        if terms.is_empty() {
            terms = collect(text, true);
        }
        Self {
            terms,
            name: squashed(text),
        }
    }

    /// Whether it has no words, and so finds nothing.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

fn collect(text: &str, with_stop_words: bool) -> Vec<QueryTerm> {
    let mut terms: Vec<QueryTerm> = Vec::new();
    for_each_term(text, &mut |term| {
        let known = terms.iter().any(|it| it.text == term.text);
        if known || (term.is_stop_word && !with_stop_words) || terms.len() >= MAX_QUERY_TERMS {
            return;
        }
        let length = term.text.chars().count();
        let is_unspaced = term.text.starts_with(is_unspaced);
        // The last character of a word is also in the pair before it.
        let in_pair = |last: &QueryTerm| last.text.ends_with(term.text);
        if is_unspaced && length == 1 && terms.last().is_some_and(in_pair) {
            return;
        }
        let is_prefix = is_unspaced || length >= MIN_PREFIX;
        terms.push(QueryTerm {
            text: term.text.to_owned(),
            is_prefix,
        });
    });
    terms
}
