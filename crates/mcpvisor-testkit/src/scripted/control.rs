//! What a test tells a scripted server to do in mid-flight.
//!
//! Orders go to the newest live connection unless they name another. Answers and endings that
//! follow from a message belong to the script instead.

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

/// The handle of a test on its scripted server. Clones control the same server.
#[derive(Debug, Clone)]
pub struct ScriptedControl {
    pub(super) shared: Arc<Shared>,
}

impl ScriptedControl {
    /// The generations that are connected, oldest first.
    pub fn live(&self) -> Vec<u64> {
        self.shared.live().keys().copied().collect()
    }

    /// Follows this script from now on, on live and coming connections without one of their own.
    pub fn set_script(&self, script: Script) {
        self.shared.scripts().common = script;
    }

    /// Changes the script that is followed from now on.
    pub fn update(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.scripts().common);
    }

    /// Lets `count` held messages go on, those that wait already or the next ones. `key` is the
    /// tool of a call, the method of anything else.
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
    /// When that connection is over.
    #[track_caller]
    pub fn send_on(&self, generation: u64, message: ServerJsonRpcMessage) {
        match self.shared.live().get(&generation) {
            // The client may have just closed its side; that is not an error of the test.
            Some(live) => drop(live.outgoing.send(message)),
            None => panic!("generation {generation} has no connection to send {message:?} on"),
        }
    }

    /// Sends a notification.
    #[track_caller]
    pub fn notify(&self, notification: impl Into<ServerNotification>) {
        self.send(ServerJsonRpcMessage::notification(notification.into()));
    }

    /// Says that the list of tools changed.
    #[track_caller]
    pub fn tools_changed(&self) {
        self.notify(ToolListChangedNotification::default());
    }

    /// Says that the list of prompts changed.
    #[track_caller]
    pub fn prompts_changed(&self) {
        self.notify(PromptListChangedNotification::default());
    }

    /// Says that the list of resources changed.
    #[track_caller]
    pub fn resources_changed(&self) {
        self.notify(ResourceListChangedNotification::default());
    }

    /// Says that a resource changed.
    #[track_caller]
    pub fn resource_updated(&self, uri: &str) {
        let params = ResourceUpdatedNotificationParam::new(uri);
        self.notify(ServerNotification::ResourceUpdatedNotification(
            Notification::new(params),
        ));
    }

    /// Logs.
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

    /// Asks the client something; the record shows what it answered under the returned id.
    #[track_caller]
    pub fn request(&self, request: impl Into<ServerRequest>) -> RequestId {
        let id = self.shared.next_id();
        self.send(ServerJsonRpcMessage::request(request.into(), id.clone()));
        id
    }

    /// Answers under any id: one of an earlier generation, one that was answered before, or none
    /// that was ever asked.
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
