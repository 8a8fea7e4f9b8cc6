//! Which scopes to request.

use crate::challenge::Challenge;
use crate::config::{CredentialConfig, Grant};
use crate::discovery::Discovered;
use crate::text::scope_tokens;

/// Asks for a refresh token at issuers of OpenID Connect.
const OFFLINE_ACCESS: &str = "offline_access";

/// The scopes of a login: `extra` and those granted before are added to what the config, the
/// challenge or the metadata names; `offline_access` is added only if the issuer lists it.
///
/// The config restricts: with configured scopes neither challenge nor metadata adds any.
pub fn select(
    config: &CredentialConfig,
    challenge: &Challenge,
    discovered: &Discovered,
    granted: &[String],
    extra: &[String],
) -> Vec<String> {
    let base = base(config, challenge, discovered);
    // An issuer that publishes its scopes without it would refuse the whole request.
    let refused = discovered.server.scopes_supported.is_some() && !lists_offline(discovered);
    let chosen_by_server = config.scopes.is_none();
    let known = base
        .iter()
        .filter(|scope| !(refused && chosen_by_server && *scope == OFFLINE_ACCESS));
    let all = known.chain(granted).chain(extra).map(String::as_str);
    // Without any scope the issuer grants its default ones: `offline_access` alone would not.
    let mut scopes = scope_tokens(all);
    let missing = !scopes.iter().any(|scope| scope == OFFLINE_ACCESS);
    if !scopes.is_empty() && missing && wants_refresh(config) && lists_offline(discovered) {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    scopes
}

fn base<'a>(
    config: &'a CredentialConfig,
    challenge: &'a Challenge,
    discovered: &'a Discovered,
) -> &'a [String] {
    let resource = discovered.resource.as_ref();
    let listed = || resource.and_then(|resource| resource.scopes_supported.as_ref());
    let named = config.scopes.as_ref().or(challenge.scopes.as_ref());
    named.or_else(listed).map_or(&[], Vec::as_slice)
}

fn lists_offline(discovered: &Discovered) -> bool {
    let listed = discovered.server.scopes_supported.as_deref();
    listed.is_some_and(|scopes| scopes.iter().any(|scope| scope == OFFLINE_ACCESS))
}

/// Grants without a person get a new token by asking again.
fn wants_refresh(config: &CredentialConfig) -> bool {
    match config.grant {
        Grant::AuthorizationCode | Grant::DeviceCode => true,
        Grant::ClientCredentials | Grant::JwtBearer { .. } | Grant::Enterprise(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressPolicy;
    use crate::metadata::{AuthorizationServer, ProtectedResource};

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    fn config() -> CredentialConfig {
        CredentialConfig::new("https://h/mcp")
    }

    fn challenge(scopes: &[&str]) -> Challenge {
        Challenge {
            scopes: Some(texts(scopes)),
            ..Challenge::default()
        }
    }

    /// A server whose metadata and issuer list these scopes.
    fn discovered(resource: Option<&[&str]>, issuer: Option<&[&str]>) -> Discovered {
        let mut server = AuthorizationServer::with_default_endpoints("https://h");
        server.scopes_supported = issuer.map(texts);
        Discovered {
            resource: Some(ProtectedResource {
                resource: "https://h/mcp".to_owned(),
                authorization_servers: texts(&["https://h"]),
                scopes_supported: resource.map(texts),
                requires_dpop: false,
            }),
            server,
            addresses: AddressPolicy::Public,
        }
    }

    #[test]
    fn the_challenge_goes_before_the_metadata() {
        let found = discovered(Some(&["a", "b"]), None);
        assert_eq!(
            select(&config(), &challenge(&["c"]), &found, &[], &[]),
            ["c"]
        );
    }

    #[test]
    fn without_a_challenge_all_scopes_of_the_metadata_are_requested() {
        let found = discovered(Some(&["b", "a"]), Some(&["a", "b", "admin"]));
        assert_eq!(
            select(&config(), &Challenge::default(), &found, &[], &[]),
            ["b", "a"]
        );
    }

    #[test]
    fn without_any_scope_none_is_requested() {
        let found = discovered(None, Some(&["admin", OFFLINE_ACCESS]));
        let none = select(&config(), &Challenge::default(), &found, &[], &[]);
        assert_eq!(none, [""; 0]);
    }

    #[test]
    fn configured_scopes_replace_all_others() {
        let mut config = config();
        config.scopes = Some(texts(&["mine"]));
        let found = discovered(Some(&["a"]), None);
        assert_eq!(
            select(&config, &challenge(&["c"]), &found, &[], &[]),
            ["mine"]
        );
        config.scopes = Some(Vec::new());
        let none = select(&config, &challenge(&["c"]), &found, &[], &[]);
        assert_eq!(none, [""; 0]);
    }

    #[test]
    fn a_step_up_keeps_the_granted_scopes_in_a_stable_order() {
        let found = discovered(Some(&["x"]), None);
        let scopes = select(
            &config(),
            &challenge(&["write", "read"]),
            &found,
            &texts(&["read", "list"]),
            &texts(&["list", "admin"]),
        );
        assert_eq!(scopes, ["write", "read", "list", "admin"]);
    }

    #[test]
    fn offline_access_is_added_if_the_issuer_lists_it() {
        let found = discovered(Some(&["a"]), Some(&["a", OFFLINE_ACCESS]));
        let scopes = select(&config(), &Challenge::default(), &found, &[], &[]);
        assert_eq!(scopes, ["a", OFFLINE_ACCESS]);
    }

    #[test]
    fn offline_access_is_not_requested_twice() {
        let found = discovered(Some(&[OFFLINE_ACCESS, "a"]), Some(&["a", OFFLINE_ACCESS]));
        let scopes = select(&config(), &Challenge::default(), &found, &[], &[]);
        assert_eq!(scopes, [OFFLINE_ACCESS, "a"]);
    }

    #[test]
    fn offline_access_is_dropped_if_the_issuer_does_not_list_it() {
        let found = discovered(Some(&["a", OFFLINE_ACCESS]), Some(&["a"]));
        let scopes = select(&config(), &Challenge::default(), &found, &[], &[]);
        assert_eq!(scopes, ["a"]);
    }

    #[test]
    fn a_configured_offline_access_is_requested_in_any_case() {
        let mut config = config();
        config.scopes = Some(texts(&["a", OFFLINE_ACCESS]));
        let found = discovered(None, Some(&["a"]));
        let scopes = select(&config, &Challenge::default(), &found, &[], &[]);
        assert_eq!(scopes, ["a", OFFLINE_ACCESS]);
    }

    #[test]
    fn grants_without_refresh_tokens_do_not_ask_for_one() {
        let mut config = config();
        config.grant = Grant::ClientCredentials;
        let found = discovered(Some(&["a"]), Some(&["a", OFFLINE_ACCESS]));
        let scopes = select(&config, &Challenge::default(), &found, &[], &[]);
        assert_eq!(scopes, ["a"]);
    }
}
