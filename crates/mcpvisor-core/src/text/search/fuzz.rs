//! Properties of a search over any texts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::words::for_each_term;

/// `MCPVISOR_FUZZ_CASES` sets the number of cases: `just fuzz`.
fn config() -> ProptestConfig {
    let cases = std::env::var("MCPVISOR_FUZZ_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(100))
}

/// A tool: name, title, description, parameters.
type Tool = (String, String, String, Vec<String>);

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,3}",
        "(search|read|write|file|files|issue|list)(File|Code|s|ing|ed)?",
        "[读写文件図]{1,4}",
        "[Ää\u{301}İß\u{94d}हिन]{1,4}",
        "\\PC{1,3}",
    ]
}

fn text(words: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(word(), 0..=words).prop_map(|words| words.join(" "))
}

fn tools() -> impl Strategy<Value = Vec<Tool>> {
    let tool = (
        text(2),
        text(2),
        text(6),
        proptest::collection::vec(word(), 0..3),
    );
    proptest::collection::vec(tool, 0..7)
}

fn index(tools: &[Tool]) -> Index {
    let documents = tools
        .iter()
        .map(|(name, title, description, parameters)| Document {
            name,
            title,
            description,
            parameters: parameters.iter().map(String::as_str),
        });
    Index::new("", documents)
}

/// BM25 over the whole text of each tool, without an index, in double precision. Without bonuses for
/// names.
fn simple_scores(tools: &[Tool], query: &Query) -> Vec<f64> {
    let counts: Vec<BTreeMap<String, f64>> = tools.iter().map(weighted_terms).collect();
    let lengths: Vec<f64> = counts.iter().map(|of| of.values().sum()).collect();
    let average = (lengths.iter().sum::<f64>() / tools.len() as f64).max(1.0);
    let mut scores = vec![0.0; tools.len()];
    for term in &query.terms {
        let finds = |found: &str| match term.is_prefix {
            true => found.starts_with(&term.text),
            false => found == term.text,
        };
        let with: usize = counts
            .iter()
            .map(|of| of.keys().filter(|found| finds(found)).count())
            .sum();
        let with = with.min(tools.len()) as f64;
        let weight = (1.0 + (tools.len() as f64 - with + 0.5) / (with + 0.5)).ln();
        for ((of, length), score) in counts.iter().zip(&lengths).zip(&mut scores) {
            let best = of
                .iter()
                .filter(|(found, _)| finds(found))
                .map(|(found, count)| {
                    let share = if *found == term.text { 1.0 } else { 0.5 };
                    let long = 1.0 - 0.5 + 0.5 * length / average;
                    share * weight * count * 2.2 / (count + 1.2 * long)
                });
            *score += best.fold(0.0, f64::max);
        }
    }
    scores
}

fn weighted_terms(tool: &Tool) -> BTreeMap<String, f64> {
    let (name, title, description, parameters) = tool;
    let mut counts = BTreeMap::new();
    let mut add = |text: &str, weight: f64| {
        for_each_term(text, &mut |term| {
            *counts.entry(term.text.to_owned()).or_insert(0.0) += weight;
        });
    };
    add(name, 8.0);
    add(title, 4.0);
    parameters.iter().for_each(|name| add(name, 3.0));
    let mut repeated: BTreeMap<String, f64> = BTreeMap::new();
    for_each_term(description, &mut |term| {
        if !term.is_stop_word {
            *repeated.entry(term.text.to_owned()).or_default() += 1.0;
        }
    });
    for (term, count) in repeated {
        *counts.entry(term).or_insert(0.0) += count.min(2.0);
    }
    counts
}

/// The texts are short enough that no limit of the index applies.
fn is_within_limits(tools: &[Tool]) -> bool {
    let short = |text: &String| text.len() <= 256;
    let few = |tool: &Tool| weighted_terms(tool).len() <= 128;
    let all: BTreeSet<String> = tools
        .iter()
        .flat_map(|tool| weighted_terms(tool).into_keys())
        .collect();
    all.len() <= 64
        && tools.iter().all(|tool| {
            few(tool)
                && short(&tool.0)
                && short(&tool.1)
                && tool.2.len() <= 4_096
                && tool.3.iter().all(short)
        })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_search_is_bounded_ordered_and_repeatable(
        one in tools(), other in tools(), query in prop_oneof![text(6), any::<String>()],
        limit in 0_usize..30,
    ) {
        let (one, other) = (index(&one), index(&other));
        let query = Query::new(&query);
        let hits = search(&[&one, &other], &query, limit);
        prop_assert!(hits.len() <= limit && query.terms.len() <= MAX_QUERY_TERMS);
        for hit in &hits {
            prop_assert!(hit.score > 0.0 && hit.score.is_finite());
            prop_assert!(hit.document < [&one, &other][hit.index].len());
        }
        let key = |hit: &Hit| (std::cmp::Reverse(hit.score.to_bits()), hit.index, hit.document);
        prop_assert!(hits.windows(2).all(|two| key(&two[0]) < key(&two[1])));
        prop_assert_eq!(&hits, &search(&[&one, &other], &query, limit));
        let all = search(&[&one, &other], &query, usize::MAX);
        prop_assert_eq!(&hits[..], &all[..hits.len()], "a limit only cuts");
    }

    /// How the tools are distributed over servers does not matter, so a change of one server needs
    /// no change of the other indexes.
    #[test]
    fn several_indexes_score_like_one(tools in tools(), cut in 0_usize..7, query in text(5)) {
        let cut = cut.min(tools.len());
        let whole = index(&tools);
        let parts = [index(&tools[..cut]), index(&tools[cut..])];
        let query = Query::new(&query);
        let scores = |indexes: &[&Index], offsets: [usize; 2]| {
            let hits = search(indexes, &query, usize::MAX);
            let scores = hits.iter().map(|hit| (offsets[hit.index] + hit.document, hit.score.to_bits()));
            scores.collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(
            scores(&[&whole], [0, 0]),
            scores(&[&parts[0], &parts[1]], [0, cut])
        );
    }

    #[test]
    fn scores_are_those_of_the_simple_model(
        tools in tools().prop_filter("within the limits", |tools| is_within_limits(tools)),
        query in text(5),
    ) {
        let query = Query::new(&query);
        let simple = simple_scores(&tools, &query);
        let mut scores = vec![0.0; tools.len()];
        for hit in search(&[&index(&tools)], &query, usize::MAX) {
            scores[hit.document] = f64::from(hit.score);
        }
        for (score, simple) in scores.iter().zip(&simple) {
            // A matching name adds 1,000 or 2,000.
            let near = [0.0, 1_000.0, 2_000.0].iter().any(|bonus| (score - bonus - simple).abs() < 1e-2);
            prop_assert!(near, "{} and {}", score, simple);
        }
    }
}
