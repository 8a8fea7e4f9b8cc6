//! What survives a crash of the actor, so that its successor resumes from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use mcpvisor_core::{Durable, KnownEra, ListKind};
use rmcp::model::LoggingLevel;

use super::active_config::ActiveConfig;
use crate::catalog::ServerCatalog;
use crate::fleet::CloseOutcome;

/// What a restarted actor resumes from. Every change is one assignment, so that a panic never
/// leaves it half-written.
#[derive(Debug)]
pub(crate) struct RestartState {
    pub(crate) durable: Durable,
    pub(super) lists: KnownLists,
    pub(crate) session: SessionSettings,
    pub(crate) era: EraKnowledge,
    /// Restarts of the actor after a crash.
    pub(crate) restarts: u64,
    /// How the server was closed for good. The actor writes it here, since its end overtakes its
    /// last message to the supervisor.
    pub(crate) closed: Option<CloseOutcome>,
}

/// The last known lists of a server.
#[derive(Debug, Clone)]
pub(super) struct KnownLists {
    /// As they were fetched.
    pub(super) fetched: Arc<ServerCatalog>,
    /// The config of the connection that fetched them.
    pub(super) fetched_with: Arc<ActiveConfig>,
    /// Who they belong to: [`ServerSlot::catalog_owner`](super::slot::ServerSlot). The last one that
    /// fetched any of them.
    pub(super) owner: String,
    /// Lists that still belong to the owner before.
    pub(super) foreign: BTreeSet<ListKind>,
    /// What callers may see of them; published in states that publish a catalog.
    pub(super) visible: Arc<ServerCatalog>,
    /// An event announced the held tools in `visible`. False for a catalog of an earlier run.
    pub(super) held_announced: bool,
    /// An event announced the present problem with the approvals.
    pub(super) problem_announced: bool,
}

/// What the server agreed to for the length of a session; restored on the next connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionSettings {
    pub(crate) log_level: Option<LoggingLevel>,
    pub(crate) subscriptions: BTreeSet<String>,
}

/// The known protocol era of the server, and its transport over HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EraKnowledge {
    pub(crate) known: KnownEra,
    /// It speaks HTTP+SSE, though its config leaves that open.
    pub(crate) is_sse: bool,
    /// The era cache of earlier runs was read.
    pub(crate) loaded: bool,
}

impl EraKnowledge {
    pub(crate) const UNKNOWN: Self = Self {
        known: KnownEra::Unknown,
        is_sse: false,
        loaded: false,
    };
}

impl RestartState {
    pub(super) fn new(durable: Durable, config: &Arc<ActiveConfig>) -> Self {
        Self {
            durable,
            lists: KnownLists {
                fetched: Arc::default(),
                fetched_with: Arc::clone(config),
                owner: config.fingerprint().to_owned(),
                foreign: BTreeSet::new(),
                visible: Arc::default(),
                held_announced: false,
                problem_announced: false,
            },
            session: SessionSettings::default(),
            era: EraKnowledge::UNKNOWN,
            restarts: 0,
            closed: None,
        }
    }

    /// Takes over what another instance of the server knows: its era, and the level of its logs.
    /// Subscriptions stay with the other one.
    pub(super) fn inherit(&mut self, other: &Self) {
        self.era = other.era;
        self.session.log_level = other.session.log_level;
    }
}
