//! The answers of the runtime's own tools, as bounded text and as structured content.

use mcpvisor_core::names::exposed_start;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::api::client::Client;
use crate::api::status::ServerStatus;
use crate::catalog::{FleetCatalog, FleetTool};
use crate::for_model::{Detail, TEXT_LIMIT, shorten, tool_json, tool_text};

/// Room that is left for notes behind the items of an answer, in bytes.
const NOTES: usize = 4 * 1024;

/// Names that are suggested for an unknown one.
const SUGGESTIONS: usize = 3;

/// The longest name of a tool that an answer repeats, in bytes.
const MAX_NAME: usize = 100;

/// The longest instructions of a server that are shown, in bytes.
const MAX_INSTRUCTIONS: usize = 200;

/// An answer that tells the model what went wrong and what to do.
pub(super) fn error(problem: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(problem)])
}

/// The tools that fit a query.
pub(super) fn found(
    catalog: &FleetCatalog,
    query: &str,
    limit: usize,
    detail: Detail,
) -> CallToolResult {
    let found = catalog.search(query, limit);
    let mut list = List::default();
    for found in &found {
        list.push_tool(&found.tool, detail);
    }
    if found.is_empty() {
        list.note("No tool matches. Try other words, or see the servers with list_servers.");
    }
    list.finish("tools")
}

/// The definitions of tools by their names. An error if there is none of them.
pub(super) fn described(catalog: &FleetCatalog, names: &[&str]) -> Result<CallToolResult, String> {
    let mut list = List::default();
    let mut unknown = Vec::new();
    for name in names {
        match catalog.tool(name) {
            Some(tool) => list.push_tool(tool, Detail::Schema),
            None => unknown.push(unknown_tool(catalog, name)),
        }
    }
    if unknown.len() == names.len() {
        return Err(unknown.join("\n"));
    }
    unknown.iter().for_each(|problem| list.note(problem));
    Ok(list.finish("tools"))
}

/// There is no tool of this name; which ones are meant, perhaps.
pub(super) fn unknown_tool(catalog: &FleetCatalog, name: &str) -> String {
    let near = catalog.search(name, SUGGESTIONS);
    let near: Vec<&str> = near.iter().map(|found| found.tool.exposed()).collect();
    let name = shorten(name, MAX_NAME);
    match near.is_empty() {
        true => format!("There is no tool named {name:?}. Find one with search_tools."),
        false => format!(
            "There is no tool named {name:?}. Did you mean {}?",
            near.join(", ")
        ),
    }
}

/// The servers that a client may see.
pub(super) fn servers(client: &Client) -> CallToolResult {
    let catalog = client.catalog();
    let mut list = List::default();
    for status in client.runtime().status() {
        let view = catalog.server(&status.name);
        let tools = view.map_or(0, |view| view.tools().len());
        if tools > 0 || may_have_tools(client, &status) {
            list.push_server(client, &status, tools);
        }
    }
    if list.items.is_empty() {
        list.note("There are no servers.");
    }
    list.finish("servers")
}

/// Whether a server of which the client sees no tool may have some: it has not listed any yet, and
/// the client's filter may let some pass.
fn may_have_tools(client: &Client, status: &ServerStatus) -> bool {
    let listed = client.runtime().catalog();
    let listed = listed.server(&status.name);
    let lists_any = listed.is_some_and(|view| !view.tools().is_empty());
    !lists_any
        && client
            .filter()
            .is_none_or(|it| it.may_pass(&exposed_start(&status.name)))
}

/// The items of an answer, and their text.
#[derive(Default)]
struct List {
    text: String,
    items: Vec<Value>,
    /// Items whose full text did not fit.
    shortened: usize,
    /// Items that did not fit at all.
    dropped: usize,
    notes: String,
}

impl List {
    /// Adds an item if there is room for it.
    fn push(&mut self, text: &str, item: Value) -> bool {
        let fits = self.text.len() + text.len() < TEXT_LIMIT - NOTES;
        if fits {
            self.text.push_str(text);
            self.text.push('\n');
            self.items.push(item);
        }
        fits
    }

    /// Adds a tool, in less detail if there is no room for more.
    fn push_tool(&mut self, tool: &FleetTool, detail: Detail) {
        if self.push(&tool_text(tool, detail), tool_json(tool, detail)) {
            return;
        }
        let less = Detail::Signature;
        match detail == Detail::Schema && self.push(&tool_text(tool, less), tool_json(tool, less)) {
            true => self.shortened += 1,
            false => self.dropped += 1,
        }
    }

    fn push_server(&mut self, client: &Client, status: &ServerStatus, tools: usize) {
        let (name, state) = (status.name.as_str(), status.state.to_string());
        let handle = client.server(name).ok();
        let info = handle.and_then(|handle| handle.info());
        let instructions = info.as_ref().and_then(|info| info.instructions.as_deref());
        let instructions = instructions.map(|text| shorten(text.trim(), MAX_INSTRUCTIONS));
        let mut text = format!("{name} ({state}): {tools} tools");
        let mut item = json!({ "name": name, "state": state, "tools": tools });
        if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
            text += &format!(". {}", instructions.replace('\n', " "));
            item["instructions"] = instructions.into();
        }
        self.dropped += usize::from(!self.push(&text, item));
    }

    fn note(&mut self, note: &str) {
        if self.notes.len() + note.len() < NOTES / 2 {
            self.notes.push_str(note);
            self.notes.push('\n');
        }
    }

    fn finish(self, key: &str) -> CallToolResult {
        let mut text = self.text;
        if self.shortened > 0 {
            text += &format!("[{} too long: only signatures are shown]\n", self.shortened);
        }
        if self.dropped > 0 {
            text += &format!(
                "[{} more did not fit; ask for fewer, or for less detail]\n",
                self.dropped
            );
        }
        text += &self.notes;
        let content = vec![ContentBlock::text(text.trim_end())];
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(json!({ key: self.items }));
        result
    }
}
