//! Input that a server requires before it runs a request, in the caller's hands.

use rmcp::model::{
    ClientCapabilities, ClientRequest, CustomResult, InputResponses, JsonObject, ServerResult,
};
use serde_json::Value;

use super::from_result::sealed;
use super::{FromResult, Request};
use crate::link::has_input_rounds;

/// The type of a result that requires input.
pub(crate) const INPUT_REQUIRED: &str = "input_required";

/// One round of a request: its result, or the input that the server requires first. See
/// [`Request::input_rounds`].
#[derive(Debug, Clone, PartialEq)]
pub enum Round<R> {
    /// The result.
    Complete(R),
    /// The server requires input. Send the request again with [`Request::input_responses`].
    InputRequired(InputRequired),
}

/// The input that a server requires, as it sent it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InputRequired {
    /// The requests, by the names of their responses. Empty if the server only wants the request
    /// again, with its state.
    pub requests: JsonObject,
    /// The server's state, to be returned unchanged.
    pub state: Option<String>,
    /// The whole result, with `_meta` and members that the protocol does not define.
    pub result: JsonObject,
}

impl InputRequired {
    fn read(result: JsonObject) -> Self {
        let requests = result.get("inputRequests").and_then(Value::as_object);
        let state = result.get("requestState").and_then(Value::as_str);
        Self {
            requests: requests.cloned().unwrap_or_default(),
            state: state.map(str::to_owned),
            result,
        }
    }
}

impl<R> sealed::Sealed for Round<R> {}

impl<R: FromResult> FromResult for Round<R> {
    fn from_result(result: ServerResult) -> Result<Self, String> {
        match result {
            ServerResult::CustomResult(CustomResult(Value::Object(result)))
                if result_type(&result) == Some(INPUT_REQUIRED) =>
            {
                Ok(Self::InputRequired(InputRequired::read(result)))
            }
            result => R::from_result(result).map(Self::Complete),
        }
    }
}

/// The type that a result names.
pub(crate) fn result_type(result: &JsonObject) -> Option<&str> {
    result.get("resultType").and_then(Value::as_str)
}

impl<R: FromResult + 'static> Request<R> {
    /// Returns the input that a server of protocol 2026-07-28 requires (`input_required`) to the
    /// caller, instead of collecting it through callbacks. The request advertises `capabilities`: the
    /// server asks only for those. The extensions of the runtime are added, unless it has some.
    ///
    /// The request ends with that answer. The next round is another request, with its own deadline and
    /// its own place in the queue: the same request with
    /// [`input_responses`](Self::input_responses). Older versions of the protocol have no such rounds:
    /// there servers send requests to the [callbacks](Self::callbacks), and the result is always
    /// [`Round::Complete`]. So is that of a call that becomes a task, whose input is collected through
    /// the callbacks.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
    /// use mcpvisor::Round;
    /// use mcpvisor::rmcp::model::{ClientCapabilities, ElicitationCapability, InputResponses};
    /// use serde_json::json;
    ///
    /// let mut capabilities = ClientCapabilities::default();
    /// capabilities.elicitation = Some(ElicitationCapability::new());
    /// let call = || files.call_tool("delete", json!({ "path": "a" }));
    /// let mut round = call().input_rounds(capabilities.clone()).await?;
    /// while let Round::InputRequired(required) = round {
    ///     let mut responses = InputResponses::new();
    ///     for (name, request) in required.requests {
    ///         println!("{request}");
    ///         responses.insert(name, json!({ "action": "decline" }));
    ///     }
    ///     let next = call().input_responses(responses, required.state);
    ///     round = next.input_rounds(capabilities.clone()).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn input_rounds(mut self, capabilities: ClientCapabilities) -> Request<Round<R>> {
        if let Some(options) = &mut self.options {
            options.capabilities = Some(Box::new(capabilities));
        }
        Request {
            key: self.key,
            options: self.options,
            running: self.running.map(|running| -> super::Running<Round<R>> {
                Box::pin(async move { running.await.map(Round::Complete) })
            }),
        }
    }

    /// Adds the responses to the input that the server required for this request, and the state that
    /// came with it. Only `tools/call`, `prompts/get` and `resources/read` take input.
    pub fn input_responses(self, responses: InputResponses, state: Option<String>) -> Self {
        self.set(|options| {
            if let Ok(request) = &mut options.request
                && !add_input(request, Some(responses), state)
            {
                let problem = format!("{} takes no input responses", options.method);
                options.request = Err(problem);
            }
        })
    }
}

/// Adds input and the server's state to a request. Returns whether it takes them.
pub(crate) fn add_input(
    request: &mut ClientRequest,
    responses: Option<InputResponses>,
    state: Option<String>,
) -> bool {
    macro_rules! fill {
        ($params:expr) => {{
            $params.input_responses = responses;
            $params.request_state = state;
        }};
    }
    match request {
        ClientRequest::CallToolRequest(request) => fill!(request.params),
        ClientRequest::GetPromptRequest(request) => fill!(request.params),
        ClientRequest::ReadResourceRequest(request) => fill!(request.params),
        ClientRequest::CustomRequest(raw) if has_input_rounds(&raw.method) => {
            let params = raw.params.get_or_insert_with(|| JsonObject::new().into());
            if let Value::Object(params) = params {
                let responses = responses.map(JsonObject::from_iter);
                set_member(params, "inputResponses", responses);
                set_member(params, "requestState", state);
            }
        }
        _ => return false,
    }
    true
}

fn set_member(params: &mut JsonObject, name: &str, value: Option<impl Into<Value>>) {
    match value {
        Some(value) => drop(params.insert(name.to_owned(), value.into())),
        None => drop(params.remove(name)),
    }
}
