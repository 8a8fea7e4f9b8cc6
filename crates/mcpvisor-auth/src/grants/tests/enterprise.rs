use super::*;
use crate::address::AddressPolicy;
use crate::config::IdentityProvider;
use crate::grants::enterprise::exchange_at;

fn provider(token_endpoint: Option<&str>) -> IdentityProvider {
    IdentityProvider {
        issuer: "https://idp.example.com".into(),
        token_endpoint: token_endpoint.map(str::to_owned),
        client_id: "idp-client".into(),
        id_token: Secret::new("id-token"),
    }
}

fn id_jag() -> Scripted {
    json_response(
        200,
        json!({ "access_token": "id-jag", "token_type": "N_A",
                "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag" }),
    )
}

#[tokio::test]
async fn the_identity_provider_issues_an_assertion_for_the_issuer() {
    let mut fixture = Fixture::new([id_jag()]);
    fixture.use_secret();
    let provider = provider(Some("https://idp.example.com/token"));
    let assertion = exchange_at(&fixture.target(), &provider, AddressPolicy::Private).await;
    assert_eq!(assertion.unwrap().expose(), "id-jag");
    let sent = fixture.sent(0);
    assert_eq!(sent.url, "https://idp.example.com/token");
    assert_eq!(sent.limits.addresses, AddressPolicy::Private);
    assert!(!sent.headers.contains_key("authorization"));
    assert_parameters(
        &sent,
        &[
            (
                "grant_type",
                Some("urn:ietf:params:oauth:grant-type:token-exchange"),
            ),
            (
                "requested_token_type",
                Some("urn:ietf:params:oauth:token-type:id-jag"),
            ),
            ("audience", Some("https://as.example.com")),
            ("resource", Some(RESOURCE)),
            ("subject_token", Some("id-token")),
            (
                "subject_token_type",
                Some("urn:ietf:params:oauth:token-type:id_token"),
            ),
            ("client_id", Some("idp-client")),
        ],
    );
}

#[tokio::test]
async fn the_token_endpoint_of_the_identity_provider_is_found_by_its_issuer() {
    let metadata = |issuer: &str, endpoint: &str| {
        json_response(200, json!({ "issuer": issuer, "token_endpoint": endpoint }))
    };
    let exchange = async |metadata| {
        let fixture = Fixture::new([metadata, id_jag()]);
        let result = exchange_at(&fixture.target(), &provider(None), AddressPolicy::Public).await;
        (result, fixture)
    };
    let (result, fixture) = exchange(metadata(
        "https://idp.example.com",
        "https://idp.example.com/t",
    ))
    .await;
    result.unwrap();
    assert_eq!(
        fixture.sent(0).url,
        "https://idp.example.com/.well-known/oauth-authorization-server"
    );
    assert_eq!(fixture.sent(1).url, "https://idp.example.com/t");
    for refused in [
        metadata("https://other.example.com", "https://idp.example.com/t"),
        metadata("https://idp.example.com", "http://idp.example.com/t"),
        metadata("https://idp.example.com", "http://localhost.example.com/t"),
        metadata("https://idp.example.com", "file:///t"),
        text_response(404, "not found"),
    ] {
        let (result, fixture) = exchange(refused).await;
        result.unwrap_err();
        let mut urls = fixture.http.requests().into_iter().map(|sent| sent.url);
        assert!(urls.all(|url| url.contains("/.well-known/")));
    }
}

#[tokio::test]
async fn another_token_than_an_id_jag_is_refused() {
    let body = json!({ "access_token": "t", "token_type": "Bearer", "issued_token_type": "x" });
    let fixture = Fixture::new([json_response(200, body)]);
    let provider = provider(Some("https://idp.example.com/token"));
    let error = exchange_at(&fixture.target(), &provider, AddressPolicy::Public)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("ID-JAG"), "{error}");
}
