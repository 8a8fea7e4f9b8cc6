//! The published snapshots of a slot: its status and its catalog.
//!
//! Publishing replaces a snapshot. The actor publishes while it runs; the supervisor publishes the
//! end of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use mcpvisor_core::StateName;
use rmcp::model::ServerPeerInfo;
use tokio::sync::watch;

use super::shared::ServerShared;
use crate::api::error::Obstacle;
use crate::api::status::ServerStatus;
#[cfg(feature = "http")]
use crate::api::status::UnsavedLogin;
use crate::catalog::{ClientView, ServerCatalog};

/// The published snapshots of one slot.
#[derive(Debug)]
pub(crate) struct Published {
    instance: u32,
    status: watch::Sender<ServerStatus>,
    pub(crate) availability: watch::Sender<Availability>,
    /// The calls in flight and queued, which change without a new status.
    in_flight: AtomicUsize,
    /// It waits until another client's connection is closed.
    pub(super) waits_for_place: AtomicBool,
    waiting: AtomicUsize,
    /// Results that did not match the output schema of their tool.
    invalid_results: AtomicU64,
    /// From the handshake of the last connection that came up.
    pub(crate) peer_info: ArcSwapOption<ServerPeerInfo>,
    /// The lists of its own connection.
    catalog: ArcSwap<ServerCatalog>,
    shared: Arc<ServerShared>,
    /// The client that alone sees its lists, if the slot belongs to one.
    owner: Option<Arc<ClientView>>,
}

/// Whether a server can be used, for tasks that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It may become ready.
    Pending,
    /// It can be used.
    Ready,
    /// It cannot be used until a person acts.
    Unavailable,
}

impl Availability {
    fn of(status: &ServerStatus) -> Self {
        match status.state {
            _ if status.is_ready() => Self::Ready,
            StateName::PermanentlyFailed | StateName::Disabled => Self::Unavailable,
            // `disabling` may be followed by a connect: an `enable` waits for the close.
            StateName::Connecting
            | StateName::Connected
            | StateName::Disabling
            | StateName::Reconnecting
            | StateName::Disconnected
            | StateName::Sleeping => Self::Pending,
        }
    }
}

impl Published {
    pub(super) fn new(
        status: ServerStatus,
        shared: Arc<ServerShared>,
        owner: Option<Arc<ClientView>>,
    ) -> Self {
        Self {
            instance: status.instance,
            availability: watch::Sender::new(Availability::of(&status)),
            status: watch::Sender::new(status),
            in_flight: AtomicUsize::new(0),
            waits_for_place: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            invalid_results: AtomicU64::new(0),
            peer_info: ArcSwapOption::empty(),
            catalog: ArcSwap::from_pointee(ServerCatalog::default()),
            shared,
            owner,
        }
    }

    /// Publishes a status. Availability changes rarely, so it has a separate channel: tasks that wait
    /// for the server are not woken by every status.
    pub(crate) fn publish_status(&self, status: ServerStatus) {
        let availability = Availability::of(&status);
        self.status.send_replace(status);
        self.availability
            .send_if_modified(|known| std::mem::replace(known, availability) != availability);
    }

    /// The status, with the call counts of this moment.
    pub(crate) fn status(&self) -> ServerStatus {
        let mut status = self.status.borrow().clone();
        status.in_flight = self.in_flight.load(Ordering::Relaxed);
        status.waiting = self.waiting.load(Ordering::Relaxed);
        status.invalid_results = self.invalid_results();
        status
    }

    /// Publishes whether the login exists only in memory, after the end of the server.
    #[cfg(feature = "http")]
    pub(crate) fn set_unsaved_login(&self, unsaved: Option<UnsavedLogin>) {
        self.status.send_if_modified(|status| {
            let differs = status.unsaved_login != unsaved;
            status.unsaved_login = unsaved;
            differs
        });
    }

    /// The state and when it began.
    pub(crate) fn state(&self) -> (StateName, SystemTime) {
        let status = self.status.borrow();
        (status.state, status.since)
    }

    pub(crate) fn subscribe_status(&self) -> watch::Receiver<ServerStatus> {
        self.status.subscribe()
    }

    pub(super) fn set_call_counts(&self, in_flight: usize, waiting: usize) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn invalid_results(&self) -> u64 {
        self.invalid_results.load(Ordering::Relaxed)
    }

    #[cfg(feature = "schema-check")]
    pub(crate) fn count_invalid_result(&self) {
        self.invalid_results.fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the catalog of the slot, alone and as part of the server's. `publishes`: the state of
    /// the slot publishes its lists.
    pub(super) fn publish_catalog(&self, catalog: Arc<ServerCatalog>, publishes: bool) {
        self.catalog.store(Arc::clone(&catalog));
        let public = &self.shared.public;
        match &self.owner {
            Some(view) if publishes && catalog.revision > 0 => {
                view.set_own(public.name(), Some(catalog));
            }
            Some(view) => view.set_own(public.name(), None),
            None => return public.publish(self.instance, catalog, publishes),
        }
        public.changed.notify();
    }

    /// The lists of its own connection.
    pub(crate) fn catalog(&self) -> Arc<ServerCatalog> {
        self.catalog.load_full()
    }

    /// Publishes the end of a slot: no catalog, no calls, disabled. With the main slot the server
    /// ends.
    pub(super) fn publish_end(&self, is_main: bool) {
        self.set_call_counts(0, 0);
        self.catalog.store(Arc::default());
        let public = &self.shared.public;
        match &self.owner {
            Some(view) => view.set_own(public.name(), None),
            None if is_main => public.end(),
            None => public.remove(self.instance),
        }
        let mut status = self.status();
        status.state = StateName::Disabled;
        (status.tools, status.prompts) = (0, 0);
        (status.resources, status.templates) = (0, 0);
        status.stale = true;
        status.retry_at = None;
        self.publish_status(status);
    }

    /// Why requests cannot be sent at the moment.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let status = self.status.borrow();
        if status.state == StateName::Connected {
            return None;
        }
        if self.waits_for_place.load(Ordering::Relaxed) {
            let cause = "all connections that \"maxConnections\" allows are in use".to_owned();
            return Some(Obstacle {
                cause,
                stderr: None,
            });
        }
        let fault = status.last_error.as_ref();
        Some(Obstacle {
            cause: match fault {
                Some(fault) => format!("the server is {}: {}", status.state, fault.message),
                None => format!("the server is {}", status.state),
            },
            stderr: fault.and_then(|fault| fault.stderr.clone()),
        })
    }
}
