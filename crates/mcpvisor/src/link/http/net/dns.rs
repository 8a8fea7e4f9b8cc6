//! Resolves host names.
//!
//! A lookup by the operating system cannot be cancelled and outlives the dial that started it. So
//! each name has at most one lookup at a time, on a dedicated thread, shared by all dials of the
//! runtime.

use std::collections::HashMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::vec;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::detached::detached;

/// Concurrent lookups. Further ones fail until one of them ends.
const MAX_LOOKUPS: usize = 64;

type Addresses = Result<Vec<SocketAddr>, String>;

/// A lookup in progress.
type Lookup = Shared<oneshot::Receiver<Addresses>>;

/// The resolver of one runtime.
#[derive(Clone)]
pub(crate) struct Resolver {
    running: Arc<Mutex<HashMap<String, Lookup>>>,
    /// The blocking lookup.
    resolve: NameLookup,
    /// The only addresses, if they were resolved before.
    pinned: Option<Arc<[SocketAddr]>>,
}

/// Looks up a name, and blocks meanwhile. For tests: it may return other addresses each time.
#[doc(hidden)]
pub type NameLookup = Arc<dyn Fn(&str) -> Result<Vec<SocketAddr>, String> + Send + Sync>;

impl Default for Resolver {
    fn default() -> Self {
        Self::new(Arc::new(resolve_by_system))
    }
}

impl Resolver {
    pub(crate) fn new(resolve: NameLookup) -> Self {
        Self {
            running: Arc::default(),
            resolve,
            pinned: None,
        }
    }

    /// A resolver that returns these addresses for every name, so that the addresses that were
    /// checked are the ones that are dialled.
    #[cfg(feature = "auth")]
    pub(crate) fn pinned(&self, addresses: Vec<SocketAddr>) -> Self {
        Self {
            pinned: Some(addresses.into()),
            ..self.clone()
        }
    }

    /// The addresses of a name.
    pub(crate) async fn addresses(&self, name: &str) -> Addresses {
        if let Some(pinned) = &self.pinned {
            return Ok(pinned.to_vec());
        }
        let addresses = self.look_up(name)?.await;
        addresses.map_err(|_| "the name lookup failed".to_owned())?
    }

    /// Joins the running lookup of this name, or starts one.
    fn look_up(&self, name: &str) -> Result<Lookup, String> {
        let mut running = self.running();
        if let Some(lookup) = running.get(name) {
            return Ok(lookup.clone());
        }
        if running.len() >= MAX_LOOKUPS {
            return Err(format!(
                "{MAX_LOOKUPS} name lookups are running; check the name server"
            ));
        }
        let (this, key) = (self.clone(), name.to_owned());
        let lookup = detached("lookup", move || {
            let addresses = (this.resolve)(&key);
            this.running().remove(&key);
            addresses
        });
        let lookup = lookup.map_err(|problem| problem.to_string())?.shared();
        running.insert(name.to_owned(), lookup.clone());
        Ok(lookup)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Lookup>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

fn resolve_by_system(name: &str) -> Addresses {
    match (name, 0).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(problem) => Err(problem.to_string()),
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = String;
    type Future = BoxFuture<'static, Result<Self::Response, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let addresses = this.addresses(name.as_str()).await;
            addresses.map(Vec::into_iter)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hang(name: &str) -> Addresses {
        if name.starts_with("hangs") {
            std::thread::sleep(Duration::from_secs(3_600));
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
    }

    async fn look_up(resolver: &Resolver, name: &str) -> Option<Addresses> {
        let addresses = resolver.clone().call(name.parse().unwrap());
        let addresses = addresses.map(|addresses| addresses.map(Iterator::collect));
        let timeout = Duration::from_millis(if name.starts_with("hangs") { 1 } else { 30_000 });
        tokio::time::timeout(timeout, addresses).await.ok()
    }

    #[test]
    fn hanging_lookups_are_bounded_and_block_neither_others_nor_the_program() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let resolver = Resolver::new(Arc::new(hang));
            for _ in 0..100 {
                assert_eq!(look_up(&resolver, "hangs").await, None);
            }
            assert_eq!(resolver.running().len(), 1, "one of each name");
            let found = look_up(&resolver, "answers").await.unwrap().unwrap();
            assert_eq!(found.len(), 1);
            let other = tokio::task::spawn_blocking(|| 7);
            assert_eq!(other.await.unwrap(), 7, "the host's blocking pool is free");
            for number in 1..MAX_LOOKUPS {
                look_up(&resolver, &format!("hangs-{number}")).await;
            }
            let refused = look_up(&resolver, "answers").await.unwrap().unwrap_err();
            assert!(refused.contains("name lookups are running"), "{refused}");
        });
        // Dropping the runtime would wait for a lookup that hangs in its pool.
        drop(runtime);
    }

    #[tokio::test]
    async fn localhost_resolves_to_loopback_addresses() {
        let found = look_up(&Resolver::default(), "localhost").await;
        let found = found.unwrap().unwrap();
        assert!(found.iter().all(|at| at.ip().is_loopback()), "{found:?}");
        assert!(!found.is_empty());
    }
}
