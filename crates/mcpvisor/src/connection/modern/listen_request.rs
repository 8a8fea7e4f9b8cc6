//! Sends the listen request and handles its acknowledgement and end.

use mcpvisor_core::{CallId, ClientId};
use rmcp::ErrorData;
use rmcp::model::{
    ErrorCode, NotificationMetaObject, ServerResult, SubscriptionsAcknowledgedNotification,
};

use super::requests::no_subscriptions;
use crate::api::reply::Failure;
use crate::connection::session::Session;
use crate::connection::session::pending::Requester;
use crate::link::{Link, ReplyKind};
use crate::log_limit::log_limited;
use crate::server::actor::now;
use crate::server::call::Call;

/// The reason of a cancelled listen request that a newer one replaced.
const REPLACED: &str = "replaced by a newer request";

impl<L: Link> Session<'_, L> {
    pub(crate) fn send_listen_request_if_due(&mut self) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let at = now();
        if modern.subscriptions.due().is_none_or(|due| due > at) {
            return;
        }
        let id = self.task.slot.calls.next_id();
        let (mut request, replaced) = modern.subscriptions.next_request(at, id);
        modern.add_meta(&mut request);
        match self.link.push_request(id, &mut Some(request), false) {
            Ok(position) => self
                .pending
                .insert(id, ReplyKind::Any, position, Requester::Listen),
            Err(problem) => {
                self.on_listen_request_ended(id, &Err(ErrorData::internal_error(problem, None)));
            }
        }
        if let Some(replaced) = replaced {
            self.cancel_listen_request(replaced, REPLACED);
        }
    }

    fn cancel_listen_request(&mut self, id: CallId, reason: &str) {
        self.pending.remove(id);
        self.link.cancel(id, reason);
    }

    /// Removes the subscription of a client, and fails its calls that wait for the acknowledgement.
    pub(super) fn unsubscribe(&mut self, client: ClientId, uri: &str) {
        let is_wanted = self.remove_subscription(client, uri);
        let Some(modern) = &mut self.modern else {
            return;
        };
        let own = |it: &str, call: &Call| it == uri && call.client == client;
        let waiting = modern
            .subscribing
            .extract_if(.., |(it, call)| own(it, call));
        for (_, call) in waiting {
            let problem = format!("{uri} was unsubscribed before the server acknowledged it");
            let failure = Failure::InvalidRequest(problem);
            self.batch.finish_locally(call, Err(failure));
        }
        if !is_wanted {
            self.stop_listening(uri);
        }
    }

    /// Removes a resource that no client wants, unless one waits for its acknowledgement.
    fn stop_listening(&mut self, uri: &str) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        if modern.subscribing.iter().any(|(it, _)| it == uri) {
            return;
        }
        for id in modern.subscriptions.unsubscribe(now(), uri) {
            self.cancel_listen_request(id, "no subscriptions left");
        }
    }

    /// Removes the resources that no client wants any more.
    pub(crate) fn release_listened(&mut self) {
        let Some(modern) = &self.modern else {
            return;
        };
        let listened = {
            let state = self.task.slot.restart_state();
            let uris = modern.subscriptions.uris().iter();
            let unwanted = uris.filter(|uri| !state.session.is_subscribed(uri));
            unwanted.cloned().collect::<Vec<_>>()
        };
        for uri in listened {
            self.stop_listening(&uri);
        }
        self.send_listen_request_if_due();
    }

    /// The server acknowledged the listen request, with the subscriptions that it accepts.
    pub(crate) fn on_acknowledged(&mut self, notification: &SubscriptionsAcknowledgedNotification) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let meta = notification.extensions.get::<NotificationMetaObject>();
        let meta = meta.or(notification.params.meta.as_ref());
        let id = meta.and_then(NotificationMetaObject::subscription_id);
        let accepted = &notification.params.notifications;
        let subscriptions = &mut modern.subscriptions;
        let Some(acknowledged) = subscriptions.on_acknowledged(now(), id.as_ref(), accepted) else {
            return;
        };
        if !acknowledged.rejected.is_empty() {
            let rejected = acknowledged.rejected.join(", ");
            let slot = &self.task.slot;
            log_limited!(slot.log_limit, WARN, server = %slot.name(), rejected, "the server rejected subscriptions");
        }
        let mut accepted = Vec::new();
        for (uri, call) in std::mem::take(&mut modern.subscribing) {
            if subscriptions.is_accepted(&uri) {
                accepted.push((uri, call));
            } else if subscriptions.due().is_some() {
                // The next listen request includes it.
                modern.subscribing.push((uri, call));
            } else {
                subscriptions.remove_uri(&uri);
                let problem = format!("the server does not send updates of {uri}");
                self.batch
                    .finish(call, Err(Failure::InvalidRequest(problem)));
            }
        }
        for (uri, call) in accepted {
            self.record_subscription(call.client, &uri);
            self.batch.finish(call, Ok(ServerResult::empty(())));
        }
        self.batch.add_changed_lists(&acknowledged.missed);
        if let Some(replaced) = acknowledged.replaced {
            self.cancel_listen_request(replaced, REPLACED);
        }
    }

    /// A listen request ended.
    pub(crate) fn on_listen_request_ended(
        &mut self,
        id: CallId,
        result: &Result<ServerResult, ErrorData>,
    ) {
        let Some(modern) = &mut self.modern else {
            return;
        };
        let unsupported = matches!(result, Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND);
        modern.subscriptions.on_ended(now(), id, unsupported);
        if unsupported {
            for (_, call) in modern.subscribing.drain(..) {
                let failure = Failure::InvalidRequest(no_subscriptions());
                self.batch.finish(call, Err(failure));
            }
        }
    }
}
