//! The acts, in order. Each checks its promises.

mod connect;
mod flapping;
mod kill_mid_call;
mod play;
mod session_loss;
mod shutdown;

pub(super) use play::play;
use play::{describe, ms};
