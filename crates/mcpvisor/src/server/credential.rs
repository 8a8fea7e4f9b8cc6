//! The credential of a server, as its actor sees it: renewals, and waiting for another one.

use std::sync::Arc;

use mcpvisor_core::machine::{Fault, FaultClass, RenewalFailure};
use mcpvisor_core::{CredentialRevision, Input, State, StateName};
use tokio::task::JoinHandle;

use super::actor::ServerState;
use super::message::ServerMessage;
use crate::api::events::EventKind;
use crate::auth::{CredentialChange, ServerAuth};
use crate::connection::Command;

/// A task that reports changes. Dropping it ends the task.
pub(crate) struct WatchTask(JoinHandle<()>);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerState {
    /// Renews the credential in a task. Always followed by [`ServerMessage::RenewalEnded`].
    pub(super) fn renew_credential(&mut self, refused: CredentialRevision) {
        let (auth, actor) = (self.slot.auth(), self.myself.clone());
        tokio::spawn(async move {
            let renewed = auth.renew(refused).await;
            let renewed = renewed.map(|authorization| authorization.revision);
            let _ = actor.send_message(ServerMessage::RenewalEnded(renewed));
        });
    }

    pub(super) fn renewal_ended(&mut self, result: Result<CredentialRevision, RenewalFailure>) {
        match result {
            Ok(credential) => {
                // The calls that follow must carry it, and commands are processed in order.
                self.update_authorization();
                self.update_catalog_owner();
                self.step(Input::CredentialRenewed { credential });
            }
            Err(failure) => {
                let fault = match &failure {
                    RenewalFailure::Permanent(failure) => &failure.fault,
                    RenewalFailure::Transient(fault) => fault,
                };
                tracing::info!(server = %self.slot.name(), %fault, "the credential was not renewed");
                self.step(Input::RenewalFailed { failure });
            }
        }
    }

    /// Another credential is in use.
    pub(super) fn credential_changed(&mut self) {
        self.update_authorization();
        self.update_catalog_owner();
        let credential = self.slot.auth().current().revision;
        self.step(Input::CredentialChanged { credential });
    }

    /// The credential has expired and was not renewed, as if the server had refused it.
    pub(super) fn credential_expired(&mut self) {
        if let State::Connected(live) = self.machine.state() {
            let generation = live.generation;
            let credential = self.slot.auth().current().revision;
            let fault = Fault::new(FaultClass::Authorization, "the token has expired");
            self.step(Input::Unauthorized {
                generation,
                credential,
                fault,
            });
        }
    }

    /// Publishes whether the login exists only in memory, and while it does, waits for the next
    /// change.
    pub(super) fn watch_unsaved_login(&mut self) {
        let (auth, actor) = (self.slot.auth(), self.myself.clone());
        let unsaved = auth.unsaved_login();
        let generation = self.machine.durable().generation;
        self.draft.set_unsaved_login(generation, unsaved.clone());
        self.unsaved_login_watch = unsaved.map(|unsaved| {
            WatchTask(tokio::spawn(async move {
                auth.unsaved_login_changed(&unsaved).await;
                let _ = actor.send_message(ServerMessage::UnsavedLoginChanged);
            }))
        });
    }

    fn update_authorization(&mut self) {
        self.watch_unsaved_login();
        let authorization = self.slot.auth().current();
        self.slot.add_credential_secrets(&authorization);
        if let Some(connection) = &self.connection {
            // A connection that takes no more commands is replaced by one that reads it itself.
            let _ = connection.send(Command::UpdateAuthorization(authorization));
        }
    }

    /// Waits for another credential: a refreshed one while the server is connected, or a login
    /// while it needs one.
    pub(super) fn watch_credential(&mut self, state: StateName) {
        let auth = self.slot.auth();
        self.credential_watch = None;
        self.lists.owner = None;
        self.watch_unsaved_login();
        if matches!(*auth, ServerAuth::Static(_)) {
            return;
        }
        let (actor, expired) = (self.myself.clone(), self.myself.clone());
        let report = move || actor.send_message(ServerMessage::CredentialChanged).is_ok();
        let needs_login = self.machine.last_fault().is_some_and(is_authorization);
        let task = match state {
            StateName::Connected => tokio::spawn(async move {
                // The first report is of the credential that the connection was opened with.
                let mut seen = CredentialRevision::NONE;
                loop {
                    let change = auth.next_change(seen).await;
                    if change == CredentialChange::Expired {
                        let _ = expired.send_message(ServerMessage::CredentialExpired);
                        return;
                    }
                    seen = auth.current().revision;
                    if !report() {
                        return;
                    }
                }
            }),
            StateName::PermanentlyFailed if needs_login => {
                let (slot, generation) =
                    (Arc::clone(&self.slot), self.machine.durable().generation);
                tokio::spawn(async move {
                    let announce = async {
                        if let Some((authorization_server, scopes)) = auth.login_details().await {
                            let needed = EventKind::AuthorizationNeeded {
                                authorization_server,
                                scopes,
                            };
                            slot.emit(generation, needed);
                        }
                    };
                    let heal = async {
                        auth.wait_for_login().await;
                        report();
                    };
                    tokio::join!(announce, heal);
                })
            }
            StateName::PermanentlyFailed
            | StateName::Connecting
            | StateName::Reconnecting
            | StateName::Disabling
            | StateName::Disabled
            | StateName::Disconnected
            | StateName::Sleeping => return,
        };
        self.credential_watch = Some(WatchTask(task));
    }
}

fn is_authorization(fault: &Fault) -> bool {
    fault.class == FaultClass::Authorization
}
