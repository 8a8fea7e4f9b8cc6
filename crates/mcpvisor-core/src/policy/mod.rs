//! The rules that the machine and the runtime apply, each a pure value with its own tests.

pub mod admission;
pub mod backoff;
pub mod budget;
pub mod connection_places;
pub mod governor;
pub mod health;
pub mod instance_choice;
pub mod keep_alive;
pub mod listing;
pub mod negotiation;
pub mod open_calls;
pub mod rate_limit;
pub mod request_routing;
pub mod retry;
pub mod session_evidence;
pub mod task_polling;
