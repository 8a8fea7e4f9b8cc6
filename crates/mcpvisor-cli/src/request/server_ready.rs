//! Waits until a server is connected and has listed what a command needs.

use std::sync::Arc;

use mcpvisor::{
    FaultClass, ListKind, ListState, Runtime, ServerCatalog, ServerHandle, ServerStatus, StateName,
};

use super::deadlines::{Deadline, RequestDeadlines};
use crate::exit::Exit;
use crate::failure::{self, Failure};
use crate::fleet;
use crate::output::server_notes::startup_clues;

pub(crate) fn server(runtime: &Runtime, name: &str) -> Result<ServerHandle, Failure> {
    runtime.server(name).map_err(Failure::unknown_server)
}

/// One list of a server.
pub(crate) enum Listing {
    /// The catalog, in which this list belongs to the present connection.
    Available(Arc<ServerCatalog>),
    /// The list cannot be fetched.
    Failed(Failure),
    /// The server is not connected. The request itself fails with the reason.
    NotConnected,
}

/// Waits for a server and one of its lists. Other lists may fail.
pub(crate) async fn listing(
    server: &ServerHandle,
    list: ListKind,
    deadlines: &RequestDeadlines,
) -> Result<Listing, Failure> {
    let status = ready(server, &[list], deadlines).await?;
    Ok(match (status.state, status.list(list)) {
        (StateName::Connected, ListState::Failed(fault)) => {
            Listing::Failed(Failure::listing_failed(server.name().as_str(), fault))
        }
        (StateName::Connected, _) => Listing::Available(server.catalog()),
        _ => Listing::NotConnected,
    })
}

/// Waits for a server and these lists. The result is connected or permanently failed; the request to
/// a failed server fails with the reason.
pub(crate) async fn ready(
    server: &ServerHandle,
    lists: &[ListKind],
    deadlines: &RequestDeadlines,
) -> Result<ServerStatus, Failure> {
    let name = server.name().as_str();
    let Some(status) = fleet::settled(server, lists, deadlines.ready_until).await else {
        return Err(Failure {
            sent: Some(false),
            ..late(server, lists, &deadlines.deadline)
        });
    };
    match status.state {
        StateName::Disabled => Err(Failure::disabled(name)),
        StateName::Connected | StateName::PermanentlyFailed => Ok(status),
        _ => Err(unreachable(server, &status)),
    }
}

/// A server whose connect failed. For a timeout the message includes its output.
pub(crate) fn unreachable(server: &ServerHandle, status: &ServerStatus) -> Failure {
    let mut failure = Failure::unreachable(status);
    let class = status.last_error.as_ref().map(|fault| fault.class);
    if class == Some(FaultClass::Timeout) {
        failure.message.push_str(&startup_clues(server, status));
    }
    failure
}

/// A server that did not connect or list in time.
pub(crate) fn late(server: &ServerHandle, lists: &[ListKind], deadline: &Deadline) -> Failure {
    let (name, status) = (server.name().as_str(), server.status());
    let pending = lists.iter().find(|list| !status.list(**list).is_settled());
    let within = deadline.describe();
    let message = match (status.state, pending) {
        (StateName::Connected, Some(list)) => format!("{name} did not list its {list} {within}"),
        _ => format!(
            "{name} did not connect {within}{}",
            startup_clues(server, &status)
        ),
    };
    Failure::late(name, message, deadline)
}

/// A request that was not sent because of missing authorization has its own exit code.
pub(crate) fn refine(failure: Failure, server: &ServerHandle) -> Failure {
    let status = server.status();
    if failure.exit == Exit::Unreachable && failure::needs_authorization(&status) {
        return Failure::unreachable(&status);
    }
    failure
}
