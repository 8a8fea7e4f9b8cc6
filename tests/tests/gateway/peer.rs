//! A server that speaks plain JSON over a byte stream: tests see exactly what is on the wire.

use std::sync::{Arc, Mutex};

use mcpvisor::{ServerConfig, Transport};
use mcpvisor_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;

use crate::fleet::{DEADLINE, server};

/// The answer to a request.
pub(crate) enum Answer {
    /// What a plain server answers.
    Default,
    Result(Value),
    Error(Value),
    Silence,
    /// Once the client has answered the request of the server with this id.
    WhenAnswered(&'static str),
}

type Handler = Arc<dyn Fn(&Peer, &str, &Value) -> Answer + Send + Sync>;

/// Bytes that the stream buffers.
const BUFFER: usize = 1024 * 1024;

/// A server of one era, with the messages that it received on all connections.
#[derive(Clone)]
pub(crate) struct Peer {
    modern: bool,
    handler: Handler,
    received: Arc<Mutex<Vec<Value>>>,
    /// Replies that wait for an answer of the client.
    waiting: Arc<Mutex<Vec<(&'static str, Value)>>>,
    /// The present connection.
    outgoing: Arc<Mutex<Option<mpsc::UnboundedSender<Value>>>>,
}

impl Peer {
    /// A server of 2025-11-25. The handler gets the method and the parameters of each request.
    pub(crate) fn legacy(
        handler: impl Fn(&Peer, &str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::new(false, handler)
    }

    /// A server of 2026-07-28.
    pub(crate) fn modern(
        handler: impl Fn(&Peer, &str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::new(true, handler)
    }

    fn new(
        modern: bool,
        handler: impl Fn(&Peer, &str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self {
            modern,
            handler: Arc::new(handler),
            received: Arc::default(),
            waiting: Arc::default(),
            outgoing: Arc::default(),
        }
    }

    pub(crate) fn is_legacy(&self) -> bool {
        !self.modern
    }

    pub(crate) fn transport(&self) -> Transport {
        let peer = self.clone();
        Transport::stream(move || {
            let peer = peer.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(BUFFER);
                tokio::spawn(peer.serve(theirs));
                Ok(tokio::io::split(ours))
            }
        })
    }

    pub(crate) fn config(&self, name: &str) -> ServerConfig {
        server(name, self.transport())
    }

    /// Sends a message on the present connection.
    pub(crate) fn send(&self, message: Value) {
        let outgoing = self.outgoing.lock().unwrap();
        outgoing.as_ref().unwrap().send(message).unwrap();
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Ends the present connection.
    pub(crate) fn disconnect(&self) {
        *self.outgoing.lock().unwrap() = None;
    }

    /// All messages with this method so far.
    pub(crate) fn received(&self, method: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        let with_method = received.iter().filter(|it| it["method"] == method);
        with_method.cloned().collect()
    }

    /// The parameters of all messages with this method so far.
    pub(crate) fn params(&self, method: &str) -> Vec<Value> {
        let received = self.received(method).into_iter();
        received.map(|it| it["params"].clone()).collect()
    }

    /// Waits until so many messages with this method have arrived; there must not be more.
    pub(crate) async fn expect(&self, method: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} of {method}");
        eventually(DEADLINE, &what, || self.received(method).len() >= count).await;
        let params = self.params(method);
        assert_eq!(params.len(), count, "{method}: {params:#?}");
        params
    }

    async fn serve(self, stream: DuplexStream) {
        let (reader, mut writer) = tokio::io::split(stream);
        let (sender, mut outgoing) = mpsc::unbounded_channel::<Value>();
        *self.outgoing.lock().unwrap() = Some(sender.clone());
        let weak = sender.downgrade();
        drop(sender);
        let mut lines = BufReader::new(reader).lines();
        loop {
            tokio::select! {
                message = outgoing.recv() => {
                    let Some(message) = message else { return };
                    let line = format!("{message}\n");
                    if writer.write_all(line.as_bytes()).await.is_err() {
                        return;
                    }
                }
                line = lines.next_line() => {
                    let Ok(Some(line)) = line else { return };
                    let message: Value = serde_json::from_str(&line).unwrap();
                    self.received.lock().unwrap().push(message.clone());
                    let Some(sender) = weak.upgrade() else { return };
                    for reply in self.replies(&message) {
                        let _ = sender.send(reply);
                    }
                }
            }
        }
    }

    fn replies(&self, message: &Value) -> Vec<Value> {
        let id = &message["id"];
        let Some(method) = message["method"].as_str() else {
            let mut waiting = self.waiting.lock().unwrap();
            let answered = waiting.extract_if(.., |(question, _)| *id == *question);
            return answered.map(|(_, reply)| reply).collect();
        };
        if id.is_null() {
            return Vec::new();
        }
        let params = &message["params"];
        if method == "subscriptions/listen" {
            let meta = json!({ "io.modelcontextprotocol/subscriptionId": id });
            let params = json!({ "notifications": params["notifications"], "_meta": meta });
            let method = "notifications/subscriptions/acknowledged";
            return vec![json!({ "jsonrpc": "2.0", "method": method, "params": params })];
        }
        let answer = match (self.handler)(self, method, params) {
            Answer::Default => self.default_answer(method, params),
            Answer::Result(result) => Ok(result),
            Answer::Error(error) => Err(error),
            Answer::Silence => return Vec::new(),
            Answer::WhenAnswered(question) => {
                let reply = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
                self.waiting.lock().unwrap().push((question, reply));
                return Vec::new();
            }
        };
        let reply = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        vec![reply]
    }

    fn default_answer(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
            "extensions": { "io.example/theirs": { "depth": 2 } },
        });
        let info = json!({ "name": "peer", "version": "1" });
        Ok(match method {
            "server/discover" if self.modern => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "serverInfo": info,
                "resultType": "complete",
                "ttlMs": 3_600_000,
                "cacheScope": "public",
            }),
            "initialize" if !self.modern => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": info,
            }),
            "tools/list" => json!({ "tools": [
                { "name": "echo", "inputSchema": { "type": "object" } },
                { "name": "secret", "inputSchema": { "type": "object" } },
            ] }),
            "resources/list" => json!({ "resources": [] }),
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "ping" | "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel"
                if !self.modern =>
            {
                json!({})
            }
            "tools/call" => json!({ "content": [], "structuredContent": params["arguments"] }),
            _ => {
                let message = format!("no method {method}");
                return Err(json!({ "code": -32601, "message": message }));
            }
        })
    }
}

/// A handler that leaves everything to the default.
pub(crate) fn plain(_: &Peer, _: &str, _: &Value) -> Answer {
    Answer::Default
}
