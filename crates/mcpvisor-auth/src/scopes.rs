//! Which scopes to request.

use crate::challenge::Challenge;
use crate::config::CredentialConfig;
use crate::discovery::Discovered;

/// The scopes of a login: `extra` and those granted before are added to what the config, the
/// challenge or the metadata names; `offline_access` is added only if the issuer lists it.
pub fn select(
    _config: &CredentialConfig,
    _challenge: &Challenge,
    _discovered: &Discovered,
    _granted: &[String],
    _extra: &[String],
) -> Vec<String> {
    todo!()
}
