//! How large the messages of a server may be, as its config has it at the moment.

use std::sync::Arc;

use arc_swap::ArcSwap;
use mcpvisor_core::settings::MessageSettings;

/// The bounds of one server. Its links ask for them with every message, so that a reload needs no
/// new connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageLimits(Arc<ArcSwap<MessageSettings>>);

impl MessageLimits {
    pub(crate) fn new(settings: MessageSettings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(settings)))
    }

    /// Other ones from now on.
    pub(crate) fn set(&self, settings: MessageSettings) {
        self.0.store(Arc::new(settings));
    }

    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(crate) fn get(&self) -> MessageSettings {
        **self.0.load()
    }
}

/// A number of bytes as people say it, if it is a round one.
#[cfg(any(feature = "stdio", feature = "http"))]
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
