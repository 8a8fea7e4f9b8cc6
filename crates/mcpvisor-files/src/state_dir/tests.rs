use std::time::SystemTime;

use super::*;
use crate::private_file::STALE_TEMP_AGE;

thread_local! {
    /// The flushed folders, in order.
    pub(crate) static SYNCED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A power cut loses a rename or a new folder unless the parent folder is flushed.
#[cfg(unix)]
#[test]
fn a_replaced_file_is_flushed_with_its_folder() {
    let root = folder("flushed");
    let state = StateDir::new(&root);
    let synced = || SYNCED.with_borrow_mut(std::mem::take);
    state.write("pins/a.json", b"one").unwrap();
    let above = root.parent().unwrap().to_owned();
    assert_eq!(synced(), [root.clone(), above, root.join("pins")]);
    state.write("pins/a.json", b"two").unwrap();
    assert_eq!(synced(), [root.join("pins")]);
    fs::remove_dir_all(root).unwrap();
}

fn folder(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mcpvisor-state-{}-{test}", std::process::id()))
}

#[test]
fn a_written_file_is_read_back_and_a_missing_file_is_none() {
    let root = folder("round-trip");
    let state = StateDir::new(&root);
    assert_eq!(state.read("eras/a.json").unwrap(), None);
    state.write("eras/a.json", b"one").unwrap();
    state.write("eras/a.json", b"two").unwrap();
    assert_eq!(state.read("eras/a.json").unwrap().unwrap(), b"two");
    assert_eq!(fs::read_dir(root.join("eras")).unwrap().count(), 1);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_folder_is_writable_if_a_file_can_be_written_and_nothing_is_left() {
    let root = folder("writable");
    let state = StateDir::new(&root);
    state.check_writable("credentials", 4_096).unwrap();
    assert!(!root.exists(), "no folder is created");
    fs::create_dir_all(root.join("credentials")).unwrap();
    state.check_writable("credentials", 4_096).unwrap();
    let left = fs::read_dir(root.join("credentials")).unwrap().count();
    assert_eq!(left, 0);
    fs::write(root.join("file"), b"no folder").unwrap();
    let error = state.check_writable("file", 4_096).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_temporary_file_of_a_dead_process_is_removed_by_the_next_run() {
    let root = folder("temp-files");
    let (old, new) = (root.join(".7.0.tmp"), root.join(".7.1.tmp"));
    fs::create_dir_all(&root).unwrap();
    for temp in [&old, &new] {
        fs::write(temp, b"half").unwrap();
    }
    let long_ago = SystemTime::now() - 2 * STALE_TEMP_AGE;
    let temp = File::options().write(true).open(&old).unwrap();
    temp.set_modified(long_ago).unwrap();
    StateDir::new(&root).write("a.json", b"{}").unwrap();
    assert!(!old.exists());
    assert!(new.exists(), "another process may be writing it");
    fs::remove_dir_all(root).unwrap();
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_state() {
    use std::os::unix::fs::PermissionsExt;
    let root = folder("private");
    let state = StateDir::new(&root);
    state.write("pins.json", b"{}").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state.path("pins.json")), 0o600);
    assert_eq!(mode(&root), 0o700);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_removed_file_is_gone_and_its_folder_is_flushed() {
    let root = folder("removed");
    let state = StateDir::new(&root);
    assert!(!state.remove("pins/a.json").unwrap());
    state.write("pins/a.json", b"one").unwrap();
    #[cfg(unix)]
    SYNCED.with_borrow_mut(std::mem::take);
    assert!(state.remove("pins/a.json").unwrap());
    #[cfg(unix)]
    assert_eq!(SYNCED.with_borrow_mut(std::mem::take), [root.join("pins")]);
    assert_eq!(state.read("pins/a.json").unwrap(), None);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_folder_is_listed_by_prefix_and_a_missing_folder_is_empty() {
    let root = folder("listed");
    let state = StateDir::new(&root);
    assert_eq!(state.list("pins", "").unwrap(), [""; 0]);
    for file in ["pins/ab.json", "pins/aa.json", "pins/b.json"] {
        state.write(file, b"{}").unwrap();
    }
    assert_eq!(state.list("pins", "a").unwrap(), ["aa.json", "ab.json"]);
    fs::remove_dir_all(root).unwrap();
}

/// Replacing a file with contents of the same size changes its inode.
#[test]
fn the_mark_of_a_file_differs_after_every_replacement() {
    let root = folder("marks");
    let state = StateDir::new(&root);
    let mark = || state.mark("a.json").unwrap();
    assert_eq!(mark(), None);
    let mut last = None;
    for _ in 0..20 {
        state.write("a.json", b"same").unwrap();
        let now = mark();
        assert_eq!(now, mark());
        assert_ne!(now, last);
        last = now;
    }
    fs::remove_dir_all(root).unwrap();
}

#[cfg(unix)]
#[test]
fn a_mark_says_whether_others_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let root = folder("exposed");
    let state = StateDir::new(&root);
    state.write("a.json", b"{}").unwrap();
    let exposed = || state.mark("a.json").unwrap().unwrap().is_exposed();
    assert!(!exposed());
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(state.path("a.json"), fs::Permissions::from_mode(mode)).unwrap();
        assert!(exposed(), "{mode:o}");
    }
    state.write("a.json", b"{}").unwrap();
    assert!(!exposed(), "a write restores the mode");
    fs::remove_dir_all(root).unwrap();
}
