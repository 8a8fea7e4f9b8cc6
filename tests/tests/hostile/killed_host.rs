//! The children of a connected host end when the host is killed. (Figure 6.)

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mcpvisor::{Config, Runtime};

use crate::shell_server::*;

/// Marks the second process as the host.
const HOST: &str = "MCPVISOR_TEST_HOST";

/// Starts the named test as a host in its own process, kills it when it has three children, and
/// waits for the children to end. Returns how long they lived, unless longer than `limit`.
fn outlive_a_killed_host(test: &str, limit: Duration) -> (Option<Duration>, Vec<u32>) {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(HOST, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split_once("child ")?.1.parse().ok())
        .take(3)
        .collect();
    assert_eq!(pids.len(), 3, "the host did not start");
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    host.kill().unwrap();
    let killed = Instant::now();
    host.wait().unwrap();
    while pids.iter().any(|pid| is_alive(*pid)) {
        if killed.elapsed() > limit {
            return (None, pids);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (Some(killed.elapsed()), pids)
}

#[test]
fn the_children_of_a_host_that_is_killed_end_too() {
    let limit = Duration::from_secs(2);
    let (lived, _) = outlive_a_killed_host("killed_host::a_host_that_is_killed", limit);
    println!(
        "figure 6: the children were gone after {:?}",
        lived.expect("in time")
    );
}

#[test]
fn control_figure_6_children_started_the_ordinary_way_outlive_their_host() {
    let limit = Duration::from_millis(500);
    let (lived, pids) =
        outlive_a_killed_host("killed_host::an_ordinary_host_that_is_killed", limit);
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    assert_eq!(lived, None, "they would have ended by themselves");
}

/// Not a test: the host of the control.
#[test]
fn an_ordinary_host_that_is_killed() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let mut children = [(); 3].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
    for child in &children {
        println!("\nchild {}", child.id());
    }
    for child in &mut children {
        child.wait().unwrap();
    }
}

fn is_alive(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap() && !is_zombie(pid)
}

/// Not a test: the host, with children that ignore the end of stdin.
#[test]
fn a_host_that_is_killed() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let stubborn = script("", "trap '' TERM; while :; do sleep 0.1; done");
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let names = ["a", "b", "c"];
        let servers = names.map(|name| server(name, sh(&stubborn)));
        let config = servers.into_iter().fold(Config::new(), Config::server);
        let runtime = Runtime::builder().config(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        for name in names {
            println!("\nchild {}", group_of(&runtime.server(name).unwrap()));
        }
        // Idle tokio threads end after a while. The children must not end with them.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}
