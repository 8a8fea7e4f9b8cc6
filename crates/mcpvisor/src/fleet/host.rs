//! What all servers of a runtime share: who we say we are, what we offer, where things are kept.

use std::sync::atomic::{AtomicU32, Ordering};

use rmcp::model::{Implementation, InitializeRequestParams, ProtocolVersion};

use crate::api::callbacks::Callbacks;
#[cfg(feature = "http")]
use crate::link::http::HttpShared;
use crate::state::file_ops::FileOps;
use crate::state::state_dir::StateDir;

/// The program around the servers.
#[derive(Debug)]
pub(crate) struct Host {
    /// Our side of the handshake.
    pub(crate) client: InitializeRequestParams,
    /// What servers may ask of us.
    pub(crate) callbacks: Callbacks,
    /// Where things are kept from one run to the next, if anywhere.
    pub(crate) state: Option<StateDir>,
    /// Servers that were added at run time so far.
    added: AtomicU32,
    /// Bounds operations on files that are not in the state folder.
    #[cfg_attr(
        not(feature = "config-files"),
        expect(dead_code, reason = "only watched configs need it")
    )]
    pub(crate) ops: FileOps,
    /// What all connections over HTTP share.
    #[cfg(feature = "http")]
    pub(crate) http: HttpShared,
}

impl Host {
    /// A program that offers what its callbacks implement.
    pub(crate) fn new(
        name: &str,
        version: &str,
        callbacks: Callbacks,
        state: Option<StateDir>,
        ops: FileOps,
    ) -> Self {
        let client = InitializeRequestParams::new(
            callbacks.capabilities(),
            Implementation::new(name, version),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self {
            client,
            callbacks,
            state,
            added: AtomicU32::new(0),
            #[cfg(feature = "http")]
            http: HttpShared::new(ops.sibling()),
            ops,
        }
    }

    /// The instance number of a server that is added at run time. Those of the start have number 0.
    pub(crate) fn next_instance(&self) -> u32 {
        self.added.fetch_add(1, Ordering::Relaxed) + 1
    }
}
