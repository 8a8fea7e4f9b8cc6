//! Tokens that are bound to keys: what proofs have to contain, and nonces.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthOptions, AuthServer, Client, DpopRule, Endpoint, NonceRule, ProtectedOptions,
    ProtectedServer,
};
use mcpvisor_testkit::http_server::HttpOptions;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::plain_client::{CALLBACK, CLIENT, Reply, VERIFIER, code, encoded, text, try_send};

struct Key(EcdsaKeyPair);

impl Key {
    fn new() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap())
    }

    fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = self.0.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..]) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.unwrap());
        format!("{message}.{signature}")
    }

    /// A proof with these claims changed.
    fn proof(&self, url: &str, changes: Value) -> String {
        let header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": self.jwk() });
        self.sign(&header, &claims(url, changes))
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn claims(url: &str, changes: Value) -> Value {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut claims = json!({ "jti": id.to_string(), "htm": "POST", "htu": url, "iat": now() });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

/// Sends a token request with these proofs.
async fn token_request(auth: &AuthServer, proofs: &[&str], form: &[(&str, &str)]) -> Reply {
    let mut headers = vec![("content-type", "application/x-www-form-urlencoded")];
    headers.extend(proofs.iter().map(|proof| ("dpop", *proof)));
    let url = auth.url(Endpoint::Token);
    try_send("POST", &url, &headers, &encoded(form))
        .await
        .unwrap()
}

async fn redeem(auth: &AuthServer, proofs: &[&str]) -> Reply {
    let code = code(auth, &[]).await;
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT),
        ("code", &code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    token_request(auth, proofs, &form).await
}

/// Calls a tool with this scheme and these proofs.
async fn run(server: &ProtectedServer, scheme: &str, token: &str, proofs: &[&str]) -> Reply {
    let params = json!({ "name": "run", "arguments": { "key": "k" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let authorization = format!("{scheme} {token}");
    let mut headers = vec![
        ("content-type", "application/json"),
        ("authorization", authorization.as_str()),
    ];
    headers.extend(proofs.iter().map(|proof| ("dpop", *proof)));
    try_send("POST", &server.url(), &headers, &body.to_string())
        .await
        .unwrap()
}

async fn servers(dpop: DpopRule, nonces: NonceRule) -> (AuthServer, ProtectedServer) {
    let auth = AuthServer::start_with(AuthOptions {
        dpop: true,
        nonces,
        ..AuthOptions::default()
    })
    .await;
    auth.add_client(Client::public(CLIENT, CALLBACK));
    let options = ProtectedOptions {
        http: HttpOptions::without_sessions(),
        any_audience: true,
        dpop,
        nonces,
        ..ProtectedOptions::default()
    };
    let server = ProtectedServer::start_with(&auth, options).await;
    (auth, server)
}

#[tokio::test]
async fn a_token_is_bound_to_the_key_that_the_token_request_proves() {
    let (auth, server) = servers(DpopRule::Accepted, NonceRule::None).await;
    let (key, other) = (Key::new(), Key::new());
    let (token_url, url) = (auth.url(Endpoint::Token), server.url());
    let tokens = redeem(&auth, &[&key.proof(&token_url, json!({}))])
        .await
        .json();
    assert_eq!(tokens["token_type"], "DPoP");
    let token = text(&tokens, "access_token");
    let proof = |key: &Key| key.proof(&url, json!({ "ath": hash(&token) }));
    assert_eq!(
        run(&server, "DPoP", &token, &[&proof(&key)]).await.status,
        200
    );
    let stolen = run(&server, "DPoP", &token, &[&proof(&other)]).await;
    assert!(
        stolen
            .header("www-authenticate")
            .unwrap()
            .contains("invalid_token")
    );
    assert_eq!(run(&server, "Bearer", &token, &[]).await.status, 401);
    assert_eq!(server.runs("k"), 1);

    let refresh = text(&tokens, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", CLIENT),
        ("refresh_token", refresh.as_str()),
    ];
    for proofs in [vec![], vec![other.proof(&token_url, json!({}))]] {
        let proofs: Vec<&str> = proofs.iter().map(String::as_str).collect();
        let refused = token_request(&auth, &proofs, &form).await;
        assert_eq!(refused.json()["error"], "invalid_grant");
    }
    let proof = key.proof(&token_url, json!({}));
    let refreshed = token_request(&auth, &[&proof], &form).await;
    assert_eq!(refreshed.json()["token_type"], "DPoP");
    // A token request without a proof gets a bearer token.
    let bearer = redeem(&auth, &[]).await.json();
    assert_eq!(bearer["token_type"], "Bearer");
    let bearer = text(&bearer, "access_token");
    assert_eq!(run(&server, "Bearer", &bearer, &[]).await.status, 200);
    server.configure(|options| options.dpop = DpopRule::Required);
    let refused = run(&server, "Bearer", &bearer, &[]).await;
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .starts_with("DPoP error")
    );
}

#[tokio::test]
async fn a_proof_that_is_not_of_this_request_is_refused() {
    let (auth, server) = servers(DpopRule::Required, NonceRule::None).await;
    let (key, url) = (Key::new(), server.url());
    let token_url = auth.url(Endpoint::Token);
    let tokens = redeem(&auth, &[&key.proof(&token_url, json!({}))])
        .await
        .json();
    let token = text(&tokens, "access_token");
    let whole = json!({ "ath": hash(&token) });
    let with = |name: &str, value: Value| {
        let mut changes = whole.clone();
        changes[name] = value;
        key.proof(&url, changes)
    };
    let used = key.proof(&url, whole.clone());
    assert_eq!(run(&server, "DPoP", &token, &[&used]).await.status, 200);
    let mut private = key.jwk();
    private["d"] = json!("secret");
    let header = |typ: &str, jwk: Value| json!({ "typ": typ, "alg": "ES256", "jwk": jwk });
    let forged = key.proof(&url, whole.clone()).replacen("eyJ", "eyK", 2);
    let invalid = [
        ("used before", used),
        ("htm", with("htm", json!("GET"))),
        ("htu", with("htu", json!(format!("{url}?x")))),
        ("ath", with("ath", json!(hash("other")))),
        ("iat", with("iat", json!(now() - 3_600))),
        ("used before", with("jti", json!(""))),
        (
            "typ",
            key.sign(&header("JWT", key.jwk()), &claims(&url, whole.clone())),
        ),
        (
            "signature",
            key.sign(&header("dpop+jwt", private), &claims(&url, whole.clone())),
        ),
        (
            "signature",
            Key::new().sign(&header("dpop+jwt", key.jwk()), &claims(&url, whole.clone())),
        ),
        ("signature", forged),
    ];
    for (problem, proof) in &invalid {
        let refused = run(&server, "DPoP", &token, &[proof]).await;
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(
            challenge.contains("invalid_dpop_proof"),
            "{problem}: {challenge}"
        );
        let found = server.invalid_proofs().pop().unwrap();
        assert!(found.contains(problem), "{problem}: {found}");
    }
    let two = [with("jti", json!("a")), with("jti", json!("b"))];
    let refused = run(&server, "DPoP", &token, &[&two[0], &two[1]]).await;
    assert_eq!(refused.status, 401);
    assert_eq!(server.invalid_proofs().pop().unwrap(), "2 proofs");
    assert_eq!(server.runs("k"), 1);
}

#[tokio::test]
async fn nonces_are_demanded_and_each_is_good_for_one_request() {
    let (auth, server) = servers(DpopRule::Required, NonceRule::OneTime).await;
    let (key, url) = (Key::new(), server.url());
    let token_url = auth.url(Endpoint::Token);
    let refused = redeem(&auth, &[&key.proof(&token_url, json!({}))]).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (400, &json!("use_dpop_nonce"))
    );
    let nonce = refused.header("dpop-nonce").unwrap();
    let proof = key.proof(&token_url, json!({ "nonce": nonce }));
    let tokens = redeem(&auth, &[&proof]).await;
    assert!(tokens.header("dpop-nonce").is_some());
    let token = text(&tokens.json(), "access_token");
    let proof = |nonce: &str| key.proof(&url, json!({ "ath": hash(&token), "nonce": nonce }));
    let refused = run(&server, "DPoP", &token, &[&proof("made-up")]).await;
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .contains("use_dpop_nonce")
    );
    let nonce = refused.header("dpop-nonce").unwrap();
    let accepted = run(&server, "DPoP", &token, &[&proof(nonce)]).await;
    assert_eq!(accepted.status, 200);
    let next = accepted.header("dpop-nonce").unwrap();
    assert_eq!(
        run(&server, "DPoP", &token, &[&proof(nonce)]).await.status,
        401
    );
    auth.fault(AuthFault::RefuseNonces).on(Endpoint::Mcp).once();
    assert_eq!(
        run(&server, "DPoP", &token, &[&proof(next)]).await.status,
        401
    );
    assert_eq!((server.refused_nonces(), auth.refused_nonces()), (3, 1));
    assert_eq!(server.invalid_proofs(), Vec::<String>::new());
}
