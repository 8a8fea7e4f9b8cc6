//! Controls a running scripted server.
//!
//! Commands go to the newest live connection unless they name another. Replies and endings that
//! follow from a message belong in the script instead.

use std::sync::Arc;

use rmcp::model::{
    ErrorData, Notification, ProgressNotificationParam, ProgressToken,
    PromptListChangedNotification, RequestId, ResourceListChangedNotification,
    ResourceUpdatedNotificationParam, ServerJsonRpcMessage, ServerNotification, ServerRequest,
    ServerResult, ToolListChangedNotification,
};
#[expect(
    deprecated,
    reason = "servers of the older protocol versions still log"
)]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde_json::Value;

use super::record::Ending;
use super::script::Script;
use super::shared::Shared;

/// A test's handle on its scripted server. Clones control the same server.
#[derive(Debug, Clone)]
pub struct ScriptedControl {
    pub(super) shared: Arc<Shared>,
}

impl ScriptedControl {
    /// The connected generations, oldest first.
    pub fn live(&self) -> Vec<u64> {
        self.shared.live().keys().copied().collect()
    }

    /// Replaces the script, for live and future connections without their own.
    pub fn set_script(&self, script: Script) {
        self.shared.scripts().common = script;
    }

    /// Changes the current script.
    pub fn update(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.scripts().common);
    }

    /// Releases `count` held messages: those that are waiting, or the next ones. `key` is the tool
    /// of a call, or the method of any other message.
    pub fn release(&self, key: &str, count: usize) {
        self.shared.gate(key).add_permits(count);
    }

    /// Sends any message on the newest connection.
    ///
    /// # Panics
    ///
    /// When there is no connection.
    #[track_caller]
    pub fn send(&self, message: ServerJsonRpcMessage) {
        match self.live().last() {
            Some(newest) => self.send_on(*newest, message),
            None => panic!("the scripted server has no connection to send {message:?} on"),
        }
    }

    /// Sends any message on the connection of a generation.
    ///
    /// # Panics
    ///
    /// When that connection has ended.
    #[track_caller]
    pub fn send_on(&self, generation: u64, message: ServerJsonRpcMessage) {
        match self.shared.live().get(&generation) {
            // The client may have just closed its side, which is not a test failure.
            Some(live) => drop(live.outgoing.send(message)),
            None => panic!("generation {generation} has no connection to send {message:?} on"),
        }
    }

    /// Sends a notification.
    #[track_caller]
    pub fn notify(&self, notification: impl Into<ServerNotification>) {
        self.send(ServerJsonRpcMessage::notification(notification.into()));
    }

    /// Sends `notifications/tools/list_changed`.
    #[track_caller]
    pub fn tools_changed(&self) {
        self.notify(ToolListChangedNotification::default());
    }

    /// Sends `notifications/prompts/list_changed`.
    #[track_caller]
    pub fn prompts_changed(&self) {
        self.notify(PromptListChangedNotification::default());
    }

    /// Sends `notifications/resources/list_changed`.
    #[track_caller]
    pub fn resources_changed(&self) {
        self.notify(ResourceListChangedNotification::default());
    }

    /// Sends `notifications/resources/updated`.
    #[track_caller]
    pub fn resource_updated(&self, uri: &str) {
        let params = ResourceUpdatedNotificationParam::new(uri);
        self.notify(ServerNotification::ResourceUpdatedNotification(
            Notification::new(params),
        ));
    }

    /// Sends a log message.
    #[track_caller]
    #[expect(
        deprecated,
        reason = "servers of the older protocol versions still log"
    )]
    pub fn log(&self, level: LoggingLevel, data: Value) {
        let params = LoggingMessageNotificationParam::new(level, data);
        self.notify(ServerNotification::LoggingMessageNotification(
            Notification::new(params),
        ));
    }

    /// Reports progress.
    #[track_caller]
    pub fn progress(&self, token: ProgressToken, progress: f64) {
        let params = ProgressNotificationParam::new(token, progress);
        self.notify(ServerNotification::ProgressNotification(Notification::new(
            params,
        )));
    }

    /// Sends a request to the client; the record shows the reply under the returned id.
    #[track_caller]
    pub fn request(&self, request: impl Into<ServerRequest>) -> RequestId {
        let id = self.shared.next_id();
        self.send(ServerJsonRpcMessage::request(request.into(), id.clone()));
        id
    }

    /// Replies under any id: of an earlier generation, of an answered request, or of one that was
    /// never sent.
    #[track_caller]
    pub fn answer(&self, id: RequestId, answer: Result<ServerResult, ErrorData>) {
        self.send(match answer {
            Ok(result) => ServerJsonRpcMessage::response(result, id),
            Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
        });
    }

    /// Ends the newest connection, as a crash would.
    ///
    /// # Panics
    ///
    /// When there is no connection.
    #[track_caller]
    pub fn end(&self) {
        match self.shared.live().last_key_value() {
            Some((_, live)) => live.end(Ending::ByControl),
            None => panic!("the scripted server has no connection to end"),
        }
    }
}
