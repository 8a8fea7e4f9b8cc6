//! What all servers of a runtime share: client identity, callbacks, state folder, HTTP resources.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::{
    ClientCapabilities, ExtensionCapabilities, Implementation, InitializeRequestParams,
    ProtocolVersion,
};

use crate::api::callbacks::Callbacks;
use crate::api::request::RequestKey;
#[cfg(feature = "auth")]
use crate::auth::mcpvisor_auth::store::RetainingStore;
#[cfg(feature = "auth")]
use crate::auth::{LazyStore, StoreChoice};
#[cfg(feature = "http")]
use crate::link::http::{HttpContext, Resolver};
use crate::mutex::lock;
use crate::state::file_ops::FileOps;
use crate::state::state_dir::StateDir;

/// The embedding program, as its servers see it.
#[derive(Debug)]
pub(crate) struct Host {
    /// The client's part of the handshake, with the capabilities of the callbacks below.
    pub(crate) client: InitializeRequestParams,
    /// Answers requests of servers that no client with callbacks caused.
    pub(crate) callbacks: Arc<Callbacks>,
    /// What the callbacks of the runtime and of all clients offer together.
    offered: Mutex<ClientCapabilities>,
    /// The state folder, if there is one.
    pub(crate) state: Option<StateDir>,
    /// The key of the next request.
    next_request: AtomicU64,
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

/// How a runtime reaches files, names and tokens, and what it declares.
#[derive(Debug, Default)]
pub(crate) struct HostResources {
    pub(crate) ops: FileOps,
    /// The protocol extensions that are declared to servers.
    pub(crate) extensions: ExtensionCapabilities,
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
        let mut capabilities = callbacks.capabilities();
        let extensions = resources.extensions;
        capabilities.extensions = (!extensions.is_empty()).then_some(extensions);
        let client = InitializeRequestParams::new(capabilities, Implementation::new(name, version))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self {
            offered: Mutex::new(client.capabilities.clone()),
            client,
            callbacks: Arc::new(callbacks),
            #[cfg(feature = "auth")]
            credentials: {
                let store = LazyStore::new(resources.store, state.clone());
                RetainingStore::new(Arc::new(store))
            },
            state,
            next_request: AtomicU64::new(1),
            added: AtomicU32::new(0),
            #[cfg(feature = "http")]
            http: Arc::new(HttpContext::new(ops.sibling(), resources.resolver)),
            ops,
        }
    }

    /// Advertises what these callbacks offer on new connections, beside what is offered already.
    pub(crate) fn offer(&self, callbacks: &Callbacks) {
        let mut offered = lock(&self.offered);
        let more = callbacks.capabilities();
        offered.sampling = offered.sampling.take().or(more.sampling);
        offered.roots = offered.roots.take().or(more.roots);
        offered.elicitation = match (offered.elicitation.take(), more.elicitation) {
            (Some(mut ours), Some(more)) => {
                ours.form = ours.form.or(more.form);
                ours.url = ours.url.or(more.url);
                Some(ours)
            }
            (ours, more) => ours.or(more),
        };
    }

    /// Whether any request of a server may be answered.
    pub(crate) fn answers_requests(&self) -> bool {
        let offered = lock(&self.offered);
        offered.sampling.is_some() || offered.roots.is_some() || offered.elicitation.is_some()
    }

    /// The client's part of a handshake on a connection that all clients share.
    pub(crate) fn shared_client(&self) -> InitializeRequestParams {
        let mut client = self.client.clone();
        client.capabilities = lock(&self.offered).clone();
        client
    }

    /// A key that no other request of the runtime has.
    pub(crate) fn next_request_key(&self) -> RequestKey {
        RequestKey::new(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// The protocol extensions that the embedding program declared.
    pub(crate) fn extensions(&self) -> Option<&ExtensionCapabilities> {
        self.client.capabilities.extensions.as_ref()
    }

    /// The instance number of a server that is added at run time. Servers of the start have 0.
    pub(crate) fn next_instance(&self) -> u32 {
        self.added.fetch_add(1, Ordering::Relaxed) + 1
    }
}
