//! Where calls enter a server: the bound on open calls, since mailboxes have none of their own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcpvisor_core::ClientId;
use mcpvisor_core::open_calls::OpenCalls;
use mcpvisor_core::settings::AdmissionSettings;

/// The admission of one server.
#[derive(Debug)]
pub(crate) struct CallAdmission(Mutex<OpenCalls>);

/// The place of one open call, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall {
    admission: Arc<CallAdmission>,
    client: ClientId,
}

impl CallAdmission {
    pub(crate) fn new(settings: &AdmissionSettings) -> Self {
        Self(Mutex::new(OpenCalls::new(settings)))
    }

    fn calls(&self) -> MutexGuard<'_, OpenCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a call of a client, unless there are too many.
    pub(crate) fn enter(self: &Arc<Self>, client: ClientId) -> Option<OpenCall> {
        self.calls().enter(client).then(|| OpenCall {
            admission: Arc::clone(self),
            client,
        })
    }

    pub(crate) fn reconfigure(&self, settings: &AdmissionSettings) {
        self.calls().reconfigure(settings);
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.calls().open()
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.admission.calls().leave(self.client);
    }
}
