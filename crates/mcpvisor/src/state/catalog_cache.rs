//! The last known catalog of a server, kept from one run to the next.
//!
//! It serves readers from the first moment on, marked stale, until the server has listed its own. A
//! file that cannot be read, or that is of a server that is reached in another way, is passed over.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcpvisor_core::{ServerName, exposed_name};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::catalog::ServerCatalog;
use crate::state::state_dir::StateDir;

/// Changes are written once it has been quiet for this long after the first of them.
pub(crate) const KEEP_AFTER: Duration = Duration::from_secs(1);

/// The form of the file; another one is not understood.
const VERSION: u32 = 1;

/// What is in a file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    server: String,
    /// How the server was reached that said it.
    transport: String,
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    resource_templates: Vec<ResourceTemplate>,
}

/// Where the catalog of one server is kept, if anywhere.
#[derive(Debug)]
pub(crate) struct CatalogStore {
    server: ServerName,
    folder: Option<StateDir>,
    pending: Mutex<Pending>,
    /// Held by whoever writes.
    pub(crate) writing: Mutex<()>,
}

/// The write that is to come.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) task: Option<JoinHandle<()>>,
    /// Something changed since the last write began.
    pub(crate) dirty: bool,
}

impl CatalogStore {
    pub(crate) fn new(server: ServerName, folder: Option<StateDir>) -> Self {
        Self {
            server,
            folder,
            pending: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Whether anything is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.folder.is_some()
    }

    /// The write that is to come.
    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> String {
        format!("catalogs/{}.json", exposed_name(&self.server, "catalog"))
    }

    /// Does something about the file, for no longer than this.
    pub(crate) async fn within<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        work: impl FnOnce(&Self) -> io::Result<Option<T>> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let store = Arc::clone(self);
        let path = folder.path(&self.file());
        folder.ops().run(&path, within, move || work(&store)).await
    }

    /// What was kept of a server that is reached in this way. Blocks, perhaps for ever: called through
    /// [`within`](Self::within).
    pub(crate) fn read(&self, transport: &str) -> Option<ServerCatalog> {
        let folder = self.folder.as_ref()?;
        let file = self.file();
        let kept = match folder.read(&file) {
            Ok(contents) => serde_json::from_slice::<Kept>(&contents?).map_err(io::Error::from),
            Err(problem) => Err(problem),
        };
        let kept = match kept {
            Ok(kept) => kept,
            Err(problem) => {
                let path = folder.path(&file);
                tracing::warn!(server = %self.server, path = %path.display(), %problem,
                    "the kept catalog cannot be read and is passed over");
                return None;
            }
        };
        let ours = kept.version == VERSION
            && kept.server == self.server.as_str()
            && kept.transport == transport;
        ours.then(|| ServerCatalog {
            stale: true,
            tools: kept.tools.into(),
            prompts: kept.prompts.into(),
            resources: kept.resources.into(),
            resource_templates: kept.resource_templates.into(),
            ..ServerCatalog::default()
        })
    }

    /// Keeps the lists as they were fetched. Blocks, like [`read`](Self::read).
    pub(crate) fn write(&self, transport: &str, listed: &ServerCatalog) {
        let Some(folder) = &self.folder else {
            return;
        };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Kept {
            version: VERSION,
            server: self.server.as_str().to_owned(),
            transport: transport.to_owned(),
            tools: listed.tools.to_vec(),
            prompts: listed.prompts.to_vec(),
            resources: listed.resources.to_vec(),
            resource_templates: listed.resource_templates.to_vec(),
        };
        let written = serde_json::to_vec(&kept)
            .map_err(io::Error::from)
            .and_then(|contents| folder.write(&self.file(), &contents));
        if let Err(problem) = written {
            tracing::warn!(server = %self.server, %problem, "the catalog could not be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_kept_is_read_and_whatever_else_is_there_is_passed_over() {
        let root = std::env::temp_dir().join(format!("mcpvisor-kept-{}", std::process::id()));
        let folder = StateDir::new(&root);
        let server = ServerName::new("a/../b").unwrap();
        let store = CatalogStore::new(server, Some(folder.clone()));
        assert_eq!(store.read("here"), None);
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let listed = ServerCatalog {
            tools: [Tool::new("x", "does", schema)].into(),
            prompts: [Prompt::new("p", None::<String>, None)].into(),
            resources: [Resource::new("r://", "r")].into(),
            resource_templates: [ResourceTemplate::new("r://{x}", "t")].into(),
            stale: true,
            ..ServerCatalog::default()
        };
        store.write("here", &listed);
        assert_eq!(store.read("here").as_ref(), Some(&listed));
        assert_eq!(
            store.read("there"),
            None,
            "of a server that is reached in another way"
        );
        let file = store.file();
        let whole = folder.read(&file).unwrap().unwrap();
        for length in 0..whole.len() {
            folder.write(&file, &whole[..length]).unwrap();
            assert_eq!(store.read("here"), None, "{length} bytes");
        }
        folder.write(&file, &whole).unwrap();
        assert_eq!(store.read("here"), Some(listed));
        std::fs::remove_dir_all(root).unwrap();
    }
}
