use super::*;
use crate::config::Grant;
use crate::metadata::ProtectedResource;
use crate::secret::Secret;
use crate::test_tokens::discovered;

fn issuer(algorithms: &[&str]) -> Discovered {
    let mut found = discovered();
    found.server.dpop_algorithms = algorithms.iter().map(|&name| name.to_owned()).collect();
    found
}

fn asks(binding: BindingDemand) -> Challenge {
    Challenge {
        binding,
        ..Challenge::default()
    }
}

fn demanded(mode: DpopMode, challenge: BindingDemand, found: &Discovered) -> BindingDemand {
    demand(mode, &asks(challenge), found, false).unwrap()
}

fn response(token_type: Option<TokenType>) -> TokenResponse {
    TokenResponse {
        access: Secret::new("a"),
        refresh: None,
        expires_at: None,
        obtained_at: 0,
        scopes: None,
        issued_token_type: None,
        token_type,
    }
}

#[test]
fn tokens_are_bound_if_the_server_asks_and_the_issuer_supports_it() {
    use BindingDemand::{Accepted, None, Required};
    let (able, other) = (issuer(&["RS256", "ES256"]), issuer(&["RS256"]));
    for asked in [None, Accepted, Required] {
        assert_eq!(demanded(DpopMode::Auto, asked, &able), asked);
        assert_eq!(demanded(DpopMode::Never, asked, &able), None);
        assert_eq!(demanded(DpopMode::Always, asked, &other), Required);
    }
    assert_eq!(demanded(DpopMode::Auto, Accepted, &other), None);
    assert_eq!(demanded(DpopMode::Auto, None, &other), None);
}

#[test]
fn an_issuer_that_cannot_bind_tokens_for_a_server_that_requires_it_is_named() {
    let challenge = asks(BindingDemand::Required);
    let error = demand(DpopMode::Auto, &challenge, &issuer(&[]), false).unwrap_err();
    assert!(matches!(&error, AuthError::Invalid(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("https://as.example.com") && text.contains("auth.dpop"),
        "{text}"
    );
}

#[test]
fn the_metadata_of_the_server_can_require_it() {
    let mut found = issuer(&["ES256"]);
    found.resource = Some(ProtectedResource {
        resource: "https://h/mcp".to_owned(),
        authorization_servers: Vec::new(),
        scopes_supported: None,
        requires_dpop: true,
    });
    let silent = BindingDemand::None;
    assert_eq!(
        demanded(DpopMode::Auto, silent, &found),
        BindingDemand::Required
    );
    assert_eq!(
        demanded(DpopMode::Never, silent, &found),
        BindingDemand::None
    );
}

#[test]
fn a_login_gets_a_new_key_and_other_grants_keep_theirs() {
    let found = issuer(&["ES256"]);
    let earlier = ProofKey::generate().unwrap();
    let mut config = CredentialConfig::new("https://h/mcp");
    let choose = |config: &CredentialConfig, earlier| {
        // The server accepted the earlier token, and so it asked for nothing.
        Binding::choose(config, &Challenge::default(), &found, earlier).unwrap()
    };
    assert_eq!(choose(&config, None), None);
    let login = choose(&config, Some(&earlier)).unwrap();
    assert_ne!(login.key, earlier);
    config.grant = Grant::ClientCredentials;
    let renewed = choose(&config, Some(&earlier)).unwrap();
    assert_eq!(renewed.key, earlier);
    assert!(!renewed.is_required);
}

#[test]
fn the_response_says_whether_the_token_is_bound() {
    let binding = |is_required| Binding {
        key: ProofKey::generate().unwrap(),
        is_required,
    };
    let bound = |binding: &Binding, token_type| {
        let bound = Binding::bound_tokens(Some(binding), &response(token_type));
        bound.map(|bound| bound.map(|bound| (bound.key, bound.access_is_bearer)))
    };
    for is_required in [false, true] {
        let binding = binding(is_required);
        let stored = bound(&binding, Some(TokenType::Dpop)).unwrap();
        assert_eq!(stored, Some((binding.key, false)));
    }
    for bearer in [Some(TokenType::Bearer), None] {
        assert_eq!(bound(&binding(false), bearer), Ok(None));
        let error = bound(&binding(true), bearer).unwrap_err().to_string();
        assert!(error.contains("bearer token"), "{error}");
    }
    let bearer = response(Some(TokenType::Bearer));
    assert_eq!(Binding::bound_tokens(None, &bearer), Ok(None));
}
