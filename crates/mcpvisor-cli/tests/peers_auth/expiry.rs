//! Two processes with one login, whose tokens expire every few seconds at `oidc-provider`.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor_testkit::eventually::eventually;
use serde_json::Value;
use tokio::task::{JoinSet, block_in_place};

use crate::peers::Peers;
use crate::process::LONG;
use crate::shop::{CALL, Issuer, Shop, approve, echo, runtime};

/// The lifetime of access tokens, in seconds.
const LIFETIME: u32 = 5;

/// Expiries to live through.
const EXPIRIES: usize = 4;

const PROCESSES: usize = 2;

/// Callers per process.
const CALLERS: usize = 32;

/// The shortest time between two refreshes: a token is refreshed a second early, and times are whole
/// seconds.
const INTERVAL: Duration = Duration::from_secs(3);

/// Set in a child: state folder and URL, separated by a space.
const CHILD: &str = "MCPVISOR_PEERS_AUTH_CHILD";

/// Starts a process that calls the server until its stdin is closed.
fn start_child(shop: &Shop) -> Child {
    let state = shop.folder.path("state");
    Command::new(std::env::current_exe().unwrap())
        .args(["expiry::a_child_that_calls_all_the_time", "--exact"])
        .args(["--ignored", "--nocapture"])
        .env(CHILD, format!("{} {}", state.display(), shop.url))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends a child. Every call of it must have been answered.
fn finish_child(mut child: Child) {
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[tokio::test]
#[ignore = "runs until its stdin is closed; the test below runs it"]
async fn a_child_that_calls_all_the_time() {
    let Ok(value) = std::env::var(CHILD) else {
        return;
    };
    let (state, url) = value.split_once(' ').unwrap();
    let (runtime, handle) = runtime(state, url).await;
    let ended = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            ended.store(true, Ordering::Relaxed);
        }
    });
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (handle, ended) = (handle.clone(), Arc::clone(&ended));
        callers.spawn(async move {
            let mut calls = 0;
            while !ended.load(Ordering::Relaxed) {
                echo(&handle, &format!("{caller} {calls}")).await.unwrap();
                calls += 1;
                // The server is slow: it must not be all that is measured.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            calls
        });
    }
    let calls: usize = callers.join_all().await.into_iter().sum();
    println!("{calls} calls");
    assert!(calls >= CALLERS);
    assert_eq!(handle.status().generation.get(), 1, "no reconnect");
    runtime.shutdown(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_in_two_processes_refresh_each_token_once_and_are_never_logged_out() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let issuer = Issuer::start(&peers, LIFETIME);
    let shop = Shop::with_issuer(&peers, &issuer);
    block_in_place(|| shop.log_in_with_forms("login", &approve(), &[]));
    let children: Vec<_> = (0..PROCESSES).map(|_| start_child(&shop)).collect();
    eventually(LONG, "refreshes", || {
        let refused = issuer.events("refused");
        assert_eq!(refused, [] as [Value; 0]);
        issuer.refreshes().len() >= EXPIRIES
    })
    .await;
    block_in_place(|| children.into_iter().for_each(finish_child));
    issuer.assert_used_correctly();
    let refreshes = issuer.refreshes();
    let at = |event: &Value| Duration::from_millis(event["at"].as_u64().unwrap());
    let took = at(refreshes.last().unwrap()) - at(&refreshes[0]);
    println!("{} refreshes within {took:?}", refreshes.len());
    // Two refreshes per expiry would take half as long; the first may have been delayed.
    let intervals = u32::try_from(refreshes.len() - 1).unwrap();
    assert!(took >= INTERVAL * intervals * 2 / 3, "{refreshes:?}");
    assert_eq!(issuer.granted("authorization_code").len(), 1);
    block_in_place(|| shop.run(&CALL).exits(0).stdout.clone());
}
