//! `demo`: built-in servers crash and recover under load, and every promise is checked.
//!
//! [`acts`] drive the demo, [`agents`] make the calls and count their outcomes, [`narrator`]
//! prints, [`sandbox`] owns files and processes. Exit 0 only if every promise held.

mod acts;
mod agents;
mod background_calls;
pub(crate) mod builtin;
mod narrator;
mod orders_process;
mod processes;
mod random_faults;
mod run;
mod sandbox;
mod state_reporter;
mod summary;

pub(crate) use run::run;
use run::{Demo, SHUTDOWN};
