//! Servers over Streamable HTTP that misbehave, and what must hold all the same.
//!
//! Each promise has a control: rmcp's own client with the same server, or a server that is wrong in a
//! way that the check must see. A control that passes would mean that the check checks nothing.

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
mod busy;
mod closing;
mod deaths;
#[path = "../fleet/mod.rs"]
mod fleet;
mod floods;
mod kit;
mod modern;
mod nonsense;
mod oversize;
mod packets;
#[path = "../fleet/patience.rs"]
mod patience;
mod redirects;
mod reuse;
mod sessions;
mod silence;
mod streams;
