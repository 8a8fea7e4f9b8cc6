//! Notifications from the server: changed lists, progress, events and cancellations.

use mcpvisor_core::{CallId, ClientId, ListKind};
use rmcp::model::{
    CustomNotification, GetExtensions, LoggingMessageNotificationParam, NumberOrString,
    ProgressNotificationParam, RequestId, ResourceUpdatedNotificationParam, ServerNotification,
    ServerResult,
};

use super::client_settings::to_severity;
use super::event_loop::Session;
use crate::api::events::EventKind;
use crate::api::notifications::{Inboxes, Notification, NotificationKind};
use crate::api::request::RequestKey;
use crate::link::Link;

impl<L: Link> Session<'_, L> {
    pub(super) fn on_notification(
        &mut self,
        notification: ServerNotification,
        cause: Option<CallId>,
    ) {
        if let Some(modern) = &self.modern {
            let meta = notification.extensions().get();
            if !modern.subscriptions.accepts_notification(meta) {
                self.batch.summary.strays += 1;
                return;
            }
        }
        let event = match notification {
            ServerNotification::ProgressNotification(mut progress) => {
                progress.params.meta = progress
                    .params
                    .meta
                    .or_else(|| progress.extensions.remove());
                return self.on_progress(progress.params);
            }
            ServerNotification::ToolListChangedNotification(_) => {
                return self.batch.add_changed_lists(&[ListKind::Tools]);
            }
            ServerNotification::PromptListChangedNotification(_) => {
                return self.batch.add_changed_lists(&[ListKind::Prompts]);
            }
            ServerNotification::ResourceListChangedNotification(_) => {
                let lists = [ListKind::Resources, ListKind::Templates];
                return self.batch.add_changed_lists(&lists);
            }
            ServerNotification::LoggingMessageNotification(mut log) => {
                // rmcp moves the metadata out of the parameters.
                log.params.meta = log.params.meta.or_else(|| log.extensions.remove());
                self.deliver_log(&log.params, cause);
                EventKind::Log(log.params)
            }
            ServerNotification::ResourceUpdatedNotification(mut updated) => {
                updated.params.meta = updated.params.meta.or_else(|| updated.extensions.remove());
                self.deliver_update(&updated.params);
                EventKind::ResourceUpdated {
                    uri: updated.params.uri,
                }
            }
            ServerNotification::CustomNotification(custom) => {
                self.input_rounds.note_completion(&custom);
                self.deliver_custom(&custom, cause);
                EventKind::Custom(custom)
            }
            ServerNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.on_cancelled(id);
                }
                return;
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(acknowledged) => {
                return self.on_acknowledged(&acknowledged);
            }
            // Other notifications, such as those of tasks, are not supported.
            _ => return,
        };
        self.emit(event);
    }

    /// The server cancels one of its own requests, or ends our listen request.
    fn on_cancelled(&mut self, id: &RequestId) {
        self.server_requests.cancel(id);
        let modern = self.modern.as_ref();
        let listen_request = modern.and_then(|it| it.subscriptions.find_request(id));
        if let Some(id) = listen_request
            && self.pending.remove(id).is_some()
        {
            self.on_listen_request_ended(id, &Ok(ServerResult::empty(())));
        }
    }

    fn on_progress(&mut self, progress: ProgressNotificationParam) {
        let NumberOrString::Number(number) = progress.progress_token.0 else {
            return;
        };
        let Ok(id) = u64::try_from(number).map(CallId) else {
            return;
        };
        let Some(call) = self.pending.call(id) else {
            return;
        };
        if let Some(sink) = &call.progress {
            // A full sink misses this update; the next one supersedes it.
            let _ = sink.try_send(progress.clone());
        }
        let (id, client, key) = (call.id, call.client, call.key);
        if !self.inboxes().is_empty() {
            let kind = NotificationKind::Progress(progress.clone());
            let notification = self.notification(Some(key), kind);
            self.inboxes().deliver_to(client, notification);
        }
        if self.batch.summary.progressed.last() != Some(&id) {
            self.batch.summary.progressed.push(id);
        }
        self.emit(EventKind::Progress(progress));
    }

    fn emit(&self, event: EventKind) {
        let generation = self.task.reporter.generation;
        self.task.slot.emit(generation, event);
    }

    fn inboxes(&self) -> &Inboxes {
        &self.task.slot.events.inboxes
    }

    fn notification(&self, cause: Option<RequestKey>, kind: NotificationKind) -> Notification {
        Notification {
            server: self.task.slot.name().clone(),
            generation: self.task.reporter.generation,
            cause,
            kind,
        }
    }

    /// The client and the request that a message belongs to, if the transport shows it.
    fn owner(&self, cause: Option<CallId>) -> Option<(ClientId, RequestKey)> {
        let call = self.pending.call(cause?)?;
        Some((call.client, call.key))
    }

    /// The only client that a message can be for: that of its request, or that of the connection.
    fn only_client(&self, owner: Option<(ClientId, RequestKey)>) -> Option<ClientId> {
        let slot = &self.task.slot;
        let of_slot = match slot.owner() {
            Some(owner) => Some(owner.client),
            // Where each client has its own, the main one is that of requests without a client.
            None => slot.is_per_client().then_some(ClientId::DEFAULT),
        };
        owner.map(|(client, _)| client).or(of_slot)
    }

    /// Delivers a log message to the clients that want it.
    fn deliver_log(&self, log: &LoggingMessageNotificationParam, cause: Option<CallId>) {
        if self.inboxes().is_empty() {
            return;
        }
        let severity = to_severity(log.level);
        let owner = self.owner(cause);
        let key = owner.map(|(_, key)| key);
        let notification = self.notification(key, NotificationKind::Log(log.clone()));
        let state = self.task.slot.restart_state();
        let wanted = &state.session;
        match self.only_client(owner) {
            Some(client) if wanted.gets_log(client, severity, true) => {
                self.inboxes().deliver_to(client, notification);
            }
            Some(_) => {}
            None => {
                let is_for = |client| wanted.gets_log(client, severity, false);
                self.inboxes().deliver(notification, is_for);
            }
        }
    }

    /// Delivers the update of a resource to its subscribers.
    fn deliver_update(&self, updated: &ResourceUpdatedNotificationParam) {
        if self.inboxes().is_empty() {
            return;
        }
        let state = self.task.slot.restart_state();
        let clients = state.session.recipients_of_update(&updated.uri);
        drop(state);
        let kind = NotificationKind::ResourceUpdated(updated.clone());
        let notification = self.notification(None, kind);
        let is_for = |client| clients.contains(&client);
        self.inboxes().deliver(notification, is_for);
    }

    /// Delivers a custom notification to the client that it belongs to, or to all.
    fn deliver_custom(&self, custom: &CustomNotification, cause: Option<CallId>) {
        if self.inboxes().is_empty() {
            return;
        }
        let owner = self.owner(cause);
        let key = owner.map(|(_, key)| key);
        let notification = self.notification(key, NotificationKind::Custom(custom.clone()));
        match self.only_client(owner) {
            Some(client) => self.inboxes().deliver_to(client, notification),
            None => self.inboxes().deliver(notification, |_| true),
        }
    }
}
