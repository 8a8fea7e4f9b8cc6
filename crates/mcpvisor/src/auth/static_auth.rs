//! How a server is authorized without the feature `auth`: by its config alone.

use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, PermanentFailure, RenewalFailure};

use super::Challenge;
use super::authorization::{Authorization, CredentialChange, FIRST_STATIC, authorization_failure};
use crate::api::status::UnsavedLogin;
use crate::api::transport::Transport;
use crate::fleet::host::Host;

/// How one server is authorized.
#[derive(Debug, Clone)]
pub(crate) enum ServerAuth {
    /// By its config alone, which cannot be renewed. A reload gives it another number.
    Static(CredentialRevision),
}

impl ServerAuth {
    pub(crate) fn new(_: &Transport, _: &Host) -> Self {
        Self::Static(FIRST_STATIC)
    }

    /// The successor of another authorization of the same server. Its credential has a larger
    /// number, so that a refusal of the former one says nothing about it.
    pub(crate) fn replacing(self, former: &Self) -> Self {
        Self::Static(CredentialRevision(former.current().revision.0 + 1))
    }

    pub(crate) async fn for_connect(&self) -> Result<Authorization, RenewalFailure> {
        Ok(self.current())
    }

    pub(crate) async fn renew(
        &self,
        _refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        let needed = self.authorization_needed("401 Unauthorized".to_owned());
        Err(RenewalFailure::Permanent(needed))
    }

    pub(crate) fn current(&self) -> Authorization {
        let Self::Static(revision) = self;
        Authorization::without_headers(*revision)
    }

    pub(crate) fn note_challenge(&self, _: Challenge) {}

    pub(crate) async fn next_change(&self, _from: CredentialRevision) -> CredentialChange {
        std::future::pending().await
    }

    pub(crate) async fn wait_for_login(&self) {
        std::future::pending().await
    }

    pub(crate) async fn login_details(&self) -> Option<(Option<String>, Vec<String>)> {
        None
    }

    pub(crate) async fn load(&self) {}

    pub(crate) fn identity(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn is_renewing(&self) -> bool {
        false
    }

    pub(crate) async fn finish(&self) {}

    pub(crate) fn unsaved_login(&self) -> Option<UnsavedLogin> {
        None
    }

    pub(crate) async fn unsaved_login_changed(&self, _from: &UnsavedLogin) {
        std::future::pending().await
    }

    pub(crate) fn authorization_needed(&self, message: String) -> PermanentFailure {
        authorization_failure(message, Action::Authorize)
    }
}
