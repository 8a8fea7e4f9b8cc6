//! What all servers of a runtime share: client identity, callbacks, state folder, HTTP resources.

#[cfg(feature = "http")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rmcp::model::{Implementation, InitializeRequestParams, ProtocolVersion};

use crate::api::callbacks::Callbacks;
#[cfg(feature = "auth")]
use crate::auth::mcpvisor_auth::store::RetainingStore;
#[cfg(feature = "auth")]
use crate::auth::{LazyStore, StoreChoice};
#[cfg(feature = "http")]
use crate::link::http::{HttpContext, Resolver};
use crate::state::file_ops::FileOps;
use crate::state::state_dir::StateDir;

/// The embedding program, as its servers see it.
#[derive(Debug)]
pub(crate) struct Host {
    /// The client's part of the handshake.
    pub(crate) client: InitializeRequestParams,
    /// Answers requests of servers.
    pub(crate) callbacks: Callbacks,
    /// The state folder, if there is one.
    pub(crate) state: Option<StateDir>,
    /// Servers added at run time so far.
    added: AtomicU32,
    /// Bounds file operations outside the state folder.
    #[cfg_attr(
        not(any(feature = "config-files", feature = "auth")),
        expect(dead_code, reason = "only watched configs and key files need it")
    )]
    pub(crate) ops: FileOps,
    /// Shared by all HTTP connections.
    #[cfg(feature = "http")]
    pub(crate) http: Arc<HttpContext>,
    /// The token store.
    #[cfg(feature = "auth")]
    pub(crate) credentials: RetainingStore,
}

/// How a runtime reaches files, names and tokens.
#[derive(Debug, Default)]
pub(crate) struct HostResources {
    pub(crate) ops: FileOps,
    #[cfg(feature = "http")]
    pub(crate) resolver: Resolver,
    #[cfg(feature = "auth")]
    pub(crate) store: StoreChoice,
}

impl Host {
    /// A host with the capabilities that its callbacks implement.
    pub(crate) fn new(
        name: &str,
        version: &str,
        callbacks: Callbacks,
        state: Option<StateDir>,
        resources: HostResources,
    ) -> Self {
        let ops = resources.ops;
        let client = InitializeRequestParams::new(
            callbacks.capabilities(),
            Implementation::new(name, version),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self {
            client,
            callbacks,
            #[cfg(feature = "auth")]
            credentials: {
                let store = LazyStore::new(resources.store, state.clone());
                RetainingStore::new(Arc::new(store))
            },
            state,
            added: AtomicU32::new(0),
            #[cfg(feature = "http")]
            http: Arc::new(HttpContext::new(ops.sibling(), resources.resolver)),
            ops,
        }
    }

    /// The instance number of a server that is added at run time. Servers of the start have 0.
    pub(crate) fn next_instance(&self) -> u32 {
        self.added.fetch_add(1, Ordering::Relaxed) + 1
    }
}
