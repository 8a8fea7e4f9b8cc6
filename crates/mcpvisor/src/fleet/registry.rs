//! The servers of a runtime by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::ServerName;

use crate::server::slot::ServerSlot;

/// The servers of a runtime. Only the supervisor writes it; a read costs one pointer load.
pub(crate) type ServerRegistry = ArcSwap<BTreeMap<ServerName, Arc<ServerSlot>>>;
