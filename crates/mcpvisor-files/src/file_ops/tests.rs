use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use tokio::task::JoinSet;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// An operation that hangs until the sender is dropped.
fn hangs() -> (Sender<()>, impl FnOnce() -> io::Result<u8> + Send + 'static) {
    let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
    let operation = move || {
        let _ = released.recv();
        Ok(1)
    };
    (release, operation)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.expect(what);
}

#[tokio::test]
async fn a_hung_path_fails_at_once_until_it_responds() {
    let ops = FileOps::default();
    let path = Path::new("/dead/mount");
    let (release, operation) = hangs();
    let (sender, late) = mpsc::channel();
    let timed_out = ops.run_or_late(path, SHORT, operation, move |it| sender.send(it).unwrap());
    let error = timed_out.await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(!was_already_hung(&error));
    assert!(error.to_string().contains("/dead/mount"), "{error}");
    assert!(error.to_string().contains("network mount"), "{error}");

    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..1_000 {
        let begun = Arc::clone(&begun);
        let refused = ops.run(path, DEADLINE, move || {
            Ok(begun.fetch_add(1, Ordering::Relaxed))
        });
        assert!(was_already_hung(&refused.await.unwrap_err()));
    }
    assert_eq!(begun.load(Ordering::Relaxed), 0, "no thread was started");
    assert!(was_already_hung(
        &ops.run_blocking(path, DEADLINE, || Ok(())).unwrap_err()
    ));
    let other = ops.run(Path::new("/alive"), DEADLINE, || Ok(2)).await;
    assert_eq!(other.unwrap(), 2);

    drop(release);
    assert_eq!(late.recv_timeout(DEADLINE).unwrap().unwrap(), 1);
    until("the path is free", || ops.paths().is_empty()).await;
    assert_eq!(ops.run(path, DEADLINE, || Ok(3)).await.unwrap(), 3);
}

/// Slow is not hung: operations on one path are queued.
#[tokio::test]
async fn operations_on_one_path_run_one_after_the_other() {
    let ops = FileOps::default();
    let at_once = Arc::new(AtomicUsize::new(0));
    let one = || {
        let (ops, at_once) = (ops.clone(), Arc::clone(&at_once));
        let operation = move || {
            assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
            std::thread::sleep(Duration::from_millis(1));
            at_once.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        };
        async move { ops.run(Path::new("/slow"), DEADLINE, operation).await }
    };
    let all: JoinSet<_> = (0..50).map(|_| one()).collect();
    assert!(all.join_all().await.iter().all(Result::is_ok));
    until("the registry is empty", || ops.paths().is_empty()).await;
}

#[tokio::test]
async fn hung_operations_are_bounded_over_all_paths() {
    let ops = FileOps::default();
    let mut releases = Vec::new();
    for number in 0..2 * MAX_THREADS {
        let (release, operation) = hangs();
        releases.push(release);
        let path = PathBuf::from(format!("/dead/{number}"));
        ops.run(&path, SHORT, operation).await.unwrap_err();
    }
    assert_eq!(ops.0.threads.available_permits(), 0);
    let refused = ops.run(Path::new("/alive"), DEADLINE, || Ok(())).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("16 files do not respond"), "{refused}");
    let sibling = ops.sibling();
    let free = sibling.run(Path::new("/alive"), DEADLINE, || Ok(()));
    free.await.unwrap();
    drop(releases);
    until("they end", || {
        ops.0.threads.available_permits() == MAX_THREADS
    })
    .await;
    ops.run(Path::new("/alive"), DEADLINE, || Ok(()))
        .await
        .unwrap();
}

#[test]
fn an_operation_that_hangs_does_not_keep_a_runtime_from_ending() {
    let (ended, end) = mpsc::channel();
    let (release, operation) = hangs();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let hung = FileOps::default();
        let hung = runtime.block_on(hung.run(Path::new("/dead"), SHORT, operation));
        hung.unwrap_err();
        drop(runtime);
        ended.send(()).unwrap();
    });
    end.recv_timeout(DEADLINE).unwrap();
    drop(release);
}

#[tokio::test]
async fn an_operation_that_panics_is_an_error_and_frees_its_path() {
    let ops = FileOps::default();
    let path = Path::new("/panics");
    let panics = ops.run(path, DEADLINE, || -> io::Result<()> {
        panic!("on purpose")
    });
    assert!(panics.await.unwrap_err().to_string().contains("panicked"));
    until("the path is free", || ops.paths().is_empty()).await;
    ops.run(path, DEADLINE, || Ok(())).await.unwrap();
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_at_once_where_a_plain_open_would_wait() {
    let path = std::env::temp_dir().join(format!("mcpvisor-fifo-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let refused = read_regular(&path, 10).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("not a regular file"));
    // The control: a plain open waits for a writer.
    let (opened, open) = mpsc::channel();
    let plain = path.clone();
    std::thread::spawn(move || opened.send(File::open(plain).is_ok()));
    let waits = open.recv_timeout(Duration::from_millis(300));
    assert_eq!(waits, Err(mpsc::RecvTimeoutError::Timeout));
    drop(File::options().read(true).write(true).open(&path).unwrap());
    assert!(open.recv_timeout(DEADLINE).unwrap());
    std::fs::remove_file(path).unwrap();
}
