//! The values of `auth` as written, before they are checked together.

use std::time::Duration;

#[cfg(feature = "auth")]
use super::keys::{DPOP_MODES, GRANTS};
#[cfg(feature = "auth")]
use crate::auth::{AuthConfig, AuthGrant, DpopMode, IdentityProviderConfig};

/// All values that `auth` can hold.
#[derive(Clone, Default, PartialEq)]
pub(super) struct RawAuth {
    pub(super) account: Option<String>,
    /// One of the names in [`super::keys::GRANTS`].
    pub(super) grant: Option<&'static str>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret_env: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) private_key_file: Option<String>,
    pub(super) client_metadata_url: Option<String>,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) resource: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) issuer_exception: Option<String>,
    pub(super) callback_port: Option<u16>,
    pub(super) redirect_uri: Option<String>,
    /// One of the names in [`super::keys::DPOP_MODES`].
    pub(super) dpop: Option<&'static str>,
    pub(super) idp: RawIdentityProvider,
    pub(super) headers_helper: Vec<String>,
    pub(super) headers_helper_ttl: Option<Duration>,
}

/// All values that `auth.idp` can hold.
#[derive(Clone, Default, PartialEq)]
pub(super) struct RawIdentityProvider {
    pub(super) issuer: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) id_token_env: Option<String>,
}

#[cfg(feature = "auth")]
impl RawAuth {
    /// The config that these values mean.
    pub(super) fn config(&self) -> AuthConfig {
        let raw = self.clone();
        let helper = raw.headers_helper;
        let mut config = AuthConfig {
            account: raw.account,
            grant: raw.grant.and_then(grant_named).unwrap_or_default(),
            client_id: raw.client_id,
            client_secret_env: raw.client_secret_env,
            client_secret: raw.client_secret.map(mcpvisor_auth::Secret::new),
            private_key_file: raw.private_key_file.map(Into::into),
            client_metadata_url: raw.client_metadata_url,
            scopes: raw.scopes,
            resource: raw.resource,
            issuer: raw.issuer,
            issuer_exception: raw.issuer_exception,
            callback_port: raw.callback_port,
            redirect_uri: raw.redirect_uri,
            dpop: raw.dpop.and_then(dpop_named).unwrap_or_default(),
            idp: (raw.idp != RawIdentityProvider::default()).then(|| raw.idp.config()),
            headers_helper: (!helper.is_empty()).then_some(helper),
            ..AuthConfig::default()
        };
        config.headers_helper_ttl = raw.headers_helper_ttl;
        config
    }

    /// The values of a config. They are not redacted.
    pub(super) fn of(config: &AuthConfig) -> Self {
        let config = config.clone();
        let key = config.private_key_file;
        let secret = config.client_secret;
        Self {
            account: config.account,
            grant: Some(config.grant)
                .filter(|it| *it != AuthGrant::default())
                .map(grant_name),
            client_id: config.client_id,
            client_secret_env: config.client_secret_env,
            client_secret: secret.map(|secret| secret.expose().to_owned()),
            private_key_file: key.map(|file| file.to_string_lossy().into_owned()),
            client_metadata_url: config.client_metadata_url,
            scopes: config.scopes,
            resource: config.resource,
            issuer: config.issuer,
            issuer_exception: config.issuer_exception,
            callback_port: config.callback_port,
            redirect_uri: config.redirect_uri,
            dpop: dpop_name(config.dpop),
            idp: config.idp.map(RawIdentityProvider::of).unwrap_or_default(),
            headers_helper: config.headers_helper.unwrap_or_default(),
            headers_helper_ttl: config.headers_helper_ttl,
        }
    }

    /// The texts in which secrets may occur.
    pub(super) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let idp = &mut self.idp;
        let texts = [
            &mut self.client_id,
            &mut self.private_key_file,
            &mut self.client_metadata_url,
            &mut self.resource,
            &mut self.issuer,
            &mut self.issuer_exception,
            &mut self.redirect_uri,
            &mut idp.issuer,
            &mut idp.token_endpoint,
            &mut idp.client_id,
        ];
        let scopes = self.scopes.iter_mut().flatten();
        texts.into_iter().flatten().chain(scopes)
    }

    /// The names of variables.
    pub(super) fn variables(&mut self) -> impl Iterator<Item = &mut String> {
        let names = [&mut self.client_secret_env, &mut self.idp.id_token_env];
        names.into_iter().flatten()
    }
}

#[cfg(feature = "auth")]
impl RawIdentityProvider {
    fn config(self) -> IdentityProviderConfig {
        let mut config = IdentityProviderConfig {
            issuer: self.issuer.unwrap_or_default(),
            client_id: self.client_id.unwrap_or_default(),
            id_token_env: self.id_token_env.unwrap_or_default(),
            ..IdentityProviderConfig::default()
        };
        config.token_endpoint = self.token_endpoint;
        config
    }

    fn of(config: IdentityProviderConfig) -> Self {
        let written = |text: String| (!text.is_empty()).then_some(text);
        Self {
            issuer: written(config.issuer),
            token_endpoint: config.token_endpoint,
            client_id: written(config.client_id),
            id_token_env: written(config.id_token_env),
        }
    }
}

/// The grants in the order of [`GRANTS`].
#[cfg(feature = "auth")]
const IN_ORDER: [AuthGrant; GRANTS.len()] = [
    AuthGrant::AuthorizationCode,
    AuthGrant::DeviceCode,
    AuthGrant::ClientCredentials,
    AuthGrant::JwtBearer,
    AuthGrant::Enterprise,
];

#[cfg(feature = "auth")]
fn grant_named(name: &str) -> Option<AuthGrant> {
    let mut grants = GRANTS.iter().zip(IN_ORDER);
    grants.find_map(|(known, grant)| (*known == name).then_some(grant))
}

#[cfg(feature = "auth")]
fn grant_name(grant: AuthGrant) -> &'static str {
    let mut grants = GRANTS.iter().zip(IN_ORDER);
    let name = grants.find_map(|(name, known)| (known == grant).then_some(*name));
    name.unwrap_or(GRANTS[0])
}

#[cfg(feature = "auth")]
fn dpop_named(name: &str) -> Option<DpopMode> {
    let modes = [DpopMode::Auto, DpopMode::Always, DpopMode::Never];
    let mut modes = DPOP_MODES.iter().zip(modes);
    modes.find_map(|(known, mode)| (*known == name).then_some(mode))
}

/// The name of a mode, unless it is the default.
#[cfg(feature = "auth")]
fn dpop_name(mode: DpopMode) -> Option<&'static str> {
    let mut names = DPOP_MODES.into_iter();
    names.find(|name| mode != DpopMode::default() && dpop_named(name) == Some(mode))
}
