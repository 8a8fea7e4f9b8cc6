//! The lifecycle of one server as a pure state machine. [`Machine::handle`] takes an input and appends
//! effects; the actor in the `mcpvisor` crate performs them.

mod action;
mod authorization;
mod call_admit;
mod call_failure;
mod call_requeue;
mod call_table;
mod connected;
mod connecting;
mod disconnecting;
mod durable;
mod fault;
mod io;
mod lifecycle;
mod sleep;
mod state;
mod teardown;
mod timers;
mod user_requests;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use durable::{DesiredState, Durable};
pub use fault::{
    Fault, FaultClass, MAX_FAULT_MESSAGE, MAX_FAULT_STDERR, summarize_stderr, truncate_text,
};
pub use io::{
    CallEnd, ConnectionEnd, Effect, Input, NewCall, NotSent, Outcome, RenewalFailure, ReturnedCall,
};
pub use lifecycle::Machine;
pub use state::{
    AfterTeardown, Attempt, Check, CheckReason, CloseDeadline, LiveConnection, PermanentFailure,
    ReconnectTiming, SleepPhase, State, StateName, Teardown, TeardownPhase,
};
pub use timers::Timer;

use lifecycle::{Now, later};
