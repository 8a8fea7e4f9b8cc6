//! Notifications from the server: changed lists, progress, events and cancellations.

use mcpvisor_core::{CallId, ListKind};
use rmcp::model::{
    GetExtensions, NumberOrString, ProgressNotificationParam, RequestId, ServerNotification,
    ServerResult,
};

use super::event_loop::Session;
use crate::api::events::EventKind;
use crate::link::Link;

impl<L: Link> Session<'_, L> {
    pub(super) fn on_notification(&mut self, notification: ServerNotification) {
        if let Some(modern) = &self.modern {
            let meta = notification.extensions().get();
            if !modern.subscriptions.accepts_notification(meta) {
                self.batch.summary.strays += 1;
                return;
            }
        }
        let event = match notification {
            ServerNotification::ProgressNotification(progress) => {
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
                EventKind::Log(log.params)
            }
            ServerNotification::ResourceUpdatedNotification(updated) => {
                EventKind::ResourceUpdated {
                    uri: updated.params.uri,
                }
            }
            ServerNotification::CustomNotification(custom) => {
                self.input_rounds.note_completion(&custom);
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
        let id = call.id;
        if self.batch.summary.progressed.last() != Some(&id) {
            self.batch.summary.progressed.push(id);
        }
        self.emit(EventKind::Progress(progress));
    }

    fn emit(&self, event: EventKind) {
        let generation = self.task.reporter.generation;
        self.task.slot.emit(generation, event);
    }
}
