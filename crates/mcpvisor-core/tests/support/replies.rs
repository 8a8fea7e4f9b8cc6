//! The holder of the reply of each call: what the caller sees, independent of the machine.

use std::collections::{BTreeMap, BTreeSet};

use mcpvisor_core::machine::NewCall;
use mcpvisor_core::{CallId, Generation};

use super::effects::may_repeat;

/// The holder of a reply. A reply answers exactly once, also by being dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Actor,
    Task(Generation),
    /// The report of a lost connection that is on its way.
    Report,
    Answered,
}

#[derive(Debug)]
struct Entry {
    call: NewCall,
    holder: Holder,
    /// How many times it was written to a server.
    writes: u32,
}

/// The replies of all calls.
#[derive(Debug, Default)]
pub struct Replies {
    by_call: BTreeMap<CallId, Entry>,
    with_actor: BTreeSet<CallId>,
}

impl Replies {
    pub fn enter(&mut self, call: &NewCall) {
        let entry = Entry {
            call: call.clone(),
            holder: Holder::Actor,
            writes: 0,
        };
        self.with_actor.insert(call.call);
        assert!(self.by_call.insert(call.call, entry).is_none());
    }

    pub fn holder(&self, call: CallId) -> Holder {
        self.by_call[&call].holder
    }

    pub fn call(&self, call: CallId) -> &NewCall {
        &self.by_call[&call].call
    }

    /// Moves a reply, and checks its holder.
    pub fn pass(&mut self, call: CallId, from: Holder, to: Holder) {
        let entry = self.by_call.get_mut(&call).expect("the call exists");
        assert_eq!(
            entry.holder, from,
            "the reply of {call} should go to {to:?}"
        );
        entry.holder = to;
        if to == Holder::Actor {
            self.with_actor.insert(call);
        } else {
            self.with_actor.remove(&call);
        }
    }

    /// The caller has its outcome.
    pub fn answer(&mut self, call: CallId, from: Holder) {
        self.pass(call, from, Holder::Answered);
    }

    /// The server refused it before it ran.
    pub fn refuse(&mut self, call: CallId) {
        let entry = self.by_call.get_mut(&call).expect("the call exists");
        entry.writes = entry.writes.saturating_sub(1);
    }

    /// Some of it reached a server, where it may have run.
    pub fn write(&mut self, call: CallId) {
        let entry = self.by_call.get_mut(&call).expect("the call exists");
        entry.writes += 1;
        let limit = if may_repeat(&entry.call) { 2 } else { 1 };
        assert!(
            entry.writes <= limit,
            "{call} was written {} times",
            entry.writes
        );
    }

    /// The calls that the actor holds.
    pub fn with_actor(&self) -> &BTreeSet<CallId> {
        &self.with_actor
    }

    /// Drops replies, which answers their callers.
    pub fn drop_all(&mut self, is_dropped: impl Fn(Holder) -> bool) {
        let dropped = |entry: &Entry| entry.holder != Holder::Answered && is_dropped(entry.holder);
        let calls: Vec<_> = self
            .by_call
            .iter()
            .filter(|(_, entry)| dropped(entry))
            .map(|(call, entry)| (*call, entry.holder))
            .collect();
        for (call, holder) in calls {
            self.answer(call, holder);
        }
    }

    /// The number of calls; all must be answered.
    pub fn all_answered(&self) -> usize {
        for (call, entry) in &self.by_call {
            assert_eq!(entry.holder, Holder::Answered, "{call} has no outcome");
        }
        self.by_call.len()
    }
}
