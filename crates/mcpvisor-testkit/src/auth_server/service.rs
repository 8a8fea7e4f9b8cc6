//! The state of the server, and the way of a request: record, faults, endpoint, reply.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use serde_json::json;
use tokio::net::TcpStream;

use super::client::Client;
use super::client_auth::ClientAuth;
use super::endpoint::Endpoint;
use super::fault_queue::{FaultQueue, Faults};
use super::form::Form;
use super::ledger::{Ledger, TokenInfo};
use super::options::{AuthOptions, MetadataLocation, ResourceRule};
use super::proof::ProofVerifier;
use super::record::{AuthRequest, Record};
use super::resource_guard::ResourceGuard;
use super::{authorize, client, control, device, metadata, token};
use crate::http_server::{Request, Service, WeakHttpServer, Wire, WireReply};

/// A reply; the error is a refusal.
pub(super) type Reply = Result<WireReply, WireReply>;

/// State shared by all connections and by the protected servers.
#[derive(Debug)]
pub(super) struct Shared {
    /// `http://HOST:PORT`, once the port is open.
    origin: OnceLock<String>,
    options: Mutex<AuthOptions>,
    ledger: Mutex<Ledger>,
    pub(super) faults: Mutex<FaultQueue>,
    record: Mutex<Record>,
    protected: Mutex<Option<(WeakHttpServer, Weak<ResourceGuard>)>>,
    pub(super) proofs: ProofVerifier,
    made: Instant,
}

impl Shared {
    pub(super) fn new(options: AuthOptions) -> Self {
        Self {
            origin: OnceLock::new(),
            options: Mutex::new(options),
            ledger: Mutex::default(),
            faults: Mutex::default(),
            record: Mutex::default(),
            protected: Mutex::new(None),
            proofs: ProofVerifier::default(),
            made: Instant::now(),
        }
    }

    pub(super) fn set_port(&self, port: u16) {
        let host = self.options().host.name();
        let _ = self.origin.set(format!("http://{host}:{port}"));
    }

    pub(super) fn origin(&self) -> &str {
        self.origin.get().map_or("", String::as_str)
    }

    pub(super) fn issuer(&self) -> String {
        format!("{}{}", self.origin(), self.options().path)
    }

    pub(super) fn url(&self, endpoint: Endpoint) -> String {
        format!("{}{}", self.issuer(), endpoint.path())
    }

    /// What an assertion for this server may name as its audience.
    pub(super) fn audiences(&self) -> [String; 2] {
        [self.issuer(), self.url(Endpoint::Token)]
    }

    pub(super) fn options(&self) -> AuthOptions {
        lock(&self.options).clone()
    }

    pub(super) fn options_mut(&self) -> MutexGuard<'_, AuthOptions> {
        lock(&self.options)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, FaultQueue> {
        lock(&self.faults)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    pub(super) fn protected(
        &self,
    ) -> MutexGuard<'_, Option<(WeakHttpServer, Weak<ResourceGuard>)>> {
        lock(&self.protected)
    }

    /// Milliseconds since the server was created.
    pub(super) fn at_ms(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A known client, or one with a metadata document.
    pub(super) fn client(&self, id: &str) -> Option<Client> {
        let document = self.options().client_metadata_documents && id.starts_with("https://");
        let known = self.ledger().client(id);
        known.or_else(|| document.then(|| Client::public(id, "")))
    }

    /// Issues an access token and a refresh token without a login.
    pub(super) fn issue_tokens(
        &self,
        client_id: &str,
        scopes: Vec<String>,
        resource: Option<&str>,
    ) -> (String, String) {
        let options = self.options();
        let mut ledger = self.ledger();
        let info = TokenInfo {
            client_id: client_id.to_owned(),
            account: options.account,
            scopes,
            resource: resource.map(str::to_owned),
            family: ledger.new_family(),
            jkt: None,
        };
        let access = ledger.issue_access(&info, options.access_lifetime);
        (access, ledger.issue_refresh(&info))
    }

    /// The audience that a request names.
    pub(super) fn resource(&self, form: &Form) -> Result<Option<String>, WireReply> {
        let refused = |text: &str| Err(error(400, "invalid_target", text));
        let rule = self.options().resource;
        let resources = self.ledger().resources.clone();
        match (rule, form.all("resource").as_slice()) {
            (ResourceRule::Refused, [_, ..]) => refused("resource is not supported"),
            (ResourceRule::Required, []) => refused("resource is missing"),
            (_, []) => Ok(None),
            (_, [resource])
                if resources.is_empty() || resources.iter().any(|it| it == resource) =>
            {
                Ok(Some((*resource).to_owned()))
            }
            (_, [_]) => refused("no such resource"),
            (_, [_, _, ..]) => refused("more than one resource"),
        }
    }

    /// What a request at this path is for.
    fn endpoint(&self, path: &str) -> Endpoint {
        let options = self.options();
        let base = options.path.as_str();
        let locations = options.metadata.iter().map(|location| match location {
            MetadataLocation::OAuth => format!("/.well-known/oauth-authorization-server{base}"),
            MetadataLocation::OidcInserted => format!("/.well-known/openid-configuration{base}"),
            MetadataLocation::OidcAppended => format!("{base}/.well-known/openid-configuration"),
        });
        if locations.into_iter().any(|location| location == path) {
            return Endpoint::Metadata;
        }
        if options.control && path.starts_with("/control/") {
            return Endpoint::Control;
        }
        path.strip_prefix(base)
            .map_or(Endpoint::Unknown, Endpoint::at)
    }
}

impl Service for Shared {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut wire = Wire::new(stream, None);
        while let Ok(Some(request)) = wire.request().await {
            if serve(&mut wire, &self, request).await.is_err() {
                return;
            }
        }
    }
}

/// Answers one request. An error ends the connection.
async fn serve(wire: &mut Wire, shared: &Shared, request: Request) -> io::Result<()> {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let endpoint = shared.endpoint(path);
    let mut form = Form::parse(query.as_bytes());
    let kind = request.header("content-type").unwrap_or_default();
    let is_form = kind.starts_with("application/x-www-form-urlencoded");
    if is_form {
        form.0.extend(Form::parse(&request.body).0);
    }
    if endpoint == Endpoint::Control {
        let command = path.trim_start_matches("/control/");
        return control::answer(shared, command, &form).send(wire).await;
    }
    let body = String::from_utf8_lossy(if is_form { b"" } else { &request.body }).into_owned();
    let client_auth = ClientAuth::of(&request, &form);
    let number = {
        let mut record = shared.record();
        record.requests.push(AuthRequest {
            endpoint,
            http_method: request.method.clone(),
            path: path.to_owned(),
            form: form.clone(),
            body,
            headers: request.headers.clone(),
            client_auth: client_auth.clone(),
            at_ms: shared.at_ms(),
            status: None,
        });
        record.requests.len() - 1
    };
    let _open = (endpoint == Endpoint::Token).then(|| OpenTokenRequest::count(shared));
    let faults = shared.faults().take_for(endpoint, &form);
    tokio::time::sleep(faults.delay()).await;
    let reply = match faults.replacement(&request.path) {
        Some(reply) => reply,
        None => {
            let reply = handle(shared, endpoint, &request, &form, &client_auth, &faults);
            faults.change(reply.unwrap_or_else(|refusal| refusal))
        }
    };
    shared.record().requests[number].status = reply.visible_status();
    reply.send(wire).await
}

fn handle(
    shared: &Shared,
    endpoint: Endpoint,
    request: &Request,
    form: &Form,
    client_auth: &ClientAuth,
    faults: &Faults,
) -> Reply {
    let options = shared.options();
    match (endpoint, request.method.as_str()) {
        (Endpoint::Metadata, "GET") => Ok(metadata::answer(shared, faults)),
        (Endpoint::Register, "POST") if options.registration => {
            client::register(shared, &request.body)
        }
        (Endpoint::Authorize, "GET") => authorize::answer(shared, form, faults),
        (Endpoint::Decision, "POST") => authorize::decide(shared, form),
        (Endpoint::Token, "POST") => token::answer(shared, request, form, client_auth, faults),
        (Endpoint::Revoke, "POST") if options.revocation => {
            token::revoke(shared, form, client_auth)
        }
        (Endpoint::DeviceAuthorization, "POST") if options.device => {
            device::start(shared, form, client_auth)
        }
        (Endpoint::DevicePage, "GET") if options.device => Ok(device::page(shared, form)),
        (Endpoint::DevicePage, "POST") if options.device => device::decide(shared, form),
        _ => Err(WireReply::text(404, "Not Found")),
    }
}

/// Counts a token request while it is open.
struct OpenTokenRequest<'a>(&'a Shared);

impl<'a> OpenTokenRequest<'a> {
    fn count(shared: &'a Shared) -> Self {
        let mut record = shared.record();
        record.token_requests += 1;
        record.most_token_requests = record.most_token_requests.max(record.token_requests);
        Self(shared)
    }
}

impl Drop for OpenTokenRequest<'_> {
    fn drop(&mut self) {
        self.0.record().token_requests -= 1;
    }
}

/// An OAuth error.
pub(super) fn error(status: u16, code: &str, text: &str) -> WireReply {
    let body = json!({ "error": code, "error_description": text });
    WireReply::json(status, &body).header("cache-control", "no-store")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
