//! Logins: a person authorizes the client, with a browser or on another device.
//!
//! The new record is saved last, under the lock of the store: until then the old token stays, and a
//! login that is dropped or fails changes nothing. Opening a browser and showing the prompt are left
//! to the embedding program.

mod device;
mod logout;
mod pending;
mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;

use crate::challenge::Challenge;
use crate::config::{CredentialConfig, Grant};
use crate::discovery::{Discovered, discover};
use crate::dpop::binding::Binding;
use crate::error::AuthError;
use crate::grants::authorization_code::AuthorizationRequest;
use crate::http_client::{HttpClient, MAX_RESPONSE_BYTES, METADATA_TIMEOUT, RequestLimits};
use crate::listener::{CallbackListener, ListenAddress, ListenError};
use crate::pkce::{self, Pkce};
use crate::record::{ClientRecord, ClientSource, CredentialKey, CredentialRecord};
use crate::registration::client_for;
use crate::scopes;
use crate::store::SharedStore;

pub use device::PendingDeviceLogin;
pub use logout::{LOGOUT_LOCK_TIMEOUT, LoggedOut, REVOCATION_TIMEOUT, Revocation, logout};
pub use pending::{Paster, PendingLogin};
use session::{Session, store_error};

/// The usual time for a person to log in.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

/// A login to be started.
pub struct Login {
    http: Arc<dyn HttpClient>,
    store: SharedStore,
    config: CredentialConfig,
    challenge: Challenge,
    extra_scopes: Vec<String>,
    listens: bool,
}

/// What a person needs to log in. It contains no secret of the client, and still belongs only to the
/// person who logs in.
#[non_exhaustive]
pub enum LoginPrompt<'a> {
    /// Open a URL in a browser.
    Browser {
        /// The URL; http or https.
        authorization_url: &'a str,
        /// Where the browser is sent afterwards.
        redirect_uri: &'a str,
        /// Whether a listener waits there. If not, the callback must be pasted.
        listening: bool,
        /// Accepts a pasted callback.
        paster: Paster,
    },
    /// Enter a code on another device.
    Device {
        /// The code.
        user_code: &'a str,
        /// Where to enter it; http or https.
        verification_uri: &'a str,
        /// The same with the code in it, if there is one.
        verification_uri_complete: Option<&'a str>,
        /// The time until the code expires.
        expires_in: Duration,
    },
}

impl Login {
    /// A login for this credential.
    pub fn new(http: Arc<dyn HttpClient>, store: SharedStore, config: CredentialConfig) -> Self {
        Self {
            http,
            store,
            config,
            challenge: Challenge::default(),
            extra_scopes: Vec::new(),
            listens: true,
        }
    }

    /// Uses what a 401 or 403 of the server said.
    pub fn challenge(mut self, challenge: Challenge) -> Self {
        self.challenge = challenge;
        self
    }

    /// Requests further scopes, in addition to those granted before.
    pub fn extra_scopes(mut self, scopes: impl IntoIterator<Item = String>) -> Self {
        self.extra_scopes = scopes.into_iter().collect();
        self
    }

    /// Logs in to this account.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.config.account = account.into();
        self
    }

    /// The configured grant.
    pub fn grant(&self) -> &Grant {
        &self.config.grant
    }

    /// Starts no listener: the callback is pasted.
    pub fn without_listener(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Logs in by the configured grant: shows the prompt with `present`, then waits for the person.
    pub async fn run(
        self,
        timeout: Duration,
        present: impl FnOnce(&LoginPrompt<'_>),
    ) -> Result<CredentialRecord, AuthError> {
        match self.config.grant {
            Grant::AuthorizationCode => {
                let pending = self.begin().await?;
                present(&pending.prompt());
                pending.finish(timeout).await
            }
            Grant::DeviceCode => {
                let pending = self.device().await?;
                present(&pending.prompt());
                pending.finish(timeout).await
            }
            Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => {
                Err(AuthError::Invalid(
                    "this server needs no login: its grant works without a person".into(),
                ))
            }
        }
    }

    /// Finds the authorization server without starting a login. Returns its issuer.
    pub async fn discover_issuer(&self) -> Result<String, AuthError> {
        let discovered = discover(&*self.http, &self.config, &self.challenge).await?;
        Ok(discovered.server.issuer)
    }

    /// Prepares a login with a browser: discovery, listener, client, authorization URL.
    pub async fn begin(mut self) -> Result<PendingLogin, AuthError> {
        self.config.grant = Grant::AuthorizationCode;
        self.store.prepare().await.map_err(store_error)?;
        let discovered = discover(&*self.http, &self.config, &self.challenge).await?;
        let previous = self.previous(&discovered).await?;
        let earlier = earlier_client(previous.as_ref());
        let (listener, redirect_uri) = self.listen(earlier).await?;
        let request = AuthorizationRequest {
            redirect_uri,
            state: pkce::state()?,
            pkce: Pkce::generate()?,
        };
        let uri = Some(request.redirect_uri.as_str());
        let mut session = self.session(discovered, previous.as_ref(), uri).await?;
        // A step-up means that the server accepts tokens of this client: the issuer knows it.
        if is_reused(&session.client, earlier) && !self.challenge.needs_step_up() {
            let url = request.url(&session.target())?;
            if !is_client_known(&session, &url).await {
                session.register_again(uri).await?;
            }
        }
        PendingLogin::new(session, listener, request)
    }

    /// Prepares a login on another device: discovery, client, user code.
    pub async fn device(mut self) -> Result<PendingDeviceLogin, AuthError> {
        self.config.grant = Grant::DeviceCode;
        self.store.prepare().await.map_err(store_error)?;
        let discovered = discover(&*self.http, &self.config, &self.challenge).await?;
        let previous = self.previous(&discovered).await?;
        let session = self.session(discovered, previous.as_ref(), None).await?;
        let earlier = earlier_client(previous.as_ref());
        let reused = is_reused(&session.client, earlier);
        PendingDeviceLogin::request(session, reused).await
    }

    /// Chooses scopes and client.
    async fn session(
        &self,
        discovered: Discovered,
        previous: Option<&CredentialRecord>,
        redirect_uri: Option<&str>,
    ) -> Result<Session, AuthError> {
        let http = &*self.http;
        // Scopes granted before are requested again only to add to them: an issuer may have
        // withdrawn one since.
        let adds = self.challenge.needs_step_up() || !self.extra_scopes.is_empty();
        let granted = previous.filter(|_| adds).map(|record| &record.scopes[..]);
        let scopes = scopes::select(
            &self.config,
            &self.challenge,
            &discovered,
            granted.unwrap_or_default(),
            &self.extra_scopes,
        );
        let earlier_key = previous.and_then(|record| Some(&record.dpop.as_ref()?.key));
        let binding = Binding::choose(&self.config, &self.challenge, &discovered, earlier_key)?;
        let client = earlier_client(previous);
        let client = client_for(http, &self.config, &discovered, redirect_uri, client);
        Ok(Session {
            client: client.await?,
            resource: discovered.resource_parameter(&self.config),
            http: self.http.clone(),
            store: self.store.clone(),
            config: self.config.clone(),
            discovered,
            scopes,
            binding,
        })
    }

    /// The latest login at the same issuer. A client is never shown to another one. Fails if the new
    /// login could not be saved because it would replace a file that cannot be read.
    async fn previous(
        &self,
        discovered: &Discovered,
    ) -> Result<Option<CredentialRecord>, AuthError> {
        let config = &self.config;
        let key = CredentialKey {
            server_url: config.server_url.clone(),
            issuer: discovered.server.issuer.clone(),
            resource: discovered.resource_parameter(config),
            account: config.account.clone(),
        };
        let is_here = |found: &CredentialKey| {
            CredentialKey {
                resource: key.resource.clone(),
                ..found.clone()
            } == key
        };
        let mut records = Vec::new();
        for listed in self.store.list().await.map_err(store_error)? {
            match listed {
                Ok(record) if is_here(&record.key) => records.push(record),
                Err(unreadable) if unreadable.has_key(&key) => {
                    return Err(AuthError::Store(unreadable.to_string()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(records.into_iter().max_by_key(|it| it.logged_in_at))
    }

    /// Binds the listener before its redirect URI is used.
    async fn listen(
        &self,
        earlier: Option<&ClientRecord>,
    ) -> Result<(Option<CallbackListener>, String), AuthError> {
        let config = &self.config;
        let address = ListenAddress::new(config.redirect_uri.as_deref(), config.callback_port)?;
        if !address.is_reachable() || !self.listens && address.has_fixed_port() {
            return Ok((None, address.redirect_uri(address.port())));
        }
        let listener = match earlier.and_then(|client| earlier_address(&address, client)) {
            Some(earlier) => match CallbackListener::bind(&earlier).await {
                // Its registration cannot be used; another port needs a new one.
                Err(ListenError::PortInUse { .. }) => CallbackListener::bind(&address).await?,
                bound => bound?,
            },
            None => CallbackListener::bind(&address).await?,
        };
        let redirect_uri = listener.redirect_uri().to_owned();
        Ok((self.listens.then_some(listener), redirect_uri))
    }
}

/// The client of the previous login, which may be used again.
fn earlier_client(previous: Option<&CredentialRecord>) -> Option<&ClientRecord> {
    let is_known = |record: &&CredentialRecord| {
        let rejection = record.rejected.as_ref();
        rejection.is_none_or(|rejection| !rejection.client_unknown)
    };
    previous.filter(is_known).map(|record| &record.client)
}

/// The address with the port of an earlier registration, whose redirect URI is otherwise the same.
fn earlier_address(address: &ListenAddress, client: &ClientRecord) -> Option<ListenAddress> {
    let registered = client.redirect_uri.as_deref()?;
    let port = ListenAddress::new(Some(registered), None)
        .ok()?
        .uri_port()?;
    let same = client.source == ClientSource::Registered
        && !address.has_fixed_port()
        && address.redirect_uri(port) == registered;
    same.then(|| address.clone().with_port(port))
}

fn is_reused(client: &ClientRecord, earlier: Option<&ClientRecord>) -> bool {
    client.source == ClientSource::Registered && Some(client) == earlier
}

/// Whether the issuer still knows a client that was registered earlier: it would otherwise show an
/// error page, and no callback would ever arrive.
async fn is_client_known(session: &Session, url: &str) -> bool {
    let Ok(request) = Request::get(url).body(Bytes::new()) else {
        return true;
    };
    let limits = RequestLimits {
        addresses: session.discovered.addresses,
        max_bytes: MAX_RESPONSE_BYTES,
        timeout: METADATA_TIMEOUT,
    };
    match session.http.send(request, limits).await {
        Ok(response) => {
            let status = response.status();
            // The latter two say nothing about the client.
            !status.is_client_error() || matches!(status.as_u16(), 408 | 429)
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod flow_tests;
