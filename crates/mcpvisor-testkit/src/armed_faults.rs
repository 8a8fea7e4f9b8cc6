//! Faults that are armed for some requests, as both test servers have them.

use std::sync::{Mutex, PoisonError};

/// The armed faults, in order.
#[derive(Debug)]
pub(crate) struct ArmedFaults<F> {
    armed: Vec<ArmedFault<F>>,
    taken: u64,
}

#[derive(Debug)]
struct ArmedFault<F> {
    fault: F,
    /// How many more requests it affects; `None` is unlimited.
    left: Option<u32>,
}

impl<F> Default for ArmedFaults<F> {
    fn default() -> Self {
        Self {
            armed: Vec::new(),
            taken: 0,
        }
    }
}

impl<F: Clone> ArmedFaults<F> {
    pub(crate) fn arm(&mut self, fault: F, left: Option<u32>) {
        self.armed.push(ArmedFault { fault, left });
    }

    pub(crate) fn disarm(&mut self) {
        self.armed.clear();
    }

    /// Takes the faults that affect a request. `affects` is called in the order of arming, for each
    /// fault that has requests left.
    pub(crate) fn take(&mut self, mut affects: impl FnMut(&F) -> bool) -> Vec<F> {
        let mut taken = Vec::new();
        for armed in &mut self.armed {
            if armed.left != Some(0) && affects(&armed.fault) {
                armed.left = armed.left.map(|left| left - 1);
                taken.push(armed.fault.clone());
            }
        }
        self.taken += taken.len() as u64;
        taken
    }

    /// The number of faults taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

/// A fault that is not armed yet.
#[derive(Debug)]
#[must_use = "a fault strikes once it is armed with `once`, `times` or `for_ever`"]
pub struct FaultBuilder<'a, F> {
    pub(crate) faults: &'a Mutex<ArmedFaults<F>>,
    pub(crate) fault: F,
}

impl<F: Clone> FaultBuilder<'_, F> {
    /// Affects the next request.
    pub fn once(self) {
        self.arm(Some(1));
    }

    /// Affects this many requests.
    pub fn times(self, times: u32) {
        self.arm(Some(times));
    }

    /// Affects all requests from now on.
    pub fn for_ever(self) {
        self.arm(None);
    }

    fn arm(self, left: Option<u32>) {
        let faults = self.faults.lock();
        let mut faults = faults.unwrap_or_else(PoisonError::into_inner);
        faults.arm(self.fault, left);
    }
}
