//! The current message limits of a server.

use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::settings::MessageSettings;

/// The message limits of one server. Links read them for every message, so that a reload applies
/// without a reconnect.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageLimits(Arc<ArcSwap<MessageSettings>>);

impl MessageLimits {
    pub(crate) fn new(settings: MessageSettings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(settings)))
    }

    pub(crate) fn set(&self, settings: MessageSettings) {
        self.0.store(Arc::new(settings));
    }

    pub(crate) fn get(&self) -> MessageSettings {
        **self.0.load()
    }
}

/// Formats a number of bytes, in MiB or KiB if it is a multiple.
pub(crate) fn format_bytes(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    match bytes {
        0 => "0 bytes".to_owned(),
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}
