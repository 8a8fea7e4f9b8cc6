//! The credentials that the requests of a server carried: its answers must not show them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Mutex;

use crate::auth::Authorization;
use crate::mutex::lock;
use crate::secret::{MIN_REDACTED_CHARS, Secrets};

/// Credentials that are still redacted, the present one included. A call sent with an older one has
/// long ended.
const MAX_CREDENTIALS: usize = 4;

/// The latest credentials of a server, the newest first.
#[derive(Debug, Default)]
pub(super) struct CredentialSecrets(Mutex<Vec<Secrets>>);

impl CredentialSecrets {
    /// Also redacts this credential from now on.
    pub(super) fn add(&self, authorization: &Authorization) {
        let values = authorization.headers.iter();
        let values = values.filter_map(|(_, value)| value.to_str().ok());
        // Servers may repeat a value without its scheme.
        let values =
            values.flat_map(|value| [value, value.split(' ').next_back().unwrap_or(value)]);
        let signer = authorization.signer.as_ref();
        let values = values.chain(signer.map(|signer| signer.proof_prefix()));
        let secrets = Secrets::new(values.map(OsStr::new), MIN_REDACTED_CHARS);
        let mut known = lock(&self.0);
        if secrets != Secrets::default() && !known.contains(&secrets) {
            known.insert(0, secrets);
            known.truncate(MAX_CREDENTIALS);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Removes them from a text.
    pub(super) fn redact<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let known = lock(&self.0);
        known.iter().fold(text, |text, it| it.redact(text))
    }
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, HeaderValue};

    use super::*;

    fn token(text: &str) -> Authorization {
        let value = HeaderValue::try_from(format!("Bearer {text}")).unwrap();
        let mut authorization = Authorization::default();
        authorization.headers = vec![(AUTHORIZATION, value)];
        authorization
    }

    #[test]
    fn the_present_token_and_those_just_replaced_are_redacted() {
        let secrets = CredentialSecrets::default();
        secrets.add(&Authorization::default());
        assert!(secrets.is_empty(), "no credential");
        for number in 0..10 {
            secrets.add(&token(&format!("canary-{number}")));
            secrets.add(&token(&format!("canary-{number}")));
        }
        let redact = |text| secrets.redact(Cow::Borrowed(text));
        assert_eq!(
            redact("sent canary-9 and Bearer canary-8"),
            "sent *** and ***"
        );
        assert_eq!(redact("canary-7 canary-6 canary-5"), "*** *** canary-5");
    }
}
