//! The terms of one server's tools.

use std::collections::HashMap;
use std::mem::size_of_val;
use std::ops::Range;

use crate::words::{for_each_term, squashed};

/// Bytes of a description that are indexed, and of any other text.
const MAX_DESCRIPTION: usize = 4 * 1024;
const MAX_TEXT: usize = 256;

/// Parameters of a tool that are indexed.
const MAX_PARAMETERS: usize = 64;

/// Different terms of a tool that are indexed, in the order of its fields.
const MAX_TERMS: usize = 128;

/// What one occurrence of a term counts in each field. One occurrence in any other field outweighs
/// all of the description.
const NAME_WEIGHT: u32 = 8;
const TITLE_WEIGHT: u32 = 4;
const GROUP_WEIGHT: u32 = 4;
const PARAMETER_WEIGHT: u32 = 3;
const DESCRIPTION_WEIGHT: u32 = 1;

/// Occurrences of a term in a description that count.
const MAX_REPETITIONS: u32 = 2;

/// The texts of a tool that are searched.
#[derive(Debug, Clone, Copy, Default)]
pub struct Document<'d, P> {
    /// Its name.
    pub name: &'d str,
    /// Its title, or an empty text.
    pub title: &'d str,
    /// Its description, or an empty text.
    pub description: &'d str,
    /// The names of its parameters.
    pub parameters: P,
}

/// An index of the tools of one server. Immutable; its size is that of its boxed slices.
#[derive(Debug, Default)]
pub struct Index {
    /// The squashed name of the server.
    pub(super) group: Box<str>,
    /// All terms, sorted, one behind the other.
    text: Box<str>,
    terms: Box<[TermEnd]>,
    postings: Box<[Posting]>,
    /// The weighted number of terms of each document.
    pub(super) lengths: Box<[u32]>,
    pub(super) total_length: u64,
    /// All squashed names, sorted, one behind the other.
    names_text: Box<str>,
    names: Box<[NameEnd]>,
}

/// Where a term and its postings end; they begin where those of the term before it end.
#[derive(Debug, Clone, Copy, Default)]
struct TermEnd {
    text: u32,
    postings: u32,
}

/// A document that has a term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) document: u32,
    /// The weighted number of occurrences.
    pub(super) weight: u32,
}

/// Where a name ends, and whose it is.
#[derive(Debug, Clone, Copy, Default)]
struct NameEnd {
    text: u32,
    document: u32,
}

impl Index {
    /// Indexes documents. `group` is the name of their server; its terms count for every document.
    /// Ties of a ranking are broken by the order of the documents.
    pub fn new<'d, P>(group: &str, documents: impl IntoIterator<Item = Document<'d, P>>) -> Self
    where
        P: IntoIterator<Item = &'d str>,
    {
        let mut builder = Builder::default();
        for document in documents {
            builder.add(group, document);
        }
        builder.finish(group)
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether it has no documents.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The memory of the index on the heap, in bytes.
    pub fn heap_size(&self) -> usize {
        size_of_val(&*self.group)
            + size_of_val(&*self.text)
            + size_of_val(&*self.terms)
            + size_of_val(&*self.postings)
            + size_of_val(&*self.lengths)
            + size_of_val(&*self.names_text)
            + size_of_val(&*self.names)
    }

    fn term(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |it| self.terms[it].text);
        &self.text[start as usize..self.terms[index].text as usize]
    }

    /// The documents that have a term.
    pub(super) fn postings(&self, term: usize) -> &[Posting] {
        let start = term.checked_sub(1).map_or(0, |it| self.terms[it].postings);
        &self.postings[start as usize..self.terms[term].postings as usize]
    }

    /// The terms that begin with a prefix, at most `limit`. The first one is the prefix itself if
    /// it is a term.
    pub(super) fn terms_from(&self, prefix: &str, limit: usize) -> Range<usize> {
        let start = lower_bound(self.terms.len(), |it| self.term(it) < prefix);
        let most = limit.min(self.terms.len() - start);
        let begins = |it: &usize| self.term(start + it).starts_with(prefix);
        start..start + (0..most).take_while(begins).count()
    }

    /// Whether this is the term.
    pub(super) fn is_term(&self, index: usize, term: &str) -> bool {
        self.term(index).len() == term.len()
    }

    fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |it| self.names[it].text);
        &self.names_text[start as usize..self.names[index].text as usize]
    }

    /// The documents whose squashed name begins with a prefix, and whether it is their whole name.
    pub(super) fn named(&self, prefix: &str) -> impl Iterator<Item = (usize, bool)> {
        let start = lower_bound(self.names.len(), |it| self.name(it) < prefix);
        let names = (start..self.names.len()).map(|it| (self.name(it), self.names[it].document));
        names
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(move |(name, document)| (document as usize, name.len() == prefix.len()))
    }
}

/// The first index of a sorted list that is not below.
fn lower_bound(length: usize, is_below: impl Fn(usize) -> bool) -> usize {
    let (mut start, mut end) = (0, length);
    while start < end {
        let middle = start + (end - start) / 2;
        if is_below(middle) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

/// Collects the terms of documents.
#[derive(Debug, Default)]
struct Builder {
    ids: HashMap<Box<str>, usize>,
    /// By the id of the term.
    postings: Vec<Vec<Posting>>,
    lengths: Vec<u32>,
    names: Vec<(String, u32)>,
    /// The terms of the present document and their weights, in the order in which they were found.
    found: Vec<(usize, u32)>,
}

impl Builder {
    fn add<'d, P: IntoIterator<Item = &'d str>>(&mut self, group: &str, of: Document<'d, P>) {
        let document = self.lengths.len() as u32;
        self.names.push((squashed(of.name), document));
        self.found.clear();
        self.field(of.name, MAX_TEXT, NAME_WEIGHT);
        self.field(group, MAX_TEXT, GROUP_WEIGHT);
        self.field(of.title, MAX_TEXT, TITLE_WEIGHT);
        for parameter in of.parameters.into_iter().take(MAX_PARAMETERS) {
            self.field(parameter, MAX_TEXT, PARAMETER_WEIGHT);
        }
        self.description(of.description);
        let length = self.found.iter().map(|(_, weight)| weight).sum();
        self.lengths.push(length);
        for (term, weight) in &self.found {
            self.postings[*term].push(Posting {
                document,
                weight: *weight,
            });
        }
    }

    fn field(&mut self, text: &str, limit: usize, weight: u32) {
        for_each_term(start_of(text, limit), &mut |term| {
            self.count(term.text, weight);
        });
    }

    /// A description has whole sentences, so stop words are left out, and repetitions count little.
    fn description(&mut self, text: &str) {
        let before = self.found.clone();
        for_each_term(start_of(text, MAX_DESCRIPTION), &mut |term| {
            if !term.is_stop_word {
                self.count(term.text, DESCRIPTION_WEIGHT);
            }
        });
        for (at, (_, weight)) in self.found.iter_mut().enumerate() {
            let elsewhere = before.get(at).map_or(0, |(_, weight)| *weight);
            let most = elsewhere + MAX_REPETITIONS * DESCRIPTION_WEIGHT;
            *weight = (*weight).min(most);
        }
    }

    /// Counts a term of the present document, unless the document has too many already.
    fn count(&mut self, term: &str, weight: u32) {
        let is_full = self.found.len() >= MAX_TERMS;
        let id = self.ids.get(term).copied();
        let found = id.and_then(|id| self.found.iter_mut().find(|(found, _)| *found == id));
        match found {
            Some((_, sum)) => *sum += weight,
            None if is_full => {}
            None => {
                let id = id.unwrap_or_else(|| self.add_term(term));
                self.found.push((id, weight));
            }
        }
    }

    fn add_term(&mut self, term: &str) -> usize {
        let id = self.postings.len();
        self.ids.insert(term.into(), id);
        self.postings.push(Vec::new());
        id
    }

    fn finish(mut self, group: &str) -> Index {
        let mut ids: Vec<(Box<str>, usize)> = self.ids.into_iter().collect();
        ids.sort_unstable();
        let mut text = String::new();
        let mut terms = Vec::with_capacity(ids.len());
        let mut postings = Vec::with_capacity(self.postings.iter().map(Vec::len).sum());
        for (term, id) in ids {
            text.push_str(&term);
            postings.append(&mut self.postings[id]);
            terms.push(TermEnd {
                text: text.len() as u32,
                postings: postings.len() as u32,
            });
        }
        self.names.sort_unstable();
        let mut names_text = String::new();
        let mut names = Vec::with_capacity(self.names.len());
        for (name, document) in self.names {
            names_text.push_str(&name);
            let text = names_text.len() as u32;
            names.push(NameEnd { text, document });
        }
        Index {
            group: squashed(group).into(),
            text: text.into(),
            terms: terms.into(),
            postings: postings.into(),
            total_length: self.lengths.iter().copied().map(u64::from).sum(),
            lengths: self.lengths.into(),
            names_text: names_text.into(),
            names: names.into(),
        }
    }
}

/// The start of a text, at most `limit` bytes.
pub(super) fn start_of(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
