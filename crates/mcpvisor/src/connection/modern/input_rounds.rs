//! Calls for which a modern server requires input before it answers.
//!
//! A task collects the input through the callbacks. The request is then sent again under a new id,
//! with the input and the server's state unchanged. To its caller it remains one call, with one
//! deadline and one outcome.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::{CallId, CallMap, Generation};
use ractor::ActorRef;
use rmcp::model::{ClientRequest, InputRequests, InputRequiredResult, InputResponses};
use tokio::task::{AbortHandle, JoinSet};

use crate::api::callbacks::{BoundCallbacks, Incoming, Question};
use crate::connection::task::next_output;
use crate::server::call::Call;
use crate::server::message::{ConnectionEvent, InboundSummary, ServerMessage};
use crate::server::slot::ServerSlot;

/// How often a server may require input for one call.
const MAX_ROUNDS: u32 = 8;

/// Delay before a call is sent again if the server requires no input, doubled with every round.
const BASE_DELAY: Duration = Duration::from_millis(50);

/// The calls whose input is being collected.
pub(crate) struct InputRounds {
    slot: Arc<ServerSlot>,
    actor: ActorRef<ServerMessage>,
    generation: Generation,
    /// The callbacks of the embedding program.
    runtime: BoundCallbacks,
    tasks: JoinSet<Collected>,
    waiting: CallMap<WaitingCall>,
}

struct WaitingCall {
    call: Box<Call>,
    /// The server's state, to be echoed unchanged.
    state: Option<String>,
    task: AbortHandle,
}

/// The input for a call, or why there is none.
type Collected = (CallId, Result<Option<InputResponses>, String>);

/// A call whose collection has ended.
pub(crate) enum Resumed {
    /// Send it again.
    Resend(Box<Call>),
    /// Its input could not be collected.
    Failed(Box<Call>, String),
}

impl InputRounds {
    pub(crate) fn new(
        slot: &Arc<ServerSlot>,
        actor: &ActorRef<ServerMessage>,
        generation: Generation,
    ) -> Self {
        Self {
            slot: Arc::clone(slot),
            actor: actor.clone(),
            generation,
            runtime: BoundCallbacks::new(Answerer::Runtime, Arc::clone(&slot.host.callbacks)),
            tasks: JoinSet::new(),
            waiting: CallMap::default(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Starts to collect the input of a call. Returns the call if it had too many rounds.
    pub(super) fn start(
        &mut self,
        mut call: Box<Call>,
        required: InputRequiredResult,
    ) -> Result<(), (Box<Call>, String)> {
        call.rounds += 1;
        if call.rounds > MAX_ROUNDS {
            let problem = format!("the server required input more than {MAX_ROUNDS} times");
            return Err((call, problem));
        }
        let (id, rounds, idle) = (call.id, call.rounds, call.idle);
        let callbacks = call.callbacks.as_ref().unwrap_or(&self.runtime);
        let work = collect(
            Arc::clone(&self.slot),
            self.generation,
            callbacks.clone(),
            required.input_requests,
            rounds,
        );
        let (actor, generation) = (self.actor.clone(), self.generation);
        let task = self
            .tasks
            .spawn(async move { (id, keep_alive(work, id, idle, &actor, generation).await) });
        let state = required.request_state;
        let waiting = WaitingCall { call, state, task };
        self.waiting.insert(id, waiting);
        Ok(())
    }

    /// Takes a waiting call and stops collecting its input.
    pub(super) fn take(&mut self, id: CallId) -> Option<Box<Call>> {
        let waiting = self.waiting.remove(&id)?;
        waiting.task.abort();
        Some(waiting.call)
    }

    /// Takes all waiting calls.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<Call>> {
        self.tasks.abort_all();
        self.waiting.drain().map(|(_, waiting)| waiting.call)
    }

    /// Waits for the next call whose collection ends, forever if there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Resumed {
        loop {
            let (id, collected) = next_output(&mut self.tasks).await;
            let Some(mut waiting) = self.waiting.remove(&id) else {
                // The call was taken.
                continue;
            };
            return match collected {
                Ok(responses) => {
                    add_input(&mut waiting.call.request, responses, waiting.state);
                    Resumed::Resend(waiting.call)
                }
                Err(problem) => Resumed::Failed(waiting.call, problem),
            };
        }
    }
}

/// Adds the input and the server's state to the request.
fn add_input(
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

/// Collects the input of one round. Without a request for input, waits before the next round.
async fn collect(
    slot: Arc<ServerSlot>,
    generation: Generation,
    callbacks: BoundCallbacks,
    requests: Option<InputRequests>,
    rounds: u32,
) -> Result<Option<InputResponses>, String> {
    let Some(requests) = requests else {
        tokio::time::sleep(BASE_DELAY * (1 << rounds.min(6))).await;
        return Ok(None);
    };
    let responses = collect_input(&slot, generation, &callbacks, requests).await;
    responses.map(Some)
}

/// Collects the input that a server requires, one after the other, so that a user sees one form at a
/// time. Fails if one is not available.
pub(crate) async fn collect_input(
    slot: &ServerSlot,
    generation: Generation,
    callbacks: &BoundCallbacks,
    requests: InputRequests,
) -> Result<InputResponses, String> {
    let _turn = callbacks.wait_for_turn().await;
    let mut responses = InputResponses::new();
    for (name, request) in requests {
        let question = Question::from(request);
        let method = question.name();
        let incoming = Incoming::new(slot.name().clone(), generation, question);
        let answer = callbacks.callbacks().answer(incoming);
        let answer = match answer {
            Ok(answer) => answer.await,
            Err(declined) => Err(declined),
        };
        let answer = answer.map_err(|error| format!("it requires {method}: {}", error.message))?;
        let answer = serde_json::to_value(answer).map_err(|problem| problem.to_string())?;
        responses.insert(name, answer);
    }
    Ok(responses)
}

/// Reports progress of a call while its input is collected: the server is not idle, we are.
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
        let event = ConnectionEvent::Inbound(InboundSummary {
            progressed: vec![call],
            ..InboundSummary::default()
        });
        // A stopped actor ends the connection, and this task with it.
        let _ = actor.send_message(ServerMessage::Connection { generation, event });
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(period) => {}
        }
    }
}
