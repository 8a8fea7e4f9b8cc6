//! The servers of a runtime by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::ServerName;

use crate::server::slot::ServerSlot;

/// The servers of a runtime. The supervisor alone writes it; a reader pays one pointer load.
pub(crate) type Registry = ArcSwap<BTreeMap<ServerName, Arc<ServerSlot>>>;
