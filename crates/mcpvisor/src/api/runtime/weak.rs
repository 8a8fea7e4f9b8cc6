//! A weak reference to a runtime.

use std::sync::{Arc, Weak};

use super::{Lifeline, Runtime};

/// A reference to a [`Runtime`] that does not keep it running.
///
/// The runtime owns its [`Callbacks`](crate::Callbacks). A callback that held the runtime, a handle
/// or a client would keep it alive forever; one with a weak reference does not.
///
/// ```
/// use std::sync::{Arc, OnceLock};
///
/// use mcpvisor::{Callbacks, Runtime, WeakRuntime};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // The callbacks are created before the runtime.
/// let fleet = Arc::new(OnceLock::<WeakRuntime>::new());
/// let known = Arc::clone(&fleet);
/// let callbacks = Callbacks::new().logs(move |ask| {
///     let runtime = known.get().and_then(WeakRuntime::upgrade);
///     async move {
///         let servers = runtime.map_or(0, |runtime| runtime.servers().len());
///         println!("{}, one of {servers}: {:?}", ask.server, ask.params.data);
///     }
/// });
/// let runtime = Runtime::builder().callbacks(callbacks).start().await?;
/// let _ = fleet.set(runtime.downgrade());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct WeakRuntime(Weak<Lifeline>);

impl WeakRuntime {
    /// The runtime, if it or a handle of it still exists.
    pub fn upgrade(&self) -> Option<Runtime> {
        let lifeline = self.0.upgrade()?;
        Some(Runtime { lifeline })
    }

    /// Whether the runtime is gone.
    #[cfg(feature = "config-files")]
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Runtime {
    /// A weak reference, for callbacks and background tasks.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(&self.lifeline))
    }
}
