//! Calls for which the server requires input before it runs them.
//!
//! A task collects the input through the callbacks. The request is then sent again under a new id.
//! To its caller it remains one call, with one deadline and one outcome.
//!
//! A modern server answers such a call with `input_required`, and the request carries the input and
//! the server's state. An older one refuses it with the code -32042 until a person has opened some
//! URLs, and the request is sent again unchanged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcpvisor_core::{CallId, CallMap, Generation, ServerName};
use ractor::ActorRef;
use rmcp::ErrorData;
use rmcp::model::{
    ClientRequest, ClientResult, CustomNotification, ElicitRequestParams, ElicitationAction,
    ErrorCode, InputRequests, InputRequiredResult, InputResponses,
};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use super::event_loop::Session;
use crate::api::callbacks::{BoundCallbacks, Incoming, Question};
use crate::api::reply::Failure;
use crate::connection::task::next_output;
use crate::link::Link;
use crate::mutex::lock;
use crate::server::call::Call;
use crate::server::message::{ConnectionEvent, InboundSummary, ServerMessage};
use crate::server::slot::ServerSlot;

/// How often a server may require input for one call.
const MAX_ROUNDS: u32 = 8;

/// Delay before a call is sent again if the server requires no input, doubled with every round.
const BASE_DELAY: Duration = Duration::from_millis(50);

/// The code of a call that is refused until a person has opened URLs.
const URL_ELICITATION_REQUIRED: ErrorCode = ErrorCode(-32042);

/// The notification that a person has done what a URL asked for.
const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

/// URLs that one refusal may name; further ones are ignored.
const MAX_URLS: usize = 8;

/// Completions that are remembered per connection; older ones are forgotten.
const MAX_COMPLETIONS: usize = 256;

/// Time to wait for the completion of an elicitation before the call is sent again.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(60);

/// The calls whose input is being collected.
pub(crate) struct InputRounds {
    slot: Arc<ServerSlot>,
    actor: ActorRef<ServerMessage>,
    generation: Generation,
    /// The callbacks of the embedding program.
    runtime: BoundCallbacks,
    completions: Arc<Completions>,
    tasks: JoinSet<Collected>,
    waiting: CallMap<WaitingCall>,
}

struct WaitingCall {
    call: Box<Call>,
    then: Resend,
    task: AbortHandle,
}

/// How a call is sent again.
enum Resend {
    /// With its input, and with this state of the server.
    WithInput(Option<String>),
    /// As it was.
    Unchanged,
}

/// What a server requires before it runs a call.
pub(crate) struct RequiredInput {
    /// `None`: nothing but another attempt.
    questions: Option<Vec<(String, Question)>>,
    then: Resend,
}

impl From<InputRequiredResult> for RequiredInput {
    fn from(required: InputRequiredResult) -> Self {
        let questions = required.input_requests.map(|requests| {
            let questions = requests.into_iter();
            questions
                .map(|(name, it)| (name, Question::from(it)))
                .collect()
        });
        let then = Resend::WithInput(required.request_state);
        Self { questions, then }
    }
}

impl RequiredInput {
    /// The URLs that a person has to open, if that is what the error says.
    pub(super) fn of_error(error: &ErrorData) -> Option<Self> {
        if error.code != URL_ELICITATION_REQUIRED {
            return None;
        }
        let elicitations = error.data.as_ref()?.get("elicitations")?.as_array()?;
        let mut questions = Vec::new();
        for elicitation in elicitations.iter().take(MAX_URLS) {
            let params: ElicitRequestParams = serde_json::from_value(elicitation.clone()).ok()?;
            let question = Question::elicitation(params);
            let Question::Url(open) = &question else {
                return None;
            };
            questions.push((open.elicitation_id.clone(), question));
        }
        (!questions.is_empty()).then_some(Self {
            questions: Some(questions),
            then: Resend::Unchanged,
        })
    }
}

/// The elicitations that the server reported as complete, the latest last.
#[derive(Debug, Default)]
struct Completions {
    ids: Mutex<VecDeque<String>>,
    added: Notify,
}

impl Completions {
    fn add(&self, id: String) {
        let mut ids = lock(&self.ids);
        ids.push_back(id);
        while ids.len() > MAX_COMPLETIONS {
            ids.pop_front();
        }
        drop(ids);
        self.added.notify_waiters();
    }

    /// Waits until these are complete, at most for [`COMPLETION_TIMEOUT`].
    async fn wait_for(&self, wanted: Vec<String>) {
        let complete = async {
            loop {
                let added = self.added.notified();
                let mut added = std::pin::pin!(added);
                // Registered before the check, so that none is missed.
                added.as_mut().enable();
                let is_complete = |ids: &VecDeque<String>| wanted.iter().all(|id| ids.contains(id));
                if is_complete(&lock(&self.ids)) {
                    return;
                }
                added.await;
            }
        };
        // The server may not report it; then the next attempt shows it.
        let _ = tokio::time::timeout(COMPLETION_TIMEOUT, complete).await;
    }
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
            runtime: slot.default_callbacks(),
            completions: Arc::default(),
            tasks: JoinSet::new(),
            waiting: CallMap::default(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The callbacks that answer for a call.
    fn callbacks<'a>(&'a self, call: &'a Call) -> &'a BoundCallbacks {
        call.callbacks.as_ref().unwrap_or(&self.runtime)
    }

    /// Whether a person can be asked to open URLs for a call, which can then be sent again.
    pub(super) fn can_open_urls(&self, call: &Call) -> bool {
        call.request.is_some() && self.callbacks(call).callbacks().opens_urls()
    }

    /// Notes the end of an elicitation, if this notification reports one.
    pub(super) fn note_completion(&self, notification: &CustomNotification) {
        if notification.method == ELICITATION_COMPLETE
            && let Some(params) = &notification.params
            && let Some(id) = params.get("elicitationId").and_then(Value::as_str)
        {
            self.completions.add(id.to_owned());
        }
    }

    /// Starts to collect the input of a call. Returns the call if it had too many rounds.
    fn start(
        &mut self,
        mut call: Box<Call>,
        required: RequiredInput,
    ) -> Result<(), (Box<Call>, String)> {
        call.rounds += 1;
        if call.rounds > MAX_ROUNDS {
            let problem = format!("the server required input more than {MAX_ROUNDS} times");
            return Err((call, problem));
        }
        let (id, rounds, idle) = (call.id, call.rounds, call.idle);
        let collector = Collector {
            server: self.slot.name().clone(),
            generation: self.generation,
            callbacks: self.callbacks(&call).clone(),
            completions: Arc::clone(&self.completions),
        };
        let is_url_round = matches!(required.then, Resend::Unchanged);
        let work = async move {
            match required.questions {
                Some(urls) if is_url_round => collector.open_urls(urls).await.map(|()| None),
                Some(questions) => collector.collect(questions).await.map(Some),
                None => {
                    tokio::time::sleep(BASE_DELAY * (1 << rounds.min(6))).await;
                    Ok(None)
                }
            }
        };
        let (actor, generation) = (self.actor.clone(), self.generation);
        let task = self
            .tasks
            .spawn(async move { (id, keep_alive(work, id, idle, &actor, generation).await) });
        let then = required.then;
        self.waiting.insert(id, WaitingCall { call, then, task });
        Ok(())
    }

    /// Takes a waiting call and stops collecting its input.
    pub(crate) fn take(&mut self, id: CallId) -> Option<Box<Call>> {
        let waiting = self.waiting.remove(&id)?;
        waiting.task.abort();
        Some(waiting.call)
    }

    /// Takes all waiting calls, and whether the server may have begun to run each.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Box<Call>, bool)> {
        self.tasks.abort_all();
        let waiting = self.waiting.drain();
        waiting.map(|(_, it)| (it.call, matches!(it.then, Resend::WithInput(_))))
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
                    if let Resend::WithInput(state) = waiting.then {
                        add_input(&mut waiting.call.request, responses, state);
                    }
                    Resumed::Resend(waiting.call)
                }
                Err(problem) => Resumed::Failed(waiting.call, problem),
            };
        }
    }
}

impl<L: Link> Session<'_, L> {
    /// Collects the input that a call needs, or fails the call.
    pub(crate) fn collect_input(&mut self, call: Box<Call>, required: RequiredInput) {
        if let Err((call, problem)) = self.input_rounds.start(call, required) {
            self.batch
                .finish(call, Err(Failure::InputUnavailable(problem)));
        }
    }

    /// Sends a call again once its input is collected, or fails it.
    pub(super) fn resume_call(&mut self, resumed: Resumed) {
        match resumed {
            Resumed::Resend(call) => self.resend_call(call),
            Resumed::Failed(call, problem) => {
                self.batch
                    .finish(call, Err(Failure::InputUnavailable(problem)));
            }
        }
        self.flush();
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

/// Collects the input that a server requires, one after the other, so that a user sees one form at a
/// time. Fails if one is not available.
pub(crate) async fn collect_input(
    slot: &ServerSlot,
    generation: Generation,
    callbacks: &BoundCallbacks,
    requests: InputRequests,
) -> Result<InputResponses, String> {
    let collector = Collector {
        server: slot.name().clone(),
        generation,
        callbacks: callbacks.clone(),
        completions: Arc::default(),
    };
    let questions = requests.into_iter();
    let questions = questions.map(|(name, it)| (name, Question::from(it)));
    collector.collect(questions.collect()).await
}

/// Asks the client of one call.
struct Collector {
    server: ServerName,
    generation: Generation,
    callbacks: BoundCallbacks,
    completions: Arc<Completions>,
}

impl Collector {
    /// Collects one input after the other, so that a user sees one form at a time.
    async fn collect(self, questions: Vec<(String, Question)>) -> Result<InputResponses, String> {
        let _turn = self.callbacks.wait_for_turn().await;
        let mut responses = InputResponses::new();
        for (name, question) in questions {
            let answer = self.ask(question).await?;
            let answer = serde_json::to_value(answer).map_err(|problem| problem.to_string())?;
            responses.insert(name, answer);
        }
        Ok(responses)
    }

    /// Asks a person to open URLs, and waits until the server reports that all are done.
    async fn open_urls(self, urls: Vec<(String, Question)>) -> Result<(), String> {
        let mut ids = Vec::new();
        {
            let _turn = self.callbacks.wait_for_turn().await;
            for (id, question) in urls {
                match self.ask(question).await? {
                    ClientResult::ElicitResult(result)
                        if result.action == ElicitationAction::Accept =>
                    {
                        ids.push(id);
                    }
                    _ => return Err("it requires an address to be opened: declined".to_owned()),
                }
            }
        }
        self.completions.wait_for(ids).await;
        Ok(())
    }

    async fn ask(&self, question: Question) -> Result<ClientResult, String> {
        let required = question.name();
        let incoming = Incoming::new(self.server.clone(), self.generation, question);
        let answer = match self.callbacks.callbacks().answer(incoming) {
            Ok(answer) => answer.await,
            Err(declined) => Err(declined),
        };
        answer.map_err(|error| format!("it requires {required}: {}", error.message))
    }
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
