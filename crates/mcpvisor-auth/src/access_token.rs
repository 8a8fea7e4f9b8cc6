//! A token that requests carry.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use crate::dpop::RequestSigner;
use crate::record::CredentialRecord;
use crate::renewal::{FRESH, Lifetime, MIN_RENEWAL_INTERVAL};
use crate::secret::Secret;

/// The number of a token within this process. It grows with every other token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TokenRevision(pub u64);

/// A token that requests carry.
#[derive(Clone)]
pub struct AccessToken(Arc<TokenState>);

struct TokenState {
    revision: TokenRevision,
    text: Secret,
    signer: Option<RequestSigner>,
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

    /// Signs the requests that carry it, if it is bound to a key.
    pub fn signer(&self) -> Option<&RequestSigner> {
        self.0.signer.as_ref()
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

    /// When it expires, if that is known.
    pub fn expires_at(&self) -> Option<Instant> {
        self.0.since.checked_add(self.0.lifetime.expires_in?)
    }

    /// Notes that the server accepted it.
    pub fn mark_accepted(&self) {
        self.0.accepted.store(true, Ordering::Relaxed);
    }

    /// The token of a record, as a number of this process. `is_renewed`: this process obtained it by
    /// a refresh or a grant, rather than from the store.
    pub(crate) fn new(
        revision: TokenRevision,
        record: &CredentialRecord,
        now: u64,
        is_renewed: bool,
    ) -> Self {
        let bound = record.dpop.as_ref().filter(|bound| !bound.access_is_bearer);
        let text = record.tokens.access.clone();
        Self(Arc::new(TokenState {
            revision,
            signer: bound.map(|bound| RequestSigner::new(bound.key.clone(), &text)),
            text,
            scopes: record.scopes.clone(),
            issuer: record.key.issuer.clone(),
            lifetime: Lifetime::of(&record.tokens, now),
            since: Instant::now(),
            is_renewed,
            accepted: AtomicBool::new(false),
        }))
    }

    pub(crate) fn is_due(&self) -> bool {
        self.refresh_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether a refusal of this token shows that renewing does not help: it is fresh from the
    /// issuer, has not expired, and was never accepted.
    pub(crate) fn is_refused_although_fresh(&self) -> bool {
        let is_fresh = self.0.is_renewed && self.0.since.elapsed() < FRESH;
        is_fresh && !self.has_expired() && !self.0.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn has_expired(&self) -> bool {
        let left = self.0.lifetime.expires_in;
        left.is_some_and(|left| left <= self.0.since.elapsed())
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
