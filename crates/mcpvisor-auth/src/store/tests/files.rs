//! Files that are exposed, damaged, foreign or on a hung disk.

use std::path::Path;

use mcpvisor_files::file_ops::{FileHook, FileOps, is_unresponsive};

use super::*;

/// Writes a file beside the records, older than any of them.
fn write_old(dir: &TestDir, name: &str, contents: &[u8]) {
    let path = dir.path("credentials").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, contents).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3_600);
    file.set_modified(long_ago).unwrap();
}

/// Returns what to write instead of a file's text.
type Spoil = fn(String) -> String;

/// Saves a record and replaces its file with what `change` returns.
async fn spoil(dir: &TestDir, change: impl FnOnce(String) -> String) -> PathBuf {
    dir.files().save(record()).await.unwrap();
    let file = dir.records("json").remove(0);
    let text = fs::read_to_string(&file).unwrap();
    let changed = change(text.clone());
    assert_ne!(text, changed);
    fs::write(&file, changed).unwrap();
    file
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_what_is_written() {
    let dir = TestDir::new("modes");
    let store = dir.files();
    store.save(record()).await.unwrap();
    let _lock = store.lock(URL, "").await.unwrap();
    assert_eq!(mode(&dir.records("json")[0]), 0o600);
    assert_eq!(mode(&dir.records("lock")[0]), 0o600);
    assert_eq!(mode(&dir.path("credentials")), 0o700);
}

#[cfg(unix)]
#[tokio::test]
async fn exposed_files_and_folders_are_repaired_by_the_next_save() {
    let dir = TestDir::new("exposed");
    let other = record_of(key(URL, "https://as.example.com", "work"));
    for record in [record(), other.clone()] {
        dir.files().save(record).await.unwrap();
    }
    drop(dir.files().lock(URL, "").await.unwrap());
    let folder = dir.path("credentials");
    let files = [dir.records("json"), dir.records("lock")].concat();
    assert_eq!(files.len(), 3);
    let elsewhere = dir.path("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join("link")).unwrap();
    for (folder_mode, file_mode) in [(0o755, 0o600), (0o700, 0o644), (0o777, 0o666)] {
        files.iter().for_each(|it| set_mode(it, file_mode));
        set_mode(&folder, folder_mode);
        set_mode(&elsewhere, 0o644);
        dir.files().find(URL, "").await.unwrap();
        assert_eq!(mode(&files[0]), file_mode, "reading changes nothing");
        dir.files().save(record()).await.unwrap();
        assert_eq!(mode(&folder), 0o700);
        for file in &files {
            assert_eq!(mode(file), 0o600, "{}", file.display());
        }
        assert_eq!(mode(&elsewhere), 0o644, "links are not followed");
    }
    assert_eq!(dir.files().find(URL, "work").await.unwrap(), [other]);
}

#[tokio::test]
async fn unreadable_files_are_listed_and_only_removed_as_such_by_their_account() {
    let dir = TestDir::new("unreadable");
    let store = dir.files();
    let file = spoil(&dir, |_| "{".to_owned()).await;
    let other = record_of(key(URL, "https://as.example.com", "work"));
    let readable = record_of(key(URL, "https://other.example.com", ""));
    for record in [&other, &readable] {
        store.save(record.clone()).await.unwrap();
    }
    let listed = store.list().await.unwrap();
    let unreadable: Vec<_> = listed.into_iter().filter_map(Result::err).collect();
    let [unreadable] = &unreadable[..] else {
        panic!("{unreadable:?}")
    };
    assert_eq!(unreadable.path, file);
    assert!(unreadable.problem.contains("damaged"), "{unreadable}");
    assert!(unreadable.belongs_to(URL, "") && !unreadable.belongs_to(URL, "work"));
    assert!(unreadable.has_key(&record().key) && !unreadable.has_key(&readable.key));

    let removed = store.remove_unreadable(URL, "work").await.unwrap();
    assert_eq!(removed, []);
    assert!(file.exists());
    let removed = store.remove_unreadable(URL, "").await.unwrap();
    assert_eq!(&removed[..], std::slice::from_ref(unreadable));
    assert!(!file.exists());
    let left = store.list().await.unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&Ok(other)) && left.contains(&Ok(readable)));
}

#[tokio::test]
async fn an_unreadable_file_is_an_error_that_says_what_to_do_and_is_never_replaced() {
    let spoilt: [(&str, Spoil, &str); 5] = [
        ("cut", |text| text[..text.len() / 2].to_owned(), "damaged"),
        ("empty", |_| String::new(), "damaged"),
        (
            "newer",
            |_| r#"{"version": 2, "sealed": true}"#.to_owned(),
            "update",
        ),
        (
            "misplaced",
            |text| text.replace(URL, "https://evil.example.com"),
            "another credential",
        ),
        (
            "large",
            |text| text + &" ".repeat(2 * 1024 * 1024),
            "larger than",
        ),
    ];
    for (name, change, expected) in spoilt {
        let dir = TestDir::new(name);
        let file = spoil(&dir, change).await;
        let before = fs::read(&file).unwrap();
        let store = dir.files();
        let other = record_of(key("https://other.example.com", "https://as", ""));
        store.save(other.clone()).await.unwrap();

        let found = store.find(URL, "").await.unwrap_err();
        let saved = store.save(record()).await.unwrap_err();
        let removed = store.remove(&record().key).await.unwrap_err();
        for error in [found, saved, removed] {
            let text = error.to_string();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
            assert!(text.contains(file.to_str().unwrap()), "{text}");
            assert!(text.contains(expected), "{name}: {text}");
        }
        assert_eq!(fs::read(&file).unwrap(), before, "{name}");
        let listed = store.list().await.unwrap();
        assert_eq!(listed.iter().filter(|it| it.is_err()).count(), 1);
        assert!(listed.contains(&Ok(other.clone())));
        let found = store.find(&other.key.server_url, "").await.unwrap();
        assert_eq!(found, [other], "{name}: other records are not affected");
    }
}

#[tokio::test]
async fn a_newer_readable_record_counts_more_than_an_unreadable_one() {
    let dir = TestDir::new("newer-readable");
    let file = spoil(&dir, |_| "{".to_owned()).await;
    let name = file.file_name().unwrap().to_str().unwrap();
    let newer = record_of(key(URL, "https://new.example.com", ""));
    write_old(&dir, name, b"{");
    dir.files().save(newer.clone()).await.unwrap();
    assert_eq!(dir.files().find(URL, "").await.unwrap(), [newer]);
    assert!(file.exists());

    tokio::time::sleep(Duration::from_millis(20)).await;
    fs::write(&file, b"{").unwrap();
    assert!(dir.files().find(URL, "").await.is_err());
}

#[tokio::test]
async fn files_with_other_names_are_ignored() {
    let dir = TestDir::new("foreign");
    dir.files().save(record()).await.unwrap();
    let file = dir.records("json").remove(0);
    let name = file.file_name().unwrap().to_str().unwrap();
    let foreign = [
        "notes.json".to_owned(),
        name.replace(".json", ".json.bak"),
        name.replace(".json", "x.json"),
        name.to_uppercase(),
        name.replace(".json", ".enc"),
    ];
    for name in foreign {
        write_old(&dir, &name, b"{");
    }
    assert_eq!(dir.files().list().await.unwrap(), [Ok(record())]);
    assert_eq!(dir.files().find(URL, "").await.unwrap(), [record()]);
}

#[tokio::test]
async fn an_encrypted_record_opens_with_its_key_under_its_name_alone() {
    let dir = TestDir::new("sealed");
    let store = dir.sealed();
    let other = record_of(key(URL, "https://as.example.com", "work"));
    store.save(record()).await.unwrap();
    let file = dir.records("enc").remove(0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(CANARY) && !text.contains("example"));

    let wrong = KeyringStore::new(dir.0.clone(), test_key(8));
    for error in [
        wrong.find(URL, "").await.unwrap_err(),
        wrong.save(record()).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("another key"), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    store.save(other).await.unwrap();
    let mut files = dir.records("enc");
    files.retain(|it| *it != file);
    fs::copy(&file, &files[0]).unwrap();
    let swapped = store.find(URL, "work").await.unwrap_err();
    assert!(swapped.to_string().contains("damaged"), "{swapped}");
    assert_eq!(store.find(URL, "").await.unwrap(), [record()]);

    fs::write(&file, text.replace("\"version\":1", "\"version\":0")).unwrap();
    assert!(store.find(URL, "").await.is_err(), "bound to its version");
    fs::write(&file, text.replace("\"version\":1", "\"version\":2")).unwrap();
    let newer = store.find(URL, "").await.unwrap_err();
    assert!(newer.to_string().contains("update"), "{newer}");
}

/// Two encryptions of the same record never use the same nonce.
#[tokio::test]
async fn every_save_encrypts_anew() {
    let dir = TestDir::new("nonces");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        dir.sealed().save(record()).await.unwrap();
        seen.insert(fs::read(&dir.records("enc")[0]).unwrap());
    }
    assert_eq!(seen.len(), 20);
}

/// With paused time, a timeout passes as soon as nothing else runs.
#[tokio::test(start_paused = true)]
async fn a_hung_folder_delays_no_caller_beyond_the_timeout() {
    let (release, hung) = std::sync::mpsc::channel::<()>();
    let hung = std::sync::Mutex::new(hung);
    let hook: FileHook = Arc::new(move |_| {
        let _ = hung.lock().unwrap().recv();
    });
    let dir = TestDir::new("hung");
    let state = StateDir::with(dir.path(""), FileOps::new(Some(hook)));
    let store = FileStore::new(state.clone());
    let problems = [
        store.find(URL, "").await.unwrap_err(),
        store.list().await.unwrap_err(),
        store.save(record()).await.unwrap_err(),
        store.lock(URL, "").await.unwrap_err(),
        store.mark(URL, "").await.unwrap_err(),
    ];
    for problem in problems {
        assert!(is_unresponsive(&problem), "{problem}");
    }
    let chosen = StoreOpener::default().open(StoreChoice::Auto, &state).await;
    assert!(matches!(chosen.err(), Some(StoreError::Folder { .. })));
    drop(release);
}
