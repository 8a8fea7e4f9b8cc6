//! Nothing that a server process does hangs, starves or leaks anything, or outlives the runtime.
//!
//! Each module is a class of misbehaviour, struck by the test kit's bad server beside a good one.
//! Every promise has its control: the same fault against rmcp's own client, which breaks it. The
//! figures among them run at full size with `MCPVISOR_FULL=1`.

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
