//! Restores subscriptions and the log level on a new connection.
//!
//! The requests are sent one by one, alongside the calls. The session skips what clients want no longer,
//! and what the request of a caller has requested meanwhile.

use std::sync::Arc;

use mcpvisor_core::machine::{MAX_FAULT_MESSAGE, truncate_text};
use mcpvisor_core::{ClientId, Generation, LogSeverity};
use rmcp::model::{
    ClientRequest, SetLevelRequest, SetLevelRequestParams, SubscribeRequest, SubscribeRequestParams,
};

use super::actor::ServerState;
use super::slot::ServerSlot;
use crate::connection::{Command, InternalRequestSender, to_level};
use crate::log_limit::log_limited;

/// The requests for the settings that clients want now.
fn requests(slot: &ServerSlot) -> Vec<ClientRequest> {
    let state = slot.restart_state();
    let level = state.session.level().map(|level| {
        let params = SetLevelRequestParams::new(to_level(level));
        SetLevelRequest::new(params).into()
    });
    let subscribe = |uri| SubscribeRequest::new(SubscribeRequestParams::new(uri)).into();
    level
        .into_iter()
        .chain(state.session.uris().map(subscribe))
        .collect()
}

/// Restores subscriptions and the log level on a new connection, one by one. A setting that the
/// server refuses is logged, and tried again on the next connection.
async fn restore(
    connection: InternalRequestSender,
    slot: Arc<ServerSlot>,
    requests: Vec<ClientRequest>,
) {
    let limit = slot.config().settings.timeouts.listing;
    for request in requests {
        let method = request.method().to_owned();
        let Some(sent) = connection.send(request) else {
            return;
        };
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
        self.restore_on = Some(generation);
    }

    /// Clients set these levels at another instance of the pool.
    pub(super) fn adopt_log_levels(&mut self, levels: Vec<(ClientId, LogSeverity)>) {
        // The connection of one client has only its own.
        if self.slot.owner().is_some() {
            return;
        }
        for (client, level) in &levels {
            let mut state = self.slot.restart_state();
            state.session.set_level(*client, Some(*level));
        }
        if let Some(connection) = &self.connection {
            let _ = connection.send(Command::AdoptLogLevels(levels));
        }
    }

    pub(super) fn start_restore(&mut self) {
        let Some(generation) = self.restore_on.take() else {
            return;
        };
        let requests = requests(&self.slot);
        if let Some(connection) = self.connection_of(generation)
            && !requests.is_empty()
        {
            let connection = connection.internal_requests();
            tokio::spawn(restore(connection, Arc::clone(&self.slot), requests));
        }
    }
}
