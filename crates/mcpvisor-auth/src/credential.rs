//! The credential of one server and account: its current token, and the one renewal at a time.
//!
//! A caller names the token that the server refused. If another token is current, it gets that one;
//! otherwise it joins the one renewal. The renewal is a task of its own, so a dropped caller cannot
//! cancel it. Between processes the lock of the store serializes renewals, and the store is read
//! again under the lock: the winner's token is adopted.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::address::AddressPolicy;
use crate::challenge::Challenge;
use crate::config::{CredentialConfig, Grant};
use crate::discovery::addresses_of_url;
use crate::error::AuthError;
use crate::grants;
use crate::http_client::HttpClient;
use crate::record::{CredentialRecord, Rejection, unix_seconds};
use crate::renewal::{
    FRESH, Lifetime, MIN_RENEWAL_INTERVAL, RefreshFailure, classify_refresh, matching_record,
    retry_delay,
};
use crate::secret::Secret;
use crate::store::{SharedStore, StoreMark};
use crate::token_endpoint::{TokenEndpoint, TokenResponse};

/// Pause between two looks at the store while a login is awaited.
pub const STORE_POLL: Duration = Duration::from_millis(300);

/// Attempts to save a new token before it is served from memory alone.
const SAVE_ATTEMPTS: u32 = 3;

/// Pause between two attempts to save a new token.
const SAVE_PAUSE: Duration = Duration::from_millis(200);

/// The number of a token within this process. It grows with every other token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TokenRevision(pub u64);

/// A token that requests carry.
#[derive(Clone)]
pub struct AccessToken(Arc<TokenState>);

struct TokenState {
    revision: TokenRevision,
    text: Secret,
    scopes: Vec<String>,
    issuer: String,
    lifetime: Lifetime,
    since: Instant,
    /// This process obtained it by a refresh or a grant, rather than from the store.
    is_renewed: bool,
    /// The server answered a request that carried it with something other than a 401.
    accepted: AtomicBool,
}

impl AccessToken {
    /// Its number.
    pub fn revision(&self) -> TokenRevision {
        self.0.revision
    }

    /// The text of the token.
    pub fn text(&self) -> &Secret {
        &self.0.text
    }

    /// The granted scopes.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// The issuer.
    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// When it should be refreshed, if that is known.
    pub fn refresh_at(&self) -> Option<Instant> {
        let after = self.0.lifetime.refresh_in?;
        let after = match self.0.is_renewed {
            true => after.max(MIN_RENEWAL_INTERVAL),
            false => after,
        };
        self.0.since.checked_add(after)
    }

    /// Notes that the server accepted it.
    pub fn mark_accepted(&self) {
        self.0.accepted.store(true, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        self.refresh_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether a refusal of this token shows that renewing does not help: it is fresh from the
    /// issuer, has not expired, and was never accepted.
    fn is_refused_although_fresh(&self) -> bool {
        let age = self.0.since.elapsed();
        let expired = self.0.lifetime.expires_in.is_some_and(|left| left <= age);
        self.0.is_renewed && !expired && age < FRESH && !self.0.accepted.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccessToken")
            .field(&self.0.revision)
            .finish()
    }
}

impl PartialEq for AccessToken {
    fn eq(&self, other: &Self) -> bool {
        self.revision() == other.revision()
    }
}

type Renewal = Shared<BoxFuture<'static, Result<AccessToken, AuthError>>>;

/// The credential of one server and account. Clones share it.
#[derive(Clone)]
pub struct Credential(Arc<Inner>);

struct Inner {
    config: CredentialConfig,
    http: Arc<dyn HttpClient>,
    store: SharedStore,
    current: watch::Sender<Option<AccessToken>>,
    revisions: AtomicU64,
    state: Mutex<State>,
    step_up: Notify,
}

#[derive(Default)]
struct State {
    renewal: Option<Renewal>,
    challenge: Challenge,
    /// The records of the store when they were read last.
    mark: Option<StoreMark>,
    failures: u32,
    retry_at: Option<(Instant, String)>,
    /// Why the current token could not be saved.
    unsaved: Option<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl Credential {
    /// A credential; nothing is read before it is used.
    pub fn new(config: CredentialConfig, http: Arc<dyn HttpClient>, store: SharedStore) -> Self {
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
        Arc::clone(&self.0.store)
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

    /// Why the current token exists only in memory, if saving it failed.
    pub fn unsaved(&self) -> Option<String> {
        self.state().unsaved.clone()
    }

    /// A token to connect with: the current one, renewed first if it is due; `None` if there is none
    /// yet and a person has to log in first. If renewing fails for now, a token that has not expired
    /// is used on.
    pub async fn fresh(&self) -> Result<Option<AccessToken>, AuthError> {
        self.load().await?;
        let current = self.current();
        match &current {
            Some(token) if !token.is_due() => Ok(current),
            None if !self.renews_alone() => Ok(None),
            _ => match self
                .renew(current.as_ref().map(AccessToken::revision))
                .await
            {
                Ok(token) => Ok(Some(token)),
                Err(AuthError::LoginNeeded { .. }) if current.is_none() => Ok(None),
                Err(error) => match current.filter(|token| !has_expired(token)) {
                    Some(token) => Ok(Some(token)),
                    None => Err(error),
                },
            },
        }
    }

    /// Another token than the refused one: the current one if it is another, else a renewed one.
    /// `None` asks for a token where there was none.
    pub async fn renew(&self, refused: Option<TokenRevision>) -> Result<AccessToken, AuthError> {
        let renewal = match self.join_or_start(refused) {
            Ok(renewal) => renewal,
            Err(outcome) => return outcome,
        };
        renewal.await
    }

    /// The renewal to wait for, or the outcome if none is needed.
    fn join_or_start(
        &self,
        refused: Option<TokenRevision>,
    ) -> Result<Renewal, Result<AccessToken, AuthError>> {
        let mut state = self.state();
        let current = self.current();
        if let Some(token) = current.clone().filter(|it| Some(it.revision()) != refused) {
            return Err(Ok(token));
        }
        if let Some(renewal) = &state.renewal {
            return Ok(renewal.clone());
        }
        if current
            .as_ref()
            .is_some_and(AccessToken::is_refused_although_fresh)
        {
            return Err(Err(login_needed(
                "the server refuses a token that was just issued",
            )));
        }
        if let Some((at, reason)) = &state.retry_at
            && let Some(retry_in) = at.checked_duration_since(Instant::now())
        {
            let reason = reason.clone();
            return Err(Err(AuthError::Unavailable { reason, retry_in }));
        }
        let renewal = self.start_renewal(current);
        state.renewal = Some(renewal.clone());
        Ok(renewal)
    }

    /// Runs a renewal in a task of its own, so that no caller can cancel it.
    fn start_renewal(&self, refused: Option<AccessToken>) -> Renewal {
        let this = self.clone();
        let task = tokio::spawn(async move {
            let outcome = this.run_renewal(refused).await;
            let mut state = this.state();
            state.renewal = None;
            match &outcome {
                Ok(_) => (state.failures, state.retry_at) = (0, None),
                Err(AuthError::LoginNeeded { .. }) => {}
                Err(error) => {
                    state.failures += 1;
                    let at = Instant::now() + retry_delay(state.failures);
                    state.retry_at = Some((at, error.to_string()));
                }
            }
            outcome
        });
        let cancelled = || AuthError::Cancelled("the renewal was interrupted".to_owned());
        let outcome = task.map(move |joined| joined.unwrap_or_else(|_| Err(cancelled())));
        outcome.boxed().shared()
    }

    /// Renews the token under the lock of the store.
    async fn run_renewal(&self, refused: Option<AccessToken>) -> Result<AccessToken, AuthError> {
        let Inner { config, store, .. } = &*self.0;
        let lock = store.lock(&config.server_url, &config.account).await;
        let _lock = lock.map_err(|problem| AuthError::Store(problem.to_string()))?;
        let record = self.read_store().await?;
        if let Some(record) = &record
            && refused
                .as_ref()
                .is_none_or(|it| *it.text() != record.tokens.access)
            && record.rejected.is_none()
            && !Lifetime::of(&record.tokens, now()).is_due()
        {
            return Ok(self.publish(record, false));
        }
        if self.renews_alone() {
            let challenge = self.challenge();
            let obtained = grants::obtain(&*self.0.http, config, &challenge).await?;
            let revision = record.map_or(0, |record| record.revision) + 1;
            return Ok(self
                .keep(CredentialRecord {
                    revision,
                    ..obtained
                })
                .await);
        }
        let record = record.ok_or_else(|| login_needed("no login is stored"))?;
        if let Some(rejection) = &record.rejected {
            return Err(login_needed(&rejection.reason));
        }
        let Some(refresh) = record.tokens.refresh.clone() else {
            return Err(login_needed("the token expired and cannot be refreshed"));
        };
        self.refresh(record, &refresh).await
    }

    /// Refreshes a record. If the answer was lost, the request is repeated once.
    async fn refresh(
        &self,
        record: CredentialRecord,
        refresh: &Secret,
    ) -> Result<AccessToken, AuthError> {
        let addresses = self.addresses().await?;
        let mut outcome = self.request_refresh(&record, refresh, addresses).await;
        if let Err(error) = &outcome
            && classify_refresh(error) == RefreshFailure::OutcomeUnknown
        {
            tracing::debug!(
                issuer = record.key.issuer,
                "repeating a refresh whose answer was lost"
            );
            outcome = self.request_refresh(&record, refresh, addresses).await;
        }
        match outcome {
            Ok(response) => Ok(self.keep(renewed(record, response)).await),
            Err(error) => self.refresh_failed(record, error).await,
        }
    }

    async fn request_refresh(
        &self,
        record: &CredentialRecord,
        refresh: &Secret,
        addresses: AddressPolicy,
    ) -> Result<TokenResponse, AuthError> {
        let endpoint = TokenEndpoint {
            http: &*self.0.http,
            url: &record.endpoints.token,
            issuer: &record.key.issuer,
            addresses,
            client: &record.client,
            configured: self.0.config.client.as_ref(),
        };
        endpoint
            .refresh(refresh, record.key.resource.as_deref())
            .await
    }

    /// Marks a rejected grant, unless the store has another one by now.
    async fn refresh_failed(
        &self,
        mut record: CredentialRecord,
        error: AuthError,
    ) -> Result<AccessToken, AuthError> {
        let client_unknown = match classify_refresh(&error) {
            RefreshFailure::GrantRejected => false,
            RefreshFailure::ClientRejected => true,
            RefreshFailure::OutcomeUnknown | RefreshFailure::Transient => return Err(error),
        };
        // A writer that ignores the lock, such as a restored backup, may have replaced it.
        if let Some(stored) = self.read_store().await?
            && stored.tokens != record.tokens
            && stored.rejected.is_none()
        {
            return Ok(self.publish(&stored, false));
        }
        let reason = error.to_string();
        record.revision += 1;
        record.rejected = Some(Rejection {
            at: now(),
            reason: reason.clone(),
            client_unknown,
        });
        if let Err(problem) = self.save(record).await {
            tracing::warn!(%problem, "a rejected login could not be marked");
        }
        Err(login_needed(&reason))
    }

    /// Saves a new token, then publishes it. If it cannot be saved, it is served from memory.
    async fn keep(&self, record: CredentialRecord) -> AccessToken {
        let saved = self.save(record.clone()).await;
        if let Err(problem) = &saved {
            tracing::warn!(%problem, "a refreshed token could not be saved; it is used from memory");
        }
        self.state().unsaved = saved.err();
        self.publish(&record, true)
    }

    async fn save(&self, record: CredentialRecord) -> Result<(), String> {
        let Inner { config, store, .. } = &*self.0;
        let mut problem = String::new();
        for attempt in 0..SAVE_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(SAVE_PAUSE).await;
            }
            match store.save(record.clone()).await {
                Ok(()) => {
                    let mark = store.mark(&config.server_url, &config.account).await;
                    self.state().mark = mark.ok();
                    return Ok(());
                }
                Err(error) => problem = error.to_string(),
            }
        }
        Err(problem)
    }

    /// Reads the store if it changed, and adopts its token.
    pub async fn load(&self) -> Result<(), AuthError> {
        let Inner { config, store, .. } = &*self.0;
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

    /// Waits for a renewal that is running, so that its token is saved.
    pub async fn finish(&self) {
        let renewal = self.state().renewal.clone();
        if let Some(renewal) = renewal {
            let _ = renewal.await;
        }
    }

    async fn read_store(&self) -> Result<Option<CredentialRecord>, AuthError> {
        let Inner { config, store, .. } = &*self.0;
        let records = store.find(&config.server_url, &config.account).await;
        let records = records.map_err(|problem| AuthError::Store(problem.to_string()))?;
        Ok(matching_record(config, records))
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
        let token = AccessToken(Arc::new(TokenState {
            revision: TokenRevision(revision),
            text: record.tokens.access.clone(),
            scopes: record.scopes.clone(),
            issuer: record.key.issuer.clone(),
            lifetime: Lifetime::of(&record.tokens, now()),
            since: Instant::now(),
            is_renewed,
            accepted: AtomicBool::new(false),
        }));
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

    /// Where requests for this server may go.
    async fn addresses(&self) -> Result<AddressPolicy, AuthError> {
        addresses_of_url(&*self.0.http, &self.0.config.server_url).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record after a refresh. Without a new refresh token the old one stays valid.
fn renewed(mut record: CredentialRecord, response: TokenResponse) -> CredentialRecord {
    record.revision += 1;
    record.tokens.access = response.access;
    record.tokens.refresh = response.refresh.or(record.tokens.refresh);
    record.tokens.obtained_at = response.obtained_at;
    record.tokens.expires_at = response.expires_at;
    record.scopes = response.scopes.unwrap_or(record.scopes);
    record
}

fn has_expired(token: &AccessToken) -> bool {
    let left = token.0.lifetime.expires_in;
    left.is_some_and(|left| left <= token.0.since.elapsed())
}

fn login_needed(reason: &str) -> AuthError {
    AuthError::LoginNeeded {
        reason: reason.to_owned(),
    }
}

fn now() -> u64 {
    unix_seconds(SystemTime::now())
}
