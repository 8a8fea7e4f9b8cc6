#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);
const LOCK: &str = "credentials/a.lock";

/// The folder of the child.
const CHILD: &str = "MCPVISOR_LOCK_CHILD";

fn state(test: &str) -> StateDir {
    let name = format!("mcpvisor-lock-{}-{test}", std::process::id());
    let root = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&root);
    StateDir::new(root)
}

fn remove(state: &StateDir) {
    std::fs::remove_dir_all(state.path("")).unwrap();
}

/// Holds the lock until it is killed. The tests below run it as a child process.
#[tokio::test]
#[ignore = "never ends; the tests below run and kill it"]
async fn a_child_that_holds_the_lock() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return;
    };
    let state = StateDir::new(folder);
    let _lock = state.lock_file(LOCK, DEADLINE).await.unwrap();
    eprintln!("locked");
    std::future::pending::<()>().await;
}

/// Starts the child and waits until it holds the lock.
fn spawn_holder(state: &StateDir) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lock_file::tests::a_child_that_holds_the_lock"])
        .args(["--ignored", "--nocapture"])
        .env(CHILD, state.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line == "locked"));
    child
}

#[tokio::test]
async fn a_lock_has_one_holder_and_is_released_on_drop() {
    let state = state("one-holder");
    let lock = state.lock_file(LOCK, DEADLINE).await.unwrap();
    assert!(state.try_lock_file(LOCK).unwrap().is_none());
    assert!(state.try_lock_file("credentials/b.lock").unwrap().is_some());
    let error = state.lock_file(LOCK, Duration::from_millis(50)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("a.lock"), "{error}");
    let waiting = state.lock_file(LOCK, DEADLINE);
    let (_next, ()) = tokio::join!(waiting, async { drop(lock) });
    assert!(state.path(LOCK).exists(), "a lock file is never deleted");
    remove(&state);
}

#[tokio::test]
async fn a_waiting_caller_neither_blocks_the_runtime_nor_keeps_a_thread() {
    let state = state("waiting");
    let lock = state.lock_file(LOCK, DEADLINE).await.unwrap();
    let waiter = tokio::spawn({
        let state = state.clone();
        async move { state.lock_file(LOCK, DEADLINE).await.map(drop) }
    });
    // This test has one worker: it runs while the other task waits.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let other = state.ops().run(Path::new("/other"), DEADLINE, || Ok(()));
        other.await.unwrap();
    }
    assert!(!waiter.is_finished());
    drop(lock);
    waiter.await.unwrap().unwrap();
    remove(&state);
}

#[tokio::test]
async fn another_process_keeps_the_lock_until_it_is_killed() {
    let state = state("killed");
    let mut holder = spawn_holder(&state);
    let refused = state.lock_file(LOCK, Duration::from_millis(100)).await;
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let waiting = state.lock_file(LOCK, DEADLINE);
    let (lock, ()) = tokio::join!(waiting, async { holder.kill().unwrap() });
    lock.unwrap();
    holder.wait().unwrap();
    remove(&state);
}

#[tokio::test]
async fn a_deleted_lock_file_is_made_again_and_its_old_lock_is_not_mixed_up() {
    let state = state("deleted");
    let old = state.lock_file(LOCK, DEADLINE).await.unwrap();
    std::fs::remove_file(state.path(LOCK)).unwrap();
    let new = state.lock_file(LOCK, DEADLINE).await.unwrap();
    drop(old);
    assert!(state.try_lock_file(LOCK).unwrap().is_none());
    drop(new);
    remove(&state);
}

#[tokio::test]
async fn a_pipe_in_place_of_the_lock_file_is_refused() {
    let state = state("pipe");
    std::fs::create_dir_all(state.path("credentials")).unwrap();
    let path = state.path(LOCK);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(state.try_lock_file(LOCK).is_err());
    remove(&state);
}
