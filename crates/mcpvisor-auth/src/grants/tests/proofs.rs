//! Every grant can bind its token to a key.

use super::*;
use crate::dpop::ProofKey;
use crate::dpop::tests::verified;
use crate::grants::device::DeviceAuthorization;

fn bound() -> Scripted {
    json_response(
        200,
        json!({ "access_token": "access-1", "token_type": "DPoP", "expires_in": 60 }),
    )
}

impl Fixture {
    fn bind(&mut self, is_required: bool) -> ProofKey {
        let key = ProofKey::generate().unwrap();
        self.binding = Some(Binding {
            key: key.clone(),
            is_required,
        });
        key
    }

    /// The URLs and claims of the proofs that were sent.
    fn proven(&self) -> Vec<String> {
        let requests = self.http.requests().into_iter();
        let proofs = requests.filter_map(|sent| sent.headers.get("dpop").cloned());
        let urls = proofs.map(|proof| verified(&proof).1["htu"].as_str().unwrap().to_owned());
        urls.collect()
    }
}

#[test]
fn the_authorization_url_names_the_key() {
    let mut fixture = Fixture::new([]);
    let url = |fixture: &Fixture| authorization_request().url(&fixture.target()).unwrap();
    assert!(!url(&fixture).contains("dpop_jkt"));
    let key = fixture.bind(false);
    let expected = format!("&dpop_jkt={}", key.thumbprint());
    assert!(url(&fixture).contains(&expected));
}

#[tokio::test]
async fn a_code_and_a_device_code_are_redeemed_with_a_proof() {
    const TOKEN: &str = "https://as.example.com/token";
    let mut fixture = Fixture::new([bound()]);
    let key = fixture.bind(true);
    let response = authorization_request()
        .redeem(&fixture.target(), &Secret::new("code-1"))
        .await
        .unwrap();
    let record = fixture.target().record(response, SystemTime::now());
    assert_eq!(record.unwrap().dpop.unwrap().key, key);
    assert_eq!(fixture.proven(), [TOKEN]);

    let device = json!({ "device_code": "d", "user_code": "u", "interval": 1,
                         "verification_uri": "https://as.example.com/activate" });
    let mut fixture = Fixture::new([json_response(200, device), bound()]);
    fixture.bind(true);
    let target = fixture.target();
    let device = DeviceAuthorization::request(&target).await.unwrap();
    device.poll(&target, Duration::from_secs(60)).await.unwrap();
    assert_eq!(fixture.proven(), [TOKEN], "the device request needs none");
}

#[tokio::test]
async fn grants_without_a_person_prove_the_key_to_the_issuer_alone() {
    let mut fixture = Fixture::new([bound()]);
    fixture.config.grant = Grant::ClientCredentials;
    fixture.use_secret();
    fixture.bind(true);
    assert!(fixture.target().obtain().await.unwrap().dpop.is_some());
    assert_eq!(fixture.proven(), ["https://as.example.com/token"]);

    let id_jag = json!({ "access_token": "id-jag", "token_type": "N_A",
                         "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag" });
    let mut fixture = Fixture::new([json_response(200, id_jag), bound()]);
    fixture.config.grant = Grant::Enterprise(crate::config::IdentityProvider {
        issuer: "https://idp.example.com".into(),
        token_endpoint: Some("https://idp.example.com/token".into()),
        client_id: "idp-client".into(),
        id_token: Secret::new("id-token"),
    });
    fixture.bind(true);
    assert!(fixture.target().obtain().await.unwrap().dpop.is_some());
    assert_eq!(fixture.proven(), ["https://as.example.com/token"]);
}

#[tokio::test]
async fn a_bearer_token_stays_one_unless_the_server_requires_a_key() {
    let mut fixture = Fixture::new([token(), token()]);
    fixture.config.grant = Grant::ClientCredentials;
    fixture.use_secret();
    fixture.bind(false);
    assert_eq!(fixture.target().obtain().await.unwrap().dpop, None);
    fixture.bind(true);
    let error = fixture.target().obtain().await.unwrap_err();
    assert!(error.to_string().contains("bearer token"), "{error}");
}
