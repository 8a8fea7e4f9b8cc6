//! A request of a server to the embedding program.

use rmcp::model::{
    ConstString, CreateMessageRequestMethod, CreateMessageRequestParams, ElicitRequestParams,
    ElicitationCreateRequestMethod, Extensions, GetExtensions, InputRequest, JsonObject,
    ListRootsRequestMethod, RequestMetaObject, ServerRequest,
};
use serde_json::Value;

use super::{Form, OpenUrl};

/// A request of a server.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Sampling(Box<CreateMessageRequestParams>),
    Form(Form),
    Url(OpenUrl),
    Roots,
    /// A known request with invalid parameters.
    Unreadable(QuestionKind, String),
    /// A request that no callback handles.
    Other,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    Sampling,
    Elicitation,
    Roots,
}

impl QuestionKind {
    const ALL: [Self; 3] = [Self::Sampling, Self::Elicitation, Self::Roots];

    fn method(self) -> &'static str {
        match self {
            Self::Sampling => CreateMessageRequestMethod::VALUE,
            Self::Elicitation => ElicitationCreateRequestMethod::VALUE,
            Self::Roots => ListRootsRequestMethod::VALUE,
        }
    }

    /// Describes invalid parameters.
    fn problem(self, params: Value) -> String {
        let problem = match self {
            Self::Sampling => serde_json::from_value::<CreateMessageRequestParams>(params).err(),
            Self::Elicitation => serde_json::from_value::<ElicitRequestParams>(params).err(),
            Self::Roots => None,
        };
        let problem = problem.map_or_else(String::new, |problem| format!(": {problem}"));
        format!(
            "the parameters of {} cannot be read{problem}",
            self.method()
        )
    }
}

impl Question {
    pub(crate) fn elicitation(params: ElicitRequestParams) -> Self {
        match params {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => Self::Form(Form {
                message,
                schema: requested_schema,
            }),
            ElicitRequestParams::UrlElicitationParams {
                message,
                url,
                elicitation_id,
                ..
            } => Self::Url(OpenUrl {
                message,
                url,
                elicitation_id,
            }),
            _ => Self::Other,
        }
    }

    /// Names the requested input in an error.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sampling(_) => "an answer of a model",
            Self::Form(_) => "a form to be filled in",
            Self::Url(_) => "an address to be opened",
            Self::Roots => "the roots",
            Self::Unreadable(..) => "something that cannot be read",
            Self::Other => "something unknown",
        }
    }
}

/// The metadata of a request of the server.
pub(crate) fn request_meta(request: &ServerRequest) -> JsonObject {
    meta_of(request.extensions())
}

/// The metadata of an input request.
pub(crate) fn input_meta(request: &InputRequest) -> JsonObject {
    match request {
        InputRequest::CreateMessage(request) => meta_of(&request.extensions),
        InputRequest::Elicitation(request) => meta_of(&request.extensions),
        InputRequest::ListRoots(request) => meta_of(&request.extensions),
        _ => JsonObject::new(),
    }
}

fn meta_of(extensions: &Extensions) -> JsonObject {
    let meta = extensions.get::<RequestMetaObject>();
    meta.map(|meta| meta.0.0.clone()).unwrap_or_default()
}

impl From<ServerRequest> for Question {
    fn from(request: ServerRequest) -> Self {
        match request {
            ServerRequest::CreateMessageRequest(request) => {
                Self::Sampling(Box::new(request.params))
            }
            ServerRequest::ElicitRequest(request) => Self::elicitation(request.params),
            ServerRequest::ListRootsRequest(_) => Self::Roots,
            // rmcp parses a request with invalid parameters as a custom one.
            ServerRequest::CustomRequest(request) => {
                let kind = QuestionKind::ALL
                    .into_iter()
                    .find(|kind| kind.method() == request.method);
                kind.map_or(Self::Other, |kind| {
                    Self::Unreadable(kind, kind.problem(request.params.unwrap_or_default()))
                })
            }
            _ => Self::Other,
        }
    }
}

impl From<InputRequest> for Question {
    fn from(request: InputRequest) -> Self {
        match request {
            InputRequest::CreateMessage(request) => Self::Sampling(Box::new(request.params)),
            InputRequest::Elicitation(request) => Self::elicitation(request.params),
            InputRequest::ListRoots(_) => Self::Roots,
            _ => Self::Other,
        }
    }
}
