//! A reference to a runtime that does not keep it.

use std::sync::{Arc, Weak};

use super::{Lifeline, Runtime};

/// A reference to a [`Runtime`] that does not keep it running.
///
/// The runtime keeps its [`Callbacks`](crate::Callbacks). A callback that holds the runtime, or a handle
/// or client of it, would keep it for ever: dropping the last one outside would not shut it down. With
/// this one it does.
///
/// ```
/// use std::sync::{Arc, OnceLock};
///
/// use mcpvisor::{Callbacks, Runtime, WeakRuntime};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // The runtime is there only after its callbacks.
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
    /// The runtime, if somebody still has it or a handle of it.
    pub fn upgrade(&self) -> Option<Runtime> {
        let lifeline = self.0.upgrade()?;
        Some(Runtime { lifeline })
    }

    /// Whether nobody has it any more.
    #[cfg(feature = "config-files")]
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Runtime {
    /// A reference that does not keep the runtime, for callbacks and for tasks that shall not.
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(&self.lifeline))
    }
}
