//! Requests that a modern server answers with questions of its own.
//!
//! The inputs are gathered through the callbacks, in a task of its own, and the request goes out
//! again with them, under a new id and with the server's state echoed as it came. To its caller it
//! is one call: one deadline, one place, one outcome.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{CallId, CallMap, Generation};
use ractor::ActorRef;
use rmcp::model::{ClientRequest, InputRequests, InputRequiredResult, InputResponses};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::api::callbacks::{Ask, Question};
use crate::connection::tasks::Tasks;
use crate::server::call::Call;
use crate::server::message::{ConnectionEvent, InboundSummary, ServerMessage};
use crate::server::slot::ServerSlot;

/// A server may answer a request so often with questions.
pub(crate) const MAX_ROUNDS: u32 = 8;

/// A server that wants to be asked again, without a question, is given so much time first; doubled
/// with every round.
const PAUSE: Duration = Duration::from_millis(50);

/// The calls whose inputs are being gathered.
pub(in crate::connection) struct Rounds {
    slot: Arc<ServerSlot>,
    actor: ActorRef<ServerMessage>,
    generation: Generation,
    at_once: Arc<Semaphore>,
    tasks: Tasks<Gathered>,
    held: CallMap<Held>,
}

struct Held {
    call: Box<Call>,
    state: Option<String>,
    task: AbortHandle,
}

/// What was gathered for a call.
type Gathered = (CallId, Result<Option<InputResponses>, String>);

/// A call that goes on.
pub(in crate::connection) enum Resumed {
    /// It goes out again.
    Again(Box<Call>),
    /// Its inputs cannot be had.
    Failed(Box<Call>, String),
}

impl Rounds {
    pub(in crate::connection) fn new(
        slot: &Arc<ServerSlot>,
        actor: &ActorRef<ServerMessage>,
        generation: Generation,
    ) -> Self {
        Self {
            slot: Arc::clone(slot),
            actor: actor.clone(),
            generation,
            at_once: Arc::new(Semaphore::new(slot.host.callbacks.limit())),
            tasks: Tasks::new(),
            held: CallMap::default(),
        }
    }

    pub(in crate::connection) fn is_busy(&self) -> bool {
        self.tasks.is_busy()
    }

    /// Gathers what a call needs. The call comes back at once if it asked too often.
    pub(in crate::connection) fn gather(
        &mut self,
        mut call: Box<Call>,
        required: InputRequiredResult,
    ) -> Result<(), (Box<Call>, String)> {
        call.rounds += 1;
        if call.rounds > MAX_ROUNDS {
            let problem = format!("it asked for more input {MAX_ROUNDS} times");
            return Err((call, problem));
        }
        let (id, rounds, idle) = (call.id, call.rounds, call.idle);
        let work = gather(
            Arc::clone(&self.slot),
            self.generation,
            Arc::clone(&self.at_once),
            required.input_requests,
            rounds,
        );
        let (actor, generation) = (self.actor.clone(), self.generation);
        let task = self
            .tasks
            .spawn(async move { (id, keep_alive(work, id, idle, &actor, generation).await) });
        let state = required.request_state;
        self.held.insert(id, Held { call, state, task });
        Ok(())
    }

    /// Gives a call up, if its inputs are being gathered.
    pub(in crate::connection) fn take(&mut self, id: CallId) -> Option<Box<Call>> {
        let held = self.held.remove(&id)?;
        held.task.abort();
        Some(held.call)
    }

    /// Everything that is left.
    pub(in crate::connection) fn drain(&mut self) -> impl Iterator<Item = Box<Call>> {
        self.tasks.abort_all();
        self.held.drain().map(|(_, held)| held.call)
    }

    /// Waits for the next call that goes on. Cancel-safe. Waits for ever while there is none.
    pub(in crate::connection) async fn next(&mut self) -> Resumed {
        loop {
            let (id, gathered) = self.tasks.next().await;
            let Some(mut held) = self.held.remove(&id) else {
                // Given up.
                continue;
            };
            return match gathered {
                Ok(responses) => {
                    answer(&mut held.call.request, responses, held.state);
                    Resumed::Again(held.call)
                }
                Err(problem) => Resumed::Failed(held.call, problem),
            };
        }
    }
}

/// Puts the inputs and the server's state into the request.
fn answer(
    request: &mut Option<ClientRequest>,
    responses: Option<InputResponses>,
    state: Option<String>,
) {
    macro_rules! fill {
        ($params:expr) => {{
            $params.input_responses = responses;
            $params.request_state = state;
        }};
    }
    match request {
        Some(ClientRequest::CallToolRequest(request)) => fill!(request.params),
        Some(ClientRequest::GetPromptRequest(request)) => fill!(request.params),
        Some(ClientRequest::ReadResourceRequest(request)) => fill!(request.params),
        _ => {}
    }
}

/// Answers one question after the other, so that a person sees one form at a time.
async fn gather(
    slot: Arc<ServerSlot>,
    generation: Generation,
    at_once: Arc<Semaphore>,
    requests: Option<InputRequests>,
    rounds: u32,
) -> Result<Option<InputResponses>, String> {
    let Some(requests) = requests else {
        tokio::time::sleep(PAUSE * (1 << rounds.min(6))).await;
        return Ok(None);
    };
    // It is never closed.
    let _permit = at_once.acquire().await;
    let mut responses = InputResponses::new();
    for (name, request) in requests {
        let question = Question::from(request);
        let what = question.name();
        let ask = Ask::new(slot.name().clone(), generation, question);
        let answer = slot.host.callbacks.answer(ask);
        let answer = match answer {
            Ok(answer) => answer.await,
            Err(declined) => Err(declined),
        };
        let answer = answer.map_err(|error| format!("it wants {what}: {}", error.message))?;
        let answer = serde_json::to_value(answer).map_err(|problem| problem.to_string())?;
        responses.insert(name, answer);
    }
    Ok(Some(responses))
}

/// While the inputs are gathered it is us who are silent, not the server.
async fn keep_alive<T>(
    work: impl Future<Output = T>,
    call: CallId,
    idle: Duration,
    actor: &ActorRef<ServerMessage>,
    generation: Generation,
) -> T {
    let mut work = std::pin::pin!(work);
    let period = (idle / 3).max(Duration::from_millis(1));
    loop {
        let alive = ConnectionEvent::Inbound(InboundSummary {
            progressed: vec![call],
            ..InboundSummary::default()
        });
        // An actor that is gone ends the connection, and this with it.
        let _ = actor.send_message(ServerMessage::Connection {
            generation,
            event: alive,
        });
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(period) => {}
        }
    }
}
