//! The inputs and effects of the machine.
//!
//! Requests are imperative and facts are in the past tense; a fact about a connection carries the
//! generation that saw it. The actor performs the effects in order.

use std::time::{Duration, Instant};

use super::fault::Fault;
use super::state::{PermanentFailure, StateName};
use crate::ids::{CallId, ClientId, CredentialRevision, Generation};
use crate::policy::admission::Priority;
use crate::policy::listing::{FetchOutcome, ListKind};
use crate::policy::retry::{Known, RequestFailure, RetryPolicy, Safety};
use crate::settings::{CloseSettings, ServerSettings};

/// One request to the machine, or one fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The actor runs: connect, unless the server is disabled.
    Start,
    /// A new call.
    Call(NewCall),
    /// A caller dropped its future.
    CallCancelled {
        /// Which call.
        call: CallId,
    },
    /// A call ended on its connection.
    CallEnded {
        /// The connection that it was sent on.
        generation: Generation,
        /// Which call.
        call: CallId,
        /// How.
        end: CallEnd,
    },
    /// A call failed and was given back, while its connection lives.
    CallFailed {
        /// The connection that it was sent on.
        generation: Generation,
        /// Which call.
        call: CallId,
        /// What happened to it.
        failure: RequestFailure,
        /// The same, to show.
        fault: Fault,
    },
    /// The server reports that the session of this connection is lost, or that it no longer speaks the
    /// version of it.
    SessionLost {
        /// The connection that has the session.
        generation: Generation,
        /// What the server reported.
        fault: Fault,
    },
    /// The server refused a request of the runtime, or a stream, with 401.
    Unauthorized {
        /// The connection that it used.
        generation: Generation,
        /// The credential that it carried.
        credential: CredentialRevision,
        /// What the server reported. It is not shown: the renewal decides.
        fault: Fault,
    },
    /// The requested renewal ended well.
    CredentialRenewed {
        /// The new credential.
        credential: CredentialRevision,
    },
    /// The requested renewal failed.
    RenewalFailed {
        /// Why.
        failure: RenewalFailure,
    },
    /// Another credential is in use: it was renewed before it expired, or by a login of this or another
    /// process.
    CredentialChanged {
        /// The new credential.
        credential: CredentialRevision,
    },
    /// A call could not be passed to its connection, which is ending.
    CallUndelivered {
        /// The connection that should have sent it.
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
    /// Any other message arrived.
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
    /// The connection broke or closes; it gives back the calls that it had not answered.
    ConnectionLost {
        /// The connection.
        generation: Generation,
        /// Why.
        fault: Fault,
        /// The calls without an answer.
        returned: Vec<ReturnedCall>,
    },
    /// The connection task has ended.
    ConnectionEnded {
        /// The connection.
        generation: Generation,
        /// How it ended.
        end: ConnectionEnd,
    },
    /// A check was answered with anything, or failed before its deadline.
    CheckEnded {
        /// The connection that was checked.
        generation: Generation,
        /// Why it failed; `None` if it was answered.
        failure: Option<Fault>,
    },
    /// The server reports that a list changed.
    ListChanged {
        /// The connection that it came on.
        generation: Generation,
        /// Which list.
        list: ListKind,
    },
    /// A fetch of a list ended.
    ListFetched {
        /// The connection that it was fetched on.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// How.
        outcome: FetchOutcome,
    },
    /// A fetched list expires. After that it is fetched again when it is used.
    ListExpires {
        /// The connection that it was fetched on.
        generation: Generation,
        /// Which list.
        list: ListKind,
        /// How long it is valid from now on.
        after: Duration,
    },
    /// The lists were read.
    ListsUsed,
    /// Another client of the server needs a connection: sleep, unless this one is in use.
    GiveWay,
    /// A caller reports that this connection is broken.
    ReportBroken {
        /// The connection that the caller used.
        generation: Generation,
    },
    /// Enable the server.
    Enable,
    /// Disable the server.
    Disable,
    /// Replace the connection. A connect in progress is enough.
    Reconnect,
    /// The server is reached in another way: replace the connection, and a connect in progress too.
    TransportChanged,
    /// Close for good within the limit.
    Shutdown {
        /// The limit of all steps together.
        limit: Duration,
    },
    /// Use other settings. Deadlines that are set stay.
    Reconfigure {
        /// All settings.
        settings: Box<ServerSettings>,
    },
    /// Subscriptions began or ended. A server with subscriptions does not sleep.
    SubscriptionsChanged {
        /// Whether there are any.
        active: bool,
    },
    /// A timer may be due.
    Tick,
}

/// A new call.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// Its id.
    pub call: CallId,
    /// The client that makes it.
    pub client: ClientId,
    /// Whether it is safe to repeat.
    pub safety: Safety,
    /// Whether the caller allows a retry.
    pub retry_policy: RetryPolicy,
    /// Its priority among the calls of its client.
    pub priority: Priority,
    /// It calls a tool, whose definition must not change before a retry.
    pub is_tool: bool,
    /// It times out then, wherever it is.
    pub deadline: Instant,
    /// It times out after this time without progress once it is sent.
    pub idle: Duration,
}

/// How a call ended on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// With a result or an error of the server.
    Answered,
    /// With a reply that cannot be read.
    Unreadable,
    /// Locally, without the server: it shows nothing about the connection.
    Local,
}

/// Why a renewal failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalFailure {
    /// The user has to act first.
    Permanent(PermanentFailure),
    /// The next renewal may work. When to try it is up to the credential layer.
    Transient(Fault),
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
    /// The connection never came up; a retry may help.
    Failed {
        /// Why.
        fault: Fault,
        /// When the server wants the next connect (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// The connection never came up; a retry cannot help.
    Permanent(PermanentFailure),
    /// The server closed the connection when it was probed for its era. The next connect tries the other
    /// era, at once and without using the budget, but only once until a connection is up.
    TryOtherEra(Fault),
    /// The connection was up and is closed.
    Closed {
        /// What went wrong during the close.
        problem: Option<String>,
    },
}

/// One thing that the actor has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Request a permit from the connect governor.
    RequestPermit {
        /// Whether the server connected before.
        reconnect: bool,
    },
    /// Release the permit, or withdraw the request for it.
    ReleasePermit,
    /// Start the connection task of this generation.
    Open {
        /// Its generation.
        generation: Generation,
    },
    /// Tell the connection task to close.
    Close {
        /// Its generation.
        generation: Generation,
        /// The time for each step.
        grace: CloseSettings,
    },
    /// Pass a call to the connection.
    StartCall {
        /// Which call.
        call: CallId,
        /// The connection that sends it.
        generation: Generation,
        /// What is known from sending it before. If it was sent, its tool must be unchanged.
        before: Known,
    },
    /// Answer a call that the actor holds.
    Resolve {
        /// Which call.
        call: CallId,
        /// What the caller gets.
        outcome: Outcome,
    },
    /// Give up a call in flight: cancel it at the server and answer it.
    Abandon {
        /// Which call.
        call: CallId,
        /// The connection that sent it.
        generation: Generation,
        /// What the caller gets.
        outcome: Outcome,
    },
    /// Drop a call that the actor holds: it was cancelled, or given up before it was given back.
    /// Dropping it answers a caller that still waits.
    DropCall {
        /// Which call.
        call: CallId,
    },
    /// Renew the credential, unless a newer one than the refused one is in use already. Only one
    /// renewal runs at a time. It is always answered, by [`Input::CredentialRenewed`] or
    /// [`Input::RenewalFailed`].
    RenewCredential {
        /// The newest credential that the server refused.
        refused: CredentialRevision,
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
        /// Its number since the last proven connection.
        attempt: u32,
        /// Why.
        fault: Fault,
        /// When the next one comes; `None` if the user has to act first.
        retry_at: Option<Instant>,
    },
    /// The state changed.
    StateChanged {
        /// The old state.
        from: StateName,
        /// The new state.
        to: StateName,
    },
    /// Save what survives a crash of the actor with the child spec.
    SaveDurable,
    /// Stop the actor.
    Stop,
}

/// What a caller gets if the server did not answer its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server never saw it.
    NotSent(NotSent),
    /// The queue is full.
    Busy,
    /// The server may or may not have run it.
    Unknown(Fault),
    /// The server refused it before running it.
    Refused(Fault),
    /// The server answered it, but the caller cannot use the answer.
    Answered(Fault),
    /// It timed out.
    Deadline {
        /// Whether any of it may have reached the server.
        sent: bool,
        /// It made no progress for too long, before its deadline.
        idle: bool,
    },
    /// The caller cancelled it.
    Cancelled,
}

/// Why a call was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// The server is disabled, or is being disabled.
    Disabled,
    /// The runtime shuts down, or the server was removed.
    Stopping,
    /// The user has to act first.
    Failed(PermanentFailure),
    /// The reconnect budget is spent and the last attempt failed.
    Parked(Option<Fault>),
    /// The connection did not come back in time.
    NoConnection(Option<Fault>),
}
