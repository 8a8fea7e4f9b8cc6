//! Servers behind a Unix socket, over both HTTP transports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mcpvisor::{HttpEndpoint, Known, StateName, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, ReplyKind};
use serde_json::json;
use tokio::net::{TcpStream, UnixListener};
use tokio::task::{JoinHandle, JoinSet};

use crate::arena::*;
use crate::fleet::*;

/// A socket in a folder of its own, which passes connections on to a server.
struct Socket {
    folder: PathBuf,
    task: Option<JoinHandle<()>>,
}

impl Socket {
    fn new(name: &str) -> Self {
        let name = format!("mcpvisor-unix-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self { folder, task: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("mcp.sock")
    }

    fn open(&mut self, to: SocketAddr) {
        let listener = UnixListener::bind(self.path()).unwrap();
        self.task = Some(tokio::spawn(async move {
            let mut passed = JoinSet::new();
            while let Ok((mut unix, _)) = listener.accept().await {
                passed.spawn(async move {
                    let mut tcp = TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut unix, &mut tcp).await
                });
            }
        }));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An address that exists nowhere: it is neither resolved nor dialled.
fn endpoint(options: HttpOptions, socket: &Path) -> HttpEndpoint {
    let endpoint = match options.reply {
        ReplyKind::Session => Transport::sse("http://mcp.invalid/sse"),
        ReplyKind::Json | ReplyKind::Sse => Transport::http("http://mcp.invalid/mcp"),
    };
    endpoint.unix_socket(socket)
}

#[tokio::test]
async fn a_server_behind_a_socket_is_called_and_found_again_after_a_restart() {
    for options in [
        HttpOptions::default(),
        HttpOptions::sse(),
        HttpOptions::http_sse(),
    ] {
        let http = HttpServer::start(options).await;
        let mut socket = Socket::new("called");
        socket.open(http.address());
        let web = server("web", endpoint(options, &socket.path())).settings(quick());
        let (runtime, handle) = ready(web).await;
        for round in 0..5 {
            let arguments = json!({ "key": format!("{round}") });
            let call = handle.call_tool("run", arguments).deadline(DEADLINE);
            call.await.unwrap();
            http.restart().await;
        }
        let received = http.received();
        assert!(
            received
                .iter()
                .all(|it| it.header("host") == Some("mcp.invalid"))
        );
        assert_eq!(http.ran_twice(), Vec::<String>::new());
        runtime.shutdown(DEADLINE).await;
    }
}

#[tokio::test]
async fn the_error_names_the_socket_and_what_to_do_and_a_server_that_starts_is_found() {
    for options in [HttpOptions::default(), HttpOptions::http_sse()] {
        let http = HttpServer::start(options).await;
        let mut socket = Socket::new("missing");
        let path = socket.path();
        let web = server("web", endpoint(options, &path)).settings(quick());
        let runtime = fleet([web]).await;
        let handle = runtime.server("web").unwrap();
        reaches(&handle, StateName::Reconnecting).await;
        let fault = handle.status().last_error.unwrap();
        let path = path.display().to_string();
        says(
            &fault,
            &[
                "http://mcp.invalid",
                &path,
                "the socket does not exist",
                "start",
            ],
        );
        socket.open(http.address());
        let call = handle.call_tool("echo", json!({})).deadline(DEADLINE);
        call.await.unwrap();
        runtime.shutdown(DEADLINE).await;
    }
}

#[tokio::test]
async fn a_socket_that_no_process_listens_on_is_named() {
    let socket = Socket::new("dead");
    // Dropping the listener leaves the file.
    drop(UnixListener::bind(socket.path()).unwrap());
    let web = server("web", endpoint(HttpOptions::default(), &socket.path())).settings(quick());
    let runtime = fleet([web]).await;
    let handle = runtime.server("web").unwrap();
    let call = handle.call_tool("echo", json!({})).deadline(SHORT);
    let error = call.await.unwrap_err();
    assert_eq!(error.known(), Known::NotSent, "{error:?}");
    let fault = handle.status().last_error.unwrap();
    says(&fault, &["mcp.sock", "no process listens on the socket"]);
    runtime.shutdown(DEADLINE).await;
}

#[tokio::test]
async fn a_large_answer_and_a_flood_arrive_through_a_socket() {
    let http = HttpServer::start(HttpOptions::sse()).await;
    let mut socket = Socket::new("large");
    socket.open(http.address());
    let web = server("web", endpoint(HttpOptions::sse(), &socket.path())).settings(quick());
    let (runtime, handle) = ready(web).await;
    for fault in ["http-body=8000000", "http-flood=5000", "http-slow-drip=1"] {
        let call = handle.call_tool("misbehave", json!({ "fault": fault }));
        call.deadline(2 * DEADLINE)
            .idle_timeout(2 * DEADLINE)
            .await
            .unwrap();
    }
    assert_eq!(handle.status().generation.get(), 1);
    runtime.shutdown(DEADLINE).await;
}
