//! Clients, codes, tokens and their families.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::authorize::OpenPage;
use super::client::Client;
use super::device::Device;
use super::record::AuthCounters;

/// What a token was granted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// The client.
    pub client_id: String,
    /// The user, or the client itself.
    pub account: String,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// The audience, if the client named one.
    pub resource: Option<String>,
    /// The family: all tokens of one login.
    pub family: u64,
    /// The thumbprint of the key that it is bound to.
    pub jkt: Option<String>,
}

/// Why an access token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProblem {
    /// It was not issued by this server.
    Unknown,
    /// It has expired.
    Expired,
    /// It, or its family, was revoked.
    Revoked,
}

/// The valid tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Access tokens, in order of issue.
    pub access: Vec<(String, TokenInfo)>,
    /// Refresh tokens, in order of issue.
    pub refresh: Vec<(String, TokenInfo)>,
}

/// An authorization that waits for its token request.
#[derive(Debug, Clone)]
pub(super) struct Code {
    pub(super) info: TokenInfo,
    pub(super) redirect_uri: String,
    pub(super) challenge: String,
    /// The thumbprint of the key that must redeem it.
    pub(super) jkt: Option<String>,
    pub(super) used: bool,
}

#[derive(Debug)]
struct AccessToken {
    token: String,
    info: TokenInfo,
    expires_at: Instant,
    revoked: bool,
}

#[derive(Debug)]
struct RefreshToken {
    token: String,
    info: TokenInfo,
    state: RefreshState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefreshState {
    Current,
    Replaced { at: Instant },
    Revoked,
}

/// Everything that the server remembers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    clients: HashMap<String, Client>,
    pub(super) codes: HashMap<String, Code>,
    /// Valid requests that wait for the login page, by the id in the page.
    pub(super) pages: HashMap<String, OpenPage>,
    pub(super) devices: Vec<Device>,
    pub(super) resources: Vec<String>,
    access: Vec<AccessToken>,
    refresh: Vec<RefreshToken>,
    families: u64,
    pub(super) counters: AuthCounters,
}

impl Ledger {
    pub(super) fn add_client(&mut self, client: Client) {
        self.counters.clients_registered += u64::from(!client.registration.is_null());
        self.clients.insert(client.id.clone(), client);
    }

    pub(super) fn client(&self, id: &str) -> Option<Client> {
        self.clients.get(id).cloned()
    }

    pub(super) fn clients(&self) -> Vec<Client> {
        self.clients.values().cloned().collect()
    }

    /// Forgets the clients that registered themselves. Returns their number.
    pub(super) fn prune_clients(&mut self) -> usize {
        let before = self.clients.len();
        self.clients
            .retain(|_, client| client.registration.is_null());
        before - self.clients.len()
    }

    pub(super) fn new_family(&mut self) -> u64 {
        self.families += 1;
        self.families
    }

    pub(super) fn issue_access(&mut self, info: &TokenInfo, lifetime: Duration) -> String {
        let token = fresh("access");
        self.counters.access_issued += 1;
        self.access.push(AccessToken {
            token: token.clone(),
            info: info.clone(),
            expires_at: Instant::now() + lifetime,
            revoked: false,
        });
        token
    }

    pub(super) fn issue_refresh(&mut self, info: &TokenInfo) -> String {
        let token = fresh("refresh");
        self.counters.refresh_issued += 1;
        self.refresh.push(RefreshToken {
            token: token.clone(),
            info: info.clone(),
            state: RefreshState::Current,
        });
        token
    }

    /// What a refresh token grants. The use of a replaced one revokes its family.
    pub(super) fn use_refresh(
        &mut self,
        token: &str,
        grace: Duration,
    ) -> Result<TokenInfo, &'static str> {
        let known = self.refresh.iter().find(|known| known.token == token);
        let known = known.ok_or("unknown refresh token")?;
        let info = known.info.clone();
        match known.state {
            RefreshState::Current => Ok(info),
            RefreshState::Revoked => Err("the refresh token is revoked"),
            RefreshState::Replaced { at } if at.elapsed() < grace => {
                self.counters.reused_in_grace += 1;
                Ok(info)
            }
            RefreshState::Replaced { .. } => {
                self.counters.reused += 1;
                self.revoke_family(info.family);
                Err("the refresh token was used before; its family is revoked")
            }
        }
    }

    /// Marks a refresh token as replaced.
    pub(super) fn replace_refresh(&mut self, token: &str) {
        let current = |known: &&mut RefreshToken| {
            known.token == token && known.state == RefreshState::Current
        };
        if let Some(known) = self.refresh.iter_mut().find(current) {
            known.state = RefreshState::Replaced { at: Instant::now() };
            self.counters.rotated += 1;
        }
    }

    /// Revokes all tokens of a family.
    pub(super) fn revoke_family(&mut self, family: u64) {
        let before = self.counters.revoked;
        for token in &mut self.access {
            if token.info.family == family && !token.revoked {
                token.revoked = true;
                self.counters.revoked += 1;
            }
        }
        for token in &mut self.refresh {
            if token.info.family == family && token.state != RefreshState::Revoked {
                token.state = RefreshState::Revoked;
                self.counters.revoked += 1;
            }
        }
        self.counters.families_revoked += u64::from(self.counters.revoked > before);
    }

    /// Revokes one refresh token. Its access tokens stay valid. Returns whether it was valid.
    pub(super) fn revoke_refresh(&mut self, token: &str) -> bool {
        let valid = |known: &&mut RefreshToken| {
            known.token == token && known.state != RefreshState::Revoked
        };
        let Some(known) = self.refresh.iter_mut().find(valid) else {
            return false;
        };
        known.state = RefreshState::Revoked;
        self.counters.revoked += 1;
        true
    }

    /// Revokes one access token. Returns whether it was valid.
    pub(super) fn revoke_access(&mut self, token: &str) -> bool {
        let valid = |known: &&mut AccessToken| known.token == token && !known.revoked;
        let Some(known) = self.access.iter_mut().find(valid) else {
            return false;
        };
        known.revoked = true;
        self.counters.revoked += 1;
        true
    }

    /// The family of a refresh token.
    pub(super) fn family_of_refresh(&self, token: &str) -> Option<u64> {
        let known = self.refresh.iter().find(|known| known.token == token);
        known.map(|known| known.info.family)
    }

    pub(super) fn check_access(&self, token: &str) -> Result<TokenInfo, TokenProblem> {
        let known = self.access.iter().find(|known| known.token == token);
        let known = known.ok_or(TokenProblem::Unknown)?;
        match () {
            () if known.revoked => Err(TokenProblem::Revoked),
            () if known.expires_at <= Instant::now() => Err(TokenProblem::Expired),
            () => Ok(known.info.clone()),
        }
    }

    /// Lets all access tokens expire. Returns how many were valid.
    pub(super) fn expire_access(&mut self) -> usize {
        let now = Instant::now();
        let valid = |token: &&mut AccessToken| !token.revoked && token.expires_at > now;
        let valid = self.access.iter_mut().filter(valid);
        valid.map(|token| token.expires_at = now).count()
    }

    pub(super) fn current(&self) -> Tokens {
        let now = Instant::now();
        let access = self.access.iter();
        let access = access.filter(|token| !token.revoked && token.expires_at > now);
        let refresh = self.refresh.iter();
        let refresh = refresh.filter(|token| token.state == RefreshState::Current);
        Tokens {
            access: access
                .map(|it| (it.token.clone(), it.info.clone()))
                .collect(),
            refresh: refresh
                .map(|it| (it.token.clone(), it.info.clone()))
                .collect(),
        }
    }
}

/// A value that no other call returned, and that a client cannot predict.
pub(super) fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let seed = format!("{} {number} {:?}", std::process::id(), SystemTime::now());
    let random = URL_SAFE_NO_PAD.encode(Sha256::digest(seed));
    format!("{prefix}-{random}")
}
