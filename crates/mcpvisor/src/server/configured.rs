//! What a server's config says at the moment. A reload replaces it as a whole.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use mcpvisor_core::{Filter, ServerSettings};

use crate::config::{ServerConfig, StartMode};
use crate::secret::Secrets;

/// A server's config, and what is made of it once.
pub(crate) struct Configured {
    server: ServerConfig,
    pub(crate) filter: Filter,
    /// What a person means by "the same server".
    pub(crate) fingerprint: String,
    secrets: Secrets,
    /// The secrets before the last reload: what was started with them may still speak of them.
    former: Secrets,
}

impl Configured {
    pub(crate) fn new(server: ServerConfig, before: Option<&Self>) -> Self {
        if cfg!(not(feature = "schema-check")) && server.check_arguments {
            tracing::warn!(server = %server.name,
                "arguments are not checked: that needs the `schema-check` feature of mcpvisor");
        }
        Self {
            filter: Filter::new(&server.tools.allow, &server.tools.deny),
            fingerprint: server.transport.fingerprint(),
            secrets: server.transport.secrets(),
            former: before.map_or_else(Secrets::default, |before| before.secrets.clone()),
            server,
        }
    }

    /// The settings of the machine: those of the config, and what follows from the rest of it.
    pub(crate) fn machine_settings(&self) -> ServerSettings {
        let mut settings = self.server.settings.clone();
        // Only what was looked at may be called.
        settings.listing.before_calls |= self.server.pin;
        settings.rest.lazy |= self.server.start == StartMode::Lazy;
        settings.rest.sleep_after = self.server.sleep_after.or(settings.rest.sleep_after);
        settings
    }

    /// A text about the server or of the server's, without the secrets of its config.
    pub(super) fn hide<'t>(&self, text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
        self.former.hide(self.secrets.hide(text))
    }

    /// The same of a text whose start was cut off, perhaps within a secret.
    pub(super) fn hide_in_end(&self, text: &str) -> String {
        let shown = self.secrets.hide_in_end(text);
        self.former.hide_in_end(&shown).into_owned()
    }
}

impl Deref for Configured {
    type Target = ServerConfig;

    fn deref(&self) -> &ServerConfig {
        &self.server
    }
}

/// The config of the moment, shared with whoever works with it.
pub(crate) type CurrentConfig = Arc<Configured>;
