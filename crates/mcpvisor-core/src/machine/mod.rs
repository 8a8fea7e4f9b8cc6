//! The lifecycle of one server as a pure state machine. [`Machine::handle`] takes an input and appends
//! effects; the actor in the `mcpvisor` crate performs them.

mod call_admit;
mod call_failure;
mod call_requeue;
mod call_table;
mod connected;
mod connecting;
mod durable;
mod fault;
mod io;
mod lifecycle;
mod sleep;
mod state;
mod teardown;

#[cfg(test)]
mod tests;

pub use durable::{Durable, Wanted};
pub use fault::{Fault, FaultClass, MAX_FAULT_STDERR, MAX_MESSAGE, cut, stderr_in_short};
pub use io::{CallEnd, Effect, End, Input, NewCall, NotSent, Outcome, Returned};
pub use lifecycle::Machine;
pub use state::{
    AfterTeardown, Attempt, Check, CheckReason, Live, Nap, NextTry, Patience, PermanentFailure,
    State, StateName, Teardown, TeardownPhase,
};

use lifecycle::{Now, later};
