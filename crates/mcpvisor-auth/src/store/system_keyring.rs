//! The system's keyring: Keychain, Credential Manager or Secret Service.

use std::sync::LazyLock;

use ::keyring::{Entry, Error};

use super::keyring::{Keyring, KeyringSession};

/// The session of this process.
static SESSION: LazyLock<KeyringSession> = LazyLock::new(|| KeyringSession::new(SystemKeyring));

/// The system's keyring. What it answered first is final for the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemKeyring;

impl SystemKeyring {
    /// The session of this process.
    pub fn session() -> KeyringSession {
        SESSION.clone()
    }
}

impl Keyring for SystemKeyring {
    fn get(&self, service: &str, user: &str) -> Result<Option<Vec<u8>>, String> {
        match Entry::new(service, user).and_then(|entry| entry.get_secret()) {
            Ok(secret) => Ok(Some(secret)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }

    fn set(&self, service: &str, user: &str, secret: &[u8]) -> Result<(), String> {
        let stored = Entry::new(service, user).and_then(|entry| entry.set_secret(secret));
        stored.map_err(|error| describe(&error))
    }
}

/// What an error says, without the secrets that some variants contain.
fn describe(error: &Error) -> String {
    match error {
        Error::NoDefaultStore => match Entry::store_status() {
            Err(Error::NoDefaultStore) | Ok(()) => "there is none".to_owned(),
            Err(reason) => describe(reason),
        },
        Error::BadEncoding(_) | Error::BadDataFormat(..) => {
            "it returned an invalid secret".to_owned()
        }
        other => other.to_string(),
    }
}
