//! What all servers of a fleet offer, as one immutable snapshot.
//!
//! It is made of one view per server. When a server changes, its view is replaced and the others are
//! shared, so a change costs what its own server has.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mcpvisor_core::{ServerName, names};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};

use super::findings::Finding;
use super::server::ServerCatalog;

/// The tools, prompts, resources and templates of a fleet, as they were at one moment.
///
/// ```no_run
/// # fn example(runtime: mcpvisor::Runtime) {
/// for tool in runtime.catalog().tools() {
///     println!("{} is {} of {}", tool.exposed(), tool.name(), tool.server());
/// }
/// # }
/// ```
#[derive(Clone, Default)]
pub struct FleetCatalog {
    pub(super) revision: u64,
    /// In the order of the servers' names.
    pub(super) servers: Vec<Arc<ServerView>>,
}

/// What one server adds to the catalog of its fleet.
#[derive(Clone)]
pub struct ServerView {
    server: ServerName,
    catalog: Arc<ServerCatalog>,
    tools: Arc<[FleetTool]>,
    /// Where the tool of an exposed name is.
    by_name: Arc<HashMap<Arc<str>, usize>>,
    /// What every exposed name of the server begins with.
    prefix: Arc<str>,
}

/// One tool of a fleet. Cheap to clone: the definition is shared with the catalog of its server.
#[derive(Clone)]
pub struct FleetTool {
    exposed: Arc<str>,
    server: ServerName,
    tools: Arc<[Tool]>,
    index: usize,
}

impl FleetTool {
    /// The name under which it is exposed: `server__tool`, fit for any model's API.
    pub fn exposed(&self) -> &str {
        &self.exposed
    }

    /// The server that has it.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// The name that its server gave it.
    pub fn name(&self) -> &str {
        &self.definition().name
    }

    /// Its definition, as the server wrote it.
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
    /// The view of a catalog; what did not change is taken over from the view before.
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
    /// Grows with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What each server adds, in the order of their names. A server that publishes nothing at the
    /// moment is there, with nothing.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = &ServerView> {
        self.servers.iter().map(|view| &**view)
    }

    /// What one server adds.
    pub fn server(&self, name: impl AsRef<str>) -> Option<&ServerView> {
        self.find(name.as_ref())
            .ok()
            .map(|index| &*self.servers[index])
    }

    pub(super) fn find(&self, name: &str) -> Result<usize, usize> {
        self.servers
            .binary_search_by(|view| view.server.as_str().cmp(name))
    }

    /// Every tool, server by server.
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

    /// Every template of resources, with its server.
    pub fn resource_templates(&self) -> impl Iterator<Item = (&ServerName, &ResourceTemplate)> {
        self.items(|catalog| &catalog.resource_templates)
    }

    /// What a person should look at, with its server.
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

    /// Whether both offer the same. A server that offers nothing makes no difference.
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

    /// How many tools there are.
    pub fn tool_count(&self) -> usize {
        self.servers.iter().map(|view| view.tools.len()).sum()
    }
}

impl fmt::Debug for FleetCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetCatalog")
            .field("revision", &self.revision)
            .field("servers", &self.servers)
            .finish()
    }
}
