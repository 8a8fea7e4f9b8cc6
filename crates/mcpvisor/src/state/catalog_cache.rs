//! The cached catalog of a server.
//!
//! It serves readers from the start, marked stale, until the server is listed. A file that cannot
//! be read, or that belongs to another server, account or credential,
//! is ignored.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mcpvisor_core::{ServerName, exposed_name};
use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::catalog::ServerCatalog;
use crate::mutex::lock;
use crate::state::state_dir::StateDir;

/// Delay from the first change to the write, so that changes are batched.
pub(crate) const SAVE_DELAY: Duration = Duration::from_secs(1);

/// The format version of the file; other versions are ignored.
const VERSION: u32 = 1;

/// The contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct CacheFile {
    version: u32,
    server: String,
    /// Who it belongs to: a hash of the server, its account and the credential.
    #[serde(rename = "transport")]
    owner: String,
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    resource_templates: Vec<ResourceTemplate>,
}

/// The cache of one server's catalog. Without a folder it does nothing.
#[derive(Debug)]
pub(crate) struct CatalogCache {
    server: ServerName,
    folder: Option<StateDir>,
    pending: Mutex<PendingWrite>,
    /// Locked during a write.
    pub(crate) writing: Mutex<()>,
}

/// The scheduled write.
#[derive(Debug, Default)]
pub(crate) struct PendingWrite {
    pub(crate) task: Option<JoinHandle<()>>,
    /// The catalog changed since the last write began.
    pub(crate) dirty: bool,
}

impl CatalogCache {
    pub(crate) fn new(server: ServerName, folder: Option<StateDir>) -> Self {
        Self {
            server,
            folder,
            pending: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Whether there is a folder to write to.
    pub(crate) fn is_enabled(&self) -> bool {
        self.folder.is_some()
    }

    /// The scheduled write.
    pub(crate) fn pending(&self) -> MutexGuard<'_, PendingWrite> {
        lock(&self.pending)
    }

    fn file(&self) -> String {
        format!("catalogs/{}.json", exposed_name(&self.server, "catalog"))
    }

    /// Runs an operation on the file with a timeout.
    pub(crate) async fn run_within<T: Send + 'static>(
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

    /// Reads the catalog, if it belongs to this owner. May block forever: called through
    /// [`run_within`](Self::run_within).
    pub(crate) fn read(&self, owner: &str) -> Option<ServerCatalog> {
        let folder = self.folder.as_ref()?;
        let file = self.file();
        let contents = folder.read(&file).transpose()?;
        let cached = contents.and_then(|it| Ok(serde_json::from_slice::<CacheFile>(&it)?));
        let cached = match cached {
            Ok(cached) => cached,
            Err(problem) => {
                let path = folder.path(&file);
                tracing::warn!(server = %self.server, path = %path.display(), %problem,
                    "ignoring the unreadable cached catalog");
                return None;
            }
        };
        let ours = cached.version == VERSION
            && cached.server == self.server.as_str()
            && cached.owner == owner;
        ours.then(|| ServerCatalog {
            stale: true,
            tools: cached.tools.into(),
            prompts: cached.prompts.into(),
            resources: cached.resources.into(),
            resource_templates: cached.resource_templates.into(),
            ..ServerCatalog::default()
        })
    }

    /// Writes the lists as they were fetched. May block forever, like [`read`](Self::read).
    pub(crate) fn write(&self, owner: &str, listed: &ServerCatalog) {
        let Some(folder) = &self.folder else {
            return;
        };
        let _writing = lock(&self.writing);
        let contents = CacheFile {
            version: VERSION,
            server: self.server.as_str().to_owned(),
            owner: owner.to_owned(),
            tools: listed.tools.to_vec(),
            prompts: listed.prompts.to_vec(),
            resources: listed.resources.to_vec(),
            resource_templates: listed.resource_templates.to_vec(),
        };
        let written = serde_json::to_vec(&contents)
            .map_err(io::Error::from)
            .and_then(|contents| folder.write(&self.file(), &contents));
        if let Err(problem) = written {
            tracing::warn!(server = %self.server, %problem, "failed to cache the catalog");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cached_catalog_is_read_and_a_damaged_or_foreign_one_is_ignored() {
        let root = std::env::temp_dir().join(format!("mcpvisor-kept-{}", std::process::id()));
        let folder = StateDir::new(&root);
        let server = ServerName::new("a/../b").unwrap();
        let store = CatalogCache::new(server, Some(folder.clone()));
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
        assert_eq!(store.read("there"), None, "it belongs to another owner");
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
