//! Authorization: a refused credential is renewed once for all calls, which are then sent again.
//!
//! Calls that arrive meanwhile stay in the queue: they would be refused, which costs their one retry.
//! A 401 never touches the session: it causes no reconnect, uses no budget and is no soft failure.
//! Renewing, storing and attaching credentials is up to the credential layer; the machine knows only
//! their revisions.

use super::call_table::{CallPlace, TrackedCall};
use super::fault::{Fault, FaultClass};
use super::io::{Effect, RenewalFailure};
use super::state::{Attempt, PermanentFailure, State};
use super::{Machine, Now};
use crate::ids::{CallId, CredentialRevision, Generation};
use crate::policy::retry::RequestFailure;

/// What is known about the credentials of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Authorization {
    /// The newest credential.
    newest: CredentialRevision,
    /// The newest credential that the server refused; `None` if it refused none.
    refused: Option<CredentialRevision>,
    /// The last connection on which a credential was refused.
    refused_on: Generation,
    renewal: Renewal,
    /// The newest credential when the last connection was opened.
    connected_with: CredentialRevision,
}

/// The renewal in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Renewal {
    #[default]
    None,
    /// Of this refused credential.
    Of(CredentialRevision),
    /// Of a credential of another transport. Its result says nothing about those in use.
    Outdated,
}

impl Authorization {
    pub(super) fn note_refusal(&mut self, generation: Generation, credential: CredentialRevision) {
        self.refused = self.refused.max(Some(credential));
        self.refused_on = generation;
        self.newest = self.newest.max(credential);
    }

    pub(super) fn note_connect(&mut self) {
        self.connected_with = self.newest;
    }

    /// The server is reached in another way, with other credentials.
    pub(super) fn forget_credentials(&mut self) {
        *self = Self {
            renewal: match self.renewal {
                Renewal::None => Renewal::None,
                Renewal::Of(_) | Renewal::Outdated => Renewal::Outdated,
            },
            ..Self::default()
        };
    }

    /// Whether a credential is in use that the server did not refuse.
    fn is_usable(&self) -> bool {
        self.refused.is_none_or(|refused| self.newest > refused)
    }

    /// Whether calls wait for the renewal of the credential in use, which the server refused.
    pub(super) fn holds_calls(&self) -> bool {
        matches!(self.renewal, Renewal::Of(_)) && !self.is_usable()
    }

    /// Whether a connection that was opened may have used an older credential than the one in use.
    pub(super) fn has_changed_since_connect(&self) -> bool {
        self.newest > self.connected_with && self.is_usable()
    }
}

impl Machine {
    /// A request of the runtime, or a stream, was refused.
    pub(super) fn unauthorized(
        &mut self,
        now: Now,
        generation: Generation,
        credential: CredentialRevision,
    ) {
        self.note_received(now, generation);
        if self.is_up(generation) && self.rejection().is_none() {
            self.authorization.note_refusal(generation, credential);
            self.request_renewal();
        }
    }

    /// Requests a renewal, unless one is in progress, a newer credential is in use already, or none is
    /// needed.
    pub(super) fn request_renewal(&mut self) {
        if let Some(refused) = self.authorization.refused
            && self.authorization.renewal == Renewal::None
            && !self.authorization.is_usable()
            && self.needs_credential()
        {
            self.authorization.renewal = Renewal::Of(refused);
            self.emit(Effect::RenewCredential { refused });
        }
    }

    /// Whether a call waits for a credential, or a connection will use it. A parked server may still
    /// drain a connection with such calls.
    fn needs_credential(&self) -> bool {
        let awaiting = || self.calls.select(TrackedCall::awaits_credential);
        self.rejection().is_none() || !awaiting().is_empty()
    }

    /// Retries a refused call at once if a newer credential is in use, else after the renewal.
    pub(super) fn retry_authorized(
        &mut self,
        now: Now,
        id: CallId,
        generation: Generation,
        fault: Fault,
    ) {
        if self.rejection().is_some() {
            self.give_up_call(id, fault);
        } else if self.authorization.is_usable() {
            self.queue_retry(now, id, generation);
        } else {
            let place = CallPlace::AwaitingCredential { generation };
            self.calls.move_to(id, place);
        }
    }

    /// The renewal in progress ended well. If the server refused the new credential already, before
    /// this report, the calls wait for the next one.
    pub(super) fn credential_renewed(&mut self, now: Now, credential: CredentialRevision) {
        let renewal = std::mem::take(&mut self.authorization.renewal);
        let is_new = renewal != Renewal::Outdated && self.note_credential(credential);
        // A renewal that brings nothing newer than it should replace is not repeated.
        let brought_nothing = matches!(renewal, Renewal::Of(refused) if credential <= refused);
        if self.authorization.is_usable() || brought_nothing {
            self.release_refused_calls(now);
        } else {
            self.request_renewal();
        }
        if is_new {
            self.connect_with_credential(now);
        }
    }

    /// Another credential is in use, without a renewal that this machine requested.
    pub(super) fn credential_changed(&mut self, now: Now, credential: CredentialRevision) {
        if self.note_credential(credential) {
            self.release_refused_calls(now);
            self.connect_with_credential(now);
        }
    }

    /// Whether it is newer than all credentials before.
    fn note_credential(&mut self, credential: CredentialRevision) -> bool {
        let is_new = credential > self.authorization.newest;
        self.authorization.newest = self.authorization.newest.max(credential);
        is_new
    }

    /// The renewal in progress failed. That says nothing about a newer credential.
    pub(super) fn renewal_failed(&mut self, now: Now, failure: RenewalFailure) {
        let renewal = std::mem::take(&mut self.authorization.renewal);
        if renewal == Renewal::None {
            return;
        }
        let newest_refused = self.authorization.refused.map_or(renewal, Renewal::Of);
        if self.authorization.is_usable() {
            self.release_refused_calls(now);
        } else if renewal != newest_refused {
            self.request_renewal();
        } else {
            match failure {
                RenewalFailure::Transient(fault) => self.refuse_waiting_calls(&fault),
                RenewalFailure::Permanent(failure) => self.renewal_failed_permanently(failure),
            }
            // The others are sent with the credential that there is.
            self.start_queued_calls(now);
        }
    }

    /// Only the connection on which a credential was last refused fails with it. A later one finds out by
    /// itself when it opens.
    fn renewal_failed_permanently(&mut self, failure: PermanentFailure) {
        let generation = self.authorization.refused_on;
        self.refuse_waiting_calls(&failure.fault);
        if self.live(generation).is_some() {
            self.lists.disconnected();
            self.emit(Effect::Close {
                generation,
                grace: self.settings.close,
            });
            self.fail_permanently(failure, Some(generation));
        }
    }

    fn refuse_waiting_calls(&mut self, fault: &Fault) {
        for id in self.calls.select(TrackedCall::awaits_credential) {
            self.give_up_call(id, fault.clone());
        }
    }

    /// Queues the calls that waited for a credential, and starts them.
    fn release_refused_calls(&mut self, now: Now) {
        let refused = self.calls.select(TrackedCall::awaits_credential);
        // Newest first, since each goes to the front of the queue.
        for id in refused.into_iter().rev() {
            if let Some(CallPlace::AwaitingCredential { generation }) =
                self.calls.get(id).map(|call| call.place)
            {
                self.queue_retry(now, id, generation);
            }
        }
        self.start_queued_calls(now);
    }

    /// Connects a server that had no valid credential, at once and without using the budget.
    fn connect_with_credential(&mut self, now: Now) {
        match &self.state {
            State::PermanentlyFailed { failure, .. } if is_authorization(&failure.fault) => {
                self.start_over(now);
                self.next_connect_is_free = true;
            }
            State::Connecting(attempt)
            | State::Reconnecting(attempt)
            | State::Disconnected(attempt)
                if self.last_fault.as_ref().is_some_and(is_authorization) =>
            {
                let attempt = attempt.clone();
                self.connect_attempt_with_credential(now, attempt);
            }
            State::Connecting(_)
            | State::Connected(_)
            | State::Reconnecting(_)
            | State::Disconnected(_)
            | State::Disabling(_)
            | State::Sleeping(_)
            | State::Disabled
            | State::PermanentlyFailed { .. } => {}
        }
    }

    fn connect_attempt_with_credential(&mut self, now: Now, attempt: Attempt) {
        match attempt {
            Attempt::BackingOff { .. } => {
                self.next_connect_is_free = true;
                self.request_permit();
            }
            Attempt::Closing { generation, .. } => {
                self.next_connect_is_free = true;
                self.enter_attempt(Attempt::Closing {
                    generation,
                    retry_at: now.at,
                });
            }
            // The next connect uses the new credential. One in progress may use the old one, and is
            // repeated if that is refused.
            Attempt::Draining { .. } | Attempt::AwaitingPermit | Attempt::Opening { .. } => {}
        }
    }
}

pub(super) fn is_authorization(fault: &Fault) -> bool {
    fault.class == FaultClass::Authorization
}

/// The credential of a request that was refused with 401.
pub(super) fn refused_credential(failure: RequestFailure) -> Option<CredentialRevision> {
    match failure {
        RequestFailure::Unauthorized { credential } => Some(credential),
        RequestFailure::NotWritten
        | RequestFailure::ConnectTimedOut
        | RequestFailure::ConnectionLost
        | RequestFailure::SessionLost
        | RequestFailure::ScopeNeeded
        | RequestFailure::Denied
        | RequestFailure::Busy { .. }
        | RequestFailure::ServerFault => None,
    }
}
