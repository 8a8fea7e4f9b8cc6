//! Every number and duration of a public builder may have any value: it is rejected with a reason,
//! or the runtime works with it. Nothing panics.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]
#![expect(
    deprecated,
    reason = "servers of the protocol's older eras ask for roots"
)]

mod fleet;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleet::*;
use mcpvisor::{Callbacks, Client, GovernorSettings, Runtime, ServerConfig, ServerSettings};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use rmcp::model::{ListRootsRequest, Root};
use serde_json::json;

const DURATIONS: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
const COUNTS: [usize; 3] = [0, 1, usize::MAX];
const SHARES: [f64; 6] = [
    0.0,
    -1.0,
    f64::MAX,
    f64::NAN,
    f64::INFINITY,
    f64::MIN_POSITIVE,
];

/// A fleet of one with these settings, unless they are rejected.
#[derive(Default)]
struct Extreme {
    settings: Option<ServerSettings>,
    governor: Option<GovernorSettings>,
    callbacks: Option<Callbacks>,
    sleep_after: Option<Duration>,
}

impl Extreme {
    /// Starts it, calls it, lets it send a request, and shuts it down. Every outcome must arrive in
    /// time.
    async fn outlive(self) {
        let script = Script::new().tool("echo", Behaviour::answer());
        let scripted_server = ScriptedServer::new(script);
        let mut config: ServerConfig = server("a", scripted(&scripted_server));
        if let Some(settings) = self.settings {
            config = config.settings(settings);
        }
        if let Some(idle) = self.sleep_after {
            config = config.sleep_after(idle);
        }
        let mut builder = Runtime::builder().server(config);
        if let Some(governor) = self.governor {
            builder = builder.governor(governor);
        }
        if let Some(callbacks) = self.callbacks {
            builder = builder.callbacks(callbacks);
        }
        let Ok(runtime) = builder.start().await else {
            return;
        };
        let handle = runtime.server("a").unwrap();
        let call = handle.call_tool("echo", json!({})).deadline(secs(2));
        if call.await.is_ok() {
            let control = scripted_server.control();
            control.request(ListRootsRequest::default());
        }
        let _ = handle.ping().deadline(secs(2)).await;
        runtime.shutdown(secs(2)).await;
    }
}

/// All settings, each with one value at an extreme.
fn settings() -> Vec<ServerSettings> {
    let mut all = Vec::new();
    macro_rules! extremes {
        ($values:expr; $($field:ident . $part:ident),*) => {$(
            for value in $values {
                let mut settings = ServerSettings::default();
                settings.$field.$part = value;
                all.push(settings);
            }
        )*};
    }
    extremes!(DURATIONS; backoff.initial, backoff.max, backoff.immediate_every,
        backoff.max_retry_after, budget.within, budget.proven_after, budget.first_probe,
        budget.max_probe, budget.wake_every, health.keepalive, health.keepalive_timeout,
        timeouts.connect, timeouts.call, timeouts.idle, timeouts.reconnect_wait, timeouts.listing,
        close.drain, close.stdin, close.terminate, listing.refresh_every, listing.refresh_retry,
        listing.max_refresh_retry);
    extremes!(DURATIONS.map(Some); rest.sleep_after);
    extremes!(COUNTS; admission.in_flight, admission.waiting, listing.max_pages,
        listing.max_items, messages.max_bytes, messages.max_depth, messages.max_values,
        messages.stderr_bytes);
    extremes!([0, 1, u32::MAX]; budget.attempts, health.threshold);
    extremes!(SHARES; backoff.multiplier, backoff.jitter);
    all
}

fn governors() -> Vec<GovernorSettings> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut GovernorSettings)| {
        let mut governor = GovernorSettings::default();
        change(&mut governor);
        all.push(governor);
    };
    for count in COUNTS {
        with(&|it| it.max_connects = count);
        with(&|it| it.max_stdio = count);
        with(&|it| it.burst_floor = count);
    }
    for duration in DURATIONS {
        with(&|it| it.hold = duration);
        with(&|it| it.burst_window = duration);
    }
    for share in SHARES {
        with(&|it| it.burst_share = share);
    }
    all
}

fn callbacks() -> Vec<Callbacks> {
    let answering = || Callbacks::new().roots(|_| async { Ok(Vec::<Root>::new()) });
    let at_once = COUNTS.map(|count| answering().at_once(count));
    let deadlines = DURATIONS.map(|deadline| answering().deadline(deadline));
    at_once.into_iter().chain(deadlines).collect()
}

async fn outlive_requests() {
    let script = Script::new().tool("echo", Behaviour::answer());
    let scripted_server = ScriptedServer::new(script);
    let (runtime, handle) = ready(server("a", scripted(&scripted_server))).await;
    for duration in DURATIONS {
        let call = || handle.call_tool("echo", json!({}));
        let _ = call().deadline(duration).await;
        let _ = call().idle_timeout(duration).deadline(secs(2)).await;
    }
    for quota in COUNTS {
        let client: Client = runtime.client("greedy").quota(quota).build();
        let handle = client.server("a").unwrap();
        let call = handle.call_tool("echo", json!({}));
        let _ = call.deadline(millis(200)).await;
    }
    let _ = runtime.ready(Duration::ZERO).await;
    runtime.ready(Duration::MAX).await.unwrap();
    runtime.shutdown(Duration::MAX).await;
}

#[test]
fn a_builder_takes_any_value() {
    in_own_process("a_builder_takes_any_value", secs(240), async || {
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&panics);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            counted.fetch_add(1, Ordering::Relaxed);
            report(panic);
        }));
        let settings = settings().into_iter().map(|settings| Extreme {
            settings: Some(settings),
            ..Extreme::default()
        });
        let governors = governors().into_iter().map(|governor| Extreme {
            governor: Some(governor),
            ..Extreme::default()
        });
        let callbacks = callbacks().into_iter().map(|callbacks| Extreme {
            callbacks: Some(callbacks),
            ..Extreme::default()
        });
        let sleeps = DURATIONS.map(|idle| Extreme {
            sleep_after: Some(idle),
            ..Extreme::default()
        });
        let all = settings.chain(governors).chain(callbacks).chain(sleeps);
        let all: Vec<_> = all.map(|it| tokio::spawn(it.outlive())).collect();
        for one in all {
            one.await.unwrap();
        }
        outlive_requests().await;
        assert_eq!(panics.load(Ordering::Relaxed), 0);
    });
}
