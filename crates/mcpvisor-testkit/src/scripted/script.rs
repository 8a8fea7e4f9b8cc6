//! The script of a server: its name, its lists, and its behaviours.
//!
//! A script is a plain value. It is read for every message, so changing it changes the server for
//! connected clients too. The session performs the steps.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{
    Implementation, Prompt, PromptsCapability, ProtocolVersion, Resource, ResourceTemplate,
    ResourcesCapability, ServerCapabilities, Tool, ToolsCapability,
};
use serde_json::Value;

use super::behaviour::Behaviour;
use super::record::Incoming;

/// A tool with this name that accepts any object.
pub fn tool(name: impl Into<String>) -> Tool {
    let schema = serde_json::Map::from_iter([("type".to_owned(), Value::from("object"))]);
    Tool::new_with_raw(name.into(), None, Arc::new(schema))
}

/// One list of a server, and its pages.
#[derive(Debug, Clone)]
pub enum Listing<T> {
    /// The server does not support this list, and omits its capability.
    Unsupported,
    /// These pages, each but the last with a cursor to the next.
    Pages(Vec<Vec<T>>),
    /// Repeats this page forever: its cursor leads back to itself.
    Repeating(Vec<T>),
    /// Endless pages of one item, each with a new cursor.
    Endless(fn(usize) -> T),
}

impl<T> Listing<T> {
    /// All items on one page.
    pub fn of(items: impl IntoIterator<Item = T>) -> Self {
        Self::Pages(vec![items.into_iter().collect()])
    }

    fn push(&mut self, item: T) {
        match self {
            Self::Pages(pages) => match pages.last_mut() {
                Some(page) => page.push(item),
                None => pages.push(vec![item]),
            },
            Self::Repeating(page) => page.push(item),
            Self::Unsupported | Self::Endless(_) => *self = Self::of([item]),
        }
    }
}

impl<T: Clone> Listing<T> {
    /// The page at a cursor, with the cursor of the next; `None` for an unknown cursor.
    pub(super) fn page(&self, cursor: Option<&str>) -> Option<(Vec<T>, Option<String>)> {
        let number = match cursor {
            None => 0,
            Some(cursor) => cursor.strip_prefix("page-")?.parse::<usize>().ok()?,
        };
        match self {
            Self::Unsupported => None,
            Self::Pages(pages) if pages.is_empty() && number == 0 => Some((Vec::new(), None)),
            Self::Pages(pages) => {
                let next = number + 1;
                let more = next < pages.len();
                Some((pages.get(number)?.clone(), more.then(|| cursor_to(next))))
            }
            Self::Repeating(page) => Some((page.clone(), Some(cursor_to(1)))),
            Self::Endless(item) => Some((vec![item(number)], Some(cursor_to(number + 1)))),
        }
    }

    fn is_supported(&self) -> bool {
        !matches!(self, Self::Unsupported)
    }
}

fn cursor_to(page: usize) -> String {
    format!("page-{page}")
}

/// What a server announces and does.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its name and version.
    pub info: Implementation,
    /// The protocol version in its reply; `None` uses the client's.
    pub protocol: Option<ProtocolVersion>,
    /// The announced capabilities; `None` derives them from the lists.
    pub capabilities: Option<ServerCapabilities>,
    /// Its tools.
    pub tools: Listing<Tool>,
    /// Its prompts.
    pub prompts: Listing<Prompt>,
    /// Its resources.
    pub resources: Listing<Resource>,
    /// Its resource templates.
    pub templates: Listing<ResourceTemplate>,
    /// Continues cancelled requests, and replies to them.
    pub ignores_cancellation: bool,
    by_tool: HashMap<String, Behaviour>,
    by_method: HashMap<String, Behaviour>,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// A well-behaved server with one tool, `echo`, that returns its arguments.
    pub fn new() -> Self {
        Self::bare().tool("echo", Behaviour::answer())
    }

    /// A well-behaved server with every list supported and empty.
    pub fn bare() -> Self {
        Self {
            info: Implementation::new("scripted", "1.0.0"),
            protocol: None,
            capabilities: None,
            tools: Listing::of([]),
            prompts: Listing::of([]),
            resources: Listing::of([]),
            templates: Listing::of([]),
            ignores_cancellation: false,
            by_tool: HashMap::new(),
            by_method: HashMap::new(),
        }
    }

    /// Answers `initialize` with this protocol version, whatever the client requested.
    #[must_use]
    pub fn protocol(mut self, version: &str) -> Self {
        self.protocol = serde_json::from_value(Value::from(version)).ok();
        self
    }

    /// Announces these capabilities instead of those that its lists imply.
    #[must_use]
    pub fn capabilities(mut self, capabilities: ServerCapabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Adds a tool to the list, with a behaviour for its calls.
    #[must_use]
    pub fn tool(mut self, name: &str, behaviour: Behaviour) -> Self {
        self.tools.push(tool(name));
        self.by_tool.insert(name.to_owned(), behaviour);
        self
    }

    /// Sets the behaviour for calls of a tool, listed or not.
    #[must_use]
    pub fn on_call(mut self, name: &str, behaviour: Behaviour) -> Self {
        self.by_tool.insert(name.to_owned(), behaviour);
        self
    }

    /// Sets the behaviour for any other request or notification, by its method: `initialize`,
    /// `notifications/initialized`, `tools/list`, `ping`, …
    #[must_use]
    pub fn on(mut self, method: &str, behaviour: Behaviour) -> Self {
        self.by_method.insert(method.to_owned(), behaviour);
        self
    }

    /// Lists these tools.
    #[must_use]
    pub fn tools(mut self, tools: Listing<Tool>) -> Self {
        self.tools = tools;
        self
    }

    /// Lists these prompts.
    #[must_use]
    pub fn prompts(mut self, prompts: Listing<Prompt>) -> Self {
        self.prompts = prompts;
        self
    }

    /// Lists these resources.
    #[must_use]
    pub fn resources(mut self, resources: Listing<Resource>) -> Self {
        self.resources = resources;
        self
    }

    /// Lists these resource templates.
    #[must_use]
    pub fn templates(mut self, templates: Listing<ResourceTemplate>) -> Self {
        self.templates = templates;
        self
    }

    /// Continues cancelled requests, and replies to them.
    #[must_use]
    pub fn ignoring_cancellation(mut self) -> Self {
        self.ignores_cancellation = true;
        self
    }

    /// The behaviour that the script sets for a message, if any.
    pub(super) fn behaviour(&self, incoming: &Incoming) -> Option<&Behaviour> {
        let by_tool = incoming.tool().and_then(|tool| self.by_tool.get(tool));
        by_tool.or_else(|| self.by_method.get(&incoming.method))
    }

    /// Whether a tool is listed or has a behaviour.
    pub(super) fn knows_tool(&self, name: &str) -> bool {
        let listed = match &self.tools {
            Listing::Unsupported => false,
            Listing::Pages(pages) => pages.iter().flatten().any(|tool| tool.name == name),
            Listing::Repeating(page) => page.iter().any(|tool| tool.name == name),
            Listing::Endless(_) => true,
        };
        listed || self.by_tool.contains_key(name)
    }

    /// The announced capabilities.
    pub(super) fn claimed_capabilities(&self) -> ServerCapabilities {
        if let Some(capabilities) = &self.capabilities {
            return capabilities.clone();
        }
        let mut claimed = ServerCapabilities::default();
        claimed.logging = Some(serde_json::Map::new());
        claimed.completions = Some(serde_json::Map::new());
        claimed.tools = self.tools.is_supported().then(|| {
            let mut tools = ToolsCapability::default();
            tools.list_changed = Some(true);
            tools
        });
        claimed.prompts = self.prompts.is_supported().then(|| {
            let mut prompts = PromptsCapability::default();
            prompts.list_changed = Some(true);
            prompts
        });
        let has_resources = self.resources.is_supported() || self.templates.is_supported();
        claimed.resources = has_resources.then(|| {
            let mut resources = ResourcesCapability::default();
            resources.list_changed = Some(true);
            resources.subscribe = Some(true);
            resources
        });
        claimed
    }
}
