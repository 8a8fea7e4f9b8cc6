//! A client finds what its filter lets pass, ranked as if nothing else existed.

use std::sync::Arc;

use mcpvisor_core::{Filter, ServerName, exposed_name};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::catalog::{CatalogMerger, ServerCatalog};
use crate::fuzz::budget;

const SERVERS: [&str; 3] = ["files", "git", "my.mail"];

/// The tools of each server: distinct names and short descriptions.
fn fleet() -> impl Strategy<Value = Vec<Vec<(String, String)>>> {
    let name = "(read|write|list|send)(_file|_mail|Issue|)[0-9]?";
    let tool = (name, "((read|write|secret|file|mail|issue|文件) ){0,5}");
    let distinct = |mut tools: Vec<(String, String)>| {
        tools.sort();
        tools.dedup_by(|one, other| one.0 == other.0);
        tools
    };
    vec(vec(tool, 0..8).prop_map(distinct), SERVERS.len())
}

fn publish(fleet: &[Vec<(String, String)>], is_kept: impl Fn(&str) -> bool) -> Arc<CatalogMerger> {
    let merger = Arc::new(CatalogMerger::default());
    for (server, tools) in SERVERS.iter().zip(fleet) {
        let server = ServerName::new(*server).unwrap();
        let kept = tools
            .iter()
            .filter(|it| is_kept(&exposed_name(&server, &it.0)));
        let tool = |(name, description): &(String, String)| {
            Tool::new(name.clone(), description.clone(), serde_json::Map::new())
        };
        let catalog = ServerCatalog {
            tools: kept.map(tool).collect(),
            ..ServerCatalog::default()
        };
        merger.update(&server, Arc::new(catalog));
    }
    merger
}

proptest! {
    #![proptest_config(budget(200))]

    /// Names, number, order and scores are those of a fleet without the hidden tools, so none of
    /// them tells anything about a hidden one.
    #[test]
    fn what_a_filter_hides_has_no_influence_on_a_search(
        fleet in fleet(),
        patterns in vec("!?(files|git|\\*|my_mail)(__)?(\\*|read|\\*mail\\*|\\?\\*)", 0..3),
        query in prop_oneof!["((read|writing|files|mail|secret|git|文) ?){0,4}", any::<String>()],
        limit in 0_usize..12,
    ) {
        let filter = Filter::from_patterns(&patterns);
        let view = publish(&fleet, |_| true).view(filter.clone(), None);
        let found = view.catalog().search(&query, limit);
        prop_assert!(found.len() <= limit);
        prop_assert!(found.iter().all(|it| filter.passes(it.tool.exposed())));
        let alone = publish(&fleet, |exposed| filter.passes(exposed)).catalog();
        let expected = alone.search(&query, limit);
        let shown = |found: &[ToolMatch]| -> Vec<(String, u32)> {
            found.iter().map(|it| (it.tool.exposed().to_owned(), it.score.to_bits())).collect()
        };
        prop_assert_eq!(shown(&found), shown(&expected));
        prop_assert_eq!(shown(&found), shown(&view.catalog().search(&query, limit)));
    }
}
