//! The promises of the demo, and whether they held.

use serde::Serialize;

/// One promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Promise {
    pub(super) promise: String,
    pub(super) held: bool,
}

/// All promises so far.
#[derive(Debug, Default)]
pub(super) struct Promises(Vec<Promise>);

impl Promises {
    pub(super) fn check(&mut self, promise: &str, held: bool) {
        self.0.push(Promise {
            promise: promise.to_owned(),
            held,
        });
    }

    pub(super) fn into_vec(self) -> Vec<Promise> {
        self.0
    }
}
