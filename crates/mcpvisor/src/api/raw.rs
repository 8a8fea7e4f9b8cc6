//! Raw requests and notifications: any method, with the parameters and the result as plain JSON.

use mcpvisor_core::StateName;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomNotification, CustomRequest, GetMeta, JsonObject,
    MetaObject, NotificationMetaObject, RequestMetaObject,
};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::api::error::NotifyError;
use crate::api::handle::ServerHandle;
use crate::api::request::Request;
use crate::link::{TOOL_CALL, tool_name};
use crate::server::message::{NotifyFailure, OutgoingNotification, ServerMessage};
use crate::server::slot::{Mailbox, ServerSlot};

/// Methods of the connection itself, which the runtime alone sends.
const RESERVED: [&str; 5] = [
    "initialize",
    "server/discover",
    "subscriptions/listen",
    "notifications/initialized",
    "notifications/cancelled",
];

/// The prefixes of the protocol's requests. A server may run a request without an id too, so none is
/// sent as a notification: it would pass by the filters and approvals of its server.
const REQUESTS: [&str; 6] = [
    "completion/",
    "logging/",
    "prompts/",
    "resources/",
    "tasks/",
    "tools/",
];

/// The prefix of the protocol's notifications.
const NOTIFICATIONS: &str = "notifications/";

impl ServerHandle {
    /// Sends a request with any method, and returns the server's result as it is, with all members
    /// that rmcp's types do not know. `params` is an object, or `None`.
    ///
    /// It is a request like any other: with a deadline, progress, callbacks, cancellation, the
    /// client's quota, and one outcome. A method of the protocol keeps its row in the retry table,
    /// and a raw `tools/call` passes the same filters, approvals and checks as
    /// [`call_tool`](Self::call_tool). Any other method counts as a tool call: it is not retried if
    /// its outcome is unknown, unless [`Request::retry`] allows it. A `progressToken` in `_meta` is
    /// replaced by one of the runtime, whose reports go to [`Request::on_progress`].
    ///
    /// A raw `tools/call` returns what the server answers, also if that is a task. Subscriptions,
    /// the log level and `ping` go the same way as those of the typed methods, and return `{}`. A
    /// server in this process gets the protocol's methods as rmcp's types, without other members.
    ///
    /// The methods of the connection itself are not sent: `initialize`, `server/discover`,
    /// `subscriptions/listen`, and notifications.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
    /// use serde_json::json;
    ///
    /// let params = json!({ "name": "search", "arguments": { "q": "reconnect" } });
    /// let result = files.raw_request("tools/call", Some(params)).await?;
    /// println!("{}", result["content"][0]["text"]);
    /// let custom = files.raw_request("com.example/reindex", None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn raw_request(&self, method: impl Into<String>, params: Option<Value>) -> Request<Value> {
        let method = method.into();
        let request = raw_request(&method, params);
        if matches!(
            request,
            Ok(ClientRequest::SubscribeRequest(_) | ClientRequest::SetLevelRequest(_))
        ) {
            self.note_settings();
        }
        Request::checked(self, method, request)
    }

    /// Sends a notification with any method to the connected server. `params` is an object, or
    /// `None`.
    ///
    /// Returns when the connection has taken it; a notification has no answer, and may be lost with
    /// the connection. It never waits for a connection and wakes no sleeping server: if the server
    /// is not connected, nothing is sent. A client with a connection of its own has none before its
    /// first request. All connected instances of a pool get it. It needs no permit of the client's
    /// quota. `notifications/initialized` and `notifications/cancelled` are not sent: the runtime
    /// sends them itself. Nor are the protocol's requests, such as `tools/call`: some servers would
    /// run them.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::NotifyError> {
    /// files.notify("notifications/roots/list_changed", None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn notify(
        &self,
        method: impl Into<String>,
        params: Option<Value>,
    ) -> Result<(), NotifyError> {
        let method = method.into();
        let server = || self.name().clone();
        let notification =
            raw_notification(method, params).map_err(|problem| NotifyError::Invalid {
                server: server(),
                problem,
            })?;
        if self.agent.as_ref().is_some_and(|agent| agent.is_closed()) {
            return Err(NotifyError::ClientClosed { server: server() });
        }
        let slot = self.present_slot();
        // The main connection of such a server is not this client's.
        if self.agent.is_some() && slot.is_per_client() {
            let failure = NotifyFailure::NotConnected(StateName::Sleeping);
            return Err(self.notify_error(failure));
        }
        // All instances of a pool get it.
        let mut outcome = Err(NotifyFailure::NotConnected(self.status().state));
        for instance in slot.instances() {
            let sent = instance.notify(notification.clone()).await;
            outcome = outcome.or(sent);
        }
        outcome.map_err(|failure| self.notify_error(failure))
    }

    fn notify_error(&self, failure: NotifyFailure) -> NotifyError {
        let server = self.name().clone();
        match failure {
            NotifyFailure::NotRead => NotifyError::NotRead { server },
            NotifyFailure::Invalid(problem) => NotifyError::Invalid { server, problem },
            NotifyFailure::NotConnected(state) => match &*self.slot.mailbox.borrow() {
                Mailbox::Removed | Mailbox::Gone => NotifyError::Removed { server },
                Mailbox::Live(_) | Mailbox::Starting => NotifyError::NotConnected {
                    server,
                    // A connection that ended just now is not yet reflected in the status.
                    state: match state {
                        StateName::Connected => StateName::Reconnecting,
                        state => state,
                    },
                },
            },
        }
    }
}

impl ServerSlot {
    /// Sends a notification on the present connection.
    async fn notify(&self, notification: ClientNotification) -> Result<(), NotifyFailure> {
        let (reply, sent) = oneshot::channel();
        let notification = Box::new(OutgoingNotification {
            notification,
            reply,
        });
        self.send(ServerMessage::Notify(notification));
        // Without an answer, the actor or the connection ended.
        sent.await.unwrap_or_else(|_| {
            let state = self.published.state().0;
            Err(NotifyFailure::NotConnected(state))
        })
    }
}

/// The request for a method. Those that change the session become typed ones, which the runtime
/// counts and restores.
fn raw_request(method: &str, params: Option<Value>) -> Result<ClientRequest, String> {
    if method.is_empty() {
        return Err("the method is empty".to_owned());
    }
    if method.starts_with(NOTIFICATIONS) {
        return Err(format!("{method} is a notification; use notify"));
    }
    refuse_reserved(method)?;
    let mut params = object(params)?;
    let meta = take_meta(params.as_mut())?;
    let mut request = CustomRequest::new(method, params.map(Value::Object));
    if let Some(meta) = meta {
        *request.get_meta_mut() = RequestMetaObject(MetaObject(meta));
    }
    let typed = [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ];
    if typed.contains(&method) {
        return typed_request(&request);
    }
    let request = ClientRequest::CustomRequest(request);
    if method == TOOL_CALL && tool_name(&request).is_none() {
        return Err("the parameters of tools/call need a name".to_owned());
    }
    Ok(request)
}

/// A raw request as rmcp's type for its method.
pub(crate) fn typed_request(raw: &CustomRequest) -> Result<ClientRequest, String> {
    let typed = serde_json::to_value(raw).and_then(serde_json::from_value::<ClientRequest>);
    match typed {
        Ok(ClientRequest::CustomRequest(_)) => {
            Err(format!("the parameters of {} cannot be read", raw.method))
        }
        Ok(typed) => Ok(typed),
        Err(problem) => Err(format!("the parameters of {}: {problem}", raw.method)),
    }
}

fn raw_notification(method: String, params: Option<Value>) -> Result<ClientNotification, String> {
    if method.is_empty() {
        return Err("the method is empty".to_owned());
    }
    refuse_reserved(&method)?;
    if REQUESTS.iter().any(|request| method.starts_with(request)) {
        return Err(format!("{method} is a request; use raw_request"));
    }
    // Without parameters rmcp would write `null`, which the protocol's own SDK refuses.
    let mut params = object(params)?.unwrap_or_default();
    let meta = take_meta(Some(&mut params))?;
    let mut notification = CustomNotification::new(method, Some(Value::Object(params)));
    if let Some(meta) = meta {
        *notification.get_meta_mut() = NotificationMetaObject(MetaObject(meta));
    }
    Ok(ClientNotification::CustomNotification(notification))
}

fn refuse_reserved(method: &str) -> Result<(), String> {
    match RESERVED.contains(&method) {
        true => Err(format!("{method} is reserved: the runtime sends it itself")),
        false => Ok(()),
    }
}

fn object(params: Option<Value>) -> Result<Option<JsonObject>, String> {
    match params {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(params)) => Ok(Some(params)),
        Some(_) => Err("the parameters are not an object".to_owned()),
    }
}

/// Takes `_meta` out of the parameters: it travels beside them.
fn take_meta(params: Option<&mut JsonObject>) -> Result<Option<JsonObject>, String> {
    match params.and_then(|params| params.remove("_meta")) {
        None => Ok(None),
        Some(Value::Object(meta)) => Ok(Some(meta)),
        Some(_) => Err("_meta is not an object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn methods_of_the_connection_are_refused() {
        for method in RESERVED {
            let refused = raw_request(method, None).unwrap_err();
            assert!(refused.starts_with(method), "{refused}");
        }
        for method in ["", "notifications/progress"] {
            assert!(raw_request(method, None).is_err(), "{method}");
        }
        let refused = raw_notification("notifications/cancelled".to_owned(), None).unwrap_err();
        assert!(refused.contains("reserved"), "{refused}");
    }

    #[test]
    fn what_changes_the_session_becomes_typed() {
        let uri = Some(json!({ "uri": "a:b" }));
        let typed = raw_request("resources/subscribe", uri).unwrap();
        assert!(matches!(typed, ClientRequest::SubscribeRequest(_)));
        assert!(raw_request("resources/subscribe", None).is_err());
        let level = Some(json!({ "level": "loud" }));
        assert!(raw_request("logging/setLevel", level).is_err());
        let ping = raw_request("ping", None).unwrap();
        assert!(matches!(ping, ClientRequest::PingRequest(_)));
    }

    #[test]
    fn a_raw_tool_call_names_its_tool() {
        for params in [None, Some(json!({ "name": 7 })), Some(json!([]))] {
            assert!(raw_request("tools/call", params).is_err());
        }
        let params = json!({ "name": "a", "_meta": { "x": 1 }, "extra": true });
        let request = raw_request("tools/call", Some(params.clone())).unwrap();
        assert_eq!(tool_name(&request), Some("a"));
        let sent = serde_json::to_value(&request).unwrap();
        assert_eq!(sent, json!({ "method": "tools/call", "params": params }));
    }
}
