//! What a scripted server does with one message: a list of steps.
//!
//! A constructor of [`Behaviour`] chooses the reply; methods add steps before and after it. The
//! session performs the steps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, RequestId, ServerNotification, ServerResult,
};

use super::record::Incoming;

/// What happens when a message arrives.
#[derive(Debug, Clone)]
pub struct Behaviour(pub(super) Plan);

#[derive(Clone)]
pub(super) enum Plan {
    Steps(Vec<Step>),
    Choose(Arc<dyn Fn(&Incoming) -> Behaviour + Send + Sync>),
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => f.debug_tuple("Steps").field(steps).finish(),
            Self::Choose(_) => f.write_str("Choose"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Waits for this time.
    Wait(Duration),
    /// Waits until the control releases one held message.
    Hold,
    /// Sends one progress notification, if the request has a progress token.
    Progress(f64),
    /// Sends a notification.
    Notify(Box<ServerNotification>),
    /// Replies, under the id of the request or another one.
    Reply(Reply, Option<RequestId>),
    /// Ends the connection.
    End,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// The reply of an ordinary server.
    Ordinary,
    Result(Box<ServerResult>),
    Error(ErrorData),
}

impl Behaviour {
    fn steps(steps: impl Into<Vec<Step>>) -> Self {
        Self(Plan::Steps(steps.into()))
    }

    fn reply(reply: Reply) -> Self {
        Self::steps([Step::Reply(reply, None)])
    }

    /// Replies as an ordinary server would: a tool returns its arguments, a list its items.
    pub fn answer() -> Self {
        Self::reply(Reply::Ordinary)
    }

    /// Replies with this result.
    pub fn answer_with(result: impl Into<ServerResult>) -> Self {
        Self::reply(Reply::Result(Box::new(result.into())))
    }

    /// Replies with a result whose `isError` is set.
    pub fn tool_error(text: impl Into<String>) -> Self {
        Self::answer_with(CallToolResult::error(vec![ContentBlock::text(text)]))
    }

    /// Replies with a JSON-RPC error.
    pub fn error(error: ErrorData) -> Self {
        Self::reply(Reply::Error(error))
    }

    /// Never replies.
    pub fn silence() -> Self {
        Self::steps([])
    }

    /// Ends the connection without a reply.
    pub fn end() -> Self {
        Self::steps([Step::End])
    }

    /// Chooses when the message arrives, by its number, generation or arguments.
    pub fn choose(choice: impl Fn(&Incoming) -> Self + Send + Sync + 'static) -> Self {
        Self(Plan::Choose(Arc::new(choice)))
    }

    /// The first `times` messages, over all generations, get `first`; later ones get `then`.
    pub fn first(times: usize, first: Self, then: Self) -> Self {
        Self::choose(move |incoming| {
            if incoming.nth <= times {
                first.clone()
            } else {
                then.clone()
            }
        })
    }

    /// Waits for this time first.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self.preceded_by([Step::Wait(delay)])
    }

    /// Waits first until [`super::ScriptedControl::release`] releases it.
    #[must_use]
    pub fn held(self) -> Self {
        self.preceded_by([Step::Hold])
    }

    /// Sends progress first, `times` times at intervals of `every`; continues after another
    /// `every`.
    #[must_use]
    pub fn with_progress(self, times: u32, every: Duration) -> Self {
        let mut steps = Vec::new();
        for number in 1..=times {
            steps.extend([Step::Wait(every), Step::Progress(number.into())]);
        }
        steps.push(Step::Wait(every));
        self.preceded_by(steps)
    }

    /// Sends a notification first.
    #[must_use]
    pub fn notifying(self, notification: impl Into<ServerNotification>) -> Self {
        self.preceded_by([Step::Notify(Box::new(notification.into()))])
    }

    /// Ends the connection afterwards.
    #[must_use]
    pub fn then_end(self) -> Self {
        self.followed_by(|_| vec![Step::End])
    }

    /// Replies a second time.
    #[must_use]
    pub fn twice(self) -> Self {
        self.followed_by(|steps| steps.to_vec())
    }

    /// Replies under this id instead of the request's own.
    #[must_use]
    pub fn under_id(self, id: RequestId) -> Self {
        self.map(move |steps| {
            for step in steps {
                if let Step::Reply(_, under) = step {
                    *under = Some(id.clone());
                }
            }
        })
    }

    fn preceded_by(self, first: impl Into<Vec<Step>>) -> Self {
        let first = first.into();
        self.map(move |steps| drop(steps.splice(0..0, first.iter().cloned())))
    }

    fn followed_by(self, then: impl Fn(&[Step]) -> Vec<Step> + Send + Sync + 'static) -> Self {
        self.map(move |steps| steps.extend(then(steps)))
    }

    /// Changes the steps, now or when they are chosen.
    fn map(self, change: impl Fn(&mut Vec<Step>) + Send + Sync + 'static) -> Self {
        match self.0 {
            Plan::Steps(mut steps) => {
                change(&mut steps);
                Self(Plan::Steps(steps))
            }
            Plan::Choose(choice) => Self::choose(move |incoming| {
                let mut steps = choice(incoming).resolve(incoming);
                change(&mut steps);
                Self(Plan::Steps(steps))
            }),
        }
    }

    /// The steps for this message.
    pub(super) fn resolve(&self, incoming: &Incoming) -> Vec<Step> {
        match &self.0 {
            Plan::Steps(steps) => steps.clone(),
            Plan::Choose(choice) => choice(incoming).resolve(incoming),
        }
    }
}
