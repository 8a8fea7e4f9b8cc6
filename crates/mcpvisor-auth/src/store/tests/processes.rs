//! Stores that several processes use, and that a killed process leaves behind.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::store::sealed::random_bytes;

/// The state folder of a child.
const CHILD: &str = "MCPVISOR_STORE_CHILD";

/// Processes that count together, and how far each counts.
const COUNTERS: u64 = 3;
const COUNTS: u64 = 25;

/// How often the writer is killed.
const KILLS: u64 = 15;

fn spawn(test: &str, dir: &TestDir) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored"])
        .arg(format!("store::tests::processes::{test}"))
        .env(CHILD, dir.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The folder, in a child.
fn child_state() -> Option<StateDir> {
    std::env::var_os(CHILD).map(StateDir::new)
}

/// A record whose parts must all be of the same revision.
fn record_of_revision(revision: u64) -> CredentialRecord {
    let mut record = record();
    record.revision = revision;
    let length = usize::try_from(revision % 50).unwrap() * 200;
    let token = format!("{revision} {}", "x".repeat(length));
    record.tokens.access = Secret::new(token.clone());
    record.tokens.refresh = Some(Secret::new(token));
    record
}

async fn revision(store: &impl CredentialStore) -> u64 {
    let found = store.find(URL, "").await.unwrap();
    let Some(record) = found.first() else {
        return 0;
    };
    assert_eq!(*record, record_of_revision(record.revision));
    record.revision
}

#[tokio::test]
#[ignore = "never ends; the test below runs and kills it"]
async fn a_child_that_saves_all_the_time() {
    let Some(state) = child_state() else {
        return;
    };
    let files = FileStore::new(state.clone());
    let sealed = KeyringStore::new(state, test_key(7));
    let begin = revision(&files).await.max(revision(&sealed).await);
    for revision in begin + 1.. {
        files.save(record_of_revision(revision)).await.unwrap();
        sealed.save(record_of_revision(revision)).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_is_readable_whenever_its_writer_is_killed() {
    let dir = TestDir::new("killed");
    let (files, sealed) = (dir.files(), dir.sealed());
    let mut interrupted = 0;
    let mut last = 0;
    for round in 0..KILLS {
        let mut child = spawn("a_child_that_saves_all_the_time", &dir);
        let until = Instant::now() + DEADLINE;
        while revision(&sealed).await <= last {
            assert!(Instant::now() < until, "the child does not save");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let [random] = random_bytes::<1>().unwrap();
        tokio::time::sleep(Duration::from_micros(u64::from(random) * 100)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let saved = (revision(&files).await, revision(&sealed).await);
        assert!(saved.0 == saved.1 || saved.0 == saved.1 + 1, "{saved:?}");
        assert!(saved.1 > last, "round {round}");
        interrupted += u64::from(saved.0 != saved.1) + dir.records("tmp").len() as u64;
        last = saved.1;
    }
    assert!(interrupted > 0, "no save was ever interrupted");
}

#[tokio::test]
#[ignore = "the test below runs it several times at once"]
async fn a_child_that_counts_under_the_lock() {
    let Some(state) = child_state() else {
        return;
    };
    let store = FileStore::new(state);
    for _ in 0..COUNTS {
        let _lock = store.lock(URL, "").await.unwrap();
        let next = revision(&store).await + 1;
        store.save(record_of_revision(next)).await.unwrap();
    }
}

#[tokio::test]
async fn processes_that_save_under_the_lock_lose_no_save() {
    let dir = TestDir::new("contend");
    let spawn = |_| spawn("a_child_that_counts_under_the_lock", &dir);
    let children: Vec<_> = (0..COUNTERS).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(revision(&dir.files()).await, COUNTERS * COUNTS);
}

#[tokio::test]
#[ignore = "never ends; the test below runs and kills it"]
async fn a_child_that_keeps_the_lock() {
    let Some(state) = child_state() else {
        return;
    };
    let store = FileStore::new(state);
    let _lock = store.lock(URL, "").await.unwrap();
    store.save(record_of_revision(1)).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free() {
    let dir = TestDir::new("dead-holder");
    let store = dir.files();
    let mut child = spawn("a_child_that_keeps_the_lock", &dir);
    let until = Instant::now() + DEADLINE;
    while revision(&store).await == 0 {
        assert!(Instant::now() < until, "the child does not save");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let short = tokio::time::timeout(Duration::from_millis(100), store.lock(URL, ""));
    assert!(short.await.is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    let free = tokio::time::timeout(DEADLINE, store.lock(URL, ""));
    free.await.unwrap().unwrap();
}
