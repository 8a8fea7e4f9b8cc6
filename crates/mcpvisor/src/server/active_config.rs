//! The active config of a server. A reload replaces it as a whole.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

use mcpvisor_core::{Filter, ServerSettings};

use crate::config::{ResultCheck, ServerConfig};
use crate::mutex::lock;
use crate::secret::{Secret, Secrets};

/// Former sets of secrets that are still redacted. A call sent before all of them has long ended.
const MAX_FORMER: usize = 4;

/// A server's config with what is derived from it once.
pub(crate) struct ActiveConfig {
    server: ServerConfig,
    pub(crate) filter: Filter,
    fingerprint: OnceLock<String>,
    secrets: Secrets,
    /// Secrets that connections read after the config was loaded, the newest first: tokens are
    /// renewed in the environment.
    renewed: Mutex<Vec<Secrets>>,
    /// The secrets before the last reloads: processes started with them may still print them.
    former: Vec<Secrets>,
    /// The token in the environment when the config was loaded.
    token: Option<Secret<OsString>>,
}

impl ActiveConfig {
    pub(crate) fn new(server: ServerConfig, before: Option<&Self>) -> Self {
        if cfg!(not(feature = "schema-check")) {
            warn_unchecked(&server);
        }
        Self {
            filter: Filter::new(&server.tools.allow, &server.tools.deny),
            fingerprint: OnceLock::new(),
            secrets: server.transport.secrets(),
            renewed: Mutex::default(),
            former: before.map_or_else(Vec::new, Self::all_secrets),
            token: server.transport.token(),
            server,
        }
    }

    /// Identifies "the same server" in files. Computed on first use.
    pub(crate) fn fingerprint(&self) -> &str {
        self.fingerprint
            .get_or_init(|| self.server.transport.fingerprint())
    }

    /// All sets of secrets up to now, the newest first.
    fn all_secrets(&self) -> Vec<Secrets> {
        let mut former = lock(&self.renewed).clone();
        for older in std::iter::once(&self.secrets).chain(&self.former) {
            if !former.contains(older) {
                former.push(older.clone());
            }
        }
        former.truncate(MAX_FORMER);
        former
    }

    /// Also redacts these secrets from now on.
    pub(super) fn add_secrets(&self, read: Secrets) {
        let mut renewed = lock(&self.renewed);
        if read != self.secrets && !renewed.contains(&read) {
            renewed.insert(0, read);
            renewed.truncate(MAX_FORMER);
        }
    }

    /// Whether the token in the environment changed since the config was loaded.
    pub(crate) fn has_new_token(&self) -> bool {
        self.token != self.transport.token()
    }

    /// As if the environment had been empty when the config was loaded.
    #[cfg(test)]
    pub(crate) fn forget_secrets(&mut self) {
        self.secrets = Secrets::default();
    }

    #[cfg(test)]
    pub(crate) fn forget_token(&mut self) {
        self.token = None;
    }

    /// The settings of the machine.
    pub(crate) fn machine_settings(&self) -> ServerSettings {
        let mut settings = self.server.settings.clone();
        // A tool must be listed, and so checked against its pin, before it is called.
        settings.listing.before_calls |= self.server.pin;
        settings.rest.sleep_after = settings.sleep_after();
        settings
    }

    /// Removes present and former secrets from a text.
    pub(super) fn redact<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        let now = self.secrets.redact(text);
        let renewed = lock(&self.renewed);
        let others = renewed.iter().chain(&self.former);
        others.fold(now, |text, it| it.redact(text))
    }

    /// The same for a text whose start was cut off, perhaps within a secret.
    pub(super) fn redact_tail(&self, text: &str) -> String {
        let now = self.secrets.redact_tail(text).into_owned();
        let renewed = lock(&self.renewed);
        let others = renewed.iter().chain(&self.former);
        others.fold(now, |text, it| it.redact_tail(&text).into_owned())
    }
}

/// Warns about checks that this build does not have.
fn warn_unchecked(server: &ServerConfig) {
    let checks = [
        (server.check_arguments, "arguments"),
        (server.check_results != ResultCheck::Off, "results"),
    ];
    for (_, what) in checks.into_iter().filter(|(enabled, _)| *enabled) {
        tracing::warn!(server = %server.name,
            "{what} are not checked: mcpvisor was built without the `schema-check` feature");
    }
}

impl Deref for ActiveConfig {
    type Target = ServerConfig;

    fn deref(&self) -> &ServerConfig {
        &self.server
    }
}

/// Prints no secrets.
impl fmt::Debug for ActiveConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveConfig")
            .field("server", &self.server.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "http")]
mod tests {
    use super::*;
    use crate::Transport;

    fn with(token: &str, before: Option<&ActiveConfig>) -> ActiveConfig {
        let endpoint = Transport::http("http://localhost").header("Authorization", token);
        ActiveConfig::new(ServerConfig::new("a", endpoint).unwrap(), before)
    }

    #[cfg(feature = "auth")]
    #[test]
    fn an_account_has_a_fingerprint_of_its_own() {
        let of = |account: Option<&str>| {
            let auth = crate::auth::AuthConfig {
                account: account.map(str::to_owned),
                ..Default::default()
            };
            let endpoint = Transport::http("http://localhost").auth(auth);
            let server = ServerConfig::new("a", endpoint).unwrap();
            ActiveConfig::new(server, None).fingerprint().to_owned()
        };
        assert_eq!(of(Some("one")), of(Some("one")));
        assert_ne!(of(Some("one")), of(Some("two")));
        assert_ne!(of(Some("one")), of(None));
    }

    #[test]
    fn secrets_before_the_last_reloads_are_still_redacted() {
        let first = with("canary-1", None);
        let second = with("canary-2", Some(&first));
        let same = with("canary-2", Some(&second));
        let third = with("canary-3", Some(&same));
        assert_eq!(third.redact("canary-1 canary-2 canary-3"), "*** *** ***");
        assert_eq!(third.redact_tail("nary-1 canary-2"), "*** ***");
        third.add_secrets(with("canary-x", None).secrets);
        let fourth = with("canary-4", Some(&third));
        assert_eq!(fourth.redact("canary-x canary-3"), "*** ***");
        let many = (4..100).fold(third, |before, number| {
            with(&format!("canary-{number}"), Some(&before))
        });
        assert_eq!(many.former.len(), MAX_FORMER);
    }
}
