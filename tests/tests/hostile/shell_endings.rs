//! Shell servers that resist shutdown, and the processes they leave behind.

use std::time::{Duration, Instant};

use mcpvisor::{Runtime, StateName};

use crate::shell_server::*;

#[tokio::test]
async fn a_stubborn_server_and_its_grandchildren_are_gone_after_a_shutdown() {
    let stubborn = "trap '' TERM; sleep 100 & sleep 100 & while :; do sleep 0.1; done";
    let fleet = Fleet::of(script("", stubborn)).await;
    fleet.end().await;
}

#[tokio::test]
async fn a_refused_handshake_leaves_no_process() {
    let hello = script("", "sleep 100").replace("2025-11-25", "1999-01-01");
    let config = server("hostile", sh(&format!("sleep 100 & {hello}")));
    let runtime = Runtime::builder().server(config).start().await.unwrap();
    let hostile = runtime.server("hostile").unwrap();
    let mut status = hostile.watch();
    let failed = status.wait_for(|status| status.state == StateName::PermanentlyFailed);
    drop(
        tokio::time::timeout(DEADLINE, failed)
            .await
            .unwrap()
            .unwrap(),
    );
    let group = group_of(&hostile);
    until_gone("the group", || members(group).is_empty()).await;
    runtime.shutdown(BUSY).await;
}

#[test]
fn a_dropped_tokio_runtime_leaves_no_process() {
    let stubborn = script("", "trap '' TERM; sleep 100 & while :; do sleep 0.1; done");
    for workers in [0, 2] {
        let tokio = match workers {
            0 => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build(),
            _ => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(workers)
                .enable_all()
                .build(),
        };
        let tokio = tokio.unwrap();
        let (runtime, group) = tokio.block_on(async {
            let runtime = Runtime::builder()
                .server(server("hostile", sh(&stubborn)))
                .start()
                .await
                .unwrap();
            runtime.ready(DEADLINE).await.unwrap();
            let group = group_of(&runtime.server("hostile").unwrap());
            (runtime, group)
        });
        assert!(!members(group).is_empty());
        drop(tokio);
        let begun = Instant::now();
        while !members(group).is_empty() || is_zombie(group) {
            assert!(begun.elapsed() < BUSY, "{:?}", members(group));
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(runtime);
    }
}
