//! Ranks the documents of several indexes for a query.

use std::cmp::Ordering;
use std::ops::Range;

use super::index::Index;
use super::query::Query;

/// Saturation of repeated terms, and the share of a document's length, as in BM25.
const K1: f32 = 1.2;
const B: f32 = 0.5;

/// What a longer term counts that begins with a term of the query.
const PREFIX_SHARE: f32 = 0.5;

/// Longer terms of one index that a term of the query finds.
const MAX_EXPANSIONS: usize = 64;

/// Added to the score of a document whose name is the query. More than any score without it.
pub const EXACT_NAME: f32 = 2_000.0;

/// Added to the score of a document whose name begins with the query. More than any score without
/// it.
const NAME_PREFIX: f32 = 1_000.0;

/// Characters of a query from which names that begin with it come first.
const MIN_NAME_PREFIX: usize = 2;

/// A document that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The position of its index.
    pub index: usize,
    /// Its position in the index.
    pub document: usize,
    /// How well it fits; larger is better. Comparable only within one search.
    pub score: f32,
}

/// The best documents for a query, at most `limit`: those whose name is the query, then those whose
/// name begins with it, then by score. Ties are broken by the order of the indexes and of their
/// documents.
pub fn search(indexes: &[&Index], query: &Query, limit: usize) -> Vec<Hit> {
    if query.is_empty() || limit == 0 {
        return Vec::new();
    }
    let ranking = Ranking::new(indexes, query);
    let mut hits = Vec::new();
    let mut scores = Scores::default();
    for (at, index) in indexes.iter().enumerate() {
        ranking.score(at, index, &mut scores);
        let found = scores.sums.iter().enumerate();
        let found = found.filter(|(_, score)| **score > 0.0);
        hits.extend(found.map(|(document, score)| Hit {
            index: at,
            document,
            score: *score,
        }));
    }
    if hits.len() > limit {
        hits.select_nth_unstable_by(limit, best_first);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(best_first);
    hits
}

fn best_first(one: &Hit, other: &Hit) -> Ordering {
    let by_score = other.score.total_cmp(&one.score);
    by_score.then_with(|| (one.index, one.document).cmp(&(other.index, other.document)))
}

/// The statistics of a query over all indexes.
struct Ranking<'q> {
    query: &'q Query,
    /// For each index and each term of the query, the terms that it finds.
    found: Vec<Range<usize>>,
    /// How much each term of the query says: less, the more documents have it.
    weights: Vec<f32>,
    average_length: f32,
}

/// The scores of the documents of one index.
#[derive(Default)]
struct Scores {
    sums: Vec<f32>,
    /// Of the present term of the query.
    best: Vec<f32>,
}

impl<'q> Ranking<'q> {
    fn new(indexes: &[&Index], query: &'q Query) -> Self {
        let documents: usize = indexes.iter().map(|index| index.len()).sum();
        let length: u64 = indexes.iter().map(|index| index.total_length).sum();
        let mut found = Vec::with_capacity(indexes.len() * query.terms.len());
        let mut frequencies = vec![0; query.terms.len()];
        for index in indexes {
            for (term, frequency) in query.terms.iter().zip(&mut frequencies) {
                let limit = if term.is_prefix { MAX_EXPANSIONS } else { 1 };
                let mut terms = index.terms_from(&term.text, limit);
                if !term.is_prefix && !terms.is_empty() && !index.is_term(terms.start, &term.text) {
                    terms.end = terms.start;
                }
                *frequency += terms
                    .clone()
                    .map(|it| index.postings(it).len())
                    .sum::<usize>();
                found.push(terms);
            }
        }
        let weight = |frequency: usize| {
            let with = frequency.min(documents) as f32;
            (1.0 + (documents as f32 - with + 0.5) / (with + 0.5)).ln()
        };
        Self {
            query,
            found,
            weights: frequencies.into_iter().map(weight).collect(),
            average_length: (length as f32 / documents.max(1) as f32).max(1.0),
        }
    }

    /// Scores the documents of the index at this position.
    fn score(&self, at: usize, index: &Index, scores: &mut Scores) {
        scores.reset(index.len());
        let terms = self.query.terms.len();
        let found = &self.found[at * terms..(at + 1) * terms];
        for ((term, weight), found) in self.query.terms.iter().zip(&self.weights).zip(found) {
            if found.is_empty() {
                continue;
            }
            for candidate in found.clone() {
                let share = match index.is_term(candidate, &term.text) {
                    true => *weight,
                    false => *weight * PREFIX_SHARE,
                };
                for posting in index.postings(candidate) {
                    let document = posting.document as usize;
                    let score = share * self.saturation(posting.weight, index.lengths[document]);
                    scores.offer(document, score);
                }
            }
            scores.add_best();
        }
        self.score_names(index, scores);
    }

    /// How much the occurrences of a term count: less with each, and less in a long document.
    fn saturation(&self, occurrences: u32, length: u32) -> f32 {
        let occurrences = occurrences as f32;
        let length = length as f32 / self.average_length;
        occurrences * (K1 + 1.0) / (occurrences + K1 * (1.0 - B + B * length))
    }

    /// Scores documents whose name is the query or begins with it. The query may begin with the name
    /// of the server.
    fn score_names(&self, index: &Index, scores: &mut Scores) {
        let whole = self.query.name.as_str();
        let inner = whole.strip_prefix(&*index.group).unwrap_or_default();
        for name in [whole, inner] {
            if name.chars().count() < MIN_NAME_PREFIX {
                continue;
            }
            for (document, is_whole) in index.named(name) {
                let score = if is_whole { EXACT_NAME } else { NAME_PREFIX };
                scores.offer(document, score);
            }
        }
        scores.add_best();
    }
}

impl Scores {
    fn reset(&mut self, documents: usize) {
        for scores in [&mut self.sums, &mut self.best] {
            scores.clear();
            scores.resize(documents, 0.0);
        }
    }

    /// One of several scores of a document, of which the best one counts.
    fn offer(&mut self, document: usize, score: f32) {
        self.best[document] = self.best[document].max(score);
    }

    fn add_best(&mut self) {
        for (sum, best) in self.sums.iter_mut().zip(&mut self.best) {
            *sum += std::mem::take(best);
        }
    }
}
