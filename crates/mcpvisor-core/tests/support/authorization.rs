//! Credentials in the model: which calls wait for a renewal, and what its outcome must change.

use mcpvisor_core::machine::{ConnectionEnd, Fault, FaultClass, RenewalFailure};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::{CredentialRevision, Generation, StateName};

use super::model::{Model, Place, Step};

/// What inputs show about the credentials of a server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub newest: CredentialRevision,
    /// The newest that the server refused.
    pub refused: Option<CredentialRevision>,
    /// The connection on which one was last refused.
    pub refused_on: Generation,
    /// The refused credential of the renewal in progress.
    pub renewing: Option<CredentialRevision>,
    /// That renewal is for another transport.
    pub is_outdated: bool,
    /// The newest one when the last connection was opened.
    pub connected_with: CredentialRevision,
}

impl Credentials {
    /// Whether there is one that the server did not refuse.
    pub fn is_usable(&self) -> bool {
        self.refused.is_none_or(|refused| self.newest > refused)
    }

    /// Whether a call would be sent with a credential that was refused and is being renewed.
    pub fn holds_calls(&self) -> bool {
        self.renewing.is_some() && !self.is_outdated && !self.is_usable()
    }

    /// The server is reached in another way, with other credentials.
    pub fn forget(&mut self) {
        *self = Self {
            renewing: self.renewing,
            is_outdated: self.renewing.is_some(),
            ..Self::default()
        };
    }

    /// The renewal in progress ended: whether it is for another transport, and what it should
    /// replace.
    fn end_renewal(&mut self) -> (bool, Option<CredentialRevision>) {
        (std::mem::take(&mut self.is_outdated), self.renewing.take())
    }

    fn note_refusal(&mut self, on: Generation, credential: CredentialRevision) {
        self.refused = self.refused.max(Some(credential));
        self.newest = self.newest.max(credential);
        self.refused_on = on;
    }
}

impl Model {
    /// Whether a call is answered at once in this state.
    pub fn rejects(&self) -> bool {
        match self.state {
            StateName::Disabling
            | StateName::Disabled
            | StateName::Disconnected
            | StateName::PermanentlyFailed => true,
            StateName::Connecting
            | StateName::Connected
            | StateName::Reconnecting
            | StateName::Sleeping => false,
        }
    }

    /// A call was refused with 401.
    pub fn call_unauthorized(
        &mut self,
        step: &mut Step<'_>,
        on: Generation,
        failure: RequestFailure,
    ) {
        if let RequestFailure::Unauthorized { credential } = failure {
            step.is_unauthorized = true;
            self.credentials.note_refusal(on, credential);
        }
    }

    /// A request of the runtime was refused with 401.
    pub fn unauthorized(
        &mut self,
        step: &mut Step<'_>,
        on: Generation,
        credential: CredentialRevision,
    ) {
        let current = self.connection.as_ref().filter(|it| it.generation == on);
        let up = current.is_some_and(|it| it.up.is_some() && !it.closing);
        if up && !self.rejects() {
            step.is_unauthorized = true;
            self.credentials.note_refusal(on, credential);
        }
    }

    pub fn credential_renewed(&mut self, step: &mut Step<'_>, credential: CredentialRevision) {
        let (is_outdated, renewed) = self.credentials.end_renewal();
        if is_outdated {
            if self.credentials.is_usable() {
                self.release_refused(step);
            }
            return;
        }
        self.credential_changed(step, credential);
        if renewed.is_some_and(|refused| credential <= refused) {
            self.release_refused(step);
        }
    }

    pub fn credential_changed(&mut self, step: &mut Step<'_>, credential: CredentialRevision) {
        if credential > self.credentials.newest {
            self.credentials.newest = credential;
            step.heals = self.needs_login;
            if step.heals {
                self.budget.clear();
            }
            self.free |= self.waits_for_credential;
        }
        if self.credentials.is_usable() {
            self.release_refused(step);
        }
    }

    pub fn renewal_failed(&mut self, step: &mut Step<'_>, failure: &RenewalFailure) {
        let (is_outdated, renewed) = self.credentials.end_renewal();
        if renewed.is_none() {
            return;
        }
        if self.credentials.is_usable() {
            self.release_refused(step);
        } else if !is_outdated && renewed >= self.credentials.refused {
            step.refuses = true;
            let live = self.connection.as_ref().map(|it| it.generation)
                == Some(self.credentials.refused_on)
                && self.state == StateName::Connected;
            step.fails = live && matches!(failure, RenewalFailure::Permanent(_));
        }
    }

    fn release_refused(&mut self, step: &Step<'_>) {
        for call in self.open.values_mut().filter(|call| call.awaits_credential) {
            call.awaits_credential = false;
            call.place = Place::Waiting { since: step.now };
        }
    }

    /// A connect with a credential that is no longer the newest is repeated without a failure.
    pub fn repeats_with_credential(&mut self, end: &ConnectionEnd, opening: bool) {
        if let ConnectionEnd::Permanent(failure) = end
            && opening
            && is_authorization(&failure.fault)
            && self.credentials.is_usable()
            && self.credentials.newest > self.credentials.connected_with
        {
            self.free = true;
        }
    }

    pub fn renews(&mut self, refused: CredentialRevision) {
        let credentials = &mut self.credentials;
        assert_eq!(credentials.renewing, None, "two renewals at once");
        assert_eq!(Some(refused), credentials.refused);
        assert!(!credentials.is_usable(), "a newer credential is in use");
        credentials.renewing = Some(refused);
        let awaited = self.open.values().any(|call| call.awaits_credential);
        assert!(
            awaited || !self.rejects(),
            "a renewal for nothing in {}",
            self.state
        );
    }

    /// Checks what a step did about credentials.
    pub fn check_credentials(&self, step: &Step<'_>, rejected: bool) {
        let mut awaiting = self.open.values().filter(|call| call.awaits_credential);
        if step.refuses {
            assert!(awaiting.next().is_none(), "a call waits for nothing");
        } else if let Some(call) = awaiting.next() {
            let renewing = self.credentials.renewing.is_some();
            assert!(renewing, "{call:?} waits without a renewal");
        }
        if step.is_unauthorized && !rejected {
            let heals = self.credentials.renewing.is_some() || self.credentials.is_usable();
            assert!(heals, "a refused credential is not renewed");
        }
        if step.fails {
            assert_eq!(self.state, StateName::PermanentlyFailed);
        }
        if step.heals {
            assert_eq!(self.state, StateName::Connecting, "a login does not heal");
        }
    }
}

pub fn is_authorization(fault: &Fault) -> bool {
    fault.class == FaultClass::Authorization
}
