//! The headers of a helper program, cached for a configured time.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use mcpvisor_auth::renewal::MIN_RENEWAL_INTERVAL;
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::RenewalFailure;
use tokio::time::Instant;

use super::authorization::{Authorization, CredentialChange};
use super::config::DEFAULT_HELPER_TTL;
use super::headers_helper;
use super::oauth_credential::{fix_config, sleep_until, transient};
use crate::mutex::lock;

/// The headers of a helper program. `Debug` hides its command, which may contain secrets.
pub(crate) struct HelperCredential {
    command: Vec<String>,
    ttl: Duration,
    /// One run at a time.
    running: tokio::sync::Mutex<()>,
    state: Mutex<HelperState>,
}

#[derive(Debug, Default)]
struct HelperState {
    authorization: Authorization,
    read_at: Option<Instant>,
}

impl fmt::Debug for HelperCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperCredential").finish_non_exhaustive()
    }
}

impl HelperCredential {
    pub(super) fn new(command: Vec<String>, ttl: Option<Duration>) -> Self {
        Self {
            command,
            ttl: ttl.unwrap_or(DEFAULT_HELPER_TTL).max(MIN_RENEWAL_INTERVAL),
            running: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Its headers may differ at every run, so the program stands for them.
    pub(super) fn identity(&self) -> Vec<String> {
        let words = self.command.iter().cloned();
        std::iter::once("helper".to_owned()).chain(words).collect()
    }

    fn state(&self) -> MutexGuard<'_, HelperState> {
        lock(&self.state)
    }

    pub(super) fn current(&self) -> Authorization {
        self.state().authorization.clone()
    }

    /// When the cached headers expire.
    fn due(&self) -> Option<Instant> {
        self.state().read_at.and_then(|at| at.checked_add(self.ttl))
    }

    pub(super) async fn fresh(&self) -> Result<Authorization, RenewalFailure> {
        let current = self.current();
        match self.due() {
            Some(due) if Instant::now() < due => Ok(current),
            _ => self.run(current.revision).await,
        }
    }

    /// Other headers than the refused ones.
    pub(super) async fn renew(
        &self,
        refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        let renewed = self.run(refused).await?;
        if renewed.revision == refused && refused != CredentialRevision::NONE {
            let problem = "the server refuses what the headers helper prints";
            return Err(fix_config(problem));
        }
        Ok(renewed)
    }

    /// Waits until it prints other headers. Runs it when they expire.
    pub(super) async fn next_change(&self, from: CredentialRevision) -> CredentialChange {
        while self.current().revision == from {
            sleep_until(self.due()).await;
            if self.fresh().await.is_err() {
                tokio::time::sleep(MIN_RENEWAL_INTERVAL).await;
            }
        }
        CredentialChange::Replaced
    }

    /// Runs the program, unless another caller just did. The same headers keep their revision.
    async fn run(&self, known: CredentialRevision) -> Result<Authorization, RenewalFailure> {
        let _running = self.running.lock().await;
        let current = self.current();
        if current.revision != known {
            return Ok(current);
        }
        let headers = headers_helper::run(&self.command).await;
        let headers = headers.map_err(transient)?;
        let mut state = self.state();
        state.read_at = Some(Instant::now());
        if headers != current.headers {
            state.authorization = Authorization {
                revision: CredentialRevision(current.revision.0 + 1),
                headers,
                ..Authorization::default()
            };
        }
        Ok(state.authorization.clone())
    }
}
