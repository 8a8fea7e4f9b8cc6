use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::state::pins::{HeldReason, check_tool};

const HERE: &str = "here";

/// Long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("mcpvisor-pin-store-{}-{test}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// The store of another process.
    fn store(&self) -> PinStore {
        PinStore::new(
            ServerName::new("git").unwrap(),
            Some(StateDir::new(&self.0)),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tool(name: &str, description: &str) -> Tool {
    Tool::new(
        name.to_owned(),
        description.to_owned(),
        serde_json::Map::new(),
    )
}

fn held(store: &PinStore, tool: &Tool) -> Option<HeldTool> {
    check_tool(&store.approval(), HERE, tool)
}

fn reason(store: &PinStore, tool: &Tool) -> Option<HeldReason> {
    held(store, tool).map(|held| held.reason)
}

#[test]
fn the_first_process_decides_the_first_listing() {
    let folder = Folder::new("first");
    let (one, other) = (folder.store(), folder.store());
    other.load();
    one.approve_first_listing(&[tool("read", "reads")], HERE);
    other.approve_first_listing(&[tool("read", "deletes")], HERE);
    for store in [&one, &other, &folder.store()] {
        store.load();
        let changed = Some(HeldReason::Changed);
        assert_eq!(reason(store, &tool("read", "reads")), None);
        assert_eq!(reason(store, &tool("read", "deletes")), changed);
    }
}

#[test]
fn an_approval_keeps_those_of_another_process() {
    let folder = Folder::new("merge");
    let (one, other) = (folder.store(), folder.store());
    one.approve_first_listing(&[tool("read", "reads")], HERE);
    other.load();
    let (write, list) = (tool("write", "writes"), tool("list", "lists"));
    for (store, tool) in [(&one, &write), (&other, &list)] {
        store.approve(&[held(store, tool).unwrap()], HERE).unwrap();
    }
    assert_eq!(
        reason(&one, &list),
        Some(HeldReason::New),
        "not refreshed yet"
    );
    let mut changes = 0;
    for _ in 0..2 {
        one.refresh(|| changes += 1);
    }
    assert_eq!(changes, 1);
    for store in [&one, &other] {
        for tool in [&write, &list, &tool("read", "reads")] {
            assert_eq!(reason(store, tool), None, "{}", tool.name);
        }
    }
}

#[test]
fn approvals_survive_a_damaged_or_missing_file() {
    let folder = Folder::new("hurt");
    let store = folder.store();
    let (read, write) = (tool("read", "reads"), tool("write", "writes"));
    store.approve_first_listing(std::slice::from_ref(&read), HERE);
    let path = folder.0.join(store.file());
    std::fs::write(&path, "half").unwrap();
    store.refresh(|| {});
    assert_eq!(reason(&store, &read), None);
    std::fs::remove_file(&path).unwrap();
    store.approve_first_listing(std::slice::from_ref(&write), HERE);
    assert_eq!(reason(&store, &write), Some(HeldReason::New));
    store
        .approve(&[held(&store, &write).unwrap()], HERE)
        .unwrap();
    let next = folder.store();
    next.load();
    assert_eq!(reason(&next, &read), None);
    assert_eq!(reason(&next, &write), None);
}

#[cfg(unix)]
#[test]
fn nothing_is_written_while_another_process_writes() {
    let folder = Folder::new("locked");
    let store = folder.store();
    let read = tool("read", "reads");
    store.approve_first_listing(std::slice::from_ref(&read), HERE);
    let before = std::fs::read(folder.0.join(store.file())).unwrap();
    let another = StateDir::new(&folder.0).lock(FOLDER).unwrap();
    let (began, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let write = tool("write", "writes");
        let (store, held) = (&store, held(&store, &write).unwrap());
        let approving = scope.spawn(move || {
            began.send(()).unwrap();
            store.approve(&[held], HERE)
        });
        begun.recv_timeout(DEADLINE).unwrap();
        std::thread::sleep(BUSY);
        let path = folder.0.join(store.file());
        assert_eq!(std::fs::read(path).unwrap(), before);
        drop(another);
        approving.join().unwrap().unwrap();
        assert_eq!(reason(store, &write), None);
    });
}

/// How long another process holds the lock; shorter than the lock timeout.
#[cfg(unix)]
const BUSY: Duration = Duration::from_millis(200);

/// A lost lock file must not look like a new server: removing it would approve all tools as they
/// are.
#[test]
fn a_lock_that_is_lost_approves_nothing_until_a_person_does() {
    let folder = Folder::new("lost");
    let (read, write) = (tool("read", "reads"), tool("write", "writes"));
    let first = folder.store();
    first.approve_first_listing(std::slice::from_ref(&read), HERE);
    assert_eq!(first.problem(), None);
    let lock = folder.0.join(first.file());
    std::fs::remove_file(&lock).unwrap();

    let next = folder.store();
    next.load();
    next.approve_first_listing(&[read.clone(), write.clone()], HERE);
    for tool in [&read, &write] {
        assert_eq!(reason(&next, tool), Some(HeldReason::Missing));
    }
    let problem = next.problem().unwrap();
    assert!(problem.contains(lock.to_str().unwrap()), "{problem}");
    assert!(problem.contains("approve the tools again"), "{problem}");
    assert!(!lock.exists(), "nothing was approved automatically");
    next.approve(&[held(&next, &read).unwrap()], HERE).unwrap();
    assert_eq!(next.problem(), None);
    assert_eq!(reason(&next, &read), None);
    assert_eq!(reason(&next, &write), Some(HeldReason::New));

    // Without the whole folder the server counts as new.
    std::fs::remove_dir_all(&folder.0).unwrap();
    let fresh = folder.store();
    fresh.approve_first_listing(std::slice::from_ref(&write), HERE);
    assert_eq!(reason(&fresh, &write), None);
}

/// Lock files of earlier versions have no marker; reading one adds it.
#[test]
fn a_lock_without_a_marker_is_read_and_marked() {
    let folder = Folder::new("unmarked");
    let read = tool("read", "reads");
    let first = folder.store();
    first.approve_first_listing(std::slice::from_ref(&read), HERE);
    std::fs::remove_dir_all(folder.0.join(MARKERS)).unwrap();
    let next = folder.store();
    next.load();
    assert_eq!(reason(&next, &read), None);
    std::fs::remove_file(folder.0.join(next.file())).unwrap();
    let lost = folder.store();
    lost.load();
    assert_eq!(reason(&lost, &read), Some(HeldReason::Missing));
}
