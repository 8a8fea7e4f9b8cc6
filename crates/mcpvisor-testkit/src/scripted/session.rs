//! One connection of a scripted server: reads, records, and performs the steps of its script.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, Notification, ProgressNotificationParam, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification,
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::answer::ordinary;
use super::behaviour::{Behaviour, Reply, Step};
use super::record::{Ending, EntryKind, Incoming};
use super::shared::{Live, Shared};

/// Runs a connection to its end.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut incoming: mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
    outgoing: mpsc::UnboundedSender<ServerJsonRpcMessage>,
    generation: u64,
) {
    let (ending, mut ended) = watch::channel(None);
    let mut session = Session::open(shared, generation, Live { outgoing, ending });
    loop {
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => return,
            message = incoming.recv() => match message {
                Some(message) => session.receive(message),
                None => return session.live.end(Ending::ByClient),
            },
            Some(_) = session.work.join_next() => {}
        }
    }
}

struct Session {
    shared: Arc<Shared>,
    generation: u64,
    live: Live,
    /// Behaviours that have to wait. They are aborted when the session ends.
    work: JoinSet<()>,
    /// Aborts waiting behaviours when the client cancels.
    stoppable: HashMap<RequestId, AbortHandle>,
}

impl Session {
    fn open(shared: Arc<Shared>, generation: u64, live: Live) -> Self {
        shared.record.write(generation, EntryKind::Opened);
        shared.live().insert(generation, live.clone());
        Self {
            shared,
            generation,
            live,
            work: JoinSet::new(),
            stoppable: HashMap::new(),
        }
    }

    fn receive(&mut self, message: ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let incoming = self.write_down(Some(request.id), &request.request);
                self.perform(incoming);
            }
            ClientJsonRpcMessage::Notification(notification) => {
                let incoming = self.write_down(None, &notification.notification);
                if incoming.method == "notifications/cancelled" {
                    self.cancel(&incoming.params["requestId"]);
                }
                self.perform(incoming);
            }
            ClientJsonRpcMessage::Response(response) => self.shared.record.write(
                self.generation,
                EntryKind::Answered {
                    id: response.id,
                    result: to_value(&response.result),
                },
            ),
            ClientJsonRpcMessage::Error(error) => self.shared.record.write(
                self.generation,
                EntryKind::Refused {
                    id: error.id,
                    error: error.error,
                },
            ),
        }
    }

    fn write_down(&self, id: Option<RequestId>, message: &impl Serialize) -> Incoming {
        let mut message = to_value(message);
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let params = message["params"].take();
        self.shared
            .record
            .receive(self.generation, id, method, params)
    }

    fn cancel(&mut self, id: &Value) {
        if self
            .shared
            .with_script(self.generation, |script| script.ignores_cancellation)
        {
            return;
        }
        if let Ok(id) = serde_json::from_value(id.clone())
            && let Some(work) = self.stoppable.remove(&id)
        {
            work.abort();
        }
    }

    /// Performs steps inline where possible, so that replies keep the order of the requests, and
    /// the rest in a task.
    fn perform(&mut self, incoming: Incoming) {
        let behaviour = self.shared.with_script(self.generation, |script| {
            script.behaviour(&incoming).cloned()
        });
        // Resolved without holding the lock: a choice may read the record or use the control.
        let mut steps = behaviour
            .unwrap_or_else(Behaviour::answer)
            .resolve(&incoming);
        let first_wait = steps.iter().position(Step::waits).unwrap_or(steps.len());
        let later = steps.split_off(first_wait);
        let performer = Performer {
            shared: Arc::clone(&self.shared),
            live: self.live.clone(),
            incoming,
        };
        for step in steps {
            performer.perform(step);
        }
        if later.is_empty() {
            return;
        }
        let id = performer.incoming.id.clone();
        let work = self.work.spawn(performer.perform_later(later));
        if let Some(id) = id {
            self.stoppable.insert(id, work);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.live().remove(&self.generation);
        let ending = self.live.ending.borrow().unwrap_or(Ending::Dropped);
        self.shared
            .record
            .write(self.generation, EntryKind::Ended(ending));
    }
}

/// Performs the steps for one message.
struct Performer {
    shared: Arc<Shared>,
    live: Live,
    incoming: Incoming,
}

impl Step {
    fn waits(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Hold)
    }
}

impl Performer {
    async fn perform_later(self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Wait(delay) => tokio::time::sleep(delay).await,
                Step::Hold => {
                    let gate = self.shared.gate(self.incoming.key());
                    // Gates are never closed.
                    if let Ok(permit) = gate.acquire().await {
                        permit.forget();
                    }
                }
                step => self.perform(step),
            }
        }
    }

    fn perform(&self, step: Step) {
        match step {
            Step::Wait(_) | Step::Hold => {}
            Step::Progress(progress) => self.progress(progress),
            Step::Notify(notification) => {
                self.send(ServerJsonRpcMessage::notification(*notification));
            }
            Step::Reply(reply, id) => self.reply(reply, id),
            Step::End => self.live.end(Ending::ByScript),
        }
    }

    fn reply(&self, reply: Reply, id: Option<RequestId>) {
        // A notification has no id and gets no answer.
        let Some(id) = id.or_else(|| self.incoming.id.clone()) else {
            return;
        };
        let answer = match reply {
            Reply::Ordinary => self.shared.with_script(self.incoming.generation, |script| {
                ordinary(script, &self.incoming)
            }),
            Reply::Result(result) => Ok(*result),
            Reply::Error(error) => Err(error),
        };
        self.send(match answer {
            Ok(result) => ServerJsonRpcMessage::response(result, id),
            Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
        });
    }

    fn progress(&self, progress: f64) {
        let token = self.incoming.params["_meta"]["progressToken"].clone();
        if let Ok(token) = serde_json::from_value(token) {
            let params = ProgressNotificationParam::new(ProgressToken(token), progress);
            self.send(ServerJsonRpcMessage::notification(
                ServerNotification::ProgressNotification(Notification::new(params)),
            ));
        }
    }

    fn send(&self, message: ServerJsonRpcMessage) {
        // A closed client closes the other direction too, which ends the session.
        let _ = self.live.outgoing.send(message);
    }
}

fn to_value(message: &impl Serialize) -> Value {
    serde_json::to_value(message).unwrap_or_default()
}
