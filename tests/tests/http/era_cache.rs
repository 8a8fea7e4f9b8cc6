//! Storing eras for the next run on a slow disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mcpvisor::{Runtime, Transport};
use serde_json::json;

use crate::harness::{LONG, until, web};
use mcpvisor_testkit::stub_server::{StubReply, StubRequest, StubServer, VERSION, default_reply};

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("mcpvisor-memory-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// The number of stored eras.
    fn eras(&self) -> usize {
        let files = std::fs::read_dir(self.0.join("eras"));
        let files = files.into_iter().flatten().flatten();
        let kept = files.filter(|file| file.path().extension().is_some_and(|it| it == "json"));
        kept.count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server without lists, whose era has to be detected.
fn legacy(request: &StubRequest) -> StubReply {
    match request.operation() {
        "server/discover" => {
            let error = json!({"code": -32601, "message": "no such method"});
            StubReply::json(&json!({"jsonrpc": "2.0", "id": request.id(), "error": error}))
        }
        "initialize" => StubReply::result(
            request,
            &json!({
                "protocolVersion": VERSION,
                "capabilities": {},
                "serverInfo": {"name": "small", "version": "1"},
            }),
        ),
        _ => default_reply(request),
    }
}

/// Runs a server until its era is known. After the handshake, every file operation blocks until the
/// sender releases it.
async fn stuck(folder: &Folder) -> (StubServer, Runtime, Sender<()>) {
    let (release, released) = channel();
    let hangs = Arc::new(AtomicBool::new(false));
    let server = StubServer::start({
        let hangs = Arc::clone(&hangs);
        move |request| {
            if request.operation() == "initialize" {
                hangs.store(true, Ordering::SeqCst);
            }
            legacy(request)
        }
    })
    .await;
    let released = Mutex::new(released);
    let hook = move |_: &std::path::Path| {
        if !hangs.load(Ordering::SeqCst) {
            return;
        }
        let released = released.lock().unwrap();
        if hangs.load(Ordering::SeqCst) {
            let _ = released.recv_timeout(LONG);
            hangs.store(false, Ordering::SeqCst);
        }
    };
    let mut config = web(Transport::http(server.url()));
    config.protocol = None;
    let runtime = Runtime::builder().server(config).state_dir(&folder.0);
    let runtime = runtime.file_hook(Arc::new(hook)).start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    assert_eq!(folder.eras(), 0, "it is not written yet");
    (server, runtime, release)
}

#[tokio::test]
async fn a_shutdown_waits_for_the_era_that_is_being_written() {
    let folder = Folder::new("waits");
    let (_server, runtime, release) = stuck(&folder).await;
    let handle = runtime.server("web").unwrap();
    let watching = tokio::spawn(async move {
        let gone = || handle.status().state == mcpvisor::StateName::Disabled;
        until("the server is closed", gone).await;
        // A shutdown that does not wait would be over by then.
        tokio::time::sleep(Duration::from_millis(300)).await;
        release.send(()).unwrap();
    });
    runtime.shutdown(LONG).await;
    assert_eq!(folder.eras(), 1);
    watching.await.unwrap();
}

#[tokio::test]
async fn a_shutdown_waits_for_no_disk_that_hangs() {
    let folder = Folder::new("hangs");
    let (_server, runtime, release) = stuck(&folder).await;
    let begun = Instant::now();
    runtime.shutdown(Duration::from_millis(500)).await;
    let took = begun.elapsed();
    assert!(took < LONG / 4, "{took:?}");
    assert_eq!(folder.eras(), 0);
    release.send(()).unwrap();
    // Late writes happen while the folder exists, and are removed with it.
    until("it is written after all", || folder.eras() == 1).await;
}
