//! The credential of one server and account: its current token, and the one renewal at a time.
//!
//! A caller names the token that the server refused. If another token is current, it gets that one;
//! otherwise it joins the one renewal. The renewal is a task of its own, so a dropped caller cannot
//! cancel it. Between processes the lock of the store serializes renewals, and the store is read
//! again under the lock: the winner's token is adopted.

mod renew;
mod tracked_client;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use crate::access_token::{AccessToken, TokenRevision};
use crate::challenge::{BindingDemand, Challenge};
use crate::config::{CredentialConfig, Grant};
use crate::dpop::binding::DpopMode;
use crate::error::AuthError;
use crate::http_client::{HttpClient, SendProgress};
use crate::record::{CredentialRecord, unix_seconds};
use crate::renewal::{matching_record, retry_delay, serves};
use crate::store::{RetainingStore, SharedStore, StoreMark, UnsavedLogin};

/// Pause between two looks at the store while a login is awaited.
pub const STORE_POLL: Duration = Duration::from_millis(300);

type RenewalOutcome = Shared<BoxFuture<'static, Result<AccessToken, AuthError>>>;

/// The credential of one server and account. Clones share it.
#[derive(Clone)]
pub struct Credential(Arc<Inner>);

struct Inner {
    config: CredentialConfig,
    http: Arc<dyn HttpClient>,
    store: RetainingStore,
    current: watch::Sender<Option<AccessToken>>,
    revisions: AtomicU64,
    state: Mutex<State>,
    step_up: Notify,
}

/// A renewal in progress.
struct Renewal {
    outcome: RenewalOutcome,
    task: AbortHandle,
    /// How far its refresh request has got.
    request: SendProgress,
}

#[derive(Default)]
struct State {
    renewal: Option<Renewal>,
    /// No renewal begins any more.
    is_closed: bool,
    challenge: Challenge,
    /// The records of the store when they were read last.
    mark: Option<StoreMark>,
    failures: u32,
    retry_at: Option<(Instant, String)>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl Credential {
    /// A credential; nothing is read before it is used. If the program has several, they should
    /// share a store: [`Self::sharing`].
    pub fn new(config: CredentialConfig, http: Arc<dyn HttpClient>, store: SharedStore) -> Self {
        Self::sharing(config, http, RetainingStore::new(store))
    }

    /// A credential that shares its store, and what is not saved yet, with others.
    pub fn sharing(
        config: CredentialConfig,
        http: Arc<dyn HttpClient>,
        store: RetainingStore,
    ) -> Self {
        Self(Arc::new(Inner {
            config,
            http,
            store,
            current: watch::Sender::new(None),
            revisions: AtomicU64::new(0),
            state: Mutex::default(),
            step_up: Notify::new(),
        }))
    }

    /// Sends its requests.
    pub fn http(&self) -> Arc<dyn HttpClient> {
        Arc::clone(&self.0.http)
    }

    /// Where it is stored.
    pub fn store(&self) -> SharedStore {
        Arc::clone(self.0.store.store())
    }

    /// What the config says.
    pub fn config(&self) -> &CredentialConfig {
        &self.0.config
    }

    /// The current token and its successors.
    pub fn subscribe(&self) -> watch::Receiver<Option<AccessToken>> {
        self.0.current.subscribe()
    }

    /// The current token, as far as it is known.
    pub fn current(&self) -> Option<AccessToken> {
        self.0.current.borrow().clone()
    }

    /// The number of the current token, or of its absence.
    pub fn revision(&self) -> TokenRevision {
        let current = self.current().map(|token| token.revision());
        current.unwrap_or_else(|| TokenRevision(self.0.revisions.load(Ordering::Relaxed)))
    }

    /// Remembers what the server demands, for the next login or grant.
    pub fn note_challenge(&self, challenge: Challenge) {
        let needs_step_up = challenge.needs_step_up();
        self.state().challenge = challenge;
        if needs_step_up {
            self.0.step_up.notify_one();
        }
    }

    /// Waits until the server demands more scopes than the current token has.
    pub async fn step_up_needed(&self) {
        self.0.step_up.notified().await;
    }

    /// What the server demanded last.
    pub fn challenge(&self) -> Challenge {
        self.state().challenge.clone()
    }

    /// Why the login exists only in memory, if saving it failed.
    pub fn unsaved(&self) -> Option<UnsavedLogin> {
        let Inner { config, store, .. } = &*self.0;
        let (url, account) = (&config.server_url, &config.account);
        store.unsaved_login(url, account, |record| serves(config, record))
    }

    /// Waits until [`Self::unsaved`] satisfies a condition.
    pub async fn unsaved_changed(&self, wanted: impl Fn(Option<UnsavedLogin>) -> bool) {
        self.0.store.changed(|| wanted(self.unsaved())).await;
    }

    /// A token to connect with: the current one, renewed first if it is due; `None` if there is none
    /// yet and a person has to log in first. If renewing fails for now, or the store cannot be read,
    /// a token that has not expired is used on.
    pub async fn fresh(&self) -> Result<Option<AccessToken>, AuthError> {
        let loaded = self.load().await;
        let current = self.current();
        if current.is_none() {
            loaded?;
        }
        match &current {
            Some(token) if !token.is_due() => Ok(current),
            None if !self.renews_alone() => Ok(None),
            _ => match self
                .renew(current.as_ref().map(AccessToken::revision))
                .await
            {
                Ok(token) => Ok(Some(token)),
                Err(AuthError::LoginNeeded { .. }) if current.is_none() => Ok(None),
                Err(error) => match current.filter(|token| !token.has_expired()) {
                    Some(token) => Ok(Some(token)),
                    None => Err(error),
                },
            },
        }
    }

    /// Another token than the refused one: the current one if it is another, else a renewed one.
    /// `None` asks for a token where there was none.
    pub async fn renew(&self, refused: Option<TokenRevision>) -> Result<AccessToken, AuthError> {
        match self.join_or_start(refused) {
            Ok(outcome) => outcome.await,
            Err(outcome) => outcome,
        }
    }

    /// The renewal to wait for, or the outcome if none is needed.
    fn join_or_start(
        &self,
        refused: Option<TokenRevision>,
    ) -> Result<RenewalOutcome, Result<AccessToken, AuthError>> {
        let mut state = self.state();
        let current = self.current();
        if let Some(token) = current.clone().filter(|it| Some(it.revision()) != refused) {
            return Err(Ok(token));
        }
        if let Some(renewal) = &state.renewal {
            return Ok(renewal.outcome.clone());
        }
        if state.is_closed {
            return Err(Err(interrupted()));
        }
        if let Some(token) = &current
            && token.is_refused_although_fresh()
            && !self.lacks_key(token, &state)
        {
            let issuer = token.issuer();
            return Err(Err(login_needed(format!(
                "the server refuses a token that {issuer} just issued"
            ))));
        }
        if let Some((at, reason)) = &state.retry_at
            && let Some(retry_in) = at.checked_duration_since(Instant::now())
        {
            let reason = reason.clone();
            return Err(Err(AuthError::Unavailable { reason, retry_in }));
        }
        let renewal = self.start_renewal(current);
        let outcome = renewal.outcome.clone();
        state.renewal = Some(renewal);
        Ok(outcome)
    }

    /// Runs a renewal in a task of its own, so that no caller can cancel it.
    fn start_renewal(&self, refused: Option<AccessToken>) -> Renewal {
        let (this, request) = (self.clone(), SendProgress::default());
        let progress = request.clone();
        let task = tokio::spawn(async move {
            let outcome = this.run_renewal(refused, &progress).await;
            this.renewal_ended(outcome)
        });
        let abort = task.abort_handle();
        let outcome = task.map(|joined| joined.unwrap_or_else(|_| Err(interrupted())));
        Renewal {
            outcome: outcome.boxed().shared(),
            task: abort,
            request,
        }
    }

    /// Notes the outcome of the renewal. After a failure the next one has to wait.
    fn renewal_ended(
        &self,
        outcome: Result<AccessToken, AuthError>,
    ) -> Result<AccessToken, AuthError> {
        let mut state = self.state();
        state.renewal = None;
        let error = match outcome {
            Ok(token) => {
                (state.failures, state.retry_at) = (0, None);
                return Ok(token);
            }
            Err(error @ AuthError::LoginNeeded { .. }) => return Err(error),
            Err(error) => error,
        };
        state.failures += 1;
        let retry_in = retry_delay(state.failures);
        state.retry_at = Some((Instant::now() + retry_in, error.to_string()));
        Err(match error {
            error @ AuthError::RenewalFailed { .. } => AuthError::Unavailable {
                reason: error.to_string(),
                retry_in,
            },
            error => error,
        })
    }

    /// Reads the store if it changed, and adopts its token.
    pub async fn load(&self) -> Result<(), AuthError> {
        let Inner { config, store, .. } = &*self.0;
        let store = store.store();
        let mark = store.mark(&config.server_url, &config.account).await;
        let mark = mark.map_err(|problem| AuthError::Store(problem.to_string()))?;
        if self.state().mark.as_ref() == Some(&mark) {
            return Ok(());
        }
        let record = self.read_store().await?;
        let mut state = self.state();
        state.mark = Some(mark);
        // A new login makes earlier failures obsolete.
        (state.failures, state.retry_at) = (0, None);
        drop(state);
        match record.filter(|record| record.rejected.is_none()) {
            Some(record) => drop(self.publish(&record, false)),
            // The absence of a token has a number of its own, so that requests without one are
            // told from those before.
            None if self.current().is_some() => {
                self.0.revisions.fetch_add(1, Ordering::Relaxed);
                self.0.current.send_replace(None);
            }
            None => {}
        }
        Ok(())
    }

    /// Waits until the store has another token than the current one, such as after a login of
    /// another process.
    pub async fn wait_for_login(&self) -> AccessToken {
        let before = self.current().map(|token| token.revision());
        loop {
            if self.load().await.is_ok()
                && let Some(token) = self.current()
                && Some(token.revision()) != before
            {
                return token;
            }
            tokio::time::sleep(STORE_POLL).await;
        }
    }

    /// Whether a renewal must not be interrupted: the issuer may have replaced the refresh token,
    /// and the new one is not saved yet.
    pub fn is_renewing(&self) -> bool {
        let state = self.state();
        let mut renewal = state.renewal.iter();
        renewal.any(|renewal| renewal.request.is_sent())
    }

    /// Ends renewals for good. One that must not be interrupted is waited for, so that its token is
    /// saved; another is cancelled. Makes a last attempt to save a token that could not be.
    pub async fn finish(&self) {
        let renewal = self.close();
        if let Some(outcome) = renewal {
            let _ = outcome.await;
        }
        let Inner { config, store, .. } = &*self.0;
        store.finish(&config.server_url, &config.account).await;
    }

    /// Lets no renewal begin, and returns the one that has to be waited for.
    fn close(&self) -> Option<RenewalOutcome> {
        let mut state = self.state();
        state.is_closed = true;
        let renewal = state.renewal.take()?;
        if renewal.request.cancel() {
            renewal.task.abort();
            return None;
        }
        let outcome = renewal.outcome.clone();
        state.renewal = Some(renewal);
        Some(outcome)
    }

    async fn read_store(&self) -> Result<Option<CredentialRecord>, AuthError> {
        let Inner { config, store, .. } = &*self.0;
        let records = store.find(&config.server_url, &config.account).await;
        let records = records.map_err(|problem| AuthError::Store(problem.to_string()))?;
        let mut record = matching_record(config, records);
        // The key in use knows the nonces of the servers.
        let current = self.current();
        let key = current.as_ref().and_then(|it| Some(it.signer()?.key()));
        let bound = record.as_mut().and_then(|record| record.dpop.as_mut());
        if let (Some(key), Some(bound)) = (key, bound)
            && *key == bound.key
        {
            bound.key = key.clone();
        }
        Ok(record)
    }

    /// Whether the server refuses a token because it is not bound to a key, and the next one is.
    fn lacks_key(&self, token: &AccessToken, state: &State) -> bool {
        token.signer().is_none()
            && state.challenge.binding == BindingDemand::Required
            && self.0.config.dpop != DpopMode::Never
            && self.renews_alone()
    }

    /// Makes the token of a record current, unless it is already.
    fn publish(&self, record: &CredentialRecord, is_renewed: bool) -> AccessToken {
        if let Some(current) = self
            .current()
            .filter(|it| *it.text() == record.tokens.access)
        {
            return current;
        }
        let revision = self.0.revisions.fetch_add(1, Ordering::Relaxed) + 1;
        let token = AccessToken::new(TokenRevision(revision), record, now(), is_renewed);
        self.0.current.send_replace(Some(token.clone()));
        token
    }

    /// Whether tokens are obtained without a person.
    pub fn renews_alone(&self) -> bool {
        match self.0.config.grant {
            Grant::AuthorizationCode | Grant::DeviceCode => false,
            Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => true,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn login_needed(reason: impl Into<String>) -> AuthError {
    AuthError::LoginNeeded {
        reason: reason.into(),
    }
}

fn interrupted() -> AuthError {
    AuthError::Cancelled("the renewal was interrupted".to_owned())
}

fn now() -> u64 {
    unix_seconds(SystemTime::now())
}

#[cfg(test)]
mod tests;
