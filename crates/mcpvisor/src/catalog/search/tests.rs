//! What a search of a catalog finds, and when indexes are built.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{Filter, ServerName};
use serde_json::json;

use super::*;
use crate::catalog::{CatalogMerger, ServerCatalog};

fn name(name: &str) -> ServerName {
    ServerName::new(name).unwrap()
}

fn tool(name: &str, description: &str) -> Tool {
    let tool = json!({ "name": name, "description": description, "inputSchema": {} });
    serde_json::from_value(tool).unwrap()
}

fn listed(tools: Vec<Tool>) -> Arc<ServerCatalog> {
    Arc::new(ServerCatalog {
        tools: tools.into(),
        ..ServerCatalog::default()
    })
}

fn fleet() -> Arc<CatalogMerger> {
    let merger = Arc::new(CatalogMerger::default());
    let files = [("read", "Reads a file."), ("write", "Writes a file.")];
    let files = files.map(|(name, description)| tool(name, description));
    merger.update(&name("files"), listed(files.into()));
    let git = [("log", "Shows commits."), ("files", "Lists files.")];
    let git = git.map(|(name, description)| tool(name, description));
    merger.update(&name("git"), listed(git.into()));
    merger
}

fn exposed(found: &[ToolMatch]) -> Vec<&str> {
    found.iter().map(|it| it.tool.exposed()).collect()
}

fn is_indexed(view: &ServerView) -> bool {
    view.search.get().is_some()
}

#[test]
fn a_fleet_is_searched_as_one_and_a_server_alone() {
    let catalog = fleet().catalog();
    assert_eq!(exposed(&catalog.search("commits", 5)), ["git__log"]);
    assert_eq!(exposed(&catalog.search("files", 1)), ["git__files"]);
    assert_eq!(catalog.search("file", 10).len(), 3);
    assert_eq!(catalog.search("file", 0).len(), 0);
    let files = catalog.server("files").unwrap();
    assert_eq!(exposed(&files.search("writing", 5)), ["files__write"]);
    assert_eq!(exposed(&files.search("commits", 5)), [""; 0]);
}

#[test]
fn titles_and_names_of_parameters_are_searched() {
    let tools = json!([
        { "name": "a", "title": "Weather report", "inputSchema": {} },
        { "name": "b", "annotations": { "title": "Currency" }, "inputSchema": {} },
        { "name": "c", "inputSchema": { "properties": { "postalCode": {} } } },
    ]);
    let merger = CatalogMerger::default();
    merger.update(&name("x"), listed(serde_json::from_value(tools).unwrap()));
    for (query, found) in [
        ("weather", "x__a"),
        ("currencies", "x__b"),
        ("postal code", "x__c"),
    ] {
        assert_eq!(
            exposed(&merger.catalog().search(query, 5)),
            [found],
            "{query}"
        );
    }
}

#[test]
fn an_exposed_name_finds_its_tool_first_though_it_was_altered() {
    let merger = CatalogMerger::default();
    let names = ["issues.search", "issues search", "search"];
    let tools = names.map(|name| tool(name, "Searches issues."));
    merger.update(&name("git hub"), listed(tools.into()));
    let catalog = merger.catalog();
    for tool in catalog.tools() {
        let found = catalog.search(&format!(" {} ", tool.exposed()), 1);
        assert_eq!(exposed(&found), [tool.exposed()]);
        let all = catalog.search(tool.exposed(), 10);
        assert!(all.len() == 3 && all.windows(2).all(|two| two[0].score >= two[1].score));
    }
}

#[test]
fn equal_scores_are_ordered_by_server_and_name_whatever_the_order_of_the_lists() {
    let names = ["c", "a", "b"];
    for rotated in 0..3 {
        let mut names = names;
        names.rotate_left(rotated);
        let merger = CatalogMerger::default();
        for server in ["two", "one"] {
            let tools = names.map(|name| tool(name, "The same."));
            merger.update(&name(server), listed(tools.into()));
        }
        let found = merger.catalog().search("same", 4);
        assert_eq!(exposed(&found), ["one__a", "one__b", "one__c", "two__a"]);
    }
}

#[test]
fn only_a_search_builds_indexes_and_only_of_servers_that_changed() {
    let merger = fleet();
    let view = merger.view(Filter::from_patterns(["!git__log"]), None);
    let first = merger.catalog();
    assert!(!first.servers().any(is_indexed), "no search, no index");
    first.search("file", 1);
    view.catalog().search("file", 1);
    assert!(first.servers().all(is_indexed));
    assert!(view.catalog().servers().all(is_indexed));

    let stale = ServerCatalog {
        stale: true,
        ..ServerCatalog::clone(first.server("files").unwrap().catalog())
    };
    merger.update(&name("files"), Arc::new(stale));
    merger.update(&name("git"), listed(vec![tool("status", "")]));
    let second = merger.catalog();
    assert!(is_indexed(second.server("files").unwrap()), "a reconnect");
    assert!(!is_indexed(second.server("git").unwrap()));
    assert_eq!(exposed(&second.search("status", 1)), ["git__status"]);
}

#[test]
fn a_client_shares_the_index_of_a_server_of_which_it_sees_everything() {
    let merger = fleet();
    let view = merger.view(Filter::from_patterns(["!git__log"]), None);
    merger.catalog().search("file", 1);
    let seen = view.catalog();
    assert!(is_indexed(seen.server("files").unwrap()));
    assert!(!is_indexed(seen.server("git").unwrap()));
}

/// The lists of a hostile server may take long to index.
#[test]
fn servers_publish_while_an_index_is_built() {
    let merger = fleet();
    let catalog = merger.catalog();
    let (building, is_building) = std::sync::mpsc::channel();
    let (finish, is_finished) = std::sync::mpsc::channel::<()>();
    let builder = std::thread::spawn(move || {
        let view = catalog.server("git").unwrap();
        view.search.get_or_init(|| {
            building.send(()).unwrap();
            is_finished.recv_timeout(Duration::from_secs(30)).unwrap();
            SearchIndex::new(view)
        });
    });
    is_building.recv_timeout(Duration::from_secs(30)).unwrap();
    merger.update(&name("git"), listed(vec![tool("status", "")]));
    merger.update(&name("files"), listed(vec![tool("list", "")]));
    let newest = merger.catalog();
    assert_eq!(exposed(&newest.search("status", 1)), ["git__status"]);
    finish.send(()).unwrap();
    builder.join().unwrap();
}
