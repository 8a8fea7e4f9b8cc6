//! A named pipe replaces a file in the state folder. Its writer never writes, so a plain read
//! blocks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mcpvisor::{Runtime, ServerConfig};

use crate::shell_server::*;

/// A unique folder, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("mcpvisor-slow-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// The stored files of one kind.
    fn files(&self, kind: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.join(kind)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file whose reads block until this is dropped. The writer is open from the start, so a reader
/// blocks even after the runtime has replaced the file.
struct Stuck {
    path: PathBuf,
    writer: Option<std::fs::File>,
}

impl Stuck {
    fn instead_of(path: &Path) -> Self {
        std::fs::remove_file(path).unwrap();
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        let both = std::fs::File::options().read(true).write(true).open(path);
        Self {
            path: path.to_owned(),
            writer: Some(both.unwrap()),
        }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // New readers find no pipe; blocked readers get end-of-file.
        let _ = std::fs::remove_file(&self.path);
        self.writer = None;
    }
}

fn decent() -> ServerConfig {
    let decent = script(r#"answer "$id" '{"content":[]}'"#, "");
    server("hostile", sh(&decent))
}

async fn start(folder: &Folder) -> Runtime {
    let builder = Runtime::builder().state_dir(&folder.0).server(decent());
    let started = tokio::time::timeout(DEADLINE, builder.start()).await;
    let Ok(started) = started else {
        panic!("the start waits for the folder");
    };
    started.unwrap()
}

/// A first run, which stores every kind of file.
async fn first_run(folder: &Folder) {
    let runtime = start(folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    runtime.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_kept_catalog_that_cannot_be_had_holds_up_no_start() {
    let folder = Folder::new("catalog");
    first_run(&folder).await;
    let stuck = Stuck::instead_of(&folder.files("catalogs")[0]);
    let runtime = start(&folder).await;
    runtime.ready(DEADLINE).await.unwrap();
    let add = ServerConfig::new("more", sh(&script("", ""))).unwrap();
    let added = tokio::time::timeout(DEADLINE, runtime.add(add)).await;
    added.expect("so does a server that is added").unwrap();
    drop(stuck);
    runtime.shutdown(BUSY).await;
}

#[tokio::test]
async fn an_era_that_cannot_be_had_is_asked_for_and_holds_up_no_close() {
    let folder = Folder::new("era");
    first_run(&folder).await;
    let stuck = Stuck::instead_of(&folder.files("eras")[0]);
    let runtime = start(&folder).await;
    let hostile = runtime.server("hostile").unwrap();
    until_gone("a child that was not started", || {
        hostile.stderr_tail().contains("pid ")
    })
    .await;
    let disabled = tokio::time::timeout(DEADLINE, runtime.disable("hostile")).await;
    disabled.expect("it hears of the close").unwrap();
    runtime.enable("hostile").await.unwrap();
    runtime.ready(DEADLINE).await.unwrap();
    drop(stuck);
    runtime.shutdown(BUSY).await;
}
