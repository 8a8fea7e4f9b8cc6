//! The credential of one server: what its requests carry, and how that is renewed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use mcpvisor_auth::AuthError;
use mcpvisor_auth::challenge::Challenge;
use mcpvisor_auth::credential::{AccessToken, Credential, TokenRevision};
use mcpvisor_core::CredentialRevision;
use mcpvisor_core::machine::{Action, Fault, FaultClass, PermanentFailure, RenewalFailure};
use tokio::time::Instant;

use super::config::DEFAULT_HELPER_TTL;
use super::headers_helper;

/// Shortest time between two renewals that are due by themselves.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// How one server is authorized. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum ServerAuth {
    /// By a token of the store.
    OAuth(Credential),
    /// By a program that prints headers.
    Helper(Arc<HelperCredential>),
    /// By nothing that can be renewed; the reason is why the config cannot be used, if it cannot.
    Invalid(Arc<str>),
}

/// What requests carry.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    /// Its number; [`CredentialRevision::NONE`] without a credential.
    pub(crate) revision: CredentialRevision,
    /// Its headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    token: Option<AccessToken>,
}

impl Authorization {
    /// Notes that the server accepted it.
    pub(crate) fn mark_accepted(&self) {
        if let Some(token) = &self.token {
            token.mark_accepted();
        }
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorization").field(&self.revision).finish()
    }
}

impl From<AccessToken> for Authorization {
    fn from(token: AccessToken) -> Self {
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.text().expose()));
        let headers = bearer.ok().map(|mut value| {
            value.set_sensitive(true);
            (AUTHORIZATION, value)
        });
        Self {
            revision: CredentialRevision(token.revision().0),
            headers: headers.into_iter().collect(),
            token: Some(token),
        }
    }
}

impl ServerAuth {
    /// What a new connection carries. Nothing, if a person has to log in first: the server says
    /// what it needs.
    pub(crate) async fn for_connect(&self) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::OAuth(credential) => match credential.fresh().await {
                Ok(token) => Ok(token.map(Authorization::from).unwrap_or_default()),
                Err(error) => Err(self.failure(error)),
            },
            Self::Helper(helper) => helper.fresh().await,
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// Another credential than the refused one.
    pub(crate) async fn renew(
        &self,
        refused: CredentialRevision,
    ) -> Result<Authorization, RenewalFailure> {
        match self {
            Self::OAuth(credential) => {
                let refused = (refused != CredentialRevision::NONE).then_some(TokenRevision(refused.0));
                let renewed = credential.renew(refused).await;
                renewed.map(Authorization::from).map_err(|error| self.failure(error))
            }
            Self::Helper(helper) => helper.renew(refused).await,
            Self::Invalid(problem) => Err(fix_config(problem)),
        }
    }

    /// What requests carry now.
    pub(crate) fn current(&self) -> Authorization {
        match self {
            Self::OAuth(credential) => {
                let current = credential.current();
                current.map(Authorization::from).unwrap_or_default()
            }
            Self::Helper(helper) => helper.state().authorization.clone(),
            Self::Invalid(_) => Authorization::default(),
        }
    }

    /// Remembers what the server demands.
    pub(crate) fn note_challenge(&self, challenge: Challenge) {
        match self {
            Self::OAuth(credential) => credential.note_challenge(challenge),
            Self::Helper(_) | Self::Invalid(_) => {}
        }
    }

    /// Waits until another credential is in use. Renews it when it is due.
    pub(crate) async fn next_change(&self, from: CredentialRevision) -> CredentialRevision {
        loop {
            let revision = self.current().revision;
            if revision != from {
                return revision;
            }
            match self {
                Self::OAuth(credential) => {
                    let mut tokens = credential.subscribe();
                    let due = credential.current().and_then(|token| token.refresh_at());
                    tokio::select! {
                        _ = tokens.changed() => continue,
                        () = sleep_until(due) => drop(self.renew(from).await),
                    }
                }
                Self::Helper(helper) => {
                    sleep_until(helper.due()).await;
                    drop(self.renew(from).await);
                }
                Self::Invalid(_) => std::future::pending().await,
            }
            tokio::time::sleep(MIN_RENEWAL_INTERVAL).await;
        }
    }

    /// Waits until another credential can be had without a person of this process: a login of any
    /// process, or a helper that prints something else.
    pub(crate) async fn wait_for_login(&self) -> CredentialRevision {
        match self {
            Self::OAuth(credential) => {
                let token = credential.wait_for_login().await;
                CredentialRevision(token.revision().0)
            }
            Self::Helper(_) | Self::Invalid(_) => std::future::pending().await,
        }
    }

    /// Waits for a renewal in progress, so that its token is saved.
    pub(crate) async fn finish(&self) {
        if let Self::OAuth(credential) = self {
            credential.finish().await;
        }
    }

    /// The failure of a server that refuses every credential, or requires one.
    pub(crate) fn login_needed(&self, message: String) -> PermanentFailure {
        let action = match self {
            Self::OAuth(credential) if !credential.renews_alone() => Action::Login {
                scopes: credential.challenge().scopes.unwrap_or_default(),
            },
            Self::OAuth(_) | Self::Helper(_) | Self::Invalid(_) => {
                Action::FixKeys("\"auth\"".to_owned())
            }
        };
        PermanentFailure {
            fault: Fault::new(FaultClass::Authorization, message),
            action,
        }
    }

    fn failure(&self, error: AuthError) -> RenewalFailure {
        let alone = matches!(self, Self::OAuth(credential) if credential.renews_alone());
        match error {
            AuthError::LoginNeeded { .. } => {
                RenewalFailure::Permanent(self.login_needed(error.to_string()))
            }
            AuthError::Invalid(problem) => fix_config(&problem),
            AuthError::Refused { status, .. } if alone && (400..500).contains(&status) => {
                fix_config(&error.to_string())
            }
            AuthError::Refused { .. }
            | AuthError::Unavailable { .. }
            | AuthError::Http { .. }
            | AuthError::Store(_)
            | AuthError::Cancelled(_) => transient(error.to_string()),
            _ => transient(error.to_string()),
        }
    }
}

fn transient(problem: String) -> RenewalFailure {
    RenewalFailure::Transient(Fault::new(FaultClass::Authorization, problem))
}

fn fix_config(problem: &str) -> RenewalFailure {
    RenewalFailure::Permanent(PermanentFailure {
        fault: Fault::new(FaultClass::Authorization, problem),
        action: Action::FixKeys("\"auth\"".to_owned()),
    })
}

/// The headers of a helper program.
#[derive(Debug)]
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

impl HelperCredential {
    pub(crate) fn new(command: Vec<String>, ttl: Option<Duration>) -> Self {
        Self {
            command,
            ttl: ttl.unwrap_or(DEFAULT_HELPER_TTL),
            running: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, HelperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> Option<Instant> {
        self.state().read_at.and_then(|at| at.checked_add(self.ttl))
    }

    async fn fresh(&self) -> Result<Authorization, RenewalFailure> {
        let current = self.state().authorization.clone();
        match self.due() {
            Some(due) if Instant::now() < due => Ok(current),
            _ => self.run(current.revision).await,
        }
    }

    async fn renew(&self, refused: CredentialRevision) -> Result<Authorization, RenewalFailure> {
        let before = self.state().authorization.clone();
        let renewed = self.run(refused).await?;
        if refused != CredentialRevision::NONE && renewed.headers == before.headers {
            let problem = "the server refuses what the headers helper prints";
            return Err(fix_config(problem));
        }
        Ok(renewed)
    }

    /// Runs the program, unless another caller just did.
    async fn run(&self, known: CredentialRevision) -> Result<Authorization, RenewalFailure> {
        let _running = self.running.lock().await;
        let current = self.state().authorization.clone();
        if current.revision != known {
            return Ok(current);
        }
        let headers = headers_helper::run(&self.command).await.map_err(transient)?;
        let mut state = self.state();
        state.read_at = Some(Instant::now());
        if headers != current.headers {
            state.authorization = Authorization {
                revision: CredentialRevision(current.revision.0 + 1),
                headers,
                token: None,
            };
        }
        Ok(state.authorization.clone())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
