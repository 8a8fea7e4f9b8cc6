//! Searches the tools of a catalog.
//!
//! Each server's view has an index, which the first search builds and every view of the same tools
//! shares. So a program that never searches has none, and a change of one server costs the next
//! search the index of that server alone. An index has the tools of its view and nothing else: what
//! a client's filter hides has no influence on what the client finds.

use std::sync::OnceLock;

use mcpvisor_core::search::{Document, EXACT_NAME, Index, Query, search};
use rmcp::model::Tool;
use serde_json::Value;

use super::fleet::{FleetCatalog, FleetTool, ServerView};

/// The place for the index of one view.
pub(super) type SearchCell = OnceLock<SearchIndex>;

/// The index of the tools of one server.
#[derive(Debug)]
pub(super) struct SearchIndex {
    index: Index,
    /// The tools of the view in the order of their names: the documents of the index.
    tools: Box<[u32]>,
}

/// A tool that a search found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolMatch {
    /// The tool.
    pub tool: FleetTool,
    /// How well it fits; larger is better. Comparable only within one search.
    pub score: f32,
}

impl FleetCatalog {
    /// Finds the tools that fit some words best, at most `limit`: by the names and titles of tools,
    /// the names of their parameters, their descriptions, and the names of their servers.
    ///
    /// Tools whose name is the query come first, then those whose name begins with it, then the
    /// others by rank (BM25). Ties are ordered by server and name, so the same catalog and query
    /// always give the same list. A match has at least one word of the query, or one that begins
    /// with it. Only the first 512 bytes and 16 words of a query count.
    ///
    /// The catalogs of servers that are asleep or reconnecting are searched too, also those of an
    /// earlier run. A search starts no server. The first one builds an index of every server, about
    /// 15 µs per tool; later ones only of servers that changed.
    ///
    /// ```no_run
    /// # fn example(runtime: mcpvisor::Runtime) {
    /// use mcpvisor::for_model;
    ///
    /// for found in runtime.catalog().search("create an issue", 5) {
    ///     println!("{:.1} {}", found.score, for_model::signature(found.tool.definition()));
    /// }
    /// # }
    /// ```
    pub fn search(&self, query: &str, limit: usize) -> Vec<ToolMatch> {
        let views: Vec<&ServerView> = self.servers().collect();
        let mut found = search_views(&views, query, limit);
        // An exposed name may contain more than the names of its server and tool.
        if let Some(exact) = self.tool(query.trim()).filter(|_| limit > 0) {
            found.retain(|it| it.tool.exposed() != exact.exposed());
            found.truncate(limit - 1);
            let score = found
                .first()
                .map_or(EXACT_NAME, |it| it.score.max(EXACT_NAME));
            let tool = exact.clone();
            found.insert(0, ToolMatch { tool, score });
        }
        found
    }
}

impl ServerView {
    /// Finds tools of this server: [`FleetCatalog::search`].
    pub fn search(&self, query: &str, limit: usize) -> Vec<ToolMatch> {
        search_views(&[self], query, limit)
    }

    fn search_index(&self) -> &SearchIndex {
        self.search.get_or_init(|| SearchIndex::new(self))
    }
}

fn search_views(views: &[&ServerView], query: &str, limit: usize) -> Vec<ToolMatch> {
    let indexes: Vec<&SearchIndex> = views.iter().map(|view| view.search_index()).collect();
    let parts: Vec<&Index> = indexes.iter().map(|it| &it.index).collect();
    let hits = search(&parts, &Query::new(query), limit).into_iter();
    hits.map(|hit| {
        let tool = indexes[hit.index].tools[hit.document] as usize;
        ToolMatch {
            tool: views[hit.index].tools()[tool].clone(),
            score: hit.score,
        }
    })
    .collect()
}

impl SearchIndex {
    fn new(view: &ServerView) -> Self {
        let tools = view.tools();
        let mut order: Vec<u32> = (0..tools.len() as u32).collect();
        order.sort_by_key(|at| tools[*at as usize].name());
        let documents = order
            .iter()
            .map(|at| document(tools[*at as usize].definition()));
        Self {
            index: Index::new(view.server().as_str(), documents),
            tools: order.into(),
        }
    }
}

fn document(tool: &Tool) -> Document<'_, impl Iterator<Item = &str>> {
    let annotated = tool.annotations.as_ref().and_then(|it| it.title.as_deref());
    let parameters = tool
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    Document {
        name: &tool.name,
        title: tool.title.as_deref().or(annotated).unwrap_or_default(),
        description: tool.description.as_deref().unwrap_or_default(),
        parameters: parameters
            .into_iter()
            .flat_map(|it| it.keys().map(String::as_str)),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
