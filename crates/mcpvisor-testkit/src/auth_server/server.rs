//! The server's handle, with which a test controls it and reads its record.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::device;
use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::fault_queue::AuthFaultBuilder;
use super::ledger::{TokenInfo, TokenProblem, Tokens};
use super::options::AuthOptions;
use super::record::{AuthCounters, AuthRequest};
use super::service::Shared;
use crate::eventually::eventually;
use crate::http_server::Listener;

/// An authorization server that runs until it is dropped. Clones refer to the same server.
#[derive(Debug, Clone)]
pub struct AuthServer(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// `None` while it is stopped.
    listener: tokio::sync::Mutex<Option<Listener>>,
}

impl AuthServer {
    /// Starts a server with the default options on a free port.
    pub async fn start() -> Self {
        Self::start_with(AuthOptions::default()).await
    }

    /// Starts a server on a free port.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn start_with(options: AuthOptions) -> Self {
        let shared = Arc::new(Shared::new(options));
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::open(loopback, &shared).await;
        let listener = listener.unwrap_or_else(|problem| {
            panic!("no authorization server can be started on loopback: {problem}")
        });
        let address = listener.address();
        shared.set_port(address.port());
        Self(Arc::new(Owner {
            shared,
            address,
            listener: tokio::sync::Mutex::new(Some(listener)),
        }))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The issuer.
    pub fn issuer(&self) -> String {
        self.0.shared.issuer()
    }

    /// The URL of an endpoint of this server.
    pub fn url(&self, endpoint: Endpoint) -> String {
        self.0.shared.url(endpoint)
    }

    /// The URL of the control endpoint `/control/…`.
    pub fn control_url(&self) -> String {
        format!("{}/control", self.0.shared.origin())
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Closes its port and every connection. Clients and tokens stay.
    pub async fn stop(&self) {
        if let Some(listener) = self.0.listener.lock().await.take() {
            listener.close().await;
        }
    }

    /// Listens on its port again.
    pub async fn resume(&self) {
        let mut listener = self.0.listener.lock().await;
        if listener.is_none() {
            *listener = Some(Listener::reopen(self.0.address, &self.0.shared).await);
        }
    }

    /// Changes options for all further requests.
    pub fn configure(&self, change: impl FnOnce(&mut AuthOptions)) {
        change(&mut self.0.shared.options_mut());
    }

    /// Builds a fault: `auth.fault(AuthFault::Status(500)).times(2)`.
    pub fn fault(&self, fault: AuthFault) -> AuthFaultBuilder<'_> {
        AuthFaultBuilder::new(&self.0.shared.faults, fault)
    }

    /// Disarms all faults.
    pub fn disarm(&self) {
        self.0.shared.faults().disarm();
    }

    /// The number of faults injected.
    pub fn injected(&self) -> u64 {
        self.0.shared.faults().taken()
    }

    /// Registers a client.
    pub fn add_client(&self, client: Client) {
        self.0.shared.ledger().add_client(client);
    }

    /// All clients.
    pub fn clients(&self) -> Vec<Client> {
        self.0.shared.ledger().clients()
    }

    /// Forgets the clients that registered themselves. Returns their number.
    pub fn prune_clients(&self) -> usize {
        self.0.shared.ledger().prune_clients()
    }

    /// Issues tokens without a login, to fill a client's store: an access token and a refresh
    /// token.
    pub fn issue_tokens(
        &self,
        client_id: &str,
        scopes: &[&str],
        resource: Option<&str>,
    ) -> (String, String) {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        self.0.shared.issue_tokens(client_id, scopes, resource)
    }

    /// The valid tokens.
    pub fn current_tokens(&self) -> Tokens {
        self.0.shared.ledger().current()
    }

    /// What an access token grants, or why it is not accepted.
    pub fn introspect(&self, access_token: &str) -> Result<TokenInfo, TokenProblem> {
        self.0.shared.ledger().check_access(access_token)
    }

    /// Lets all access tokens expire. Returns how many were valid.
    pub fn expire_access_tokens(&self) -> usize {
        self.0.shared.ledger().expire_access()
    }

    /// Revokes one access token. Returns whether it was valid.
    pub fn revoke_access_token(&self, token: &str) -> bool {
        self.0.shared.ledger().revoke_access(token)
    }

    /// Revokes one refresh token; its access tokens stay valid. Returns whether it was valid.
    pub fn revoke_refresh_token(&self, token: &str) -> bool {
        self.0.shared.ledger().revoke_refresh(token)
    }

    /// Revokes all tokens of one login.
    pub fn revoke_family(&self, family: u64) {
        self.0.shared.ledger().revoke_family(family);
    }

    /// The codes that devices show to their users.
    pub fn user_codes(&self) -> Vec<String> {
        let ledger = self.0.shared.ledger();
        let codes = ledger.devices.iter().map(|device| device.user_code.clone());
        codes.collect()
    }

    /// Approves a device. Returns whether the code is known.
    pub fn approve_device(&self, user_code: &str) -> bool {
        device::set_decision(&self.0.shared, user_code, true)
    }

    /// Denies a device. Returns whether the code is known.
    pub fn deny_device(&self, user_code: &str) -> bool {
        device::set_decision(&self.0.shared, user_code, false)
    }

    /// All requests, in order of arrival.
    pub fn requests(&self) -> Vec<AuthRequest> {
        self.0.shared.record().requests.clone()
    }

    /// All requests to an endpoint, in order of arrival.
    pub fn requests_to(&self, endpoint: Endpoint) -> Vec<AuthRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.endpoint == endpoint);
        requests
    }

    /// The number of requests to an endpoint.
    pub fn count(&self, endpoint: Endpoint) -> usize {
        let record = self.0.shared.record();
        let requests = record.requests.iter();
        requests.filter(|it| it.endpoint == endpoint).count()
    }

    /// The number of token requests of a grant type.
    pub fn token_requests(&self, grant_type: &str) -> usize {
        let requests = self.requests_to(Endpoint::Token);
        let of_type = |it: &&AuthRequest| it.form.get("grant_type") == Some(grant_type);
        requests.iter().filter(of_type).count()
    }

    /// The peak number of open token requests.
    pub fn most_token_requests(&self) -> usize {
        self.0.shared.record().most_token_requests
    }

    /// The number of token requests refused for the nonce of their proof.
    pub fn refused_nonces(&self) -> u64 {
        self.0.shared.proofs.refused_nonces()
    }

    /// Why proofs of token requests were not valid.
    pub fn invalid_proofs(&self) -> Vec<String> {
        self.0.shared.proofs.invalid_proofs()
    }

    /// What happened to tokens.
    pub fn counters(&self) -> AuthCounters {
        self.0.shared.ledger().counters
    }

    /// Waits until an endpoint got this many requests.
    ///
    /// # Panics
    ///
    /// After the deadline.
    #[track_caller]
    pub fn wait_for_requests(
        &self,
        endpoint: Endpoint,
        count: usize,
        deadline: Duration,
    ) -> impl Future<Output = ()> {
        let what = format!("{count} requests to {}", endpoint.name());
        eventually(deadline, what, move || {
            let seen = self.count(endpoint);
            (seen >= count).then_some(()).ok_or(seen)
        })
    }

    /// Waits until the counters satisfy a condition.
    ///
    /// # Panics
    ///
    /// After the deadline.
    #[track_caller]
    pub fn wait_for_counters(
        &self,
        deadline: Duration,
        what: &str,
        holds: impl Fn(&AuthCounters) -> bool,
    ) -> impl Future<Output = AuthCounters> {
        eventually(deadline, what, move || {
            let counters = self.counters();
            holds(&counters).then_some(counters).ok_or(counters)
        })
    }

    /// Waits until a device waits for its user. Returns the code that it shows.
    ///
    /// # Panics
    ///
    /// After the deadline.
    #[track_caller]
    pub fn wait_for_user_code(&self, deadline: Duration) -> impl Future<Output = String> {
        eventually(deadline, "a device with a user code", || {
            self.user_codes().pop()
        })
    }
}
