//! Subscriptions and the log level of a session that clients share.
//!
//! What each client wants is in the slot ([`mcpvisor_core::ClientSettings`]) and outlives the
//! connection. This is what the server knows of it: a resource is subscribed for the first client and
//! unsubscribed after the last, and the server gets the most verbose level of all clients.
//!
//! In the modern era subscriptions are part of the listen request, and each request carries the level of
//! its own client.

use std::collections::{BTreeMap, HashMap};

use mcpvisor_core::{CallId, CallMap, ClientId, ClientSettings, LogSeverity};
use rmcp::model::{
    ClientRequest, LoggingLevel, ServerResult, SetLevelRequest, SetLevelRequestParams,
    SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest, UnsubscribeRequestParams,
};
use tokio::sync::oneshot;

use super::event_loop::Session;
use super::pending::InternalRequest;
use crate::link::Link;
use crate::server::call::Call;

/// What the server knows of the clients' settings on this connection.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    /// Only in the legacy era.
    subscriptions: HashMap<String, Subscription>,
    /// The level of the last request for one, unless it failed.
    level: Option<LoggingLevel>,
    /// Requests in flight that change a setting, by their id on the wire.
    in_flight: CallMap<SettingChange>,
    /// The levels of the clients, for the requests of the modern era.
    pub(crate) own_levels: BTreeMap<ClientId, LoggingLevel>,
}

/// A subscription at the server.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "calls move as pointers")]
enum Subscription {
    Active,
    /// It is requested; calls for the same resource wait for the answer.
    Pending(Vec<Box<Call>>),
}

/// A change that was requested from the server.
#[derive(Debug)]
enum SettingChange {
    /// By a client, or by the runtime for the clients that subscribed before.
    Subscribe(Option<ClientId>, String),
    /// By a client, with its level before; or by the runtime.
    Level(Option<(ClientId, Option<LogSeverity>)>),
}

/// How a request for a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeEnd {
    Confirmed,
    Failed,
    /// Its caller gave up; the server may have done it.
    Abandoned,
}

/// The level that a client requested. It travels in the request's extensions, because the request
/// itself may carry the level of another client.
#[derive(Debug, Clone, Copy)]
struct OwnLevel(LoggingLevel);

impl SessionSettings {
    pub(crate) fn new(wanted: &ClientSettings) -> Self {
        let levels = wanted.levels();
        Self {
            own_levels: levels.map(|(it, level)| (it, to_level(level))).collect(),
            ..Self::default()
        }
    }

    fn is_level_in_flight(&self) -> bool {
        let mut changes = self.in_flight.values();
        changes.any(|change| matches!(change, SettingChange::Level(_)))
    }

    /// Takes a call that waits for the answer to another one.
    pub(crate) fn take_waiting(&mut self, id: CallId) -> Option<Box<Call>> {
        self.subscriptions.values_mut().find_map(|it| match it {
            Subscription::Active => None,
            Subscription::Pending(waiting) => {
                let at = waiting.iter().position(|call| call.id == id)?;
                Some(waiting.remove(at))
            }
        })
    }

    /// Takes all calls that wait for the answer to another one.
    pub(crate) fn drain_waiting(&mut self) -> impl Iterator<Item = Box<Call>> {
        let subscriptions = self.subscriptions.drain();
        subscriptions.flat_map(|(_, it)| match it {
            Subscription::Active => Vec::new(),
            Subscription::Pending(waiting) => waiting,
        })
    }
}

impl<L: Link> Session<'_, L> {
    fn wanted<T>(&self, with: impl FnOnce(&mut ClientSettings) -> T) -> T {
        with(&mut self.task.slot.restart_state().session)
    }

    /// Adds the subscription of a client that the server has confirmed.
    pub(crate) fn record_subscription(&mut self, client: ClientId, uri: &str) {
        self.wanted(|wanted| wanted.subscribe(client, uri));
        self.batch.summary.subscriptions_changed = true;
    }

    /// Removes the subscription of a client. Returns whether another client has one.
    pub(crate) fn remove_subscription(&mut self, client: ClientId, uri: &str) -> bool {
        self.batch.summary.subscriptions_changed = true;
        self.wanted(|wanted| wanted.unsubscribe(client, uri))
    }

    /// Sets the level of a client for its requests in the modern era.
    pub(crate) fn set_own_level(&mut self, client: ClientId, level: LoggingLevel) {
        let severity = to_severity(level);
        self.wanted(|wanted| wanted.set_level(client, Some(severity)));
        self.settings.own_levels.insert(client, level);
        self.batch.summary.levels_set.push((client, severity));
    }

    /// Clients set these levels at another instance of the pool.
    pub(super) fn adopt_log_levels(&mut self, levels: &[(ClientId, LogSeverity)]) {
        if self.modern.is_some() {
            let levels = levels
                .iter()
                .map(|(client, level)| (*client, to_level(*level)));
            self.settings.own_levels.extend(levels);
        } else {
            self.send_present_level();
        }
    }

    /// Sends the most verbose level of all clients, unless the server has it.
    fn send_present_level(&mut self) {
        // Replaced by the present level before it is sent.
        let params = SetLevelRequestParams::new(LoggingLevel::Emergency);
        self.send_setting(SetLevelRequest::new(params).into());
    }

    /// Prepares a call of the legacy era. `None`: it is not sent by itself.
    pub(crate) fn prepare_setting(&mut self, mut call: Box<Call>) -> Option<Box<Call>> {
        let is_sent = match &mut call.request {
            Some(ClientRequest::SubscribeRequest(request)) => {
                let uri = request.params.uri.clone();
                match self.settings.subscriptions.get_mut(&uri) {
                    Some(Subscription::Pending(waiting)) => {
                        waiting.push(call);
                        return None;
                    }
                    Some(Subscription::Active) => {
                        self.record_subscription(call.client, &uri);
                        false
                    }
                    None => {
                        self.begin_subscription(call.id, Some(call.client), uri);
                        true
                    }
                }
            }
            Some(ClientRequest::UnsubscribeRequest(request)) => {
                let uri = request.params.uri.clone();
                let subscription = self.settings.subscriptions.get_mut(&uri);
                if let Some(Subscription::Pending(waiting)) = subscription {
                    waiting.push(call);
                    return None;
                }
                let is_wanted = self.remove_subscription(call.client, &uri);
                if !is_wanted {
                    self.settings.subscriptions.remove(&uri);
                }
                !is_wanted
            }
            Some(ClientRequest::SetLevelRequest(request)) => {
                let own = request.extensions.get::<OwnLevel>().copied();
                let own = own.unwrap_or(OwnLevel(request.params.level));
                let client = call.client;
                let (before, level) = self.wanted(|wanted| {
                    let before = wanted.set_level(client, Some(to_severity(own.0)));
                    (before, wanted.level().map_or(own.0, to_level))
                });
                request.extensions.insert(own);
                request.params.level = level;
                let is_known = self.settings.level == Some(level);
                let is_sent = !is_known || self.settings.is_level_in_flight();
                if is_sent {
                    let change = SettingChange::Level(Some((client, before)));
                    self.settings.in_flight.insert(call.id, change);
                    self.settings.level = Some(level);
                } else {
                    let severity = to_severity(own.0);
                    self.batch.summary.levels_set.push((client, severity));
                }
                is_sent
            }
            _ => true,
        };
        if is_sent {
            return Some(call);
        }
        self.batch.finish_locally(call, Ok(ServerResult::empty(())));
        None
    }

    /// Prepares a request of the runtime in the legacy era: a setting that is restored. `false`: clients
    /// want it no longer, or the server knows it already.
    pub(crate) fn prepare_restored_setting(&mut self, internal: &mut InternalRequest) -> bool {
        match &mut internal.request {
            ClientRequest::SubscribeRequest(request) => {
                let uri = request.params.uri.clone();
                let is_known = self.settings.subscriptions.contains_key(&uri);
                let is_sent = !is_known && self.wanted(|wanted| wanted.is_subscribed(&uri));
                if is_sent {
                    self.begin_subscription(internal.id, None, uri);
                }
                is_sent
            }
            ClientRequest::SetLevelRequest(request) => {
                let level = self.wanted(|wanted| wanted.level()).map(to_level);
                let Some(level) = level.filter(|it| self.settings.level != Some(*it)) else {
                    return false;
                };
                request.params.level = level;
                let change = SettingChange::Level(None);
                self.settings.in_flight.insert(internal.id, change);
                self.settings.level = Some(level);
                true
            }
            _ => true,
        }
    }

    fn begin_subscription(&mut self, id: CallId, client: Option<ClientId>, uri: String) {
        let change = SettingChange::Subscribe(client, uri.clone());
        self.settings.in_flight.insert(id, change);
        let pending = Subscription::Pending(Vec::new());
        self.settings.subscriptions.insert(uri, pending);
    }

    /// A request ended; notes it if it was to change a setting.
    pub(super) fn setting_ended(&mut self, id: CallId, end: ChangeEnd) {
        if self.settings.in_flight.is_empty() {
            return;
        }
        match self.settings.in_flight.remove(&id) {
            Some(SettingChange::Subscribe(client, uri)) => {
                self.subscription_ended(client, &uri, end);
            }
            Some(SettingChange::Level(change)) if end != ChangeEnd::Confirmed => {
                self.settings.level = None;
                if let Some((client, before)) = change {
                    self.wanted(|wanted| wanted.set_level(client, before));
                }
            }
            Some(SettingChange::Level(change)) => {
                let client = change.map(|(client, _)| client);
                let levels = self.wanted(|wanted| wanted.levels().collect::<Vec<_>>());
                let own = levels.into_iter().filter(|(it, _)| Some(*it) == client);
                self.batch.summary.levels_set.extend(own);
            }
            None => {}
        }
    }

    fn subscription_ended(&mut self, client: Option<ClientId>, uri: &str, end: ChangeEnd) {
        let waiting = match self.settings.subscriptions.remove(uri) {
            Some(Subscription::Pending(waiting)) => waiting,
            Some(Subscription::Active) | None => Vec::new(),
        };
        if end == ChangeEnd::Confirmed {
            let active = Subscription::Active;
            self.settings.subscriptions.insert(uri.to_owned(), active);
            if let Some(client) = client {
                self.record_subscription(client, uri);
            }
        }
        for call in waiting {
            self.start_call(call);
        }
        if end == ChangeEnd::Abandoned && !self.settings.subscriptions.contains_key(uri) {
            // The server may have done it. It is taken back, or requested again for others.
            let request: ClientRequest = match self.wanted(|wanted| wanted.is_subscribed(uri)) {
                true => SubscribeRequest::new(SubscribeRequestParams::new(uri)).into(),
                false => UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri)).into(),
            };
            self.send_setting(request);
        }
    }

    /// A client ended: the server learns what no client wants any more.
    pub(super) fn release_client(&mut self, client: ClientId) {
        self.wanted(|wanted| wanted.release(client));
        self.settings.own_levels.remove(&client);
        self.batch.summary.subscriptions_changed = true;
        if self.modern.is_some() {
            self.release_listened();
        } else {
            self.release_subscriptions();
            if self.settings.level.is_some() {
                self.send_present_level();
            }
        }
        self.flush();
    }

    fn release_subscriptions(&mut self) {
        let subscriptions = self.settings.subscriptions.iter();
        let active = subscriptions.filter(|(_, it)| matches!(it, Subscription::Active));
        let active: Vec<String> = active.map(|(uri, _)| uri.clone()).collect();
        for uri in active {
            if !self.wanted(|wanted| wanted.is_subscribed(&uri)) {
                self.settings.subscriptions.remove(&uri);
                let params = UnsubscribeRequestParams::new(uri);
                self.send_setting(UnsubscribeRequest::new(params).into());
            }
        }
    }

    /// Sends a request of the runtime whose answer does not matter.
    fn send_setting(&mut self, request: ClientRequest) {
        let (reply, _) = oneshot::channel();
        let id = self.task.slot.calls.next_id();
        self.start_internal(InternalRequest { id, request, reply });
    }

    /// The connection ends: levels that were not confirmed do not count.
    pub(super) fn withdraw_levels(&mut self) {
        let mut changes: Vec<_> = self.settings.in_flight.drain().collect();
        // The latest first, so that each finds the level that it replaced.
        changes.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
        for (_, change) in changes {
            if let SettingChange::Level(Some((client, before))) = change {
                self.wanted(|wanted| wanted.set_level(client, before));
            }
        }
    }
}

/// A severity as a level of the protocol.
pub(crate) fn to_level(severity: LogSeverity) -> LoggingLevel {
    match severity {
        LogSeverity::Debug => LoggingLevel::Debug,
        LogSeverity::Info => LoggingLevel::Info,
        LogSeverity::Notice => LoggingLevel::Notice,
        LogSeverity::Warning => LoggingLevel::Warning,
        LogSeverity::Error => LoggingLevel::Error,
        LogSeverity::Critical => LoggingLevel::Critical,
        LogSeverity::Alert => LoggingLevel::Alert,
        LogSeverity::Emergency => LoggingLevel::Emergency,
    }
}

/// A level of the protocol as a severity.
pub(crate) fn to_severity(level: LoggingLevel) -> LogSeverity {
    match level {
        LoggingLevel::Debug => LogSeverity::Debug,
        LoggingLevel::Info => LogSeverity::Info,
        LoggingLevel::Notice => LogSeverity::Notice,
        LoggingLevel::Warning => LogSeverity::Warning,
        LoggingLevel::Error => LogSeverity::Error,
        LoggingLevel::Critical => LogSeverity::Critical,
        LoggingLevel::Alert => LogSeverity::Alert,
        LoggingLevel::Emergency => LogSeverity::Emergency,
    }
}
