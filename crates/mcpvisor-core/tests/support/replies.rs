//! Who holds the reply of each call: what a caller really sees, beside what the machine believes.

use std::collections::{BTreeMap, BTreeSet};

use mcpvisor_core::machine::NewCall;
use mcpvisor_core::{CallId, Generation};

use super::effects::may_repeat;

/// Where a reply is. It answers exactly once, be it by being dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Shell,
    Task(Generation),
    /// In the report of a lost connection that is on its way.
    Report,
    Answered,
}

#[derive(Debug)]
struct Entry {
    call: NewCall,
    holder: Holder,
    /// How often it was written to a server.
    writes: u32,
}

/// The replies of all calls.
#[derive(Debug, Default)]
pub struct Replies {
    by_call: BTreeMap<CallId, Entry>,
    with_shell: BTreeSet<CallId>,
}

impl Replies {
    pub fn enter(&mut self, call: &NewCall) {
        let entry = Entry {
            call: call.clone(),
            holder: Holder::Shell,
            writes: 0,
        };
        self.with_shell.insert(call.call);
        assert!(self.by_call.insert(call.call, entry).is_none());
    }

    pub fn holder(&self, call: CallId) -> Holder {
        self.by_call[&call].holder
    }

    pub fn call(&self, call: CallId) -> &NewCall {
        &self.by_call[&call].call
    }

    /// Moves a reply from where it must be.
    pub fn pass(&mut self, call: CallId, from: Holder, to: Holder) {
        let entry = self.by_call.get_mut(&call).expect("it entered");
        assert_eq!(
            entry.holder, from,
            "the reply of {call} should go to {to:?}"
        );
        entry.holder = to;
        if to == Holder::Shell {
            self.with_shell.insert(call);
        } else {
            self.with_shell.remove(&call);
        }
    }

    /// The caller has its outcome.
    pub fn answer(&mut self, call: CallId, from: Holder) {
        self.pass(call, from, Holder::Answered);
    }

    /// The server refused it before it ran.
    pub fn refuse(&mut self, call: CallId) {
        let entry = self.by_call.get_mut(&call).expect("it entered");
        entry.writes = entry.writes.saturating_sub(1);
    }

    /// Some of it reached a server, where it may have run.
    pub fn write(&mut self, call: CallId) {
        let entry = self.by_call.get_mut(&call).expect("it entered");
        entry.writes += 1;
        let limit = if may_repeat(&entry.call) { 2 } else { 1 };
        assert!(
            entry.writes <= limit,
            "{call} was written {} times",
            entry.writes
        );
    }

    /// The calls that wait with the shell.
    pub fn with_shell(&self) -> &BTreeSet<CallId> {
        &self.with_shell
    }

    /// Everything that somebody drops answers by itself.
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

    /// How many calls there were, when all of them are answered.
    pub fn all_answered(&self) -> usize {
        for (call, entry) in &self.by_call {
            assert_eq!(entry.holder, Holder::Answered, "{call} has no outcome");
        }
        self.by_call.len()
    }
}
