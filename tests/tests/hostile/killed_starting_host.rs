//! Children of a host end when the host is killed, at any moment of its start. (Figure 6.)

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcpvisor::Transport;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::processes::{MARKER, Marker};

use crate::arena::quick;
use crate::bare::left;
use crate::fleet::*;

/// Marks a second process as the host, and holds the marker of its children.
const HOST: &str = "MCPVISOR_TEST_MARKED_HOST";

/// Children per host.
const CHILDREN: usize = 5;

/// How long the children may outlive their host.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a new child may take until its marker is visible.
const UNBORN: Duration = Duration::from_millis(20);

/// Not a test: the host, whose children ignore the end of stdin and SIGTERM.
#[tokio::test]
async fn a_marked_host() {
    let Ok(marker) = std::env::var(HOST) else {
        return;
    };
    let stubborn = Transport::stdio(env!("CARGO_BIN_EXE_bad-server"))
        .args(["--fault", "ignore-eof", "--fault", "ignore-sigterm"])
        .env(MARKER, marker);
    let servers = (0..CHILDREN)
        .map(|number| server(&format!("stubborn-{number}"), stubborn.clone()).settings(quick()));
    let runtime = fleet(servers).await;
    runtime.ready(DEADLINE).await.unwrap();
    std::future::pending::<()>().await;
}

fn start_host(marker: &Marker) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["killed_starting_host::a_marked_host", "--exact"])
        .env(HOST, marker.value())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a host as soon as it has this many children. Returns how long the children outlived it.
async fn kill_host_with(children: usize) -> Duration {
    let left = left();
    let marker = &left.0;
    let mut host = start_host(marker);
    eventually(DEADLINE, "children of the host", || {
        marker.processes().len() >= children
    })
    .await;
    let killed = Instant::now();
    host.kill().unwrap();
    host.wait().unwrap();
    marker.assert_none_left(LIMIT).await;
    let lived = killed.elapsed();
    tokio::time::sleep(UNBORN).await;
    marker.assert_none_left(LIMIT.saturating_sub(lived)).await;
    lived
}

#[tokio::test]
async fn figure_6_the_children_of_a_host_that_is_killed_end_at_whatever_moment() {
    let rounds = size(CHILDREN, 200);
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        // With fewer than all children, the others are still starting.
        longest = longest.max(kill_host_with(1 + round % CHILDREN).await);
    }
    println!("figure 6: {rounds} hosts killed, their children gone after at most {longest:?}");
}
