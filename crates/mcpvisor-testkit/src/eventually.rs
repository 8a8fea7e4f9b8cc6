//! Waits for a condition, with a deadline and a panic that describes the last observation.
//!
//! [`eventually_in`] waits for changes of a `watch` channel and wakes on each of them. Without such
//! a channel, [`eventually`] and [`eventually_async`] poll at a short interval. All of them use
//! tokio's clock, so they work under paused time. The caller chooses the condition and the
//! deadline.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// Polling interval of a condition without events.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// The result of one poll: found, or not yet, with a description of the observation.
///
/// Implemented for `bool`, `Option` and `Result`. A `Result` gives the best diagnostics: if the
/// wait fails, the panic contains its last `Err`.
pub trait Probe {
    /// What the wait returns.
    type Found;

    /// The value that ends the wait, or a description of the observation.
    fn found(self) -> Result<Self::Found, String>;
}

impl Probe for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

impl<T> Probe for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Probe for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

/// Polls until a value is found.
///
/// # Panics
///
/// After `deadline`, with `what` and the last observation.
#[track_caller]
pub fn eventually<L: Probe>(
    deadline: Duration,
    what: impl Display,
    mut look: impl FnMut() -> L,
) -> impl Future<Output = L::Found> {
    poll_until(deadline, what, async move || look(), Location::caller())
}

/// Polls until a value is found, with an asynchronous probe.
///
/// # Panics
///
/// After `deadline`, with `what` and the last observation. A probe that does not return counts as
/// the last one.
#[track_caller]
pub fn eventually_async<L: Probe>(
    deadline: Duration,
    what: impl Display,
    look: impl AsyncFnMut() -> L,
) -> impl Future<Output = L::Found> {
    poll_until(deadline, what, look, Location::caller())
}

/// Waits for a value of a `watch` channel, waking only when it changes.
///
/// # Panics
///
/// After `deadline`, or when the sender is dropped, with `what` and the last value.
#[track_caller]
pub fn eventually_in<V: Debug, L: Probe>(
    deadline: Duration,
    what: impl Display,
    values: &mut watch::Receiver<V>,
    look: impl FnMut(&V) -> L,
) -> impl Future<Output = L::Found> {
    watch_until(deadline, what, values, look, Location::caller())
}

async fn poll_until<L: Probe>(
    deadline: Duration,
    what: impl Display,
    mut look: impl AsyncFnMut() -> L,
    caller: &Location<'_>,
) -> L::Found {
    let until = Instant::now() + deadline;
    let mut last = "nothing yet".to_owned();
    loop {
        match timeout_at(until, look()).await {
            Ok(seen) => match seen.found() {
                Ok(found) => return found,
                Err(seen) => last = seen,
            },
            Err(_) => panic!(
                "{caller}: not within {deadline:?}: {what}; last seen: {last}, then a look that never came back"
            ),
        }
        if Instant::now() >= until {
            panic!("{caller}: not within {deadline:?}: {what}; last seen: {last}");
        }
        sleep(INTERVAL.min(until - Instant::now())).await;
    }
}

async fn watch_until<V: Debug, L: Probe>(
    deadline: Duration,
    what: impl Display,
    values: &mut watch::Receiver<V>,
    mut look: impl FnMut(&V) -> L,
    caller: &Location<'_>,
) -> L::Found {
    let until = Instant::now() + deadline;
    loop {
        let last = match look(&values.borrow_and_update()).found() {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        match timeout_at(until, values.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => panic!(
                "{caller}: the sender is gone before: {what}; last seen: {last} in {:?}",
                *values.borrow()
            ),
            Err(_) => panic!(
                "{caller}: not within {deadline:?}: {what}; last seen: {last} in {:?}",
                *values.borrow()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_found_comes_back() {
        let mut looks = 0;
        let found = eventually(Duration::from_secs(1), "the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 1s: a miracle; last seen: \"only rain\"")]
    async fn a_wait_in_vain_says_what_was_seen_last() {
        eventually(Duration::from_secs(1), "a miracle", || {
            Err::<(), _>("only rain")
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "a look that never came back")]
    async fn a_look_that_hangs_is_bounded_by_the_deadline() {
        eventually_async(Duration::from_secs(1), "an answer", async || {
            std::future::pending::<bool>().await
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_watched_value_wakes_the_wait_without_a_timer() {
        let (sender, mut receiver) = watch::channel(0);
        let started = Instant::now();
        let wait = eventually_in(Duration::from_secs(60), "two", &mut receiver, |n| *n == 2);
        let send = async {
            sender.send_replace(1);
            tokio::task::yield_now().await;
            sender.send_replace(2);
        };
        tokio::join!(wait, send);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the sender is gone before: two; last seen: false in 0")]
    async fn a_sender_that_left_ends_the_wait_at_once() {
        let (_, mut receiver) = watch::channel(0);
        eventually_in(Duration::from_secs(60), "two", &mut receiver, |n| *n == 2).await;
    }
}
