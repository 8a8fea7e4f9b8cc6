//! What holds for every store.

use super::*;

fn all(dir: &TestDir) -> [SharedStore; 3] {
    let memory = Arc::new(MemoryStore::new());
    [Arc::new(dir.files()), Arc::new(dir.sealed()), memory]
}

#[tokio::test]
async fn a_saved_record_is_found_and_listed_until_it_is_removed() {
    let dir = TestDir::new("round-trip");
    for store in all(&dir) {
        assert_eq!(store.find(URL, "").await.unwrap(), []);
        assert_eq!(store.list().await.unwrap(), []);
        let mut record = record();
        store.save(record.clone()).await.unwrap();
        record.revision = 2;
        record.tokens.access = Secret::new("another");
        store.save(record.clone()).await.unwrap();
        assert_eq!(store.find(URL, "").await.unwrap(), [record.clone()]);
        assert_eq!(store.list().await.unwrap(), [Ok(record.clone())]);
        store.remove(&record.key).await.unwrap();
        store.remove(&record.key).await.unwrap();
        assert_eq!(store.find(URL, "").await.unwrap(), [], "{}", store.name());
    }
}

#[tokio::test]
async fn records_of_other_servers_and_accounts_are_separate() {
    let dir = TestDir::new("separate");
    for store in all(&dir) {
        let mut keys = vec![
            key(URL, "https://as.example.com", ""),
            key(URL, "https://as.example.com", "work"),
            key(URL, "https://as.example.com/", ""),
            key("https://mcp.example.com/mc", "https://as.example.com", "p"),
        ];
        keys.push(CredentialKey {
            resource: None,
            ..keys[0].clone()
        });
        for (number, key) in keys.iter().enumerate() {
            let mut record = record_of(key.clone());
            record.logged_in_at += number as u64;
            store.save(record).await.unwrap();
        }
        let found = |url, account| store.find(url, account);
        let of = |records: Vec<CredentialRecord>| -> Vec<CredentialKey> {
            records.into_iter().map(|it| it.key).collect()
        };
        let latest_first = [keys[4].clone(), keys[2].clone(), keys[0].clone()];
        assert_eq!(of(found(URL, "").await.unwrap()), latest_first);
        assert_eq!(of(found(URL, "work").await.unwrap()), keys[1..2]);
        assert_eq!(store.list().await.unwrap().len(), keys.len());
        store.remove(&keys[0]).await.unwrap();
        assert_eq!(of(found(URL, "").await.unwrap()), latest_first[..2]);
    }
}

#[tokio::test]
async fn a_mark_differs_after_every_save_and_removal_of_its_account_alone() {
    let dir = TestDir::new("marks");
    for store in all(&dir) {
        let mark = || async { store.mark(URL, "").await.unwrap() };
        let mut seen = vec![mark().await];
        for _ in 0..3 {
            store.save(record()).await.unwrap();
            let now = mark().await;
            assert_eq!(now, mark().await);
            assert!(!seen.contains(&now), "{}", store.name());
            seen.push(now);
        }
        let other = record_of(key(URL, "https://as.example.com", "work"));
        store.save(other).await.unwrap();
        assert_eq!(Some(mark().await), seen.pop());
        store.remove(&record().key).await.unwrap();
        assert_eq!(mark().await, seen[0]);
    }
}

#[tokio::test]
async fn a_lock_is_held_for_one_account_until_it_is_dropped() {
    let dir = TestDir::new("locks");
    for store in all(&dir) {
        let lock = store.lock(URL, "").await.unwrap();
        store.lock(URL, "work").await.unwrap();
        let waiting = store.lock(URL, "");
        let short = tokio::time::timeout(Duration::from_millis(50), waiting);
        assert!(short.await.is_err(), "{}", store.name());
        drop(lock);
        let next = tokio::time::timeout(DEADLINE, store.lock(URL, ""));
        next.await.unwrap().unwrap();
    }
}

/// The plain and the encrypted store of a folder exclude each other.
#[tokio::test]
async fn both_stores_of_a_folder_share_their_locks() {
    let dir = TestDir::new("shared-locks");
    let _lock = dir.files().lock(URL, "").await.unwrap();
    let waiting = dir.sealed().lock(URL, "");
    let short = tokio::time::timeout(Duration::from_millis(50), waiting);
    assert!(short.await.is_err());
}

#[tokio::test]
async fn nothing_prints_a_secret() {
    let dir = TestDir::new("printed");
    let mut texts = vec![format!("{:?}", record()), format!("{:?}", test_key(b'c'))];
    texts.push(format!("{:?} {:?}", dir.files(), dir.sealed()));
    let memory = MemoryStore::new();
    memory.save(record()).await.unwrap();
    texts.push(format!("{memory:?} {:?}", memory.lock(URL, "").await));
    texts.push(format!("{:?}", memory.find(URL, "").await));
    let stores: [SharedStore; 2] = [Arc::new(dir.files()), Arc::new(dir.sealed())];
    for store in stores {
        store.save(record()).await.unwrap();
        texts.push(format!("{:?}", store.find(URL, "").await.unwrap()));
        texts.push(format!("{:?}", store.mark(URL, "").await.unwrap()));
    }
    // A parser quotes a text where it expects a number.
    let [file] = &dir.records("json")[..] else {
        panic!("one record file")
    };
    let text = fs::read_to_string(file).unwrap();
    let broken = text.replace("1800003600", "\"canary-number\"");
    assert_ne!(text, broken);
    fs::write(file, broken).unwrap();
    let error = dir.files().find(URL, "").await.unwrap_err();
    texts.push(format!("{error} {error:?}"));
    texts.push(format!("{:?}", dir.files().list().await.unwrap()));
    let leaks: Vec<_> = texts.iter().filter(|it| it.contains(CANARY)).collect();
    assert_eq!(leaks, [""; 0]);
}
