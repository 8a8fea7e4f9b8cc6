//! The catalog of a fleet, as one immutable snapshot.
//!
//! It has one view per server. A change replaces the view of its server and shares the others, so
//! its cost depends on that server alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mcpvisor_core::{ServerName, names};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};

use super::findings::Finding;
use super::search::SearchCell;
use super::server::ServerCatalog;

/// A snapshot of the tools, prompts, resources and templates of a fleet.
///
/// ```no_run
/// # fn example(runtime: mcpvisor::Runtime) {
/// for tool in runtime.catalog().tools() {
///     println!("{} is {} of {}", tool.exposed(), tool.name(), tool.server());
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FleetCatalog {
    /// Increases with every publication, also of the same lists.
    pub(super) version: u64,
    /// Increases with every change of what is offered.
    pub(super) revision: u64,
    /// In the order of the servers' names.
    pub(super) servers: Vec<Arc<ServerView>>,
}

/// One server's part of the catalog of its fleet.
#[derive(Clone)]
pub struct ServerView {
    server: ServerName,
    catalog: Arc<ServerCatalog>,
    tools: Arc<[FleetTool]>,
    /// The index of a tool by its exposed name.
    by_name: Arc<HashMap<Arc<str>, usize>>,
    /// The prefix of every exposed name of the server.
    prefix: Arc<str>,
    /// Filled by the first search.
    pub(super) search: Arc<SearchCell>,
}

/// One tool of a fleet. Cheap to clone: it shares the definition with the catalog of its server.
#[derive(Clone)]
pub struct FleetTool {
    exposed: Arc<str>,
    server: ServerName,
    tools: Arc<[Tool]>,
    index: usize,
}

impl FleetTool {
    /// The name under which it is exposed: `server__tool`, valid in any model's API.
    pub fn exposed(&self) -> &str {
        &self.exposed
    }

    /// The server that offers it.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Its name at the server.
    pub fn name(&self) -> &str {
        &self.definition().name
    }

    /// Its definition, as the server sent it.
    pub fn definition(&self) -> &Tool {
        &self.tools[self.index]
    }
}

impl fmt::Debug for FleetTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetTool")
            .field("exposed", &self.exposed)
            .field("server", &self.server)
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl ServerView {
    /// The view of a catalog. Reuses the tools of the view before if they did not change.
    pub(super) fn new(
        server: &ServerName,
        catalog: Arc<ServerCatalog>,
        before: Option<&ServerView>,
    ) -> Self {
        if let Some(before) = before
            && Arc::ptr_eq(&before.catalog.tools, &catalog.tools)
        {
            return Self {
                catalog,
                ..before.clone()
            };
        }
        let tools: Arc<[FleetTool]> = (0..catalog.tools.len())
            .map(|index| FleetTool {
                exposed: names::exposed_name(server, &catalog.tools[index].name).into(),
                server: server.clone(),
                tools: Arc::clone(&catalog.tools),
                index,
            })
            .collect();
        let by_name = tools
            .iter()
            .map(|tool| (Arc::clone(&tool.exposed), tool.index));
        Self {
            server: server.clone(),
            by_name: Arc::new(by_name.collect()),
            prefix: names::exposed_prefix(server).into(),
            search: Arc::default(),
            catalog,
            tools,
        }
    }

    /// The server.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// The catalog of the server alone.
    pub fn catalog(&self) -> &Arc<ServerCatalog> {
        &self.catalog
    }

    /// Its tools, in the order of the server.
    pub fn tools(&self) -> &[FleetTool] {
        &self.tools
    }

    fn tool(&self, exposed: &str) -> Option<&FleetTool> {
        if !exposed.starts_with(&*self.prefix) {
            return None;
        }
        self.by_name.get(exposed).map(|index| &self.tools[*index])
    }
}

impl fmt::Debug for ServerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerView")
            .field("server", &self.server)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

impl FleetCatalog {
    /// The catalog of one server that lists these tools.
    pub(crate) fn of(server: &ServerName, tools: Vec<Tool>) -> Self {
        let catalog = ServerCatalog {
            tools: tools.into(),
            ..ServerCatalog::default()
        };
        Self {
            servers: vec![Arc::new(ServerView::new(server, Arc::new(catalog), None))],
            ..Self::default()
        }
    }

    /// Increases with every change of what is offered. A reconnect after which a server lists the
    /// same does not change it, whatever the order of its lists. So what a program derived from an
    /// earlier catalog, such as the tools in the prompt of a model, is valid while the revision is
    /// the same.
    ///
    /// A client with a filter has revisions of its own: compare only those of the same reader.
    ///
    /// ```no_run
    /// # use mcpvisor::{Client, for_model};
    /// # use serde_json::Value;
    /// /// Builds the tools for the next turn again only if they changed.
    /// fn next_turn(agent: &Client, last: &mut (u64, Vec<Value>)) {
    ///     let catalog = agent.catalog();
    ///     if catalog.revision() != last.0 {
    ///         *last = (catalog.revision(), for_model::anthropic_tools(&catalog));
    ///     }
    /// }
    /// ```
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The views of all servers, in the order of their names. A server that publishes nothing at
    /// the moment has an empty view.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = &ServerView> {
        self.servers.iter().map(|view| &**view)
    }

    /// The view of one server.
    pub fn server(&self, name: impl AsRef<str>) -> Option<&ServerView> {
        self.find(name.as_ref())
            .ok()
            .map(|index| &*self.servers[index])
    }

    pub(super) fn find(&self, name: &str) -> Result<usize, usize> {
        self.servers
            .binary_search_by(|view| view.server.as_str().cmp(name))
    }

    /// Every tool, server by server. A reconnect does not change the order if a server lists the
    /// same tools.
    pub fn tools(&self) -> impl Iterator<Item = &FleetTool> {
        self.servers.iter().flat_map(|view| view.tools.iter())
    }

    /// The tool of this exposed name.
    pub fn tool(&self, exposed: &str) -> Option<&FleetTool> {
        self.servers.iter().find_map(|view| view.tool(exposed))
    }

    /// Every prompt, with its server.
    pub fn prompts(&self) -> impl Iterator<Item = (&ServerName, &Prompt)> {
        self.items(|catalog| &catalog.prompts)
    }

    /// Every resource, with its server.
    pub fn resources(&self) -> impl Iterator<Item = (&ServerName, &Resource)> {
        self.items(|catalog| &catalog.resources)
    }

    /// Every resource template, with its server.
    pub fn resource_templates(&self) -> impl Iterator<Item = (&ServerName, &ResourceTemplate)> {
        self.items(|catalog| &catalog.resource_templates)
    }

    /// Every finding that a person should review, with its server.
    pub fn findings(&self) -> impl Iterator<Item = (&ServerName, &Finding)> {
        self.items(|catalog| &catalog.findings)
    }

    fn items<T: 'static>(
        &self,
        list: impl Fn(&ServerCatalog) -> &[T] + Copy,
    ) -> impl Iterator<Item = (&ServerName, &T)> {
        self.servers
            .iter()
            .flat_map(move |view| list(&view.catalog).iter().map(|item| (&view.server, item)))
    }

    /// Whether both offer the same. Servers that offer nothing are ignored.
    pub(super) fn offers_same(&self, other: &Self) -> bool {
        let offers = |view: &&Arc<ServerView>| view.catalog.offers_something();
        let mut those = other.servers.iter().filter(offers);
        let all_there = self.servers.iter().filter(offers).all(|this| {
            those.next().is_some_and(|that| {
                Arc::ptr_eq(this, that)
                    || (this.server == that.server && this.catalog.offers_same(&that.catalog))
            })
        });
        all_there && those.next().is_none()
    }

    /// The number of tools.
    pub fn tool_count(&self) -> usize {
        self.servers.iter().map(|view| view.tools.len()).sum()
    }
}
