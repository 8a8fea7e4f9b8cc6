//! Quotas of a client, and the end of its requests.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mcpvisor::{BusyLimit, CallError, Known, NotSentReason, ServerSettings};
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Behaviour, Script};
use serde_json::json;
use tokio::time::Instant;

use crate::fleet::{DEADLINE, millis, secs, settings, structured};
use crate::{not_sent, received, spawn, started};

fn busy(error: &CallError) -> (BusyLimit, Option<Duration>) {
    match error {
        CallError::Busy {
            limit, retry_in, ..
        } => (*limit, *retry_in),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_waiting_quota_are_busy_at_once() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let (scripted, runtime, _handle) = started(script, ServerSettings::default()).await;
    let client = runtime.client("planner").quota(1).waiting(2).build();
    let handle = client.server("a").unwrap();
    let calls: Vec<_> = (0..3)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    received(&scripted.record(), "slow", 1).await;
    tokio::time::sleep(millis(1)).await;
    let begun = Instant::now();
    let error = handle.call_tool("slow", json!({})).await.unwrap_err();
    assert_eq!(busy(&error), (BusyLimit::ClientQueue(2), None));
    assert_eq!(error.known(), Known::NotSent);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    scripted.control().release("slow", 3);
    for call in calls {
        structured(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_rate_wait_or_learn_how_long_they_would() {
    let (scripted, runtime, handle) = started(Script::new(), ServerSettings::default()).await;
    let client = runtime.client("crawler").rate(2, secs(20)).build();
    let of_client = client.server("a").unwrap();
    let begun = Instant::now();
    for _ in 0..3 {
        structured(of_client.call_tool("echo", json!({})).await);
    }
    assert_eq!(begun.elapsed().as_secs(), 10);
    let hurried = of_client.call_tool("echo", json!({})).deadline(secs(5));
    let (limit, retry_in) = busy(&hurried.await.unwrap_err());
    assert_eq!(limit, BusyLimit::ClientRate);
    let wait = retry_in.unwrap();
    assert!(wait > secs(9) && wait <= secs(10), "{wait:?}");
    // Other clients are not affected.
    structured(handle.call_tool("echo", json!({})).await);
    assert_eq!(scripted.record().calls("echo").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_how_long_to_wait() {
    let script = Script::new().tool("slow", Behaviour::answer().after(secs(1)));
    let narrow = settings(|settings| {
        settings.admission.in_flight = 1;
        settings.admission.waiting = 10;
    });
    let (_scripted, _runtime, handle) = started(script, narrow).await;
    let calls: Vec<_> = (0..11)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    eventually(DEADLINE, "a queue", || handle.status().waiting == 10).await;
    eventually(DEADLINE, "a pace", || handle.status().waiting <= 6).await;
    let more: Vec<_> = (0..5)
        .map(|_| spawn(handle.call_tool("slow", json!({}))))
        .collect();
    eventually(DEADLINE, "a full queue", || handle.status().waiting >= 9).await;
    let refused = spawn(handle.call_tool("slow", json!({})));
    let also = handle.call_tool("slow", json!({})).await;
    let mut errors = [refused.await.unwrap(), also]
        .into_iter()
        .filter_map(Result::err);
    let (limit, retry_in) = busy(&errors.next().expect("one is refused"));
    assert_eq!(limit, BusyLimit::ServerQueue(11));
    let wait = retry_in.unwrap();
    assert!(wait >= millis(500) && wait <= secs(2), "{wait:?}");
    for call in calls.into_iter().chain(more) {
        let _ = call.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_cancels_its_own_requests_at_the_server_and_no_others() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let one = settings(|settings| settings.admission.in_flight = 2);
    let (scripted, runtime, handle) = started(script, one).await;
    let client = runtime.client("planner").quota(2).build();
    let of_client = client.server("a").unwrap();
    let in_flight = spawn(of_client.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    let other = spawn(handle.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 2).await;
    let queued = spawn(of_client.call_tool("slow", json!({})));
    eventually(DEADLINE, "one is queued", || handle.status().waiting == 1).await;
    let mut for_quota = Box::pin(of_client.call_tool("slow", json!({})).into_future());
    assert!(futures_util::poll!(&mut for_quota).is_pending());

    client.cancel_all();
    let error = in_flight.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Cancelled { .. }), "{error}");
    for answer in [queued.await.unwrap(), for_quota.await] {
        assert_eq!(not_sent(answer), NotSentReason::ClientClosed);
    }
    let record = scripted.record();
    let cancelled = |record: &mcpvisor_testkit::scripted::Record| {
        record.received("notifications/cancelled").len() == 1
    };
    record.until(DEADLINE, "the cancellation", cancelled).await;
    // The places are free, and later requests work.
    let later = spawn(of_client.call_tool("slow", json!({})));
    received(&record, "slow", 3).await;
    scripted.control().release("slow", 3);
    structured(other.await.unwrap());
    structured(later.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_sends_nothing_any_more() {
    let script = Script::new().tool("slow", Behaviour::answer().held());
    let (scripted, runtime, handle) = started(script, ServerSettings::default()).await;
    let client = runtime.client("planner").build();
    let of_client = client.server("a").unwrap();
    let call = spawn(of_client.call_tool("slow", json!({})));
    received(&scripted.record(), "slow", 1).await;
    client.close();
    assert!(client.is_closed());
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Cancelled { .. }), "{error}");
    let refused = of_client.call_tool("echo", json!({})).await;
    assert_eq!(not_sent(refused), NotSentReason::ClientClosed);
    assert_eq!(scripted.record().calls("echo").len(), 0);
    structured(handle.call_tool("echo", json!({})).await);
}

/// 500 clients with 20 calls each, and one that has a thousand calls open from the beginning, on a
/// server that runs four calls at once.
#[tokio::test(start_paused = true)]
async fn a_slow_server_is_shared_evenly_and_only_the_greedy_client_is_busy() {
    const CLIENTS: usize = 500;
    const CALLS: usize = 20;
    let script = Script::new().tool("slow", Behaviour::answer().after(millis(10)));
    let narrow = settings(|settings| settings.admission.in_flight = 4);
    let (_scripted, runtime, handle) = started(script, narrow).await;
    let shares = Arc::new(Shares::new(CLIENTS, CLIENTS * CALLS / 2));
    let greedy = runtime.client("greedy").build().server("a").unwrap();
    let greedy: Vec<_> = (0..1_000)
        .map(|_| {
            let (greedy, shares) = (greedy.clone(), Arc::clone(&shares));
            tokio::spawn(async move {
                let outcome = greedy.call_tool("slow", json!({})).await;
                shares
                    .greedy
                    .fetch_add(outcome.is_ok().into(), Ordering::Relaxed);
                outcome
            })
        })
        .collect();
    eventually(DEADLINE, "a full queue", || handle.status().waiting >= 900).await;
    let before = shares.greedy.load(Ordering::Relaxed);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = runtime.client(format!("client {number}")).build();
            let (handle, shares) = (client.server("a").unwrap(), Arc::clone(&shares));
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    let call = handle.call_tool("slow", json!({}));
                    structured(call.deadline(secs(3_600)).await);
                    shares.answered(number);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    // Half-way, while everyone has work.
    let half = shares.half.get().unwrap();
    let mean = half.clients.iter().sum::<usize>() as f64 / CLIENTS as f64;
    for share in &half.clients {
        let deviation = (*share as f64 - mean).abs() / mean;
        assert!(deviation <= 0.2, "{share} of {mean}");
    }
    // It was alone for a moment, until the first calls of the others were queued.
    let greedy_share = (half.greedy - before) as f64;
    assert!(greedy_share <= mean * 1.2 + 8.0, "{greedy_share} of {mean}");
    for call in greedy {
        if let Err(error) = call.await.unwrap() {
            assert!(matches!(error, CallError::Busy { .. }), "{error}");
        }
    }
}

/// The answered calls of each client, and a snapshot of them.
struct Shares {
    clients: Vec<AtomicUsize>,
    total: AtomicUsize,
    greedy: AtomicUsize,
    snapshot_at: usize,
    half: OnceLock<Snapshot>,
}

struct Snapshot {
    clients: Vec<usize>,
    greedy: usize,
}

impl Shares {
    fn new(clients: usize, snapshot_at: usize) -> Self {
        Self {
            clients: (0..clients).map(|_| AtomicUsize::new(0)).collect(),
            total: AtomicUsize::new(0),
            greedy: AtomicUsize::new(0),
            snapshot_at,
            half: OnceLock::new(),
        }
    }

    fn answered(&self, client: usize) {
        self.clients[client].fetch_add(1, Ordering::Relaxed);
        if self.total.fetch_add(1, Ordering::Relaxed) + 1 == self.snapshot_at {
            let count = |it: &AtomicUsize| it.load(Ordering::Relaxed);
            let clients = self.clients.iter().map(count).collect();
            let greedy = count(&self.greedy);
            let _ = self.half.set(Snapshot { clients, greedy });
        }
    }
}
