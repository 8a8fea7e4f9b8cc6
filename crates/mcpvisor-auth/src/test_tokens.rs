//! A scripted HTTP client, a recording store and sample values for the tests of grants and logins.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::address::AddressPolicy;
use crate::discovery::Discovered;
use crate::http_client::{HttpClient, HttpError, RequestLimits};
use crate::metadata::AuthorizationServer;
use crate::record::{
    ClientAuthMethod, ClientRecord, ClientSource, CredentialKey, CredentialRecord,
};
use crate::secret::Secret;
use crate::store::{CredentialStore, MemoryStore, StoreLock, StoreMark, UnreadableRecord};

/// A response, or why there is none.
pub(crate) type Scripted = Result<Response<Bytes>, HttpError>;

/// Answers requests in order with a script, and records them.
#[derive(Clone, Default)]
pub(crate) struct ScriptedHttp(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    responses: VecDeque<Scripted>,
    requests: Vec<SentRequest>,
    delay: Duration,
    echoes: bool,
}

/// A request that was sent.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) limits: RequestLimits,
    pub(crate) at: tokio::time::Instant,
}

impl SentRequest {
    pub(crate) fn form(&self) -> Vec<(String, String)> {
        form_urlencoded::parse(&self.body).into_owned().collect()
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let mut form = self.form().into_iter();
        form.find(|(found, _)| found == name)
            .map(|(_, value)| value)
    }
}

impl SentRequest {
    /// The credentials of the client, as they were sent.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let header = self.headers.get("authorization");
        let header = header.map(|value| value.to_str().unwrap()["Basic ".len()..].to_owned());
        let assertion = self.parameter("client_assertion");
        header.into_iter().chain(assertion).collect()
    }
}

impl ScriptedHttp {
    pub(crate) fn new(responses: impl IntoIterator<Item = Scripted>) -> Self {
        let http = Self::default();
        http.0.lock().unwrap().responses = responses.into_iter().collect();
        http
    }

    /// Every response takes this long.
    pub(crate) fn delayed(self, delay: Duration) -> Self {
        self.0.lock().unwrap().delay = delay;
        self
    }

    /// Every response is an error that repeats the request.
    pub(crate) fn echoing(self) -> Self {
        self.0.lock().unwrap().echoes = true;
        self
    }

    pub(crate) fn requests(&self) -> Vec<SentRequest> {
        self.0.lock().unwrap().requests.clone()
    }
}

impl HttpClient for ScriptedHttp {
    fn send(&self, request: Request<Bytes>, limits: RequestLimits) -> BoxFuture<'static, Scripted> {
        let mut script = self.0.lock().unwrap();
        script.requests.push(SentRequest {
            method: request.method().to_string(),
            url: request.uri().to_string(),
            headers: request.headers().clone(),
            body: request.body().clone(),
            limits,
            at: tokio::time::Instant::now(),
        });
        if script.echoes {
            let body = String::from_utf8_lossy(request.body()).into_owned();
            let header = |name| request.headers().get(name)?.to_str().ok();
            let [proof, authorization] = ["dpop", "authorization"].map(header);
            let text = format!("{proof:?} {body} {} {authorization:?}", decoded(&body));
            let error = json!({ "error": "echo", "error_description": text });
            return async move { json_response(400, error) }.boxed();
        }
        let response = script
            .responses
            .pop_front()
            .unwrap_or_else(|| Err(HttpError::NotSent("the script has ended".into())));
        let delay = script.delay;
        async move {
            tokio::time::sleep(delay).await;
            response
        }
        .boxed()
    }

    fn resolve(&self, _host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>> {
        async { Ok(vec![IpAddr::from([203, 0, 113, 1])]) }.boxed()
    }
}

/// The pairs of a form, decoded.
fn decoded(body: &str) -> String {
    let pairs = form_urlencoded::parse(body.as_bytes());
    pairs
        .map(|(name, value)| format!("{name}={value} "))
        .collect()
}

pub(crate) fn json_response(status: u16, body: Value) -> Scripted {
    text_response(status, &body.to_string())
}

pub(crate) fn text_response(status: u16, body: &str) -> Scripted {
    let response = Response::builder().status(status);
    Ok(response.body(Bytes::from(body.to_owned())).unwrap())
}

/// A response with a nonce for proofs.
pub(crate) fn with_nonce(response: Scripted, nonce: &'static str) -> Scripted {
    let mut response = response?;
    let nonce = http::HeaderValue::from_static(nonce);
    response.headers_mut().insert("dpop-nonce", nonce);
    Ok(response)
}

/// A store in memory that records what is done, in order, and fails on demand.
#[derive(Clone, Default)]
pub(crate) struct RecordingStore {
    inner: MemoryStore,
    script: Arc<Mutex<StoreScript>>,
}

#[derive(Default)]
struct StoreScript {
    log: Vec<&'static str>,
    reads_fail: Option<io::ErrorKind>,
    save_fails: bool,
    unreadable: Vec<UnreadableRecord>,
}

impl RecordingStore {
    pub(crate) fn with(record: CredentialRecord) -> Self {
        let store = Self::default();
        store.inner.save(record).now_or_never().unwrap().unwrap();
        store
    }

    pub(crate) fn records(&self) -> Vec<CredentialRecord> {
        let listed = self.inner.list().now_or_never().unwrap().unwrap();
        listed.into_iter().map(Result::unwrap).collect()
    }

    fn script(&self) -> MutexGuard<'_, StoreScript> {
        self.script.lock().unwrap()
    }

    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.script().log.clone()
    }

    pub(crate) fn fail_reads(&self, kind: io::ErrorKind) {
        self.script().reads_fail = Some(kind);
    }

    pub(crate) fn fail_save(&self) {
        self.script().save_fails = true;
    }

    pub(crate) fn add_unreadable(&self, unreadable: UnreadableRecord) {
        self.script().unreadable.push(unreadable);
    }
}

/// Logs when the lock is released.
struct Unlock(RecordingStore, #[expect(dead_code)] StoreLock);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.script().log.push("unlock");
    }
}

impl CredentialStore for RecordingStore {
    fn find(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<CredentialRecord>>> {
        let mut script = self.script();
        script.log.push("find");
        match script.reads_fail {
            Some(kind) => async move { Err(kind.into()) }.boxed(),
            None => self.inner.find(server_url, account),
        }
    }

    fn list(
        &self,
    ) -> BoxFuture<'static, io::Result<Vec<Result<CredentialRecord, UnreadableRecord>>>> {
        let mut script = self.script();
        script.log.push("list");
        let (unreadable, listed) = (script.unreadable.clone(), self.inner.list());
        let failure = script.reads_fail;
        async move {
            failure.map_or(Ok(()), |kind| Err(io::Error::from(kind)))?;
            let mut all = listed.await?;
            all.extend(unreadable.into_iter().map(Err));
            Ok(all)
        }
        .boxed()
    }

    fn save(&self, record: CredentialRecord) -> BoxFuture<'static, io::Result<()>> {
        let mut script = self.script();
        script.log.push("save");
        match script.save_fails {
            true => async { Err(io::ErrorKind::StorageFull.into()) }.boxed(),
            false => self.inner.save(record),
        }
    }

    fn remove(&self, key: &CredentialKey) -> BoxFuture<'static, io::Result<()>> {
        self.script().log.push("remove");
        self.inner.remove(key)
    }

    fn remove_unreadable(
        &self,
        server_url: &str,
        account: &str,
    ) -> BoxFuture<'static, io::Result<Vec<UnreadableRecord>>> {
        let mut script = self.script();
        script.log.push("remove unreadable");
        let is_of = |it: &mut UnreadableRecord| it.belongs_to(server_url, account);
        let removed = script.unreadable.extract_if(.., is_of).collect();
        async { Ok(removed) }.boxed()
    }

    fn lock(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreLock>> {
        let (this, lock) = (self.clone(), self.inner.lock(server_url, account));
        async move {
            let lock = lock.await?;
            this.script().log.push("lock");
            Ok(StoreLock::new(Unlock(this, lock)))
        }
        .boxed()
    }

    fn mark(&self, server_url: &str, account: &str) -> BoxFuture<'static, io::Result<StoreMark>> {
        self.inner.mark(server_url, account)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

/// A client without a secret.
pub(crate) fn client(auth_method: ClientAuthMethod) -> ClientRecord {
    ClientRecord {
        id: "client-1".into(),
        secret: None,
        secret_expires_at: None,
        auth_method,
        source: ClientSource::Registered,
        redirect_uri: None,
    }
}

/// An issuer with every endpoint.
pub(crate) fn discovered() -> Discovered {
    let endpoint = |path: &str| format!("https://as.example.com/{path}");
    Discovered {
        resource: None,
        server: AuthorizationServer {
            issuer: "https://as.example.com".into(),
            authorization_endpoint: Some(endpoint("authorize")),
            token_endpoint: endpoint("token"),
            registration_endpoint: Some(endpoint("register")),
            revocation_endpoint: Some(endpoint("revoke")),
            device_authorization_endpoint: Some(endpoint("device")),
            scopes_supported: None,
            code_challenge_methods: vec!["S256".into()],
            token_auth_methods: vec!["none".into()],
            iss_in_response: true,
            supports_metadata_document: false,
            dpop_algorithms: Vec::new(),
        },
        addresses: AddressPolicy::Public,
    }
}

/// A new P-256 key.
pub(crate) fn p256_pem() -> Secret {
    let random = SystemRandom::new();
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    pem(&STANDARD.encode(der))
}

/// An RSA key that only these tests use.
pub(crate) fn rsa_pem() -> Secret {
    pem(RSA_DER)
}

fn pem(der: &str) -> Secret {
    Secret::new(format!(
        "-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n"
    ))
}

/// PKCS #8, in base64.
const RSA_DER: &str = "\
    MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDTyhxDQuEp2rGEZlzfnWpmG3EoWRPp0w80FaFk9L\
    iEHscyCBLJPS34N/hQM6zBwCIzmaJ8k6cyGQzFrN41lp6NKju1Yz3bfc948xw4ORke3HUpxCSBAE8xnt/5IOD54GSC\
    yW/LdCEBhlZWxu0sKp+fRXMLgBmvBre/WMRBfDyUpXDwoX1VRRXJGWo1weOkl9GEDx3WU6uEQYSrQUUf/2+Kgd4u3q\
    qoWb3EhFTbiIMvEZu99J7D15rSvqPU+t/H7thdkb9jXSuvDjeQRQOYuqcpLmT41+IbB7mN4/+uo5EnDAk8cKUjsVy1\
    JFLukxwMU7Sh/b6OMXMdHtzMB/B5PVhVAgMBAAECggEAFURlZCeyHpbUXpw81UOkbI5y5X9UbZWBIFTPuSiN4s6IaD\
    DBWi3nkNZl+//EaExX4uCZnXLiRjiXvL3oLm9qinhkOIm3q3PNwrJ+8fJh4GR463HDzKRwT2ZJzWWM0erDjRKXRFHs\
    ApAv2VTuehHpp3+81rnNWnMNPoy2YHEOUErB5wODo0ygxzM2vXQbxQwfMjB0cnDKqQLC0nEq1+xukOnt/PtTQrtF5H\
    qrdMDrPU7IDuGDNQjmF0u7a3cf92O+eGQ6oS+r3dRonhYIODoTE5HoIcVeKwHkQPYZb99SZqR5q939w6fpXPY3SctZ\
    KmmRSCVbA4H5sVCG4VsFzmf4HQKBgQDzAudqCsFqFMqExc7E8NiWXe+6KuVa9G+lisGXahJ+3Uv33Qy+RysnEJRav3\
    0JX5FgXyNh0K/7v/PglcetCGfe5Srt5GEoIn568UY8PJlJndY44o3jhSMSFaKIvioFZR5WIilHZQWu9+Y+7JsuULxY\
    iN0Chugh+7sVccQmi8OGiwKBgQDfHABhhqSnoGRLIm2bXsFIhLOmntFteNo91xhZczOaJl1FKTJE1fBJJWzjEHobeD\
    Vzv9mtCbZq+ppr1MmlZ6npeinwcbU2zLJXHLG+wMC58gB28WR81wJdD14yNFNV6+gCDlmCA2FhEpD2yyJA1QrJnMdz\
    /cGgW7EujvpW7EdYnwKBgHrbc/2DlIc6Ha0EiGW+0fEraqB3QV87hxptTTRstw8WeGrGgcPNHT7xvd8nQmKzwz6yuq\
    OgKuifAgAAGWQchM8Gky6UMJ5m2gTz6CtaA7FZL82wlEV7sOBaucJiScJSfgTT3oSuyTHNOMWFP2sp/B7SitHVPJS5\
    vLq5uo42SNLDAoGAZKDljxdCdpSCB91cYGJpfQLVYIZrYRvMG25DfjzWfmVlVgdRs/hmaydlKDjLSk56lV1nmYMy8q\
    dbNN2BoYfS/ApslhVDLZc/rMi1ZprbkkKTcRJJR4FWgJCo5K3zFGLVfu/n8RsDNdxA4/8U0PcF6Y876pX+WgxhKuW0\
    BbaGK3MCgYAdCc5dPqcIC7pdsOXmgHMTtL3LFLpQAw1mvirEDHym74uwpIGDkGv8rIuhr1CCeuyyY1rwcC2aZmQ5e3\
    XaIkuX8UvEqFqwAj2/Z47VBNMJgyI0YAjsJyZYrgUsxP26ts4nKdJrLvBkkFKg7ZXkjcnKvu0VUKtJh4BQid4Wlqb9\
    EQ==";
