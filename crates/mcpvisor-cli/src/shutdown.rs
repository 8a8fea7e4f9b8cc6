//! The end of a command's fleet: closes the servers, and waits for logins that are being renewed.

use std::convert::Infallible;
use std::time::Duration;

use mcpvisor::{Runtime, ServerName};

use crate::invocation::Invocation;
use crate::output::{server_notes, suggest_command};

/// Limit for closing the servers.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Servers get this long to close even after the deadline.
const MIN_SHUTDOWN: Duration = Duration::from_millis(100);

/// Time to save a login that is being renewed, after the servers are closed. Only a renewal that is on
/// its way uses it.
const RENEWAL_GRACE: Duration = Duration::from_secs(10);

/// A shorter wait for a login is not announced.
const SILENT_WAIT: Duration = Duration::from_millis(500);

/// Closes the servers within the rest of the deadline, then kills their processes. Waits for logins
/// that are being renewed, and warns of those that could not be saved.
pub(crate) async fn shut_down(
    runtime: &Runtime,
    invocation: &Invocation<'_>,
    was_interrupted: bool,
) {
    let output = &invocation.output;
    let remaining = invocation.deadline.remaining().unwrap_or(SHUTDOWN);
    let limit = remaining.clamp(MIN_SHUTDOWN, SHUTDOWN);
    let end = async {
        runtime.shutdown(limit).await;
        match runtime.renewing().is_empty() {
            true => Vec::new(),
            false => runtime.finish_renewals(RENEWAL_GRACE).await,
        }
    };
    let announce = async {
        tokio::time::sleep(SILENT_WAIT).await;
        let renewing = runtime.renewing();
        if !renewing.is_empty() {
            output.notice(&waiting_for(&renewing, was_interrupted));
        }
        std::future::pending::<Infallible>().await
    };
    let unfinished = tokio::select! {
        unfinished = end => unfinished,
        never = announce => match never {},
    };
    for server in unfinished {
        let login = suggest_command(&["login", server.as_str()]);
        output.warning(&format!(
            "{server}: the renewed login was not received in time. If calls are refused, run \
             `{login}`."
        ));
    }
    for status in runtime.status() {
        if let Some(note) = server_notes::unsaved_login(&status) {
            output.warning(&format!("{}: {}", status.name, note.into_sentence()));
        }
    }
}

fn waiting_for(servers: &[ServerName], was_interrupted: bool) -> String {
    let names: Vec<&str> = servers.iter().map(ServerName::as_str).collect();
    let names = names.join(", ");
    let again = if was_interrupted { " again" } else { "" };
    format!("Waiting for the login of {names} to be saved. Press Ctrl-C{again} to stop.")
}
