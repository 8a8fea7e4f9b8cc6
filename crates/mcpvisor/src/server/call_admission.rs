//! Admission of calls: numbers them and bounds how many are open, since mailboxes are unbounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcpvisor_core::open_calls::OpenCalls;
use mcpvisor_core::settings::AdmissionSettings;
use mcpvisor_core::{CallId, ClientId};

use tokio::sync::Notify;

use crate::mutex::lock;
use crate::server::actor::now;

/// The call admission of one server.
#[derive(Debug)]
pub(crate) struct CallAdmission {
    open: Mutex<OpenCalls>,
    next_id: AtomicU64,
    /// Notified when no call is open.
    none_open: Notify,
}

/// Counts as one open call until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall {
    admission: Arc<CallAdmission>,
    client: ClientId,
}

impl CallAdmission {
    pub(crate) fn new(settings: &AdmissionSettings) -> Self {
        Self {
            open: Mutex::new(OpenCalls::new(settings)),
            next_id: AtomicU64::new(1),
            none_open: Notify::new(),
        }
    }

    /// The id of the next request, of a client or of the runtime itself.
    pub(crate) fn next_id(&self) -> CallId {
        CallId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a call of a client, unless too many are open.
    pub(crate) fn open(self: &Arc<Self>, client: ClientId) -> Option<OpenCall> {
        lock(&self.open).enter(client).then(|| OpenCall {
            admission: Arc::clone(self),
            client,
        })
    }

    /// How long a refused client should wait, if that is known.
    pub(crate) fn expected_wait(&self, client: ClientId) -> Option<Duration> {
        lock(&self.open).expected_wait(client)
    }

    pub(crate) fn reconfigure(&self, settings: &AdmissionSettings) {
        lock(&self.open).reconfigure(settings);
    }

    /// The open calls.
    pub(crate) fn open_count(&self) -> usize {
        lock(&self.open).open()
    }

    /// Waits until no call is open.
    pub(crate) async fn until_none_open(&self) {
        loop {
            let notified = self.none_open.notified();
            if self.open_count() == 0 {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = lock(&self.admission.open);
        open.leave(self.client, now);
        if open.open() == 0 {
            self.admission.none_open.notify_waiters();
        }
    }
}
