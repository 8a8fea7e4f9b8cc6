//! Restores subscriptions and the log level on a new connection.
//!
//! The requests are sent one by one, alongside the calls. A caller's request for the same setting
//! is more recent than the stored one, so a setting that was not restored by then is skipped.

use std::sync::{Arc, Mutex};

use mcpvisor_core::machine::{MAX_FAULT_MESSAGE, truncate_text};
use mcpvisor_core::{Generation, State};
use rmcp::model::{
    ClientRequest, LoggingLevel, SetLevelRequest, SetLevelRequestParams, SubscribeRequest,
    SubscribeRequestParams,
};

use super::actor::ServerState;
use super::restart_state::SessionSettings;
use super::slot::ServerSlot;
use crate::connection::{InternalRequestSender, SentRequest};
use crate::log_limit::log_limited;
use crate::mutex::lock;

/// The restore of the last connection that came up.
#[derive(Debug, Default)]
pub(super) struct Restore {
    pending: Option<Arc<PendingRestore>>,
    /// The connection on which it has yet to start.
    start_on: Option<Generation>,
}

/// The settings that are not yet restored on one connection.
#[derive(Debug)]
pub(super) struct PendingRestore(Mutex<SessionSettings>);

impl PendingRestore {
    /// Sends the request for the next setting; returns its method. It is sent before any later
    /// call.
    fn send_next<'a>(
        &self,
        connection: &'a InternalRequestSender,
    ) -> Option<(String, SentRequest<'a>)> {
        let mut settings = lock(&self.0);
        let request = next_request(&mut settings)?;
        let method = request.method().to_owned();
        Some((method, connection.send(request)?))
    }

    /// Skips the setting that a caller's request replaces.
    fn skip(&self, request: &ClientRequest) {
        match request {
            ClientRequest::SetLevelRequest(_) => lock(&self.0).log_level = None,
            ClientRequest::SubscribeRequest(request) => {
                lock(&self.0).subscriptions.remove(&request.params.uri);
            }
            ClientRequest::UnsubscribeRequest(request) => {
                lock(&self.0).subscriptions.remove(&request.params.uri);
            }
            _ => {}
        }
    }
}

fn next_request(settings: &mut SessionSettings) -> Option<ClientRequest> {
    if let Some(level) = settings.log_level.take() {
        return Some(SetLevelRequest::new(SetLevelRequestParams::new(level)).into());
    }
    let params = SubscribeRequestParams::new(settings.subscriptions.pop_first()?);
    Some(SubscribeRequest::new(params).into())
}

/// Restores subscriptions and the log level on a new connection, one by one. A setting that the
/// server refuses is logged, and tried again on the next connection.
async fn restore(
    connection: InternalRequestSender,
    slot: Arc<ServerSlot>,
    pending: Arc<PendingRestore>,
) {
    let limit = slot.config().settings.timeouts.listing;
    while let Some((method, sent)) = pending.send_next(&connection) {
        match tokio::time::timeout(limit, sent.reply()).await {
            Ok(Some(Ok(_))) => {}
            Ok(None) => return,
            Ok(Some(Err(problem))) => {
                let mut problem = slot.redact(format!("{problem:?}")).into_owned();
                truncate_text(&mut problem, MAX_FAULT_MESSAGE);
                log_limited!(slot.log_limit, WARN, server = %slot.name(), method, %problem, "cannot restore a session setting");
            }
            Err(_) => {
                log_limited!(slot.log_limit, WARN, server = %slot.name(), method, "no answer while restoring a session setting");
            }
        }
    }
}

impl ServerState {
    /// Restores the session settings on this connection after the present step, when the calls that
    /// waited for the connection are sent: their requests are more recent.
    pub(super) fn prepare_restore(&mut self, generation: Generation) {
        let settings = self.slot.restart_state().session.clone();
        self.prepare_restore_of(generation, settings);
    }

    fn prepare_restore_of(&mut self, generation: Generation, settings: SessionSettings) {
        let is_empty = settings.log_level.is_none() && settings.subscriptions.is_empty();
        self.restore = Restore {
            pending: (!is_empty).then(|| Arc::new(PendingRestore(Mutex::new(settings)))),
            start_on: Some(generation),
        };
    }

    /// Logs from the level that a caller set at another instance, on this connection and later ones.
    pub(super) fn adopt_log_level(&mut self, level: LoggingLevel) {
        self.slot.restart_state().session.log_level = Some(level);
        if let State::Connected(live) = self.machine.state() {
            let generation = live.generation;
            self.prepare_restore_of(
                generation,
                SessionSettings {
                    log_level: Some(level),
                    ..SessionSettings::default()
                },
            );
            self.start_restore();
        }
    }

    pub(super) fn skip_restore_of(&self, request: Option<&ClientRequest>) {
        if let (Some(pending), Some(request)) = (&self.restore.pending, request) {
            pending.skip(request);
        }
    }

    pub(super) fn start_restore(&mut self) {
        let Some(generation) = self.restore.start_on.take() else {
            return;
        };
        if let (Some(connection), Some(pending)) =
            (self.connection_of(generation), &self.restore.pending)
        {
            tokio::spawn(restore(
                connection.internal_requests(),
                Arc::clone(&self.slot),
                Arc::clone(pending),
            ));
        }
    }
}
