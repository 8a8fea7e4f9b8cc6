use proptest::prelude::*;

use super::*;
use crate::test_tokens::discovered;

fn expected() -> ExpectedCallback {
    let config = CredentialConfig::new("https://mcp.example.com");
    let uri = "http://127.0.0.1:8123/callback";
    ExpectedCallback::new(&config, &discovered(), uri, Secret::new("state-1"))
}

const ISS: &str = "iss=https%3A%2F%2Fas.example.com";

fn code() -> Callback {
    Callback::Code(Secret::new("code-1"))
}

fn failure(callback: Callback) -> String {
    match callback {
        Callback::Failed(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_callback_is_read_in_every_pasted_form() {
    let query = format!("code=code-1&state=state-1&{ISS}");
    for text in [
        query.clone(),
        format!("?{query}"),
        format!("/callback?{query}"),
        format!("http://127.0.0.1:8123/callback?{query}"),
        format!("  \"http://localhost:1/callback?{query}#_=_\"\n"),
    ] {
        assert_eq!(expected().read_pasted(&text), code(), "{text}");
    }
}

#[test]
fn another_path_or_state_is_ignored() {
    let read = |target: &str| expected().read_target(target);
    for (target, reason) in [
        ("/favicon.ico", IgnoredCallback::OtherPath),
        (
            "/callback/?code=c&state=state-1",
            IgnoredCallback::OtherPath,
        ),
        ("/callback", IgnoredCallback::NoState),
        ("/callback?code=c", IgnoredCallback::NoState),
        ("/callback?code=c&state=", IgnoredCallback::OtherState),
        (
            "/callback?code=c&state=state-2",
            IgnoredCallback::OtherState,
        ),
        (
            "/callback?code=c&state=state-10",
            IgnoredCallback::OtherState,
        ),
        ("/callback?error=x&state=state", IgnoredCallback::OtherState),
        (
            "/callback?state=state-1&state=state-1",
            IgnoredCallback::NoState,
        ),
    ] {
        assert_eq!(read(target), Callback::Ignored(reason), "{target}");
    }
    let long = format!(
        "/callback?state=state-1&code={}",
        "x".repeat(MAX_CALLBACK_BYTES)
    );
    assert_eq!(read(&long), Callback::Ignored(IgnoredCallback::TooLong));
}

#[test]
fn an_announced_issuer_must_be_there_and_match_byte_for_byte() {
    let read = |query: &str| expected().read_pasted(&format!("state=state-1&code=code-1{query}"));
    assert!(failure(read("")).contains("lacks `iss`"));
    for iss in [
        "https://as.example.com/",
        "https://AS.example.com",
        "https://evil.example.com",
        "",
    ] {
        let error = failure(read(&format!("&iss={iss}")));
        assert!(error.contains("instead of"), "{error}");
    }
    assert_eq!(read(&format!("&{ISS}")), code());
    assert!(failure(read(&format!("&{ISS}&{ISS}"))).contains("more than once"));
}

#[test]
fn an_issuer_that_was_not_announced_is_still_compared() {
    let mut expected = expected();
    expected.iss_required = false;
    assert_eq!(expected.read_pasted("state=state-1&code=code-1"), code());
    let other = "state=state-1&code=code-1&iss=https://evil.example.com";
    failure(expected.read_pasted(other));
    expected.issuer_exception = Some("https://evil.example.com".into());
    assert_eq!(expected.read_pasted(other), code());
}

#[test]
fn an_error_is_typed_and_cleaned() {
    let query = format!(
        "state=state-1&{ISS}&error=access_denied&error_description=no%0A%1B%5B31m+way&code=c"
    );
    assert_eq!(
        expected().read_pasted(&query),
        Callback::Failed(AuthError::Refused {
            request: "login to https://as.example.com".into(),
            status: 302,
            error: "access_denied".into(),
            description: Some("no [31m way".into()),
        })
    );
}

#[test]
fn a_forged_issuer_hides_the_error_it_brings() {
    let error = failure(expected().read_pasted("state=state-1&iss=x&error=access_denied"));
    assert!(!error.contains("access_denied"), "{error}");
}

#[test]
fn a_callback_without_code_fails() {
    assert!(failure(expected().read_pasted(&format!("state=state-1&{ISS}"))).contains("neither"));
    let empty = format!("state=state-1&{ISS}&code=");
    assert!(failure(expected().read_pasted(&empty)).contains("neither"));
}

#[test]
fn debug_shows_neither_state_nor_code() {
    let text = format!("{:?} {:?}", expected(), code());
    assert!(
        !text.contains("state-1") && !text.contains("code-1"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn reading_never_panics(text in any::<String>()) {
        let _ = expected().read_pasted(&text);
        let _ = expected().read_target(&text);
    }

    #[test]
    fn no_other_state_yields_a_code(state in "[a-z0-9-]{0,10}") {
        prop_assume!(state != "state-1");
        let callback = expected().read_pasted(&format!("code=c&state={state}&{ISS}"));
        prop_assert!(matches!(callback, Callback::Ignored(_)));
    }
}
