//! What goes into the machine and what comes out of it.
//!
//! Inputs are wishes in the imperative and facts in the past tense; a fact about a connection
//! carries the generation that saw it. Effects are data: the shell performs them in order.

use std::time::{Duration, Instant};

use super::fault::Fault;
use super::state::{PermanentFailure, StateName};
use crate::ids::{CallId, ClientId, Generation};
use crate::policy::admission::Priority;
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{Known, RequestFailure, RetryPolicy, Safety};
use crate::settings::{CloseSettings, ServerSettings};

/// One thing that happened, or that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The actor runs: connect, unless the server is disabled.
    Start,
    /// A caller wants an answer.
    Call(NewCall),
    /// A caller dropped its future.
    CallCancelled {
        /// Which call.
        call: CallId,
    },
    /// The server answered a call, readably or not.
    CallEnded {
        /// The connection that it came on.
        generation: Generation,
        /// Which call.
        call: CallId,
        /// How.
        end: CallEnd,
    },
    /// A call met trouble, and came back, while its connection lives.
    CallFailed {
        /// The connection that it was sent on.
        generation: Generation,
        /// Which call.
        call: CallId,
        /// What happened to it.
        trouble: RequestFailure,
        /// The same for people.
        fault: Fault,
    },
    /// The server says that the session of this connection is gone, or that it no longer speaks the
    /// version of it.
    SessionLost {
        /// The connection that holds the session.
        generation: Generation,
        /// What the server said.
        fault: Fault,
    },
    /// A call could not be handed to its connection, which is ending.
    CallUndelivered {
        /// The connection that would have taken it.
        generation: Generation,
        /// Which call.
        call: CallId,
    },
    /// The server reported progress of a call.
    CallProgressed {
        /// The connection that it came on.
        generation: Generation,
        /// Which call.
        call: CallId,
    },
    /// Something else arrived.
    MessageReceived {
        /// The connection that it came on.
        generation: Generation,
    },
    /// The governor lets this server connect.
    PermitGranted,
    /// The first byte of a new connection arrived.
    FirstByte {
        /// The connection that it came on.
        generation: Generation,
    },
    /// The handshake is done.
    ConnectionUp {
        /// The new connection.
        generation: Generation,
        /// The lists that the server has.
        lists: Vec<ListKind>,
    },
    /// The connection broke, or was told to close; what it had not answered comes back.
    ConnectionLost {
        /// The connection that ended.
        generation: Generation,
        /// Why.
        fault: Fault,
        /// The calls without an answer.
        returned: Vec<ReturnedCall>,
    },
    /// The connection task is done; nothing of it is left.
    ConnectionEnded {
        /// The connection that ended.
        generation: Generation,
        /// How.
        end: ConnectionEnd,
    },
    /// A check was answered, of whatever kind the answer was, or failed before its deadline.
    CheckEnded {
        /// The connection that was checked.
        generation: Generation,
        /// Why it failed; nothing if an answer came.
        failure: Option<Fault>,
    },
    /// The server says that a list changed.
    ListChanged {
        /// The connection that it came on.
        generation: Generation,
        /// Which list.
        list: ListKind,
    },
    /// A fetch of a list ended.
    ListFetched {
        /// The connection that was asked.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// How.
        outcome: FetchOutcome,
    },
    /// A list that was fetched is good for so long; after that it is fetched again when it is used.
    ListExpires {
        /// The connection that it came from.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// How long it is good, from now on.
        after: Duration,
    },
    /// Somebody looks at the lists.
    ListsUsed,
    /// A caller holds that this connection is broken.
    ReportBroken {
        /// The connection that the caller used.
        generation: Generation,
    },
    /// Switch it on.
    Enable,
    /// Switch it off.
    Disable,
    /// Replace the connection. A connect that is under way is as good as another.
    Reconnect,
    /// Replace the connection: the server is reached in another way from now on, so a connect that
    /// is under way is none of what is wanted.
    TransportChanged,
    /// Close for good within the limit.
    Shutdown {
        /// All steps together.
        limit: Duration,
    },
    /// Go on with other settings: what is under way keeps its deadlines.
    Reconfigure {
        /// All of them.
        settings: Box<ServerSettings>,
    },
    /// Somebody listens to the server, or nobody does any more: it does not sleep meanwhile.
    SubscriptionsChanged {
        /// Whether there are subscriptions.
        active: bool,
    },
    /// A deadline may have passed.
    Tick,
}

/// A call that asks to be admitted.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// Its number.
    pub call: CallId,
    /// Who asks.
    pub client: ClientId,
    /// Whether it may be repeated.
    pub safety: Safety,
    /// What the caller says about repeating it.
    pub wish: RetryPolicy,
    /// How urgent it is among the calls of its client.
    pub priority: Priority,
    /// It calls a tool, whose definition must not change before a retry.
    pub is_tool: bool,
    /// It is over then, wherever it stands.
    pub deadline: Instant,
    /// It may be silent this long once it is sent.
    pub idle: Duration,
}

/// How a call ended on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// With a result or an error of the server's.
    Answered,
    /// With a reply that cannot be read.
    Unreadable,
    /// By us: the server had no part in it, so it says nothing about the connection.
    Local,
}

/// A call that a connection gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnedCall {
    /// Which call.
    pub call: CallId,
    /// Whether any of it may have reached the server.
    pub written: bool,
}

/// How a connection task ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectionEnd {
    /// It never came up, and may next time.
    Failed {
        /// Why.
        fault: Fault,
        /// The server's own wish when to come back.
        retry_after: Option<Duration>,
    },
    /// It never came up, and never will without a person.
    Permanent(PermanentFailure),
    /// It ended when it was asked which protocol it speaks: the next connection asks otherwise, at
    /// once and without a cost, but only once until a connection is up.
    TryOtherEra(Fault),
    /// It was up and is closed.
    Closed {
        /// What was not clean about the close.
        problem: Option<String>,
    },
}

/// One thing that the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask the governor of connects.
    RequestPermit {
        /// Not the first connect of this server.
        reconnect: bool,
    },
    /// The permit, or the question for it, is no longer needed.
    ReleasePermit,
    /// Start the connection task of this generation.
    Open {
        /// Its number.
        generation: Generation,
    },
    /// Tell the connection task to close.
    Close {
        /// Its number.
        generation: Generation,
        /// How long each step may take.
        grace: CloseSettings,
    },
    /// Hand a call to the connection.
    StartCall {
        /// Which call.
        call: CallId,
        /// The connection that takes it.
        generation: Generation,
        /// What is known of it from when it was sent before. Where it was, its tool must still be the
        /// same.
        before: Known,
    },
    /// Answer a call that waits with the shell.
    Resolve {
        /// Which call.
        call: CallId,
        /// What the caller gets.
        outcome: Outcome,
    },
    /// Give up a call that is in flight: cancel it at the server and answer it.
    Abandon {
        /// Which call.
        call: CallId,
        /// The connection that has it.
        generation: Generation,
        /// What the caller gets.
        outcome: Outcome,
    },
    /// Forget a call that waits with the shell: its caller left, or it was given up before it came
    /// back. Dropping it answers whoever still listens.
    DropCall {
        /// Which call.
        call: CallId,
    },
    /// Check the connection.
    Check {
        /// Which connection.
        generation: Generation,
    },
    /// Fetch a list.
    FetchList {
        /// From which connection.
        generation: Generation,
        /// Which list.
        list: ListKind,
    },
    /// Restore subscriptions and the log level.
    Restore {
        /// On which connection.
        generation: Generation,
    },
    /// An attempt to connect failed.
    AttemptFailed {
        /// Which one since the last proven connection.
        attempt: u32,
        /// Why.
        fault: Fault,
        /// When the next one comes; never by itself if a person has to act.
        retry_at: Option<Instant>,
    },
    /// The state has another name now.
    StateChanged {
        /// What it was.
        from: StateName,
        /// What it is.
        to: StateName,
    },
    /// What survives a crash of the actor changed: keep it with the child spec.
    SaveDurable,
    /// The actor has nothing left to do.
    Stop,
}

/// What a caller gets when no server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server never saw it.
    NotSent(NotSent),
    /// Too many calls wait already.
    Busy,
    /// The server may or may not have run it.
    Unknown(Fault),
    /// The server refused it before running it.
    Refused(Fault),
    /// The server answered it, with nothing that helps the caller.
    Answered(Fault),
    /// The time is up.
    Deadline {
        /// Whether any of it may have reached the server.
        sent: bool,
        /// It was silent too long, though the deadline had not passed.
        idle: bool,
    },
    /// The caller left.
    Cancelled,
}

/// Why a call was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// The server is, or is being, switched off.
    Disabled,
    /// The runtime shuts down, or the server is removed.
    Stopping,
    /// A person has to act first.
    Failed(PermanentFailure),
    /// The reconnect budget is spent and the last try failed.
    Parked(Option<Fault>),
    /// The connection did not come back in time.
    NoConnection(Option<Fault>),
}
