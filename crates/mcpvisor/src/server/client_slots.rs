//! The connections of clients that have their own: `"scope": "client"`.
//!
//! A client's first request adds a slot for it, which ends with the client. Slots of one account share
//! its credential and, as long as the server lists the same for them, its lists.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use mcpvisor_core::ClientId;
use ractor::ActorRef;

use super::active_config::ActiveConfig;
use super::slot::ServerSlot;
use crate::api::agent::{Agent, OwnSlot};
use crate::api::callbacks::BoundCallbacks;
#[cfg(feature = "http")]
use crate::auth::ServerAuth;
use crate::catalog::ClientView;
use crate::config::ServerConfig;
use crate::fleet::SupervisorMessage;
use crate::mutex::lock;

/// The client that a slot belongs to.
#[derive(Debug)]
pub(crate) struct SlotOwner {
    pub(super) main: Weak<ServerSlot>,
    pub(crate) client: ClientId,
    pub(crate) name: Arc<str>,
    /// Answers what the server requests; the runtime's callbacks if there are none.
    pub(crate) callbacks: Option<BoundCallbacks>,
    /// Shows the lists of its connection to the client.
    pub(super) view: Arc<ClientView>,
    /// Its account at the server, if it is not the one of the config.
    pub(super) account: Option<Arc<str>>,
}

/// The slots of the clients of one server, and what those of one account share.
#[derive(Debug, Default)]
pub(crate) struct ClientSlots {
    pub(super) slots: BTreeMap<u32, Arc<ServerSlot>>,
    accounts: BTreeMap<Arc<str>, AccountConfig>,
}

/// The config of a server for another account than that of its config.
#[derive(Debug, Clone)]
pub(super) struct AccountConfig {
    pub(super) config: Arc<ActiveConfig>,
    #[cfg(feature = "http")]
    pub(super) auth: Arc<ServerAuth>,
}

impl ServerSlot {
    /// Whether each client has a connection of its own.
    pub(crate) fn is_per_client(&self) -> bool {
        self.is_main() && self.config().settings.connections.is_per_client()
    }

    /// The slot of a client, which is added with its first request. `None` if the client is closed.
    pub(crate) fn slot_of(
        self: &Arc<Self>,
        agent: &Arc<Agent>,
        supervisor: &ActorRef<SupervisorMessage>,
    ) -> Option<Arc<Self>> {
        agent.own_slot(&self.id, || self.add_client_slot(agent, supervisor))
    }

    fn add_client_slot(
        self: &Arc<Self>,
        agent: &Agent,
        supervisor: &ActorRef<SupervisorMessage>,
    ) -> Option<OwnSlot> {
        let mut clients = lock(&self.group()?.clients);
        // Locked, so that a reload reaches this slot too.
        let config = self.config();
        let view = agent.view.clone()?;
        let accounts = config.transport.has_accounts();
        let account = view.account.clone().filter(|it| {
            let configured = config.transport.account();
            accounts && configured != Some(it)
        });
        let shared = account
            .as_ref()
            .map(|account| clients.account_config(self, account));
        let owner = SlotOwner {
            main: Arc::downgrade(self),
            client: agent.id,
            name: Arc::clone(&agent.name),
            callbacks: agent.callbacks.clone(),
            view,
            account,
        };
        let slot = Arc::new(self.new_client_slot(owner, shared));
        slot.inherit_lists(self, &clients);
        // Connections of a removed server of this name may still be closing.
        let closing = self.connection_lock.predecessors().to_vec();
        slot.connection_lock.set_predecessors(closing);
        clients.slots.insert(slot.id.instance, Arc::clone(&slot));
        drop(clients);
        // A supervisor that ends from now on finds this slot and ends it.
        if self.is_gone() {
            slot.end_with_runtime();
            slot.forget_client_slot();
        }
        let _ = supervisor.send_message(SupervisorMessage::AddSlot(Arc::clone(&slot)));
        Some(OwnSlot {
            slot,
            supervisor: supervisor.clone(),
        })
    }

    /// Shows the lists of another slot of the same owner until its own connection has listed.
    fn inherit_lists(&self, main: &Self, clients: &ClientSlots) {
        let owner = self.catalog_owner();
        let others = std::iter::once(main).chain(clients.slots.values().map(Arc::as_ref));
        for other in others {
            let lists = other.restart_state().lists.clone();
            if lists.owner == owner && lists.foreign.is_empty() {
                self.restart_state().lists = lists;
                return;
            }
        }
    }

    /// The slot of a client was removed.
    pub(crate) fn forget_client_slot(&self) {
        self.shared.places.withdraw(self.id.instance);
        let Some(main) = self.owner().and_then(|owner| owner.main.upgrade()) else {
            return;
        };
        if let Some(group) = main.group() {
            let removed = lock(&group.clients).slots.remove(&self.id.instance);
            // Freed after the lock is released.
            drop(removed);
        }
    }

    /// The slots of its clients.
    pub(crate) fn client_slots(&self) -> Vec<Arc<Self>> {
        let Some(group) = self.group() else {
            return Vec::new();
        };
        lock(&group.clients).slots.values().cloned().collect()
    }

    /// All slots of the server: its instances, and those of clients.
    pub(crate) fn all_slots(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let mut slots = self.instances();
        slots.extend(self.client_slots());
        slots
    }

    /// Applies a new config of the server to the slots of its clients.
    pub(super) fn configure_clients(self: &Arc<Self>, next: &Arc<ActiveConfig>) {
        let Some(group) = self.group() else {
            return;
        };
        let mut clients = lock(&group.clients);
        clients.reconfigure_accounts(self);
        for slot in clients.slots.values().cloned().collect::<Vec<_>>() {
            let account = slot.owner().and_then(|owner| owner.account.clone());
            match account {
                Some(account) => {
                    let shared = clients.account_config(self, &account);
                    #[cfg(feature = "http")]
                    slot.set_auth(shared.auth);
                    slot.use_config(shared.config);
                }
                None => {
                    #[cfg(feature = "http")]
                    slot.set_auth(self.auth());
                    slot.use_config(Arc::clone(next));
                }
            }
        }
    }
}

impl ClientSlots {
    /// What the slots of an account share.
    fn account_config(&mut self, main: &ServerSlot, account: &Arc<str>) -> AccountConfig {
        let accounts = self.accounts.entry(Arc::clone(account));
        let shared = accounts.or_insert_with(|| AccountConfig::new(main, account, None));
        shared.clone()
    }

    /// Follows a new config of the server. Accounts that no slot uses are dropped.
    fn reconfigure_accounts(&mut self, main: &ServerSlot) {
        let slots = &self.slots;
        self.accounts.retain(|account, shared| {
            let mut owners = slots.values().filter_map(|slot| slot.owner());
            let used = owners.any(|owner| owner.account.as_ref() == Some(account));
            if used {
                *shared = AccountConfig::new(main, account, Some(shared));
            }
            used
        });
    }
}

impl AccountConfig {
    fn new(main: &ServerSlot, account: &str, before: Option<&Self>) -> Self {
        let of_server = main.config();
        let mut config = ServerConfig::clone(&of_server);
        config.transport = config.transport.with_account(account);
        let secrets = before.map_or(&of_server, |it| &it.config);
        #[cfg(feature = "http")]
        let auth = match before {
            Some(it)
                if !config
                    .transport
                    .is_authorized_otherwise(&it.config.transport) =>
            {
                Arc::clone(&it.auth)
            }
            Some(it) => {
                let auth = ServerAuth::new(&config.transport, &main.host);
                Arc::new(auth.replacing(&it.auth))
            }
            None => Arc::new(ServerAuth::new(&config.transport, &main.host)),
        };
        Self {
            #[cfg(feature = "http")]
            auth,
            config: Arc::new(ActiveConfig::new(config, Some(secrets))),
        }
    }
}
