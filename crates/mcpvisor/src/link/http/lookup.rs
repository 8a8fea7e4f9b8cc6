//! Looks up the addresses of host names.
//!
//! A lookup cannot be stopped, and goes on though the dial that wanted it was given up. So there is
//! one of each name at a time, shared by all dials of the runtime that want it, on a thread of its
//! own.

use std::collections::HashMap;
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

/// Lookups that run at once. Further ones fail until one of them ends.
const MAX_LOOKUPS: usize = 64;

type Found = Result<Vec<SocketAddr>, String>;

/// The lookups of one runtime.
#[derive(Debug, Clone)]
pub(super) struct Lookups {
    running: Arc<Mutex<HashMap<String, Shared<oneshot::Receiver<Found>>>>>,
    /// Asks the system.
    ask: fn(&str) -> Found,
}

impl Default for Lookups {
    fn default() -> Self {
        Self::new(ask_system)
    }
}

impl Lookups {
    fn new(ask: fn(&str) -> Found) -> Self {
        Self {
            running: Arc::default(),
            ask,
        }
    }

    /// The lookup of this name that runs, or a new one.
    fn start(&self, name: &str) -> Result<Shared<oneshot::Receiver<Found>>, String> {
        let mut running = self.running();
        if let Some(lookup) = running.get(name) {
            return Ok(lookup.clone());
        }
        if running.len() >= MAX_LOOKUPS {
            return Err(format!(
                "{MAX_LOOKUPS} name lookups are running; check the name server"
            ));
        }
        let (this, wanted) = (self.clone(), name.to_owned());
        let lookup = detached("lookup", move || {
            let found = (this.ask)(&wanted);
            this.running().remove(&wanted);
            found
        });
        let lookup = lookup.map_err(|problem| problem.to_string())?.shared();
        running.insert(name.to_owned(), lookup.clone());
        Ok(lookup)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Shared<oneshot::Receiver<Found>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask_system(name: &str) -> Found {
    match (name, 0).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(problem) => Err(problem.to_string()),
    }
}

impl Service<Name> for Lookups {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = String;
    type Future = BoxFuture<'static, Result<Self::Response, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.start(name.as_str());
        Box::pin(async move {
            let found = lookup?.await;
            let found = found.map_err(|_| "the name lookup failed".to_owned())?;
            found.map(Vec::into_iter)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hang(name: &str) -> Found {
        if name.starts_with("hangs") {
            std::thread::sleep(Duration::from_secs(3_600));
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
    }

    async fn look_up(lookups: &Lookups, name: &str) -> Option<Found> {
        let found = lookups.clone().call(name.parse().unwrap());
        let found = found.map(|found| found.map(Iterator::collect));
        let soon = Duration::from_millis(if name.starts_with("hangs") { 1 } else { 30_000 });
        tokio::time::timeout(soon, found).await.ok()
    }

    #[test]
    fn lookups_that_hang_are_few_and_keep_neither_others_nor_the_program() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let lookups = Lookups::new(hang);
            for _ in 0..100 {
                assert_eq!(look_up(&lookups, "hangs").await, None);
            }
            assert_eq!(lookups.running().len(), 1, "one of each name");
            let found = look_up(&lookups, "answers").await.unwrap().unwrap();
            assert_eq!(found.len(), 1);
            let other = tokio::task::spawn_blocking(|| 7);
            assert_eq!(other.await.unwrap(), 7, "the pool of the host is free");
            for number in 1..MAX_LOOKUPS {
                look_up(&lookups, &format!("hangs-{number}")).await;
            }
            let refused = look_up(&lookups, "answers").await.unwrap().unwrap_err();
            assert!(refused.contains("name lookups are running"), "{refused}");
        });
        // It would wait for what hangs in its pool.
        drop(runtime);
    }

    #[tokio::test]
    async fn the_system_knows_this_machine() {
        let found = look_up(&Lookups::default(), "localhost").await;
        let found = found.unwrap().unwrap();
        assert!(found.iter().all(|at| at.ip().is_loopback()), "{found:?}");
        assert!(!found.is_empty());
    }
}
