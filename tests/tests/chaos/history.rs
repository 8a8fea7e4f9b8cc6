//! The record of a run as plain data. The checker reads it, and the sabotage corrupts it.

use std::time::Duration;

use mcpvisor::StateName;

/// One run, recorded by several independent sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The initial servers and their initial states.
    pub(crate) first: Vec<(String, StateName)>,
    /// The event stream of the runtime, complete and in order.
    pub(crate) events: Vec<Seen>,
    /// The calls that were issued.
    pub(crate) calls: Vec<Call>,
    /// The outcomes that callers received.
    pub(crate) outcomes: Vec<Outcome>,
    /// The side effects that servers recorded when they ran.
    pub(crate) effects: Vec<Effect>,
    /// The connections that servers recorded.
    pub(crate) connections: Vec<Connection>,
    /// The control requests that were issued.
    pub(crate) requests: Vec<Request>,
    /// Status reads in the order of each reader, without repeated values.
    pub(crate) reads: Vec<StatusRead>,
    /// Each server after the chaos stopped and the fleet had time to recover.
    pub(crate) recovered: Vec<Recovered>,
    /// The status of each server after the shutdown.
    pub(crate) ended: Vec<Ended>,
    /// When the shutdown was requested.
    pub(crate) shutdown_at: Option<Duration>,
    /// Processes, tasks and descriptors left over after the shutdown.
    pub(crate) leftovers: Vec<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    pub(crate) server: String,
    pub(crate) generation: u64,
    pub(crate) what: What,
}

/// The part of an event that the checker uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    State { from: StateName, to: StateName },
    AttemptFailed,
    Added,
    Removed,
    ActorRestarted,
    Other,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) server: String,
    pub(crate) deadline: Duration,
    /// The caller allowed the runtime to repeat the call.
    pub(crate) repeatable: bool,
    /// The server records an effect when the call runs.
    pub(crate) counted: bool,
}

/// The outcome that a caller received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// A result.
    Result,
    /// An error from the server, or an unreadable reply.
    Answered,
    Refused,
    Unknown,
    NotSent,
    /// The runtime had shut down, so nothing was sent.
    RuntimeGone,
    /// The caller dropped the call before it had an outcome.
    Abandoned,
}

/// How one call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) id: u64,
    pub(crate) told: Told,
    pub(crate) took: Duration,
    /// End time, since the start of the run.
    pub(crate) at: Duration,
    /// The error, for the report of a violation.
    pub(crate) detail: String,
}

/// One run of a tool with a side effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) id: u64,
    pub(crate) server: String,
}

/// The connections of a server in the order it saw them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) server: String,
    pub(crate) what: Link,
}

/// One observation of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// In process: the connection of this generation opened.
    Opened { generation: u64 },
    /// In process: the connection closed.
    Closed { generation: u64 },
    /// A child process started while no other process of its server was alive.
    Started { pid: u32 },
    /// A child process started while another process of its server was alive.
    StartedBeside { pid: u32 },
    /// HTTP: a handshake was received.
    Handshake,
    /// HTTP: requests of this session were received in this interval.
    Session {
        id: String,
        first: Duration,
        last: Duration,
    },
}

/// One control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) server: String,
    pub(crate) what: &'static str,
    pub(crate) took: Duration,
    /// End time, since the start of the run.
    pub(crate) at: Duration,
    pub(crate) end: RequestEnd,
}

/// How a control request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// Carried out, or refused with a reason.
    Answered,
    /// Failed because the runtime had ended.
    RuntimeGone,
    /// No reply within its bound.
    None,
}

/// One status, as a reader saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusRead {
    pub(crate) reader: usize,
    pub(crate) server: String,
    pub(crate) instance: u32,
    pub(crate) generation: u64,
}

/// A server after the chaos stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) server: String,
    /// Enabled and healthy when the chaos stopped.
    pub(crate) wanted: bool,
    pub(crate) state: StateName,
    pub(crate) generation: u64,
    /// A call was answered with a result.
    pub(crate) answers: bool,
    /// The version of the last event before this record was taken.
    pub(crate) version: u64,
}

/// A server after the shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) server: String,
    pub(crate) state: StateName,
    pub(crate) generation: u64,
}
