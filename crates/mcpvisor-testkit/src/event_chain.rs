//! Follows the events of a runtime and reports violations: a gap in the chain of the states of a
//! server or of one of its instances, an undocumented transition, a generation that decreases, a
//! version out of order.
//!
//! It knows only the documented table of transitions, nothing of the runtime's internals.

use std::collections::BTreeMap;
use std::fmt;

use mcpvisor::{Event, EventKind, Generation, ServerName, ServerStatus, StateName};

/// The part of an event that the chain needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The state changed.
    Changed {
        /// The old state.
        from: StateName,
        /// The new state.
        to: StateName,
    },
    /// A connection attempt failed.
    AttemptFailed,
    /// The actor crashed.
    Restarted,
    /// The server was added at run time.
    Added,
    /// The server was removed.
    Removed,
    /// Anything else.
    Other,
}

impl From<&EventKind> for Fact {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::StateChanged { from, to, .. } => Self::Changed {
                from: *from,
                to: *to,
            },
            EventKind::AttemptFailed { .. } => Self::AttemptFailed,
            EventKind::ActorRestarted { .. } => Self::Restarted,
            EventKind::Added | EventKind::InstanceAdded => Self::Added,
            EventKind::Removed | EventKind::InstanceRemoved => Self::Removed,
            _ => Self::Other,
        }
    }
}

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The version of the event that revealed it.
    pub version: u64,
    /// The server, if the violation is about one.
    pub server: Option<ServerName>,
    /// The kind of violation.
    pub what: ViolationKind,
}

/// The kinds of violations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViolationKind {
    /// A version does not follow the previous one.
    Version {
        /// The previous version.
        after: u64,
    },
    /// A transition does not start in the state in which the last one ended.
    Gap {
        /// The state in which the last one ended.
        expected: StateName,
        /// The state in which this one starts.
        from: StateName,
    },
    /// A new chain starts in a state that is not an initial state.
    Beginning(StateName),
    /// An undocumented transition.
    Transition {
        /// The old state.
        from: StateName,
        /// The new state.
        to: StateName,
    },
    /// A generation decreased, or a connection reused one.
    Generation {
        /// The previous generation.
        after: Generation,
        /// This generation.
        generation: Generation,
    },
    /// An attempt failed in a state without attempts.
    Attempt(StateName),
    /// A server that connects for the first time has failed before.
    FailedFirst,
    /// An event of an unknown server, or the addition of a known one.
    Membership,
    /// A server was removed before it was disabled.
    RemovedIn(StateName),
    /// The status shows a different state than the end of the chain.
    Status {
        /// The state at the end of the chain.
        chain: StateName,
        /// The state in the status.
        status: StateName,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.as_ref().map_or("the fleet", ServerName::as_str);
        write!(f, "event {} of {server}: {:?}", self.version, self.what)
    }
}

/// The chain of one server.
#[derive(Debug, Clone, Default)]
struct Chain {
    /// The state, if known.
    state: Option<StateName>,
    generation: Generation,
    /// The last generation that connected.
    connected: Generation,
    /// The actor crashed after the last change.
    restarted: bool,
    /// An attempt failed after the last change.
    failed: bool,
    /// The chain started with [`Fact::Added`] and has no change yet.
    added: bool,
}

/// A server and the number of one of its instances.
type ChainId = (ServerName, u32);

/// The chains of all servers of a runtime.
#[derive(Debug, Clone, Default)]
pub struct EventChains {
    chains: BTreeMap<ChainId, Chain>,
    /// The last version; `None` before the first event.
    version: Option<u64>,
    violations: Vec<Violation>,
}

impl EventChains {
    /// Chains with these initial states, such as those that `status()` shows after the start.
    pub fn new(first: impl IntoIterator<Item = (ServerName, StateName)>) -> Self {
        Self::of_instances(first.into_iter().map(|(name, state)| (name, 0, state)))
    }

    /// The same with the numbers of instances.
    pub fn of_instances(first: impl IntoIterator<Item = (ServerName, u32, StateName)>) -> Self {
        let chain = |state| Chain {
            state: Some(state),
            ..Chain::default()
        };
        let first = first.into_iter();
        let chains = first.map(|(name, instance, state)| ((name, instance), chain(state)));
        Self {
            chains: chains.collect(),
            ..Self::default()
        }
    }

    /// Checks the next event.
    pub fn observe(&mut self, event: &Event) {
        let fact = Fact::from(&event.kind);
        let source = event.server.clone().map(|server| (server, event.instance));
        self.take(event.version, source, event.generation, &fact);
    }

    /// The reader lagged and missed events. Gaps from this are not reported as violations.
    pub fn missed(&mut self) {
        self.version = None;
        for chain in self.chains.values_mut() {
            chain.state = None;
            chain.restarted = true;
        }
    }

    /// Checks the next fact.
    pub fn take(
        &mut self,
        version: u64,
        source: Option<(ServerName, u32)>,
        generation: Generation,
        fact: &Fact,
    ) {
        let mut wrong = Vec::new();
        if let Some(after) = self.version
            && version != after + 1
        {
            wrong.push(ViolationKind::Version { after });
        }
        self.version = Some(version);
        if let Some(source) = &source {
            self.follow(source, generation, fact, &mut wrong);
        }
        let server = source.map(|(server, _)| server);
        self.violations
            .extend(wrong.into_iter().map(|what| Violation {
                version,
                server: server.clone(),
                what,
            }));
    }

    fn follow(
        &mut self,
        source: &ChainId,
        generation: Generation,
        fact: &Fact,
        wrong: &mut Vec<ViolationKind>,
    ) {
        if *fact == Fact::Other {
            // Events of a connection may arrive while the next one is being opened.
            return;
        }
        if *fact == Fact::Added {
            let chain = Chain {
                added: true,
                ..Chain::default()
            };
            if self.chains.insert(source.clone(), chain).is_some() {
                wrong.push(ViolationKind::Membership);
            }
            return;
        }
        let Some(chain) = self.chains.get_mut(source) else {
            wrong.push(ViolationKind::Membership);
            return;
        };
        if generation < chain.generation {
            let after = chain.generation;
            wrong.push(ViolationKind::Generation { after, generation });
        }
        chain.generation = generation;
        match fact {
            Fact::Changed { from, to } => chain.change(*from, *to, wrong),
            Fact::AttemptFailed => chain.fail(wrong),
            Fact::Restarted => chain.restarted = true,
            Fact::Removed => {
                if let Some(state) = chain.state
                    && state != StateName::Disabled
                {
                    wrong.push(ViolationKind::RemovedIn(state));
                }
                self.chains.remove(source);
            }
            Fact::Added | Fact::Other => {}
        }
    }

    /// Compares the ends of the chains with the status, once the runtime is quiet.
    pub fn finish(&mut self, status: &[ServerStatus]) {
        for shown in status {
            let chain = self.chains.get(&(shown.name.clone(), shown.instance));
            let Some(chain) = chain.and_then(|chain| chain.state) else {
                continue;
            };
            if chain != shown.state {
                self.violations.push(Violation {
                    version: self.version.unwrap_or_default(),
                    server: Some(shown.name.clone()),
                    what: ViolationKind::Status {
                        chain,
                        status: shown.state,
                    },
                });
            }
        }
    }

    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Panics if there is a violation.
    #[track_caller]
    pub fn assert_valid(&self) {
        let lines: Vec<String> = self.violations.iter().map(Violation::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}

impl Chain {
    fn change(&mut self, from: StateName, to: StateName, wrong: &mut Vec<ViolationKind>) {
        match self.state {
            Some(expected) if expected != from => wrong.push(ViolationKind::Gap { expected, from }),
            None if self.added && !begins(from) => wrong.push(ViolationKind::Beginning(from)),
            Some(_) | None => {}
        }
        let legal = may_follow(from, to) || (self.restarted && may_follow_restart(from, to));
        if !legal {
            wrong.push(ViolationKind::Transition { from, to });
        }
        if to == StateName::Connected {
            if from == StateName::Connecting && self.failed {
                wrong.push(ViolationKind::FailedFirst);
            }
            if self.generation <= self.connected {
                wrong.push(ViolationKind::Generation {
                    after: self.connected,
                    generation: self.generation,
                });
            }
            self.connected = self.generation;
        }
        self.state = Some(to);
        (self.restarted, self.failed, self.added) = (false, false, false);
    }

    fn fail(&mut self, wrong: &mut Vec<ViolationKind>) {
        self.failed = true;
        if let Some(state) = self.state
            && !matches!(
                state,
                StateName::Connecting | StateName::Reconnecting | StateName::Disconnected
            )
        {
            wrong.push(ViolationKind::Attempt(state));
        }
    }
}

/// The initial states of a server.
fn begins(state: StateName) -> bool {
    matches!(
        state,
        StateName::Connecting | StateName::Sleeping | StateName::Disabled
    )
}

/// The transitions in `docs/semantics.md`.
fn may_follow(from: StateName, to: StateName) -> bool {
    use StateName::{
        Connected, Connecting, Disabled, Disabling, Disconnected, PermanentlyFailed, Reconnecting,
        Sleeping,
    };
    let next: &[StateName] = match from {
        Connecting => &[
            Connected,
            Reconnecting,
            Disconnected,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Connected => &[Reconnecting, Disconnected, Disabling, Sleeping],
        Reconnecting => &[
            Connected,
            Disconnected,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Disabling => &[Disabled, Connecting],
        Disabled => &[Connecting],
        Disconnected => &[
            Connected,
            Reconnecting,
            PermanentlyFailed,
            Disabling,
            Disabled,
        ],
        Sleeping => &[Connecting, Disconnected, Disabling, Disabled],
        PermanentlyFailed => &[Connecting, Disabled],
    };
    next.contains(&to)
}

/// The additional transitions that an actor restart may cause.
fn may_follow_restart(from: StateName, to: StateName) -> bool {
    use StateName::{
        Connected, Connecting, Disabled, Disabling, Disconnected, PermanentlyFailed, Reconnecting,
        Sleeping,
    };
    match to {
        Reconnecting | Disconnected | Disabled => from != to,
        Connecting | Connected | Disabling | Sleeping | PermanentlyFailed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StateName::{Connected, Connecting, Disabled, Disabling, Reconnecting, Sleeping};

    fn name() -> ServerName {
        ServerName::new("a").unwrap()
    }

    fn changed(from: StateName, to: StateName) -> Fact {
        Fact::Changed { from, to }
    }

    /// The violations for these facts, with their generations, of a connecting server.
    fn wrong(facts: &[(u64, Fact)]) -> Vec<ViolationKind> {
        let mut chains = EventChains::new([(name(), Connecting)]);
        for (version, (generation, fact)) in (1..).zip(facts) {
            let generation = Generation::from(*generation);
            chains.take(version, Some((name(), 0)), generation, fact);
        }
        let found = chains.violations().iter();
        found.map(|violation| violation.what.clone()).collect()
    }

    #[test]
    fn a_true_chain_has_no_violation() {
        let facts = [
            (1, Fact::AttemptFailed),
            (1, changed(Connecting, Reconnecting)),
            (2, changed(Reconnecting, Connected)),
            (2, Fact::Restarted),
            (2, changed(Connected, Reconnecting)),
            (1, Fact::Other),
            (3, changed(Reconnecting, Connected)),
            (3, changed(Connected, Disabling)),
            (3, Fact::Restarted),
            (3, changed(Disabling, Disabled)),
            (3, Fact::Removed),
            (0, Fact::Added),
            (1, changed(Sleeping, Connecting)),
            (1, changed(Connecting, Connected)),
        ];
        assert_eq!(wrong(&facts), []);
    }

    #[test]
    fn a_gap_is_caught() {
        let expected = Connecting;
        let from = Disabled;
        let facts = [(1, changed(Disabled, Connecting))];
        assert_eq!(wrong(&facts), [ViolationKind::Gap { expected, from }]);
    }

    #[test]
    fn a_change_that_does_not_exist_is_caught() {
        let facts = [(0, changed(Connecting, Sleeping))];
        let (from, to) = (Connecting, Sleeping);
        assert_eq!(wrong(&facts), [ViolationKind::Transition { from, to }]);
    }

    #[test]
    fn a_restart_explains_only_what_a_restart_does() {
        let up = (1, changed(Connecting, Connected));
        let (from, to) = (Connected, Connecting);
        let facts = [up, (1, Fact::Restarted), (1, changed(from, to))];
        assert_eq!(wrong(&facts), [ViolationKind::Transition { from, to }]);
    }

    #[test]
    fn a_generation_that_goes_back_or_connects_twice_is_caught() {
        let up = (2, changed(Connecting, Connected));
        let down = |generation| (generation, changed(Connected, Reconnecting));
        let after = Generation::from(2);
        let back = wrong(&[up.clone(), down(1)]);
        let generation = Generation::from(1);
        assert_eq!(back, [ViolationKind::Generation { after, generation }]);
        let twice = wrong(&[up, down(2), (2, changed(Reconnecting, Connected))]);
        let generation = after;
        assert_eq!(twice, [ViolationKind::Generation { after, generation }]);
    }

    #[test]
    fn versions_that_do_not_rise_one_by_one_are_caught() {
        for next in [1, 3] {
            let mut chains = EventChains::default();
            for version in [1, next] {
                chains.take(version, None, Generation::NONE, &Fact::Other);
            }
            assert_eq!(
                chains.violations()[0].what,
                ViolationKind::Version { after: 1 }
            );
            assert_eq!(chains.violations().len(), 1);
        }
    }

    #[test]
    fn a_failed_attempt_out_of_place_is_caught() {
        let up = (1, changed(Connecting, Connected));
        let facts = [up.clone(), (1, Fact::AttemptFailed)];
        assert_eq!(wrong(&facts), [ViolationKind::Attempt(Connected)]);
        let facts = [(1, Fact::AttemptFailed), up];
        assert_eq!(wrong(&facts), [ViolationKind::FailedFirst]);
    }

    #[test]
    fn servers_that_are_not_there_and_removals_of_running_ones_are_caught() {
        let facts = [(0, Fact::Removed), (0, changed(Disabled, Connecting))];
        let expected = [
            ViolationKind::RemovedIn(Connecting),
            ViolationKind::Membership,
        ];
        assert_eq!(wrong(&facts), expected);
        assert_eq!(wrong(&[(0, Fact::Added)]), [ViolationKind::Membership]);
        let added = [
            (0, changed(Connecting, Disabled)),
            (0, Fact::Removed),
            (0, Fact::Added),
            (0, changed(Reconnecting, Connected)),
        ];
        let begun = wrong(&added);
        assert_eq!(begun[0], ViolationKind::Beginning(Reconnecting));
    }

    #[test]
    fn what_a_slow_reader_missed_is_no_violation() {
        let mut chains = EventChains::new([(name(), Connecting)]);
        chains.missed();
        let fact = changed(Reconnecting, Connected);
        chains.take(9, Some((name(), 0)), Generation::from(4), &fact);
        assert_eq!(chains.violations(), []);
    }
}
