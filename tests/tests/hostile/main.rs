//! A server process cannot hang, starve or leak anything in the runtime, nor outlive it.
//!
//! Each module covers a class of misbehaviour, injected by the test kit's bad server beside a good
//! one. Every guarantee has a control: the same fault breaks rmcp's own client. The figures among
//! them run at full size with `MCPVISOR_FULL=1`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![expect(
    deprecated,
    reason = "log messages of the protocol's older eras, which servers still flood with"
)]

mod arena;
mod bare;
mod closing;
#[path = "../fleet/deadlines.rs"]
mod deadlines;
mod death;
mod ending;
mod environment;
#[path = "../fleet/mod.rs"]
mod fleet;
mod floods;
mod hanging_files;
mod killed_host;
mod killed_starting_host;
mod leftovers;
mod line_memory;
mod listings;
mod neighbours;
mod nonsense;
mod oversize;
mod oversized_text;
mod shell_endings;
mod shell_server;
mod silence;
mod slow_state_dir;
